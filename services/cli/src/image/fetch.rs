//! `tinwright image fetch`.
//!
//! The checksum comes from the publisher's own file, over HTTPS. So the image may come over any way: it is compared before it is used.
//! Images keep their content except for the setting of cloud-init ([`super::cloud_init`]).

use std::io::Write;
use std::path::Path;

use anyhow::Context as _;
use disk_images::catalogue::{self, PublishedImage};
use disk_images::download::{Downloader, Observer, Part, Plaintext};
use disk_images::partitions::{self, Partition};
use disk_images::{Limits, checksums, qcow2};
use indicatif::ProgressBar;
use reqwest::Url;

use super::bar::bar;
use super::stored::{DirectoryLock, StoredImage, Target, TemporaryFile};
use super::{FetchOptions, cloud_init, programs};
use crate::failure::Failures;
use crate::output::print_line;

/// The largest disk that is unpacked, in bytes. Images of distributions have some GiB.
const MAX_DISK_BYTES: u64 = 256 << 30;

/// Fetches the images with these published names to the directory `files`, and prints a line for each. The others are fetched, too, if one
/// fails.
pub(super) async fn run(
    names: &[String],
    files: &Path,
    options: &FetchOptions,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let plaintext = if options.allow_http { Plaintext::Allowed } else { Plaintext::Refused };
    let downloader = Downloader::new(plaintext, options.ca.as_deref())?;
    run_with(&downloader, names, files, options, out).await
}

/// Does the same with this downloader.
pub(super) async fn run_with(
    downloader: &Downloader,
    names: &[String],
    files: &Path,
    options: &FetchOptions,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    if !options.as_published {
        programs::require(&cloud_init::PROGRAMS)?;
    }
    let _lock = DirectoryLock::take(files)?;
    let mut failures = Failures::new(names.len());
    for name in names {
        let image = catalogue::find(name).with_context(|| format!("no image {name}"))?;
        match fetch(downloader, files, options, image).await {
            Ok(line) => print_line(out, &format!("{name}: {line}"))?,
            Err(error) => failures.push(error.context(name.clone())),
        }
    }
    failures.into_result()
}

/// Fetches `image` unless it is stored already. Returns what was done, for people.
async fn fetch(
    downloader: &Downloader,
    files: &Path,
    options: &FetchOptions,
    image: &PublishedImage,
) -> anyhow::Result<String> {
    let target = Target::new(files, image.name);
    let checksum_file = url(options, image, image.checksums)?;
    let text = downloader.text(&checksum_file).await?;
    let checksum = checksums::find(&text, image.file);
    let checksum = checksum.with_context(|| checksum_file.to_string())?;
    let source = url(options, image, image.file)?;
    let setting = match options.as_published {
        true => "none".to_owned(),
        false => options.metadata_url.to_string(),
    };
    // Mirrors have the same image: its place is not part of the origin.
    let origin = format!(
        "tinwright image fetch {}\npublished: {} {checksum}\nmetadata service: {setting}",
        image.name, image.file
    );
    if let Some(stored) = target.unchanged(&origin)? {
        return Ok(format!("unchanged {stored}"));
    }
    let downloading = bar(image.name, "downloading", source.as_str());
    let observer = Box::new(Bar(downloading.clone()));
    let part = Part::open(target.part(&checksum)?, checksum, observer)?;
    let downloaded = downloader.file(&source, part).await?;
    downloading.finish_and_clear();
    let raw = target.raw();
    let unpacking = bar(image.name, "unpacking", &raw.0.display().to_string());
    unpack(&downloaded, &raw.0, &unpacking)?;
    unpacking.finish_and_clear();
    let root = partitions::root(&raw.0).context("reading the partition table")?;
    let done = prepare(options, &raw, root)?;
    let packing = bar(image.name, "compressing", &files.display().to_string());
    let stored = target.store(&raw.0, &origin, &packing).await?;
    packing.finish_and_clear();
    // Not earlier: after an error, the next command does not download it again.
    std::fs::remove_file(&downloaded).with_context(|| downloaded.display().to_string())?;
    Ok(summary(&stored, root, &done))
}

/// Writes the raw image of the download at `from` to a new file at `to`.
fn unpack(from: &Path, to: &Path, bar: &ProgressBar) -> anyhow::Result<()> {
    // Its checksum is the publisher's: it may expand as much as it does.
    let limits = Limits { raw_bytes: MAX_DISK_BYTES, ratio: u64::MAX, ..Limits::default() };
    let unpacked = qcow2::to_raw(from, to, &limits, &mut |written, total| {
        bar.set_length(total);
        bar.set_position(written);
    });
    const ADVICE: &str =
        "the image cannot be read (convert it by qemu-img, and give the server the raw image)";
    match unpacked {
        Err(refusal) if refusal.is_fault_of_file() => {
            Err(anyhow::Error::new(refusal).context(ADVICE))
        }
        unpacked => Ok(unpacked.map(drop)?),
    }
}

/// Writes the setting of cloud-init into the raw image. Returns what people have to know about it.
fn prepare(
    options: &FetchOptions,
    raw: &TemporaryFile,
    root: Option<Partition>,
) -> anyhow::Result<String> {
    const BY_TEMPLATE: &str = "a template has to write the setting of cloud-init (docs/images.md)";
    if options.as_published {
        return Ok(format!("as published: {BY_TEMPLATE}"));
    }
    let Some(root) = root else {
        return Ok(format!("no file system of Linux found: {BY_TEMPLATE}"));
    };
    let url = options.metadata_url.as_str().trim_end_matches('/');
    match cloud_init::write(&raw.0, root, &cloud_init::setting(url))? {
        true => Ok(format!("cloud-init gets its metadata from {url}")),
        false => Ok(format!("not written into {}: {BY_TEMPLATE}", root.file_system.name())),
    }
}

fn summary(stored: &StoredImage, root: Option<Partition>, done: &str) -> String {
    let root = root.map(|root| {
        let (number, file_system) = (root.number, root.file_system.name());
        format!("  root file system: partition {number}, {file_system}\n")
    });
    format!("fetched {stored}\n{}  {done}", root.unwrap_or_default())
}

/// Returns the URL of a file in the directory of `image`.
fn url(options: &FetchOptions, image: &PublishedImage, file: &str) -> anyhow::Result<Url> {
    let base = options.base_url.as_ref().map_or(image.base, Url::as_str);
    let url = format!("{}/{}/{file}", base.trim_end_matches('/'), image.directory);
    let url: Url = url.parse().with_context(|| url.clone())?;
    let is_allowed = options.allow_http || url.scheme() == "https";
    anyhow::ensure!(is_allowed, "{url}: give --allow-http for a mirror without TLS");
    Ok(url)
}

/// A bar for a download.
struct Bar(ProgressBar);

impl Observer for Bar {
    fn position(&self, bytes: u64) {
        self.0.set_position(bytes);
    }

    fn total(&self, bytes: u64) {
        self.0.set_length(bytes);
    }

    fn interrupted(&self, text: &str) {
        self.0.suspend(|| eprintln!("{text}"));
    }
}
