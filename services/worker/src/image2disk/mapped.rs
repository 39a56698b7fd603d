//! Writes an image by its map: only blocks that the disk does not have yet are downloaded.
//!
//! ```text
//! map ─▶ compare with the disk ─┬─ equal: nothing
//!                               ├─ zero: zero ───────────────────────┐
//!                               └─ differs: fetch ─▶ decode ─▶ write ─┴▶ read back ─▶ flush
//! ```
//!
//! The disk is the journal: after an interruption, or for a reinstallation, it is compared anew.
//! Nothing is written before the map and the first block are checked.
//!
//! Memory: at most 13 blocks of 4 MiB and as many frames, buffers of two stages, and the map. The
//! comparison has a buffer for each thread, but ends before the stages begin.
//!
//! - [`fetch_map`]: downloads the map and checks it. [`compare`]: finds the missing blocks;
//!   [`original`] is about the first one, in which the partition table was completed.
//! - [`frames`]: downloads frames and decodes them. [`stages`]: the threads.

mod compare;
mod error;
mod fetch_map;
mod frames;
mod mapped_disk;
mod original;
mod stages;
mod tally;
mod threads;

use std::fmt::Display;
use std::sync::Arc;

use stored_image::BlockDecoder;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::destination;
use super::options::{ImageOptions, MapOptions};
use super::table::{self, OnDisk};
use crate::contents::{self, Destination};
use crate::context::Context;
use crate::disk::Disk;
use crate::disk::block::Block;
use crate::download::{Caches, RangeSource, redacted};
use crate::error::{Error, joined};
use crate::progress::{Meter, Progress};
use compare::MissingBlocks;
use error::Error as MapError;
use frames::StoredFile;
use mapped_disk::MappedDisk;
use stages::{DecodedBlock, Stages};
use tally::Tally;

/// An image that is being installed.
struct Installation {
    target: MappedDisk,
    source: RangeSource,
    /// The URL of the stored file, redacted.
    url: String,
    is_any: bool,
    verify: bool,
    progress: Arc<dyn Progress>,
    /// Cancelled with the action, and by the first stage that fails.
    stop: CancellationToken,
    /// Runs the downloads of threads.
    runtime: Handle,
}

/// Writes the image to `disk`. After a cancellation, it returns when nothing writes to the disk any
/// more.
pub(super) async fn run(
    options: &ImageOptions,
    source: &MapOptions,
    disk: Disk,
    meter: &Meter,
    context: &Context,
) -> Result<(), Error> {
    let map = fetch_map::run(options, source, meter, context).await?;
    let bytes = map.size_bytes();
    if disk.capacity().is_some_and(|capacity| bytes > capacity) {
        return Err(disk.too_small(bytes.to_string()).into());
    }
    let source = RangeSource::new(
        &context.roots,
        options.url.clone(),
        options.retry.clone(),
        map.stored_bytes(),
    )?;
    let tally = Arc::new(Tally::new(meter.clone(), bytes));
    let installation = Installation {
        target: MappedDisk { disk, map, tally },
        source,
        url: redacted(&options.url),
        is_any: options.is_any,
        verify: options.verify,
        progress: context.progress.clone(),
        stop: context.stop.child_token(),
        runtime: Handle::current(),
    };
    joined(tokio::task::spawn_blocking(move || installation.run())).await?
}

impl Installation {
    /// Writes the missing blocks, and completes the partition table.
    fn run(mut self) -> Result<(), Error> {
        let sectors = self.target.disk.sector_sizes()?;
        let bytes = self.target.map.size_bytes();
        let destination = destination::of(&mut self.target.disk, Some(bytes))?;
        let mut missing = compare::run(&self.target, &sectors, &self.stop)?;
        let first = self.checked_first(&destination, &mut missing)?;

        let stages = self.stages();
        let unverified = stages.run(missing, first)?;
        self.target.disk.flush()?;
        stages.verify_flushed(&unverified)?;

        self.log(&self.target.tally);
        let (url, is_any) = (self.url.clone(), self.is_any);
        let image = OnDisk { url, bytes, is_any, may_be_completed: true };
        for line in table::complete(&mut self.target.disk, &image)? {
            self.log(&line);
        }
        self.target.disk.reread_partitions();
        Ok(())
    }

    fn log(&self, line: &dyn Display) {
        self.progress.output(format!("{line}\n").as_bytes());
    }

    /// Refuses an image that the disk cannot boot from. Returns its first block, and removes it
    /// from the missing ones, if it was downloaded for that.
    fn checked_first(
        &self,
        destination: &Destination,
        missing: &mut MissingBlocks,
    ) -> Result<Option<DecodedBlock>, Error> {
        if self.is_any {
            return Ok(None);
        }
        let mut content = Block::new();
        let is_missing = missing.used.first() == Some(&0);
        if is_missing {
            let file = self.file();
            let mut decoder = BlockDecoder::new().map_err(MapError::Decoder)?;
            let frame = file.fetch_one(0, Caches::Allowed)?;
            file.decode(&mut decoder, &frame, &mut content)?;
            missing.used.remove(0);
        } else if missing.zero.first() == Some(&0) {
            content.space(mapped_disk::length(&self.target.block(0)?));
        } else {
            self.target.read(&self.target.block(0)?, &mut content)?;
        }
        contents::check(content.content(), destination)
            .map_err(|refusal| Error::Contents { url: self.url.clone(), source: refusal.into() })?;
        Ok(is_missing.then(|| DecodedBlock::new(0, content)))
    }

    fn file(&self) -> StoredFile<'_> {
        StoredFile {
            target: &self.target,
            source: &self.source,
            url: &self.url,
            stop: &self.stop,
            runtime: &self.runtime,
        }
    }

    fn stages(&self) -> Stages<'_> {
        Stages { target: &self.target, file: self.file(), verify: self.verify, stop: &self.stop }
    }
}
