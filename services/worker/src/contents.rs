//! Recognises an image by its first bytes, and refuses one that a machine cannot boot from, before
//! the first write.
//!
//! ```text
//! first 4 MiB ─▶ format: archive, virtual disk, text, kernel … ─▶ refused
//!             └▶ disk: boot sector or partition table?  no ─▶ refused, named by its file system
//!                 └▶ sector size, checksums, room on the disk
//! ```
//!
//! - [`mod@format`]: the formats that decide alone.
//! - [`boot`]: what firmware reads of a disk.
//!
//! The question is whether firmware finds something to run, not what that does: a table without a
//! boot loader is accepted, since a later action may install one, or load the kernel.

mod boot;
mod format;

use crate::disk::DeviceKind;
use crate::partition_table::Partition;
use crate::partition_table::gpt::Damage;
use format::{Format, Place};

/// The destination of an image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Destination {
    pub(crate) kind: DeviceKind,
    /// Bytes of a sector; none for a file.
    pub(crate) sector: Option<u64>,
    /// Size in bytes; none for a file, which can grow.
    pub(crate) capacity: Option<u64>,
    /// Size of the image in bytes, if it is known.
    pub(crate) image: Option<u64>,
}

/// The reason why an image is not written. `IMG_ANY_CONTENT` overrides it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}; IMG_ANY_CONTENT=true writes it as it is")]
pub(crate) struct UnusableContent(Reason);

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Reason {
    #[error("not a disk image: {}: {}", .0.name, .0.advice)]
    Format(Format),
    #[error("not a disk image: only zeroes in its first {0} bytes: the file may be incomplete")]
    Zeroes(usize),
    #[error("not a disk image: neither a partition table nor a boot sector in its first sectors")]
    Unknown,
    #[error("empty disk image: a partition table without partitions, and no boot code")]
    Empty,
    #[error("damaged partition table: {0}")]
    Damaged(Damage),
    #[error("damaged partition table: a GPT without the protective MBR, which firmware requires")]
    Unprotected,
    #[error(
        "disk image for sectors of {image} bytes: the disk has sectors of {disk} bytes: take an image that is made for these"
    )]
    SectorSize { image: u64, disk: u64 },
    #[error(
        "disk too small: holds {capacity} bytes, the partition table of the image needs {needs}"
    )]
    TooSmall { capacity: u64, needs: u64 },
    #[error(
        "incomplete disk image: partition {number} ends at byte {end}, the image at byte {image}"
    )]
    Incomplete { number: usize, end: u64, image: u64 },
    #[error("disk image with a partition table: write it to a whole disk, not to a partition")]
    Nested,
}

impl From<Reason> for UnusableContent {
    fn from(reason: Reason) -> Self {
        Self(reason)
    }
}

impl From<Damage> for Reason {
    fn from(damage: Damage) -> Self {
        Self::Damaged(damage)
    }
}

/// Returns an error unless the image that begins with `head` may be written to `target`. `head` is
/// the first block, or the whole image if it is smaller.
pub(crate) fn check(head: &[u8], target: &Destination) -> Result<(), UnusableContent> {
    let found = format::of_beginning(head);
    match (found, target.kind) {
        (Some(format), DeviceKind::Disk) => Err(Reason::Format(format).into()),
        (Some(format), DeviceKind::Partition | DeviceKind::Volume) => match format.place {
            Place::Nowhere => Err(Reason::Format(format).into()),
            Place::Partition => Ok(()),
        },
        (None, DeviceKind::Disk) => Ok(boot::check(head, target)?),
        (None, DeviceKind::Partition) => Ok(boot::check_partition(head)?),
        (None, DeviceKind::Volume) => Ok(boot::check_volume(head, target)?),
    }
}

/// Returns the refusal of a table with `damage`.
pub(crate) fn damaged(damage: Damage) -> UnusableContent {
    Reason::Damaged(damage).into()
}

/// Returns the refusal of a table that needs a disk of `needs` bytes.
pub(crate) fn too_small(capacity: u64, needs: u64) -> UnusableContent {
    Reason::TooSmall { capacity, needs }.into()
}

/// Returns an error unless the image has all of the `partitions` of its GPT. [`check`] does the
/// same, if the table is in the first block and the size of the image is known by then.
pub(crate) fn check_partitions(
    partitions: &[Partition],
    sector: u64,
    target: &Destination,
) -> Result<(), UnusableContent> {
    Ok(boot::check_partitions(partitions, sector, target)?)
}

/// Bytes at the beginning of an image that [`has_implanted_checksum`] needs.
pub(crate) const DESCRIPTOR_BYTES: usize = 36 << 10;

/// True if `head` begins an ISO image that verifies itself when it boots: its partition table must
/// not change.
pub(crate) fn has_implanted_checksum(head: &[u8]) -> bool {
    format::has_implanted_checksum(head)
}

#[cfg(test)]
mod tests;
