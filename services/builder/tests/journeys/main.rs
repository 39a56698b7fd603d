//! Journeys of builds: from an upload, or a URL, to blobs in the store. The builder is a process of
//! its own, so that the sandbox is real. The image service is a fake.
#![allow(clippy::unwrap_used, missing_docs)]

mod failures;
mod images;
mod interruptions;
mod process;
mod site;
mod successes;

use std::net::SocketAddr;
use std::path::PathBuf;

use bytes::Bytes;
use disk_images::checksums::Sum;
use tempfile::TempDir;
use tinwright::image::v1::finish_build_request::Outcome;
use tinwright::image::v1::image_source::Source;
use tinwright::image::v1::{self as pb, BuildFailure, BuiltContent, ImageKind};

use crate::process::Builder;
use crate::site::{Site, Upload};

/// The build of every test.
const BUILD: &str = "0198a1b2-0000-7000-8000-000000000001";
const IMAGE: &str = "0198a1b2-0000-7000-8000-000000000002";

/// A site, and a place for the files of one builder.
struct Scene {
    site: Site,
    address: SocketAddr,
    place: TempDir,
}

impl Scene {
    /// A site with an empty queue.
    async fn new() -> Self {
        let (site, address) = Site::start().await;
        Self { site, address, place: tempfile::tempdir().unwrap() }
    }

    /// A site with a build of an upload.
    async fn with_upload(name: &str, content: &[u8]) -> Self {
        let scene = Self::new().await;
        scene.upload(Upload::Whole(Bytes::copy_from_slice(content)));
        scene.queue(upload_source(name), ImageKind::Disk);
        scene
    }

    fn upload(&self, upload: Upload) {
        self.site.change(|it| it.uploads.insert(IMAGE.into(), upload));
    }

    fn queue(&self, source: pb::ImageSource, kind: ImageKind) {
        let build = pb::Build {
            id: BUILD.into(),
            image_id: IMAGE.into(),
            kind: kind.into(),
            source: Some(source),
            ..pb::Build::default()
        };
        self.site.change(|it| it.pending.push_back(build));
    }

    fn start(&self) -> Builder {
        Builder::start(self.address, &self.scratch())
    }

    fn scratch(&self) -> PathBuf {
        self.place.path().join("scratch")
    }

    /// Directories of attempts in the scratch.
    fn leftovers(&self) -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(self.scratch()) else { return Vec::new() };
        let paths = entries.map(|entry| entry.unwrap().path());
        paths.filter(|path| !path.ends_with(".lock")).collect()
    }

    /// Waits until the scratch is empty.
    async fn is_clean(&self) {
        process::poll(|| self.leftovers().is_empty().then_some(())).await;
    }

    /// Runs a builder to the end of the build. Returns the content. Nothing is left in the scratch.
    async fn content(&self) -> BuiltContent {
        let _builder = self.start();
        let outcome = self.site.outcome().await;
        self.is_clean().await;
        match outcome {
            Outcome::Content(content) => content,
            Outcome::Failure(failure) => panic!("{failure:?}"),
        }
    }

    /// Runs a builder to the end of the build. Returns the failure. Nothing is left or stored.
    async fn failure(&self) -> BuildFailure {
        let _builder = self.start();
        let failure = failure(self.site.outcome().await);
        self.is_clean().await;
        assert_eq!(self.site.change(|it| it.sent.len()), 0);
        failure
    }
}

fn failure(outcome: Outcome) -> BuildFailure {
    match outcome {
        Outcome::Failure(failure) => failure,
        Outcome::Content(content) => panic!("{content:?}"),
    }
}

fn upload_source(file_name: &str) -> pb::ImageSource {
    let source = Some(Source::Upload(pb::UploadSource { file_name: file_name.into() }));
    pb::ImageSource { source, ..pb::ImageSource::default() }
}

fn url_source(url: String) -> pb::ImageSource {
    let source = Some(Source::Url(pb::UrlSource { url }));
    pb::ImageSource { source, ..pb::ImageSource::default() }
}

/// Returns the SHA-256 of `content` in hexadecimal digits.
fn digest(content: &[u8]) -> String {
    let mut sum = Sum::sha256();
    sum.update(content);
    sum.finish().hex().to_owned()
}
