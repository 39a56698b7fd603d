//! Making disks look new: what is known by its place goes, and the rest is discarded where a disk can do that.

use std::path::Path;
use std::time::Duration;

use super::metadata::Storage;
use super::{Error, open};
use crate::action::{self, Context, joined};
use crate::disk::block::{Block, is_zero};
use crate::disk::{self, Disk};
use crate::progress::{Meter, Phase, Report};

/// How much at either end of a disk is written with zeroes, in bytes. Boot code, partition tables and their copies are
/// there, and what arrays, volume groups and file systems are known by.
const END: u64 = 1 << 20;

/// How much is discarded between two looks at the clock and the cancellation.
const STEP: u64 = 64 << 20;

/// Wipes them, one after the other.
pub(super) async fn run(storage: Storage, context: &Context) -> Result<(), action::Error> {
    let meter = Meter::new(context.progress.clone(), Duration::ZERO);
    let stop = context.stop.clone();
    joined(tokio::task::spawn_blocking(move || {
        if storage.disks.is_empty() {
            return Err(Error::Nothing("disks").into());
        }
        let paths = || storage.disks.iter().map(|disk| disk.device.as_path());
        let mut disks = open(paths())?;
        for (disk, path) in disks.iter_mut().zip(paths()) {
            discard(disk, path, &meter, || stop.is_cancelled())?;
            ends(disk)?;
            disk.reread_partitions();
        }
        Ok(())
    }))
    .await?
}

/// Discards all of `disk`, unless it cannot.
fn discard(
    disk: &Disk,
    path: &Path,
    meter: &Meter,
    cancelled: impl Fn() -> bool,
) -> Result<(), action::Error> {
    let total = disk.capacity().unwrap_or_default();
    let mut done = 0;
    while done < total {
        if cancelled() {
            return Err(action::Error::Cancelled);
        }
        let length = STEP.min(total - done);
        if !disk.discard(done, length)? {
            tracing::info!(disk = %path.display(), "cannot discard: only its ends are wiped");
            break;
        }
        done += length;
        let report = || Report { phase: Phase::Wiping, done, total: Some(total) };
        meter.report(report);
    }
    Ok(())
}

/// Writes zeroes at both ends of `disk`, and reads them back.
pub(super) fn ends(disk: &Disk) -> Result<(), disk::Error> {
    let capacity = disk.capacity().unwrap_or_default();
    let length = END.min(capacity);
    let places = [0, capacity - length];
    for at in places {
        disk.zero(at, length)?;
    }
    disk.settle()?;
    let mut block = Block::new();
    for at in places {
        let wanted = usize::try_from(length).unwrap_or_default();
        disk.read(at, &mut block, wanted)?;
        block.truncate(wanted);
        if !is_zero(block.content()) {
            return Err(disk.differs(at, length));
        }
    }
    Ok(())
}
