//! Aligned memory blocks for disk transfers.

use std::ops::Range;

use xxhash_rust::xxh64::xxh64;

/// Alignment in bytes of O_DIRECT transfers: the largest sector size of disks.
pub(crate) const ALIGN: u64 = 4096;

/// Bytes in a block: large enough for a spinning disk, small enough to hold several in memory.
pub(crate) const SIZE: usize = 4 << 20;

/// Granularity in bytes of the search for zeroes. With a smaller one, the disk would get too many commands.
const GRAIN: usize = 64 << 10;

/// Up to [`SIZE`] bytes at an aligned address.
#[derive(Debug)]
pub(crate) struct Block {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

/// A part of a block. `zero`: all bytes are zero. Otherwise, the part is written as data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) range: Range<usize>,
    pub(crate) zero: bool,
}

impl Block {
    /// Creates an empty block, with zeroed memory.
    pub(crate) fn new() -> Self {
        let bytes = vec![0; SIZE + ALIGN as usize];
        let start = bytes.as_ptr().align_offset(ALIGN as usize);
        Self { bytes, start, length: 0 }
    }

    /// Sets the length of the content, and returns the content to be filled.
    pub(crate) fn space(&mut self, length: usize) -> &mut [u8] {
        self.length = length.min(SIZE);
        self.bytes.get_mut(self.start..self.start + self.length).unwrap_or_default()
    }

    /// Returns the content.
    pub(crate) fn content(&self) -> &[u8] {
        self.bytes.get(self.start..self.start + self.length).unwrap_or_default()
    }

    /// Returns all of the memory.
    pub(crate) fn capacity(&self) -> &[u8] {
        self.bytes.get(self.start..self.start + SIZE).unwrap_or_default()
    }

    /// Shortens the content to `length` bytes.
    pub(crate) fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }
}

/// Returns a fingerprint of `bytes`, to compare the data read back with the data written. A fast 64-bit hash is enough, since
/// a disk is no attacker; a cryptographic digest would make the verification slower.
pub(crate) fn fingerprint(bytes: &[u8]) -> u64 {
    xxh64(bytes, 0)
}

/// Splits `bytes` into alternating runs of zeroes and other bytes, in order and without gaps.
pub(crate) fn runs(bytes: &[u8]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut at = 0;
    for grain in bytes.chunks(GRAIN) {
        let (end, zero) = (at + grain.len(), grain.len() == GRAIN && is_zero(grain));
        match runs.last_mut() {
            Some(run) if run.zero == zero => run.range.end = end,
            _ => runs.push(Run { range: at..end, zero }),
        }
        at = end;
    }
    runs
}

/// True if all of `bytes` are zero.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    // With 16 bytes at a time, the compiler generates vector code even at low optimisation levels.
    let (wide, rest) = bytes.as_chunks::<16>();
    wide.iter().all(|wide| u128::from_ne_bytes(*wide) == 0) && rest.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_block_is_aligned_wherever_it_moves() {
        let blocks: Vec<_> = std::iter::repeat_with(Block::new).take(3).collect();
        for block in &blocks {
            assert_eq!(block.capacity().len(), SIZE);
            assert_eq!(block.capacity().as_ptr().align_offset(ALIGN as usize), 0);
        }
    }

    proptest! {
        #[test]
        fn runs_cover_all_bytes_and_zero_runs_have_only_zeroes(
            grains in prop::collection::vec(any::<bool>(), 0..6),
            rest in 0..GRAIN,
            speck in any::<prop::sample::Index>(),
        ) {
            let mut bytes: Vec<u8> = grains.iter().flat_map(|zero| [u8::from(!zero); GRAIN]).collect();
            bytes.resize(bytes.len() + rest, 0);
            if !bytes.is_empty() {
                let at = speck.index(bytes.len());
                bytes[at] = 7;
            }
            let mut at = 0;
            for Run { range, zero } in runs(&bytes) {
                prop_assert_eq!(range.start, at);
                prop_assert!(!zero || bytes[range.clone()].iter().all(|byte| *byte == 0));
                at = range.end;
            }
            prop_assert_eq!(at, bytes.len());
        }
    }
}
