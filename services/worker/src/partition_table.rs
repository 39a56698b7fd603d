//! Partition tables of images as bytes, without I/O.
//!
//! - [`mbr`]: the first sector, which may protect a GPT.
//! - [`gpt`]: headers and entries, and the headers for a disk of another size.
//!
//! The crate gptman makes the tables of `rootio`. It is not used for the tables of images, because
//! it allocates and panics as a foreign header says.

pub(crate) mod gpt;
pub(crate) mod mbr;

use std::ops::Range;

/// Sizes of the sectors of disks in bytes, the usual one first.
pub(crate) const SECTOR_SIZES: [u64; 4] = [512, 4096, 1024, 2048];

/// A used partition of a table. Both sectors belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Partition {
    pub(crate) number: usize,
    pub(crate) first: u64,
    pub(crate) last: u64,
}

impl Partition {
    /// Returns the offset of the first byte behind the partition, for sectors of `sector` bytes.
    pub(crate) fn end(&self, sector: u64) -> u64 {
        self.last.saturating_add(1).saturating_mul(sector)
    }

    /// Returns the range of bytes of the partition, for sectors of `sector` bytes.
    pub(crate) fn range(&self, sector: u64) -> Range<u64> {
        self.first.saturating_mul(sector)..self.end(sector)
    }
}

/// Returns the `N` bytes of `bytes` at `at`, if they are there.
fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}
