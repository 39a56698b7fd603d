//! Division of a file into the ranges that are fetched and stored.

use std::ops::Range;

/// Size of a file, and of its ranges. The last range may be shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RangeLayout {
    /// Size of the file in bytes.
    pub(crate) size: u64,
    /// Size of a range in bytes, at least one.
    pub(crate) range_bytes: u64,
}

impl RangeLayout {
    /// Returns the number of ranges.
    pub(crate) fn count(self) -> u64 {
        self.size.div_ceil(self.range_bytes)
    }

    /// Returns the index of the range that has the byte at `position`.
    pub(crate) fn index(self, position: u64) -> u64 {
        position / self.range_bytes
    }

    /// Returns the bytes of the range `index`; empty beyond the end of the file.
    pub(crate) fn range(self, index: u64) -> Range<u64> {
        let start = index.saturating_mul(self.range_bytes).min(self.size);
        start..start.saturating_add(self.range_bytes).min(self.size)
    }

    /// Returns the length of the range `index`.
    pub(crate) fn length(self, index: u64) -> u64 {
        let Range { start, end } = self.range(index);
        end - start
    }
}
