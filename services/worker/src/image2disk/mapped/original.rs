//! The partition table of an image before it was completed for the size of its disk.
//!
//! After an installation, the first block of the disk has another size in its GPT and protective
//! MBR than the image. A later installation of the same image takes this block for the image's, if
//! the table would be the image's on a disk of the image's size.

use crate::partition_table::gpt::Header;
use crate::partition_table::mbr::Mbr;

/// Returns the first `block` of a disk as it would be on a disk of `bytes` bytes. None if it has no
/// GPT for sectors of `sector` bytes.
pub(super) fn resized(block: &[u8], bytes: u64, sector: u64) -> Option<Vec<u8>> {
    let size = usize::try_from(sector).ok()?;
    let record = Mbr::parse(block).filter(Mbr::is_protective)?;
    let header = Header::parse(block.get(size..)?.get(..size)?, 1).ok()?;
    let at = usize::try_from(header.entries_offset()).ok()?;
    let entries = block.get(at..)?.get(..usize::try_from(header.entries_length()).ok()?)?;
    let partitions = header.partitions(entries).ok()?;
    let sectors = bytes / sector;
    let primary = header.moved_to(sectors.checked_sub(1)?, &partitions)?.primary;

    let mut resized = block.to_vec();
    let record = record.for_disk_of(sectors);
    resized.get_mut(..record.bytes().len())?.copy_from_slice(record.bytes());
    resized.get_mut(size..)?.get_mut(..size)?.copy_from_slice(primary.sector());
    Some(resized)
}
