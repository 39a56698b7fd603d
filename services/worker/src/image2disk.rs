//! Streams a disk image from a web server onto a disk, and reads it back.
//!
//! ```text
//! fetch ──16 replies──▶ unpack ──4 blocks of 4 MiB──▶ write        all at once
//!   sums the bytes        by the first bytes            remembers a fingerprint of each block
//!                                                       └▶ flush, read back, compare, read the partition table
//! ```
//!
//! Every byte of the image is written once, in order, however often the download breaks: what is downloaded is never
//! asked for again, so there is nothing to write twice. The stages hold 16 MiB of blocks, a few MiB of replies, 2 MiB
//! of fingerprints per TiB, and the unpacker's window, which the image's maker chose (8 MiB for `zstd -19`, 64 MiB
//! for `xz -9`, 128 MiB for `zstd --long`). One above 128 MiB, or above half of the memory that is free, is refused.
//!
//! | variable | meaning |
//! |---|---|
//! | `IMG_URL` | needed; `http` or `https` |
//! | `DEST_DISK` | needed; an existing disk, partition or file |
//! | `COMPRESSED` | true: must be packed; false: written as it comes; absent: unpacked if its first bytes say so |
//! | `IMG_SHA256`, `IMG_CHECKSUM` | of the file **as it is downloaded**, packed if it is packed; `sha256:…`, `sha512:…` |
//! | `IMG_FORCE` | true: write to a disk in use, and drop what is beyond the disk's end |
//! | `IMG_VERIFY` | false: do not read back |
//! | `RETRY_ENABLED` | false: the first interruption is a failure |
//! | `RETRY_DURATION_MINUTES` | how long to go on without a new byte; 10 |
//! | `PROGRESS_INTERVAL_SECONDS` | 1, and never under that |
//!
//! `TEXT_LOGGING` is accepted and without effect: progress is not a log here.

mod unpack;
mod write;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use reqwest::Url;
use tokio::sync::mpsc;

use crate::action::{Context, Error, joined};
use crate::checksum::Checksum;
use crate::disk::Disk;
use crate::disk::block::Block;
use crate::download::{self, Download, RetryPolicy};
use crate::environment::{self, Environment};
use crate::fetch;
use crate::progress::Meter;
use crate::unpack::{Packing, Wish};

/// Blocks under way: one filling, one being written, and one on either side of the handover.
const BLOCKS: usize = 4;

/// A checked request.
struct Order {
    url: Url,
    disk: PathBuf,
    packed: Wish,
    checksum: Option<Checksum>,
    force: bool,
    verify: bool,
    retry_policy: RetryPolicy,
    interval: Duration,
}

/// What one stage hands to the next: a full block, its place on the disk, and how much was downloaded for it.
struct Piece {
    at: u64,
    block: Block,
    downloaded: u64,
}

impl Order {
    fn read(
        environment: &Environment,
        retry_policy: &RetryPolicy,
    ) -> Result<Self, environment::Error> {
        const SUM: &str = "`sha256:` or `sha512:` and hexadecimal digits";
        let minutes: Option<u64> =
            environment.parsed("RETRY_DURATION_MINUTES", "a number of minutes")?;
        let seconds: Option<u64> =
            environment.parsed("PROGRESS_INTERVAL_SECONDS", "a number of seconds")?;
        let mut retry_policy = retry_policy.clone();
        retry_policy.give_up_after = minutes.map_or(retry_policy.give_up_after, |minutes| {
            Duration::from_secs(minutes.saturating_mul(60))
        });
        if environment.choice("RETRY_ENABLED") == Some(false) {
            retry_policy.give_up_after = Duration::ZERO;
        }
        let sha256 = environment.parsed("IMG_SHA256", SUM)?;
        Ok(Self {
            url: download::url(environment, "IMG_URL")?,
            disk: environment.required("DEST_DISK")?.into(),
            packed: match environment.choice("COMPRESSED") {
                Some(true) => Wish::Packed("COMPRESSED is true"),
                Some(false) => Wish::AsItComes,
                None => Wish::IfPacked,
            },
            checksum: environment.parsed("IMG_CHECKSUM", SUM)?.or(sha256),
            force: environment.flag("IMG_FORCE"),
            verify: environment.choice("IMG_VERIFY") != Some(false),
            retry_policy,
            interval: Duration::from_secs(seconds.unwrap_or(1)),
        })
    }
}

/// Writes the image. Cancelled, it returns once the disk is left alone.
pub(crate) async fn run(environment: &Environment, context: &Context) -> Result<(), Error> {
    let order = Order::read(environment, &context.retry_policy)?;
    let (path, force) = (order.disk.clone(), order.force);
    let disk = joined(tokio::task::spawn_blocking(move || Disk::open(&path, force))).await??;

    let client = download::client(&context.roots, &order.retry_policy)?;
    let meter = Meter::new(context.progress.clone(), order.interval);
    let on_wait = fetch::waiting(&meter);
    let opening = Download::open(&client, order.url.clone(), &order.retry_policy, &on_wait);
    let download = context.stop.run_until_cancelled(opening).await.ok_or(Error::Cancelled)??;
    pass(&order, context, download, disk, &meter).await
}

/// Runs the three stages to their end, then the disk's own checks.
async fn pass(
    order: &Order,
    context: &Context,
    mut download: Download<'_>,
    disk: Disk,
    meter: &Meter,
) -> Result<(), Error> {
    let head = fetch::head(&mut download, &context.stop).await?;
    let packing = Packing::of(&order.url, &head, order.packed)?;
    let (at, total) = (download::shown(&order.url), download.length());
    if !packing.is_packed() {
        fits(order, &disk, &download)?;
    }
    let (replies, unpacking) = mpsc::channel(fetch::REPLIES);
    let (filled, writing) = mpsc::channel(BLOCKS);
    let (emptied, empties) = mpsc::channel(BLOCKS);
    let downloaded = Arc::new(AtomicU64::new(0));
    let circle = unpack::Circle { empties, filled, downloaded: downloaded.clone() };
    let unpacker = tokio::spawn(unpack::run(unpacking, packing, circle));
    let writer = write::Writer {
        disk,
        meter: meter.clone(),
        stop: context.stop.clone(),
        force: order.force,
        total,
    };
    let (verify, blocks) = (order.verify, write::Blocks { writing, emptied });
    let writer =
        tokio::task::spawn_blocking(move || writer.run(blocks).map(|written| (writer, written)));

    let fetched = fetch::run(download, head, replies, order.checksum.as_ref(), &context.stop).await;
    let (unpacked, written) = tokio::join!(joined(unpacker), joined(writer));
    // Of several failures the first stage's is the cause, except that a stage may fail for want of the last one.
    let fetched = fetched?;
    let (writer, written) = written??;
    unpacked??;
    let (bytes, downloaded) = (written.bytes, downloaded.load(Ordering::Relaxed));
    let line = format!("wrote {bytes} bytes, out of {downloaded} downloaded\n");
    context.progress.output(line.as_bytes());
    joined(tokio::task::spawn_blocking(move || writer.finish(&written, verify))).await??;
    fetched.check(order.checksum.as_ref()).map_err(|source| Error::Sum { at, source })
}

/// That an image written as it comes is neither endless nor larger than the disk.
fn fits(order: &Order, disk: &Disk, download: &Download<'_>) -> Result<(), Error> {
    if !download.tells_its_end() && order.checksum.is_none() {
        return Err(Error::Endless(download::shown(&order.url)));
    }
    match (download.length(), disk.capacity()) {
        (Some(length), Some(capacity)) if length > capacity && !order.force => {
            Err(disk.too_small(length.to_string()).into())
        }
        _ => Ok(()),
    }
}
