//! The options of images: the section `[images]` of the file.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use builder::Downloads;
use image::Settings;
use runtime::network;
use serde::Deserialize;

use super::Engine;

/// Bytes of a gibibyte.
const GIB: u64 = 1 << 30;
/// Maximum of `max_gib`: 8 TiB.
const MAX_GIB: u64 = 8 << 10;

/// The options of images. Defaults are those of the arguments; `Default` is for skipped arguments
/// only.
#[derive(Clone, Debug, Default, clap::Args, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImagesSection {
    /// Store the content of images in this directory [default: images in the data directory]
    #[arg(value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Accept images of at most this many GiB; at most 8192
    #[arg(value_name = "GIB", default_value = "64")]
    pub max_gib: u64,
    /// Keep the files of builds in this directory [default: scratch in the directory of images]
    #[arg(value_name = "DIR")]
    pub scratch: Option<PathBuf>,
    /// Download from mirrors of publishers, as URL=MIRROR: the publisher's base URL and the mirror's
    #[arg(value_name = "URL=MIRROR", value_delimiter = ',')]
    #[serde(default)]
    pub mirrors: Vec<String>,
    /// Trust the certificate authorities in this file (PEM) in downloads, too
    #[arg(value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Download images from these networks, too, as ADDRESS/BITS [default: public addresses only]
    #[arg(value_name = "NETWORK", value_delimiter = ',')]
    #[serde(default)]
    pub allow_networks: Vec<String>,
    /// Download images through this proxy, which must refuse private addresses itself
    #[arg(value_name = "URL")]
    pub proxy: Option<String>,
}

/// Name of the builder in leases. Only one process of a site with a directory of images builds.
const BUILDER_NAME: &str = "server";

/// Checked settings of images.
#[derive(Clone, Debug)]
pub struct Images {
    /// Settings of the service.
    pub service: Settings,
    /// Settings of the builder; none on a site without an object store.
    pub builder: Option<builder::Settings>,
    /// True if this process builds images.
    pub builds: bool,
}

impl ImagesSection {
    /// Checks the options. A site with etcd has no object store for images yet.
    pub(super) fn checked(self, data: &Path, engine: Engine) -> anyhow::Result<Images> {
        let downloads = self.downloads()?;
        let Self { directory, max_gib, scratch, .. } = self;
        let is_valid = (1..=MAX_GIB).contains(&max_gib);
        anyhow::ensure!(is_valid, "images.max_gib: {max_gib} is not 1 to {MAX_GIB}");
        let is_shared = engine == Engine::Etcd;
        anyhow::ensure!(
            !(is_shared && directory.is_some()),
            "images.directory: store is etcd, and its replicas do not share a directory"
        );
        let directory = directory.unwrap_or_else(|| data.join("images"));
        let scratch = scratch.unwrap_or_else(|| directory.join("scratch"));
        let builder =
            builder::Settings { downloads, ..builder::Settings::new(BUILDER_NAME, scratch) };
        let bytes = max_gib * GIB;
        let service = Settings {
            directory: (!is_shared).then_some(directory),
            max_size_bytes: bytes,
            max_upload_bytes: bytes,
            ..Settings::default()
        };
        Ok(Images { service, builder: (!is_shared).then_some(builder), builds: false })
    }

    fn downloads(&self) -> anyhow::Result<Downloads> {
        let mirror = |text: &String| {
            let pair = text.split_once('=').context("not URL=MIRROR");
            pair.and_then(|(url, mirror)| Ok((url.to_owned(), mirror.parse()?)))
                .with_context(|| format!("images.mirrors: {text:?}"))
        };
        let network = |text: &String| {
            network::parse(text).with_context(|| format!("images.allow_networks: {text:?}"))
        };
        let proxy = self.proxy.as_deref().map(str::parse);
        Ok(Downloads {
            mirrors: self.mirrors.iter().map(mirror).collect::<anyhow::Result<_>>()?,
            ca: self.ca.clone(),
            allow_networks: self
                .allow_networks
                .iter()
                .map(network)
                .collect::<anyhow::Result<_>>()?,
            refuse_networks: Vec::new(),
            proxy: proxy.transpose().context("images.proxy: not a URL")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(directory: Option<&str>, max_gib: u64) -> ImagesSection {
        let directory = directory.map(PathBuf::from);
        ImagesSection { directory, max_gib, ..ImagesSection::default() }
    }

    #[test]
    fn images_are_in_the_data_directory_unless_the_store_is_shared() {
        let data = Path::new("/data");
        let checked = |section: ImagesSection, engine| section.checked(data, engine);
        let directory = |images: anyhow::Result<Images>| images.unwrap().service.directory;
        let own = directory(checked(section(None, 64), Engine::Sled));
        assert_eq!(own.as_deref(), Some(Path::new("/data/images")));
        let set = directory(checked(section(Some("/srv"), 64), Engine::Sled));
        assert_eq!(set.as_deref(), Some(Path::new("/srv")));
        assert_eq!(directory(checked(section(None, 64), Engine::Etcd)), None);
        assert!(checked(section(Some("/srv"), 64), Engine::Etcd).is_err());
    }

    #[test]
    fn downloads_have_mirrors_networks_and_a_proxy() {
        let set = |mirror: &str, network: &str, proxy: &str| ImagesSection {
            mirrors: vec![mirror.to_owned()],
            allow_networks: vec![network.to_owned()],
            proxy: Some(proxy.to_owned()),
            ..section(None, 64)
        };
        let (mirror, proxy) = ("https://a.example/x=https://b.example/y", "http://p.example:3128");
        let downloads = set(mirror, "198.51.100.0/24", proxy).downloads().unwrap();
        assert_eq!(downloads.mirrors["https://a.example/x"].as_str(), "https://b.example/y");
        assert_eq!(downloads.allow_networks[0].to_string(), "198.51.100.0/24");
        for wrong in [
            set("https://a.example/x", "198.51.100.0/24", proxy),
            set(mirror, "198.51.100.0/99", proxy),
            set(mirror, "198.51.100.0/24", "p.example"),
        ] {
            let error = wrong.downloads().unwrap_err().to_string();
            assert!(error.starts_with("images."), "{error}");
        }
    }

    #[test]
    fn the_maximum_is_bounded() {
        for (gib, is_valid) in [(0, false), (1, true), (8192, true), (8193, false)] {
            let checked = section(None, gib).checked(Path::new("/data"), Engine::Sled);
            assert_eq!(checked.is_ok(), is_valid, "{gib}");
        }
    }
}
