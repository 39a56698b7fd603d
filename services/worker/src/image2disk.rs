//! Streams a disk image from a web server onto a disk, and verifies it.
//!
//! ```text
//! fetch ──16 chunks──▶ decompress ──4 blocks of 4 MiB──▶ write        all at the same time
//!   sums the bytes                                         stores a fingerprint of each block
//!                  checks the first block                  └▶ flush, read back, compare
//!                                                             └▶ complete the partition table, have it re-read
//! ```
//!
//! Each byte of the image is written once and in order, even if the download is interrupted. The stages hold 16 MiB of
//! blocks, a few MiB of chunks, 2 MiB of fingerprints per TiB, and the decoder's window, which depends on the image (8 MiB
//! for `zstd -19`, 64 MiB for `xz -9`, 128 MiB for `zstd --long`). A window above 128 MiB, or above half of the free
//! memory, is refused.
//!
//! | variable | meaning |
//! |---|---|
//! | `IMG_URL` | required; `http` or `https`, or a path on the boot server |
//! | `IMG_MAP`, `IMG_MAP_SHA256` | URL of the image's map, and its checksum: [`mapped`] writes the image instead |
//! | `IMG_NAME`, `IMG_SIGNATURE` | required on a machine with [keys](crate::image_keys), and then `IMG_MAP`, too |
//! | `DEST_DISK` | required; an existing disk, partition or file |
//! | `COMPRESSED` | true: must be compressed; false: written as it is; default: decompressed if its first bytes show a known format |
//! | `IMG_SHA256`, `IMG_CHECKSUM` | `sha256:…` or `sha512:…` of the **downloaded** file, before decompression |
//! | `IMG_ANY_CONTENT` | true: write an image that the disk cannot boot from; other texts than booleans are refused |
//! | `IMG_FORCE` | true: write to a disk in use, and drop the part of the image beyond the disk's end |
//! | `IMG_VERIFY` | false: do not read the image back |
//! | `RETRY_ENABLED` | false: fail at the first interruption |
//! | `RETRY_DURATION_MINUTES` | time without a new byte after which the download fails; default: 10 |
//! | `PROGRESS_INTERVAL_SECONDS` | default and minimum: 1 |
//!
//! `TEXT_LOGGING` is accepted and has no effect: progress is not part of the log.

mod destination;
mod mapped;
mod options;
mod runs;
mod table;
mod unpack;
mod write;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::context::Context;
use crate::disk::Disk;
use crate::disk::block::Block;
use crate::download::{self, Download};
use crate::environment::Environment;
use crate::error::{Error, joined};
use crate::fetch::{self, Rest};
use crate::progress::Meter;
use crate::unpack::Unpacker;
use options::ImageOptions;

/// Blocks in circulation: one being filled, one being written, and two queued.
const BLOCK_COUNT: usize = 4;

/// A filled block, its offset on the disk, and the bytes downloaded so far.
struct FilledBlock {
    at: u64,
    block: Block,
    downloaded: u64,
}

/// Writes the image. After a cancellation, it returns when nothing writes to the disk any more.
pub(crate) async fn run(environment: &Environment, context: &Context) -> Result<(), Error> {
    let options = ImageOptions::parse(environment, context)?;
    let (path, force) = (options.disk.clone(), options.force);
    let disk = joined(tokio::task::spawn_blocking(move || Disk::open(&path, force))).await??;

    let meter = Meter::new(context.progress.clone(), options.interval);
    if let Some(map) = &options.map {
        return mapped::run(&options, map, disk, &meter, context).await;
    }
    let (url, retry) = (options.url.clone(), options.retry.clone());
    let file = fetch::open(url, retry, &meter, context).await?;
    run_stages(&options, context, file, disk, &meter).await
}

/// Runs the three stages to their end, then verifies the disk.
async fn run_stages(
    options: &ImageOptions,
    context: &Context,
    (download, head): (Download, Bytes),
    mut disk: Disk,
    meter: &Meter,
) -> Result<(), Error> {
    let unpacker = Arc::new(Unpacker::new(&options.url, &head, options.decompress)?);
    if !unpacker.is_compressed() {
        check_size(options, &disk, &download)?;
    }
    let length = download.length().filter(|_| !unpacker.is_compressed());
    let target = if options.is_any { None } else { Some(destination::of(&mut disk, length)?) };
    let (chunks_in, chunks_out) = mpsc::channel(fetch::MAX_QUEUED_CHUNKS);
    let (filled_in, filled_out) = mpsc::channel(BLOCK_COUNT);
    let (empty_in, empty_out) = mpsc::channel(BLOCK_COUNT);
    let downloaded = Arc::new(AtomicU64::new(0));
    let (empty, filled, counted) = (empty_out, filled_in, downloaded.clone());
    let blocks = unpack::UnpackChannels { empty, filled, downloaded: counted };
    let decompressing = tokio::spawn(unpack::run(chunks_out, unpacker.clone(), target, blocks));
    let writer = writer(options, context, &download, disk, meter);
    let blocks = write::WriterChannels { filled: filled_out, empty: empty_in };
    let writing =
        tokio::task::spawn_blocking(move || writer.run(blocks).map(|written| (writer, written)));

    let rest = Rest::Download(Box::new(download));
    let fetched = fetch::run(rest, head, chunks_in, options.checksum.as_ref(), &context.stop).await;
    let (decompressed, written) = tokio::join!(joined(decompressing), joined(writing));
    // If several stages fail, the first stage has the cause. `Stopped` is no cause: it means that the last stage failed.
    let sum = fetched?;
    let (writer, written) = written??;
    let trailing = decompressed??;
    let (bytes, downloaded) = (written.bytes, downloaded.load(Ordering::Relaxed));
    let line = format!("wrote {bytes} bytes from {downloaded} downloaded bytes\n");
    context.progress.output(line.as_bytes());
    if let Some(line) = unpacker.trailing_line(trailing) {
        context.progress.output(line.as_bytes());
    }
    finish(options, context, writer, written).await?;
    let url = download::redacted(&options.url);
    sum.check(options.checksum.as_ref()).map_err(|source| Error::Checksum { url, source })
}

fn writer(
    options: &ImageOptions,
    context: &Context,
    download: &Download,
    disk: Disk,
    meter: &Meter,
) -> write::Writer {
    write::Writer {
        disk,
        meter: meter.clone(),
        stop: context.stop.clone(),
        force: options.force,
        total: download.length(),
        url: download::redacted(&options.url),
        is_any: options.is_any,
    }
}

/// Verifies what was written, completes the partition table, and logs what was done for it.
async fn finish(
    options: &ImageOptions,
    context: &Context,
    writer: write::Writer,
    written: write::WrittenImage,
) -> Result<(), Error> {
    let verify = options.verify;
    let finishing = tokio::task::spawn_blocking(move || writer.finish(&written, verify));
    for line in joined(finishing).await?? {
        context.progress.output(format!("{line}\n").as_bytes());
    }
    Ok(())
}

/// Refuses an uncompressed image whose end is unknown, or that is larger than the disk.
fn check_size(options: &ImageOptions, disk: &Disk, download: &Download) -> Result<(), Error> {
    if !download.has_known_end() && options.checksum.is_none() {
        return Err(Error::UnknownLength(download::redacted(&options.url)));
    }
    match (download.length(), disk.capacity()) {
        (Some(length), Some(capacity)) if length > capacity && !options.force => {
            Err(disk.too_small(length.to_string()).into())
        }
        _ => Ok(()),
    }
}
