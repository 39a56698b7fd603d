//! Fetching of the source of an image into a file.
//!
//! - [`mod@transfer`]: one file, which goes on after an interruption; [`target`]: the file it is
//!   written to.
//! - [`upload`]: files of clients; [`web`]: files of servers of others; [`answer`]: their answers.
//! - [`registry`]: layers of artifacts; [`login`]: logins to registries; [`manifest`]: which layer.
//! - [`rules`]: the addresses that files may come from; [`resolver`]: the addresses of a name.

mod answer;
mod login;
mod manifest;
mod registry;
mod resolver;
mod rules;
mod target;
mod transfer;
mod upload;
mod web;

use std::path::PathBuf;

use disk_images::catalogue::{self, PublishedImage};
use disk_images::checksums::{self, Checksum};
use reqwest::Url;
use runtime::Channel;
use runtime::retry::Backoff;
use tinwright::image::v1::image_source::Source;
use tinwright::image::v1::{ImageSource, PublishedSource};

use self::answer::Cut;
use self::registry::Artifact;
use self::target::Target;
use self::transfer::{Origin, transfer};
use self::upload::Upload;
use self::web::{Remote, ServerKind, Web};
use crate::failure::Failure;
use crate::progress::{Progress, Step};
use crate::scratch::BuildScratch;
use crate::settings::{Downloads, Timing};

/// Architecture of all published images.
const PUBLISHED_ARCHITECTURE: &str = "x86_64";
/// Maximum number of requests for a checksum file, or for a manifest.
const MAX_TEXT_ATTEMPTS: u32 = 5;

/// Fetches sources.
#[derive(Clone, Debug)]
pub(crate) struct Fetcher {
    channel: Channel,
    web: Web,
    downloads: Downloads,
    timing: Timing,
}

/// A source to fetch.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) image_id: &'a str,
    pub(crate) source: &'a ImageSource,
    /// Maximum size of the file in bytes.
    pub(crate) max_bytes: u64,
}

/// A source that was fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fetched {
    /// The file.
    pub(crate) path: PathBuf,
    /// SHA-256 of the file in hexadecimal digits.
    pub(crate) sha256: String,
    /// Name of the file at its source, which may say its format. Empty: unknown.
    pub(crate) name: String,
}

/// A file to transfer.
struct File<'a> {
    origin: Origin<'a>,
    expected: Option<Checksum>,
    name: String,
}

impl Fetcher {
    /// Returns a fetcher that gets uploads on `channel`.
    pub(crate) fn new(
        channel: Channel,
        downloads: &Downloads,
        timing: Timing,
    ) -> anyhow::Result<Self> {
        let web = Web::new(downloads, timing)?;
        Ok(Self { channel, web, downloads: downloads.clone(), timing })
    }

    /// Returns the pinned reference of a source in a registry. None if it is pinned already, or in no
    /// registry.
    pub(crate) async fn pin(&self, source: &ImageSource) -> Result<Option<String>, Failure> {
        match &source.source {
            Some(Source::Oci(oci)) if oci.pinned_reference.is_empty() => {
                let artifact = Artifact::new(&self.web, oci)?;
                self.repeated(|| artifact.pinned_reference()).await.map(Some)
            }
            Some(Source::Oci(_) | Source::Url(_) | Source::Published(_) | Source::Upload(_))
            | None => Ok(None),
        }
    }

    /// Writes the source into a new file in `scratch`.
    pub(crate) async fn fetch(
        &self,
        wanted: &Wanted<'_>,
        scratch: &BuildScratch,
        progress: &Progress,
    ) -> Result<Fetched, Failure> {
        progress.begin(Step::Downloading, 0);
        let path = scratch.path().join("source");
        let timeout = self.timing.download;
        let fetched = tokio::time::timeout(timeout, async {
            let file = self.file(wanted).await?;
            let target = Target::create(&path, scratch, file.expected, wanted.max_bytes).await?;
            let sha256 = transfer(&file.origin, target, progress, &self.timing).await?;
            Ok(Fetched { path: path.clone(), sha256, name: file.name })
        });
        let late = |_| Failure::temporary(format_args!("source: not complete after {timeout:?}"));
        fetched.await.map_err(late)?
    }

    async fn file<'a>(&'a self, wanted: &Wanted<'a>) -> Result<File<'a>, Failure> {
        let declared = declared_checksum(wanted.source)?;
        match &wanted.source.source {
            Some(Source::Url(source)) => {
                let url: Result<Url, _> = source.url.parse();
                let url =
                    url.map_err(|error| Failure::permanent(format_args!("source.url: {error}")))?;
                let name = url.path_segments().and_then(Iterator::last).unwrap_or_default();
                let name = name.to_owned();
                let server = ServerKind::Public;
                let remote = Remote { url, field: "source.url", server, authorization: None };
                Ok(File { origin: Origin::Web(&self.web, remote), expected: declared, name })
            }
            Some(Source::Oci(source)) => {
                let artifact = Artifact::new(&self.web, source)?;
                let layer = self.repeated(|| artifact.layer(wanted.max_bytes)).await?;
                let origin = Origin::Registry(artifact.repository, layer.remote);
                Ok(File { origin, expected: Some(layer.digest), name: layer.name })
            }
            Some(Source::Published(source)) => self.published(source, declared).await,
            Some(Source::Upload(_)) | None => {
                let upload = Upload { channel: &self.channel, image_id: wanted.image_id };
                let name = match &wanted.source.source {
                    Some(Source::Upload(source)) => source.file_name.clone(),
                    _ => String::new(),
                };
                Ok(File { origin: Origin::Upload(upload), expected: declared, name })
            }
        }
    }

    /// Returns the file of a publisher, with the publisher's checksum unless one was declared.
    async fn published(
        &self,
        source: &PublishedSource,
        declared: Option<Checksum>,
    ) -> Result<File<'_>, Failure> {
        let image = find(source)?;
        let expected = match declared {
            Some(declared) => declared,
            None => {
                let remote = self.remote(image, image.checksums)?;
                let list = self.repeated(|| self.web.text(&remote)).await?;
                let found = checksums::find(&list, image.file);
                let problem = |error| format!("source.published: {}: {error}", image.name);
                found.map_err(|error| Failure::temporary(problem(error)))?
            }
        };
        let origin = Origin::Web(&self.web, self.remote(image, image.file)?);
        Ok(File { origin, expected: Some(expected), name: image.file.to_owned() })
    }

    /// Returns the place of `file` at the publisher of `image`, or at its mirror.
    fn remote(&self, image: &PublishedImage, file: &str) -> Result<Remote, Failure> {
        let mirror = self.downloads.mirrors.get(image.base);
        let base = mirror.map_or(image.base, Url::as_str).trim_end_matches('/');
        let url = format!("{base}/{}/{file}", image.directory).parse();
        let url = url.map_err(|error| Failure::host("mirror", error))?;
        let server = if mirror.is_some() { ServerKind::Mirror } else { ServerKind::Public };
        Ok(Remote { url, field: "source.published", server, authorization: None })
    }

    /// Returns the result of a `request`, which is repeated while the server is away.
    async fn repeated<T, R>(&self, request: impl Fn() -> R) -> Result<T, Failure>
    where
        R: Future<Output = Result<T, Cut>>,
    {
        let (first, max) = self.timing.retry_delays;
        let mut backoff = Backoff::new(first, max);
        loop {
            match request().await {
                Ok(result) => return Ok(result),
                Err(Cut::Again(_)) if backoff.failures() + 1 < MAX_TEXT_ATTEMPTS => {
                    backoff.wait().await;
                }
                Err(Cut::Again(failure) | Cut::End(failure)) => return Err(failure),
            }
        }
    }
}

fn declared_checksum(source: &ImageSource) -> Result<Option<Checksum>, Failure> {
    if source.checksum.is_empty() {
        return Ok(None);
    }
    let invalid = |error| format!("source.checksum: {error}: {:?}", source.checksum);
    let checksum = source.checksum.parse();
    checksum.map(Some).map_err(|error| Failure::permanent(invalid(error)))
}

/// Returns the published image that `source` names.
fn find(source: &PublishedSource) -> Result<&'static PublishedImage, Failure> {
    let PublishedSource { name, architecture } = source;
    let image = catalogue::find(name).ok_or_else(|| {
        Failure::permanent(format_args!("source.published.name: unknown image: {name:?}"))
    })?;
    match architecture.as_str() {
        "" | PUBLISHED_ARCHITECTURE => Ok(image),
        _ => Err(Failure::permanent(format_args!(
            "source.published.architecture: {name} has only {PUBLISHED_ARCHITECTURE}: {architecture:?}"
        ))),
    }
}

#[cfg(test)]
mod tests;
