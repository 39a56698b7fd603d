//! Wipes disks: both ends are zeroed, and the rest is discarded if the disk supports it.

use std::path::Path;
use std::time::Duration;

use super::metadata::Storage;
use super::{Error, open};
use crate::context::Context;
use crate::disk::block::Block;
use crate::disk::{self, Disk};
use crate::error::{self, joined};
use crate::progress::{Meter, Phase, Report};

/// Bytes zeroed at either end of a disk: they hold boot code, partition tables and their copies, and the signatures of
/// arrays, volume groups and file systems.
const END_BYTES: u64 = 1 << 20;

/// Bytes discarded between two progress reports and checks for cancellation.
const STEP_BYTES: u64 = 64 << 20;

/// Wipes the disks one after the other.
pub(super) async fn run(storage: Storage, context: &Context) -> Result<(), error::Error> {
    let meter = Meter::new(context.progress.clone(), Duration::ZERO);
    let stop = context.stop.clone();
    joined(tokio::task::spawn_blocking(move || {
        if storage.disks.is_empty() {
            return Err(Error::Empty("disks").into());
        }
        let paths = || storage.disks.iter().map(|disk| disk.device.as_path());
        let mut disks = open(paths())?;
        for (disk, path) in disks.iter_mut().zip(paths()) {
            discard(disk, path, &meter, || stop.is_cancelled())?;
            zero_ends(disk)?;
            disk.reread_partitions();
        }
        Ok(())
    }))
    .await?
}

/// Discards all of `disk`, if it supports that.
fn discard(
    disk: &Disk,
    path: &Path,
    meter: &Meter,
    cancelled: impl Fn() -> bool,
) -> Result<(), error::Error> {
    let total = disk.capacity().unwrap_or_default();
    let mut done = 0;
    while done < total {
        if cancelled() {
            return Err(error::Error::Cancelled);
        }
        let length = STEP_BYTES.min(total - done);
        if !disk.discard(done, length)? {
            tracing::info!(disk = %path.display(), "disk cannot discard: only its ends are wiped");
            break;
        }
        done += length;
        meter.report(|| Report { phase: Phase::Wiping, done, total: Some(total) });
    }
    Ok(())
}

/// Zeroes and verifies both ends of `disk`.
pub(super) fn zero_ends(disk: &Disk) -> Result<(), disk::Error> {
    let capacity = disk.capacity().unwrap_or_default();
    let length = END_BYTES.min(capacity);
    let offsets = [0, capacity - length];
    for at in offsets {
        disk.zero(at, length)?;
    }
    disk.flush()?;
    let mut block = Block::new();
    for at in offsets {
        let expected = usize::try_from(length).unwrap_or_default();
        disk.check_zero(at, &mut block, expected)?;
    }
    Ok(())
}
