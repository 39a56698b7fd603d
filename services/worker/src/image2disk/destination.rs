//! Describes a disk as the destination of an image.

use crate::contents::Destination;
use crate::disk::{Disk, Error};

/// Returns the description of `disk` as the destination of an image of `bytes` bytes, if known.
pub(super) fn of(disk: &mut Disk, bytes: Option<u64>) -> Result<Destination, Error> {
    let capacity = disk.capacity();
    let sector = capacity.is_some().then(|| disk.sector_size()).transpose()?;
    Ok(Destination { kind: disk.kind(), sector, capacity, image: bytes })
}
