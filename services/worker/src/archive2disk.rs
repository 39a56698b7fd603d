//! Streams a tar from a web server into a file system on a disk.
//!
//! ```text
//! fetch ──16 replies──▶ unpack ──8 pieces of 256 KiB──▶ tar      all at once
//!   sums the bytes        by the first bytes              sums what it reads; DEST_PATH is its root directory
//!                                                         └▶ the rest, flush, unmount, compare the sums
//! ```
//!
//! | variable | meaning |
//! |---|---|
//! | `ARCHIVE_URL` | needed; `http` or `https` |
//! | `ARCHIVE_TYPE` | needed; `targz`: must be packed; `tar`: unpacked if its first bytes say so |
//! | `DEST_DISK` | needed; the partition |
//! | `FS_TYPE` | its type; absent: any this kernel knows |
//! | `DEST_PATH` | where in the file system, made if it is missing; absent: its root |
//! | `TARFILE_CHECKSUM` | needed; `sha256:…`, `sha512:…`: of the file as it is downloaded, or of the tar in it |
//! | `INSECURE_NO_TARFILE_CHECKSUM_VERIFICATION` | true: no sum is needed, none is compared; nonsense is a failure |
//! | `HTTP_CLIENT_TIMEOUT_MINUTES` | how long to go on without a new byte; absent: 10; 0: for ever |
//!
//! All that a tar knows of a file is restored: owner by number, permissions, time, extended attributes, links, devices;
//! access control lists in the text form of `tar --acls` are not. The tar's own sum may be with or without the padding
//! behind its end mark. Sums are known only at the end: if they are wrong, the action fails, and what came is on the disk.

mod contents;
mod member;
mod place;
mod stream;
mod target;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use reqwest::Url;
use tokio::sync::mpsc;

use crate::action::{self, Context, joined};
use crate::checksum::Checksum;
use crate::download::{self, Download, RetryPolicy, shown};
use crate::environment::{self, Environment};
use crate::fetch::{self, Fetched};
use crate::installed::{Installed, View};
use crate::progress::{Meter, Phase, Report};
use crate::unpack::{Packing, Wish};
use contents::Contents;
use stream::{Stream, Sums};

/// Why the tar was not unpacked, or not believed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("the tar is damaged or not whole")]
    Damaged(#[source] io::Error),
    #[error("the tar ends without its end mark: some of it is missing")]
    NoEnd,
    #[error("the tar has {0:?}, whose name leads out of where it is unpacked")]
    Outside(PathBuf),
    #[error("the tar has {name:?}, {what}")]
    Unsupported { name: PathBuf, what: &'static str },
    #[error("cannot {doing} {path:?}")]
    Put { doing: &'static str, path: PathBuf, source: io::Error },
    #[error(transparent)]
    Sum(Box<WrongSum>),
}

impl From<Error> for action::Error {
    fn from(error: Error) -> Self {
        Self::own(error)
    }
}

/// The sum that is wanted is none of those there are.
#[derive(Debug, thiserror::Error)]
#[error(
    "GET {at}: TARFILE_CHECKSUM is {wanted}, but the file has {file}, the tar {tar}, and without padding {bare}"
)]
pub(crate) struct WrongSum {
    at: String,
    wanted: Checksum,
    file: Checksum,
    tar: Checksum,
    bare: Checksum,
}

/// A checked request.
struct Order {
    url: Url,
    packed: Wish,
    installed: Installed,
    path: PathBuf,
    checksum: Option<Checksum>,
    retry_policy: RetryPolicy,
}

impl Order {
    fn read(
        environment: &Environment,
        retry_policy: &RetryPolicy,
    ) -> Result<Self, environment::Error> {
        let minutes: Option<u64> =
            environment.parsed("HTTP_CLIENT_TIMEOUT_MINUTES", "a number of minutes")?;
        let give_up = match minutes {
            None => retry_policy.give_up_after,
            Some(0) => Duration::MAX,
            Some(minutes) => Duration::from_secs(minutes.saturating_mul(60)),
        };
        let kind = environment.required("ARCHIVE_TYPE")?;
        let packed = match kind.to_ascii_lowercase().as_str() {
            "tar" => Ok(Wish::IfPacked),
            "targz" => Ok(Wish::Packed("ARCHIVE_TYPE is targz")),
            _ => {
                let (name, value) = ("ARCHIVE_TYPE", kind.to_owned());
                Err(environment::Error::Invalid { name, value, wanted: "`tar` or `targz`" })
            }
        };
        let path = environment.optional("DEST_PATH").unwrap_or_default();
        Ok(Self {
            url: download::url(environment, "ARCHIVE_URL")?,
            packed: packed?,
            installed: Installed {
                disk: environment.required("DEST_DISK")?.into(),
                fs_type: environment.optional("FS_TYPE").map(str::to_owned),
            },
            path: PathBuf::from("/").join(path),
            checksum: checksum(environment)?,
            retry_policy: RetryPolicy { give_up_after: give_up, ..retry_policy.clone() },
        })
    }
}

/// The sum that is wanted: there must be one, unless the template says aloud that there is none.
fn checksum(environment: &Environment) -> Result<Option<Checksum>, environment::Error> {
    if environment.boolean("INSECURE_NO_TARFILE_CHECKSUM_VERIFICATION")? == Some(true) {
        return Ok(None);
    }
    let name = "TARFILE_CHECKSUM";
    let wanted = environment.parsed(name, "`sha256:` or `sha512:` and hexadecimal digits")?;
    wanted.map(Some).ok_or(environment::Error::Missing(name))
}

/// Unpacks the tar. Cancelled, it returns once the disk is left alone.
pub(crate) async fn run(environment: &Environment, context: &Context) -> Result<(), action::Error> {
    let order = Order::read(environment, &context.retry_policy)?;
    let retry_policy = order.retry_policy.clone();
    let client = download::client(&context.roots, &retry_policy)?;
    let meter = Meter::new(context.progress.clone(), Duration::ZERO);
    let on_wait = fetch::waiting(&meter);
    let opening = Download::open(&client, order.url.clone(), &retry_policy, &on_wait);
    let opened = context.stop.run_until_cancelled(opening).await;
    pass(order, context, opened.ok_or(action::Error::Cancelled)??, &meter).await
}

/// Runs the three stages to their end, then compares the sums.
async fn pass(
    order: Order,
    context: &Context,
    mut download: Download<'_>,
    meter: &Meter,
) -> Result<(), action::Error> {
    let Order { url, packed, installed, path, checksum, retry_policy: _ } = order;
    let head = fetch::head(&mut download, &context.stop).await?;
    let packing = Packing::of(&url, &head, packed)?;
    let (total, downloaded) = (download.length(), Arc::new(AtomicU64::new(0)));
    let (replies, unpacking) = mpsc::channel(fetch::REPLIES);
    let (pieces, reading) = mpsc::channel(stream::PIECES);
    let unpacker = tokio::spawn(stream::run(unpacking, packing, pieces, downloaded.clone()));
    let tar = Stream::new(reading, checksum.as_ref());
    let meter = meter.clone();
    let report = move || {
        let done = downloaded.load(Ordering::Relaxed);
        meter.report(|| Report { phase: Phase::Writing, done, total });
    };
    let placed = installed.visit(View::Root, move || {
        target::enter(&path)?;
        Contents::read(tar, report)
    });
    let fetching = fetch::run(download, head, replies, checksum.as_ref(), &context.stop);
    let (fetched, unpacked, placed) = tokio::join!(fetching, joined(unpacker), placed);
    // Of several failures the first stage's is the cause, except that a stage may fail for want of the next one.
    let fetched = fetched?;
    let placed = match unpacked? {
        Ok(()) | Err(action::Error::Stopped) => placed??,
        Err(error) => return Err(error),
    };
    context.progress.output(format!("unpacked {} files\n", placed.files).as_bytes());
    Ok(compare(&url, checksum, fetched, placed.sums)?)
}

/// That one of the sums is the one that is wanted.
fn compare(
    url: &Url,
    wanted: Option<Checksum>,
    fetched: Fetched,
    sums: Option<Sums>,
) -> Result<(), Error> {
    let (Some(wanted), Some(file), Some(Sums { tar, bare })) = (wanted, fetched.sum(), sums) else {
        return Ok(());
    };
    if [&file, &tar, &bare].contains(&&wanted) {
        return Ok(());
    }
    Err(Error::Sum(Box::new(WrongSum { at: shown(url), wanted, file, tar, bare })))
}
