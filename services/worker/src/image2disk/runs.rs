//! Writes blocks of an image.

use crate::disk::block::{Run, runs};
use crate::disk::{Disk, Error};

/// Writes `bytes` at the offset `at`. Long runs of zeroes are discarded or zeroed by a command to
/// the disk, if it supports that: the old content is erased in either case.
pub(super) fn write(disk: &Disk, at: u64, bytes: &[u8]) -> Result<(), Error> {
    for Run { range, zero } in runs(bytes) {
        let offset = at + range.start as u64;
        if zero && disk.capacity().is_some() {
            disk.zero(offset, range.len() as u64)?;
        } else {
            disk.write(offset, bytes.get(range).unwrap_or_default())?;
        }
    }
    Ok(())
}
