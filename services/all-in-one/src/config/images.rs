//! The options of images: the section `[images]` of the file.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use builder::Downloads;
use image::{ContentStore, S3Settings, Settings};
use netboot::ImageCache;
use runtime::network;
use serde::Deserialize;
use url::Url;

use super::Engine;

/// Bytes of a gibibyte.
const GIB: u64 = 1 << 30;
/// Maximum of `max_gib`: 8 TiB.
const MAX_GIB: u64 = 8 << 10;
/// Maximum of `max_gib` with S3, where an object has at most 10,000 parts, which memory holds.
const MAX_S3_GIB: u64 = 512;

/// The options of images. Defaults are those of the arguments; `Default` is for skipped arguments
/// only.
#[derive(Clone, Debug, Default, clap::Args, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImagesSection {
    /// Store the content of images in this directory [default: images in the data directory]
    #[arg(value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Store the content of images in a bucket of the S3 server at this URL
    #[arg(value_name = "URL")]
    pub s3_url: Option<String>,
    /// Name of the bucket
    #[arg(value_name = "NAME")]
    pub s3_bucket: Option<String>,
    /// Region of the bucket
    #[arg(value_name = "NAME", default_value = "us-east-1")]
    pub s3_region: String,
    /// File with the access key: aws_access_key_id and aws_secret_access_key
    #[arg(value_name = "FILE")]
    pub s3_credentials: Option<PathBuf>,
    /// Accept images of at most this many GiB; at most 8192, or 512 with S3
    #[arg(value_name = "GIB", default_value = "64")]
    pub max_gib: u64,
    /// Keep the files of builds in this directory [default: scratch in the directory of images]
    #[arg(value_name = "DIR")]
    pub scratch: Option<PathBuf>,
    /// Download from mirrors of publishers, as URL=MIRROR: the publisher's base URL and the mirror's
    #[arg(value_name = "URL=MIRROR", value_delimiter = ',')]
    #[serde(default)]
    pub mirrors: Vec<String>,
    /// Trust the certificate authorities in this file (PEM) in downloads and of the S3 server, too
    #[arg(value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Download images from these networks, too, as ADDRESS/BITS [default: public addresses only]
    #[arg(value_name = "NETWORK", value_delimiter = ',')]
    #[serde(default)]
    pub allow_networks: Vec<String>,
    /// Download images through this proxy, which must refuse private addresses itself
    #[arg(value_name = "URL")]
    pub proxy: Option<String>,
    /// Keep at most this many GiB of images in the data directory of a process that boots machines
    /// and has images of another process; 0 for none
    #[arg(value_name = "GIB", default_value = "32")]
    pub cache_gib: u64,
}

/// Name of the builder in leases. On a site with replicas, each process adds a name of its own.
const BUILDER_NAME: &str = "server";

/// Checked settings of images.
#[derive(Clone, Debug)]
pub struct Images {
    /// Settings of the service.
    pub service: Settings,
    /// Settings of the builder.
    pub builder: builder::Settings,
    /// True if this process builds images.
    pub builds: bool,
    /// Cache of images of another process; none if it is not wanted.
    pub cache: Option<ImageCache>,
}

impl ImagesSection {
    /// Checks the options.
    pub(super) fn checked(self, data: &Path, engine: Engine) -> anyhow::Result<Images> {
        let content = self.content(data, engine)?;
        let max = match content {
            Some(ContentStore::S3(_)) => MAX_S3_GIB,
            Some(ContentStore::Directory(_)) | None => MAX_GIB,
        };
        let max_gib = self.max_gib;
        let is_valid = (1..=max).contains(&max_gib);
        anyhow::ensure!(is_valid, "images.max_gib: {max_gib} is not 1 to {max}");
        let downloads = self.downloads()?;
        let files = match &content {
            Some(ContentStore::Directory(directory)) => directory.clone(),
            Some(ContentStore::S3(_)) | None => data.join("images"),
        };
        let scratch = self.scratch.unwrap_or_else(|| files.join("scratch"));
        let builder =
            builder::Settings { downloads, ..builder::Settings::new(BUILDER_NAME, scratch) };
        let bytes = max_gib * GIB;
        let service = Settings {
            content,
            max_size_bytes: bytes,
            max_upload_bytes: bytes,
            ..Settings::default()
        };
        let max_bytes = self.cache_gib.saturating_mul(GIB);
        let directory = data.join("image-cache");
        let cache = (max_bytes > 0).then_some(ImageCache { directory, max_bytes });
        Ok(Images { service, builder, builds: false, cache })
    }

    /// Returns the place of content. A site with etcd has one only in a bucket.
    fn content(&self, data: &Path, engine: Engine) -> anyhow::Result<Option<ContentStore>> {
        let bucket = self.bucket()?;
        let is_shared = engine == Engine::Etcd;
        match (self.directory.clone(), bucket) {
            (Some(_), Some(_)) => {
                anyhow::bail!("images.directory: set together with images.s3_url")
            }
            (Some(_), None) if is_shared => anyhow::bail!(
                "images.directory: store is etcd, and its replicas do not share a directory: set \
                 images.s3_url"
            ),
            (None, Some(bucket)) => Ok(Some(ContentStore::S3(bucket))),
            (None, None) if is_shared => Ok(None),
            (directory, None) => {
                let directory = directory.unwrap_or_else(|| data.join("images"));
                Ok(Some(ContentStore::Directory(directory)))
            }
        }
    }

    /// Returns the bucket, if its server is set.
    fn bucket(&self) -> anyhow::Result<Option<S3Settings>> {
        let Some(text) = &self.s3_url else {
            let is_alone = self.s3_bucket.is_none() && self.s3_credentials.is_none();
            anyhow::ensure!(is_alone, "images.s3_url: missing, beside other settings of S3");
            return Ok(None);
        };
        let url = text.parse::<Url>().context("images.s3_url: not a URL")?;
        let is_plain = matches!(url.scheme(), "http" | "https")
            && url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none();
        anyhow::ensure!(is_plain, "images.s3_url: not an http or https URL of a server alone");
        let missing = |name: &str| format!("images.{name}: missing, beside images.s3_url");
        Ok(Some(S3Settings {
            url,
            bucket: self.s3_bucket.clone().with_context(|| missing("s3_bucket"))?,
            region: self.s3_region.clone(),
            credentials: self.s3_credentials.clone().with_context(|| missing("s3_credentials"))?,
            ca: self.ca.clone(),
        }))
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

    fn with_bucket() -> ImagesSection {
        ImagesSection {
            s3_url: Some("https://s3.example".into()),
            s3_bucket: Some("images".into()),
            s3_region: "eu-1".into(),
            s3_credentials: Some("/etc/key".into()),
            ..section(None, 64)
        }
    }

    #[test]
    fn images_are_in_the_data_directory_unless_the_store_is_shared() {
        let data = Path::new("/data");
        let checked = |section: ImagesSection, engine| section.checked(data, engine);
        let content = |section, engine| checked(section, engine).unwrap().service.content;
        let directory = |path: &str| Some(ContentStore::Directory(path.into()));
        assert_eq!(content(section(None, 64), Engine::Sled), directory("/data/images"));
        assert_eq!(content(section(Some("/srv"), 64), Engine::Sled), directory("/srv"));
        assert_eq!(content(section(None, 64), Engine::Etcd), None);
        assert!(checked(section(Some("/srv"), 64), Engine::Etcd).is_err());
    }

    #[test]
    fn a_bucket_takes_the_place_of_the_directory_also_on_a_site_with_replicas() {
        let data = Path::new("/data");
        for engine in [Engine::Sled, Engine::Etcd] {
            let images = with_bucket().checked(data, engine).unwrap();
            let Some(ContentStore::S3(bucket)) = images.service.content else { panic!("no S3") };
            assert_eq!(
                (bucket.url.as_str(), bucket.region.as_str()),
                ("https://s3.example/", "eu-1")
            );
            assert_eq!(images.builder.scratch, Path::new("/data/images/scratch"));
        }
        for (wrong, problem) in [
            (ImagesSection { directory: Some("/srv".into()), ..with_bucket() }, "directory"),
            (ImagesSection { s3_url: None, ..with_bucket() }, "s3_url: missing"),
            (ImagesSection { s3_url: Some("s3.example".into()), ..with_bucket() }, "s3_url"),
            (
                ImagesSection { s3_url: Some("https://u:p@s3.example".into()), ..with_bucket() },
                "s3_url",
            ),
            (ImagesSection { s3_bucket: None, ..with_bucket() }, "s3_bucket: missing"),
            (ImagesSection { s3_credentials: None, ..with_bucket() }, "s3_credentials: missing"),
            (ImagesSection { max_gib: 513, ..with_bucket() }, "max_gib: 513 is not 1 to 512"),
        ] {
            let error = format!("{:#}", wrong.checked(data, Engine::Sled).unwrap_err());
            assert!(error.starts_with("images.") && error.contains(problem), "{error}");
            assert!(!error.contains("u:p"), "{error}");
        }
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
