//! The tables of clusters: each cluster that they refer to must be in the file.
//!
//! Readers, QEMU among them, return zeros for what is behind the end of the file: a truncated image
//! would become a disk with holes.

use super::header::Header;
use crate::format::Format;
use crate::refusal::Refusal;
use crate::source::Source;

/// Bits of an offset in an entry of either level.
const OFFSET: u64 = 0x00ff_ffff_ffff_fe00;
/// Bit of an entry of the second level: the cluster is compressed.
const COMPRESSED: u64 = 1 << 62;
/// Bit of an entry of the second level: the cluster reads as zeros.
const ZERO: u64 = 1;
/// Unit of the length of compressed clusters, in bytes.
const SECTOR: u64 = 512;
/// Bytes of an entry of the first level.
const POINTER_BYTES: u64 = 8;

/// Returns an error if a table or cluster of the image is not in the file.
pub(super) fn check(source: &Source, header: &Header) -> Result<(), Refusal> {
    let used = header.bytes.div_ceil(header.table_covers()).min(header.l1_entries.into());
    let first = table(source, header.l1_offset, used * POINTER_BYTES, "table of the first level")?;
    for (number, pointer) in (0_u64..).zip(words(&first)) {
        let offset = pointer & OFFSET;
        if offset == 0 {
            continue;
        }
        let second = table(source, offset, header.cluster(), "table of the second level")?;
        let entries = second.chunks_exact(usize::try_from(header.entry_bytes()).unwrap_or(8));
        for (index, entry) in (0_u64..).zip(entries) {
            let at = number * header.table_covers() + index * header.cluster();
            if at < header.bytes {
                check_cluster(source, header, entry, at)?;
            }
        }
    }
    Ok(())
}

/// Returns an error if the cluster of `entry`, which has the bytes of the disk from `at` on, is not
/// in the file.
fn check_cluster(source: &Source, header: &Header, entry: &[u8], at: u64) -> Result<(), Refusal> {
    let mut parts = words(entry);
    let entry = parts.next().unwrap_or_default();
    let bitmap = parts.next().unwrap_or_default();
    let is_missing = |end: u64| end > source.bytes();
    if entry & COMPRESSED != 0 {
        // The format's "Compressed Clusters Descriptor": offset, and number of further sectors.
        let offset_bits = 62 - (header.cluster_bits - 8);
        let offset = entry & ((1 << offset_bits) - 1);
        let further = (entry & !(COMPRESSED | 1 << 63)) >> offset_bits;
        // Its data ends somewhere in the last sector: the decoder finds where.
        let last = (offset & !(SECTOR - 1)) + further * SECTOR;
        return if is_missing(last.max(offset) + 1) { Err(missing(source, at)) } else { Ok(()) };
    }
    let offset = entry & OFFSET;
    let is_zero = header.has_zero_flag() && entry & ZERO != 0;
    if offset == 0 || is_zero {
        return Ok(());
    }
    if !offset.is_multiple_of(header.cluster()) {
        let reason = format!("cluster at byte {offset}: not at a multiple of its size");
        return Err(Refusal::damaged(Format::Qcow2, reason));
    }
    let length = match header.has_subclusters() {
        // The lower half of the bitmap has a bit for each part with data.
        true => u64::from(32 - (bitmap as u32).leading_zeros()) * (header.cluster() / 32),
        false => header.cluster(),
    };
    // The last cluster may be larger than the rest of the disk.
    let length = length.min(header.bytes - at);
    if is_missing(offset + length) { Err(missing(source, at)) } else { Ok(()) }
}

fn missing(source: &Source, at: u64) -> Refusal {
    let needs = format!("the disk's bytes from {at} are behind the end");
    Refusal::truncated(Format::Qcow2, source.bytes(), needs)
}

fn table(source: &Source, offset: u64, length: u64, what: &str) -> Result<Vec<u8>, Refusal> {
    let end = offset.checked_add(length).filter(|end| *end <= source.bytes());
    if end.is_none() {
        let needs = format!("the {what} is behind the end");
        return Err(Refusal::truncated(Format::Qcow2, source.bytes(), needs));
    }
    source.read(offset, usize::try_from(length).unwrap_or_default())
}

fn words(table: &[u8]) -> impl Iterator<Item = u64> {
    let (words, _) = table.as_chunks::<8>();
    words.iter().map(|word| u64::from_be_bytes(*word))
}
