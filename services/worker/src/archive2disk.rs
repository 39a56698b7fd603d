//! Streams a tar from a web server into a file system on a disk.
//!
//! ```text
//! fetch ──16 chunks──▶ decompress ──8 pieces of 256 KiB──▶ extract      all at the same time
//!   sums the bytes                                           sums the tar; DEST_PATH is its root directory
//!                                                            └▶ flush, unmount, compare the sums
//! ```
//!
//! | variable | meaning |
//! |---|---|
//! | `ARCHIVE_URL` | required; `http` or `https` |
//! | `ARCHIVE_TYPE` | required; `targz`: must be compressed; `tar`: decompressed if its first bytes show a known format |
//! | `IMG_NAME`, `IMG_SIGNATURE` | required on a machine with [keys](crate::image_keys): [`signed`] checks the file first |
//! | `DEST_DISK` | required; the partition |
//! | `FS_TYPE` | its type; default: any that the kernel supports |
//! | `DEST_PATH` | directory in the file system, created if missing; default: the root directory |
//! | `TARFILE_CHECKSUM` | required; `sha256:…` or `sha512:…` of the downloaded file, or of the tar in it |
//! | `INSECURE_NO_TARFILE_CHECKSUM_VERIFICATION` | true: no checksum is required or compared; other texts than booleans are refused |
//! | `HTTP_CLIENT_TIMEOUT_MINUTES` | time without a new byte after which the download fails; default: 10; 0: never |
//!
//! The action restores numeric owner, permissions, modification time, extended attributes, links and devices. It does not
//! restore access control lists in the text form of `tar --acls`. The checksum of the tar is accepted with and without the
//! padding after its end mark. Checksums are complete only at the end: if none matches, the action fails, and the
//! extracted files stay on the disk.

mod extract;
mod fields;
mod member;
mod signed;
mod stream;
mod target;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use image_signature::SignedImage;
use reqwest::Url;
use tokio::sync::mpsc;

use crate::checksum::Checksum;
use crate::context::Context;
use crate::download::{self, RetryPolicy, redacted};
use crate::environment::{self, Environment};
use crate::error::{self, joined};
use crate::fetch::{self, DownloadSum, Rest};
use crate::image_keys;
use crate::mounted_root::{TargetFilesystem, View};
use crate::progress::{Meter, Phase, Report};
use crate::unpack::{Decompress, Unpacker};
use extract::extract;
use stream::{TarStream, TarSums};

/// A tar that cannot be extracted, or has the wrong checksum.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("the tar is damaged or incomplete")]
    Damaged(#[source] io::Error),
    #[error("the tar is truncated: its end mark is missing")]
    NoEnd,
    #[error("the tar has {0:?}, a path outside of the destination")]
    Outside(PathBuf),
    #[error("the tar has {name:?}, {what}")]
    Unsupported { name: PathBuf, what: &'static str },
    #[error("cannot {operation} {path:?}")]
    Put { operation: &'static str, path: PathBuf, source: io::Error },
    #[error(transparent)]
    Checksum(Box<ChecksumMismatch>),
}

impl crate::error::StepError for Error {}

/// The expected checksum matches neither the file nor the tar.
#[derive(Debug, thiserror::Error)]
#[error(
    "GET {url}: TARFILE_CHECKSUM is {expected}, but the file has {file}, the tar {tar}, and without padding {unpadded}"
)]
pub(crate) struct ChecksumMismatch {
    url: String,
    expected: Checksum,
    file: Checksum,
    tar: Checksum,
    unpadded: Checksum,
}

/// The parsed variables of the action.
struct ArchiveOptions {
    url: Url,
    decompress: Decompress,
    filesystem: TargetFilesystem,
    path: PathBuf,
    checksum: Option<Checksum>,
    retry: RetryPolicy,
    /// What is signed of the archive, on a machine that installs signed images only.
    signed: Option<SignedImage>,
}

impl ArchiveOptions {
    fn parse(environment: &Environment, context: &Context) -> Result<Self, error::Error> {
        let retry = &context.retry_policy;
        let give_up_after = match environment.minutes("HTTP_CLIENT_TIMEOUT_MINUTES")? {
            None => retry.give_up_after,
            Some(Duration::ZERO) => Duration::MAX,
            Some(minutes) => minutes,
        };
        let archive_type = environment.required("ARCHIVE_TYPE")?;
        let decompress = match archive_type.to_ascii_lowercase().as_str() {
            "tar" => Ok(Decompress::IfCompressed),
            "targz" => Ok(Decompress::Required("ARCHIVE_TYPE is targz")),
            _ => Err(environment::Error::invalid("ARCHIVE_TYPE", archive_type, "`tar` or `targz`")),
        };
        let path = environment.optional("DEST_PATH").unwrap_or_default();
        Ok(Self {
            url: download::url(environment, "ARCHIVE_URL", context.boot_server.as_ref())?,
            decompress: decompress?,
            filesystem: TargetFilesystem::parse(environment, "DEST_DISK")?,
            path: PathBuf::from("/").join(path),
            checksum: checksum(environment)?,
            retry: RetryPolicy { give_up_after, ..retry.clone() },
            signed: image_keys::signed_image(environment, context, None)?,
        })
    }
}

/// Returns the expected checksum. It is required, unless the template disables verification.
fn checksum(environment: &Environment) -> Result<Option<Checksum>, environment::Error> {
    if environment.boolean("INSECURE_NO_TARFILE_CHECKSUM_VERIFICATION")? == Some(true) {
        return Ok(None);
    }
    let name = "TARFILE_CHECKSUM";
    let expected = environment.parsed(name, "`sha256:` or `sha512:` and hexadecimal digits")?;
    expected.map(Some).ok_or(environment::Error::Missing(name))
}

/// Extracts the tar. After a cancellation, it returns when nothing writes to the disk any more.
pub(crate) async fn run(environment: &Environment, context: &Context) -> Result<(), error::Error> {
    let options = ArchiveOptions::parse(environment, context)?;
    let meter = Meter::new(context.progress.clone(), Duration::ZERO);
    let (url, retry) = (options.url.clone(), options.retry.clone());
    let (download, head) = fetch::open(url, retry, &meter, context).await?;
    let total = download.length();
    let rest = match &options.signed {
        None => Rest::Download(Box::new(download)),
        Some(signed) => {
            let url = redacted(&options.url);
            signed::check(signed, &url, download, &head, &context.stop).await?
        }
    };
    run_stages(options, context, (head, rest, total), &meter).await
}

/// Runs the three stages to their end, then compares the checksums.
async fn run_stages(
    options: ArchiveOptions,
    context: &Context,
    (head, rest, total): (Bytes, Rest, Option<u64>),
    meter: &Meter,
) -> Result<(), error::Error> {
    let ArchiveOptions { url, decompress, filesystem, path, checksum, .. } = options;
    let unpacker = Arc::new(Unpacker::new(&url, &head, decompress)?);
    let downloaded = Arc::new(AtomicU64::new(0));
    let (chunks_in, chunks_out) = mpsc::channel(fetch::MAX_QUEUED_CHUNKS);
    let (pieces_in, pieces_out) = mpsc::channel(stream::MAX_QUEUED_PIECES);
    let decompressing =
        tokio::spawn(stream::run(chunks_out, unpacker.clone(), pieces_in, downloaded.clone()));
    let tar = TarStream::new(pieces_out, checksum.as_ref());
    let meter = meter.clone();
    let report = move || {
        let done = downloaded.load(Ordering::Relaxed);
        meter.report(|| Report { phase: Phase::Writing, done, total });
    };
    let extracting = filesystem.with_mounted(View::Root, move || {
        target::enter(&path)?;
        extract(tar, report)
    });
    let fetching = fetch::run(rest, head, chunks_in, checksum.as_ref(), &context.stop);
    let (fetched, decompressed, extracted) =
        tokio::join!(fetching, joined(decompressing), extracting);
    // If several stages fail, the first stage has the cause. `Stopped` is no cause: it means that the next stage failed.
    let sum = fetched?;
    let (trailing, extracted) = match decompressed? {
        Ok(trailing) => (trailing, extracted??),
        Err(error::Error::Stopped) => (0, extracted??),
        Err(error) => return Err(error),
    };
    if let Some(line) = unpacker.trailing_line(trailing) {
        context.progress.output(line.as_bytes());
    }
    context.progress.output(format!("extracted {} files\n", extracted.files).as_bytes());
    Ok(compare(&url, checksum, sum, extracted.sums)?)
}

/// Fails unless one of the checksums is the expected one.
fn compare(
    url: &Url,
    expected: Option<Checksum>,
    download: DownloadSum,
    sums: Option<TarSums>,
) -> Result<(), Error> {
    let (Some(expected), Some(file), Some(TarSums { tar, unpadded })) =
        (expected, download.sum(), sums)
    else {
        return Ok(());
    };
    if [&file, &tar, &unpadded].contains(&&expected) {
        return Ok(());
    }
    let url = redacted(url);
    Err(Error::Checksum(Box::new(ChecksumMismatch { url, expected, file, tar, unpadded })))
}
