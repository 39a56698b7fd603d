//! Record of the stored ranges of a file: a bitmap with the size of the file and a checksum.

use std::iter;

use xxhash_rust::xxh64::xxh64;

use crate::layout::RangeLayout;

/// First bytes of a record. The last one is the version of its format.
const MAGIC: [u8; 8] = *b"ranges\x00\x01";
/// Bytes before the bitmap: the magic bytes, the size of the file, and the size of a range.
const HEADER_BYTES: usize = 24;
/// Bytes of the checksum at the end.
const CHECKSUM_BYTES: usize = 8;

/// The ranges of a file that are on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredRanges {
    layout: RangeLayout,
    bitmap: Vec<u8>,
}

impl StoredRanges {
    /// Returns a record without stored ranges.
    pub(crate) fn new(layout: RangeLayout) -> Self {
        let bytes = usize::try_from(layout.count().div_ceil(8)).unwrap_or(usize::MAX);
        Self { layout, bitmap: vec![0; bytes] }
    }

    /// Returns the record of a file with ranges of `range_bytes`. None: `bytes` are torn, of
    /// another format, or of a file with other ranges.
    pub(crate) fn decode(bytes: &[u8], range_bytes: u64) -> Option<Self> {
        let (content, checksum) = bytes.split_last_chunk::<CHECKSUM_BYTES>()?;
        if u64::from_le_bytes(*checksum) != xxh64(content, 0) {
            return None;
        }
        let (header, bitmap) = content.split_at_checked(HEADER_BYTES)?;
        let (magic, sizes) = header.split_first_chunk::<8>()?;
        let (size, recorded) = sizes.split_first_chunk::<8>()?;
        let layout = RangeLayout { size: u64::from_le_bytes(*size), range_bytes };
        let is_valid = *magic == MAGIC
            && recorded == range_bytes.to_le_bytes()
            && u64::try_from(bitmap.len()).ok()? == layout.count().div_ceil(8);
        is_valid.then(|| Self { layout, bitmap: bitmap.to_vec() })
    }

    /// Returns the bytes of the record.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let RangeLayout { size, range_bytes } = self.layout;
        let header = [MAGIC, size.to_le_bytes(), range_bytes.to_le_bytes()];
        let mut bytes = header.concat();
        bytes.extend_from_slice(&self.bitmap);
        bytes.extend_from_slice(&xxh64(&bytes, 0).to_le_bytes());
        bytes
    }

    /// Returns the division of the file.
    pub(crate) fn layout(&self) -> RangeLayout {
        self.layout
    }

    /// True if the range `index` is stored.
    pub(crate) fn contains(&self, index: u64) -> bool {
        let (byte, bit) = place(index);
        self.bitmap.get(byte).is_some_and(|byte| byte & bit != 0)
    }

    /// Records whether the range `index` is stored.
    pub(crate) fn set(&mut self, index: u64, is_stored: bool) {
        let (byte, bit) = place(index);
        if let Some(byte) = self.bitmap.get_mut(byte) {
            *byte = if is_stored { *byte | bit } else { *byte & !bit };
        }
    }

    /// Returns the index of each range, and true if it is stored.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, bool)> {
        iter::zip(0..self.layout.count(), (0..).map(|index| self.contains(index)))
    }
}

/// Returns the byte and the bit of the range `index`.
fn place(index: u64) -> (usize, u8) {
    (usize::try_from(index / 8).unwrap_or(usize::MAX), 1 << (index % 8))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_record_is_read_as_it_was_written_and_refused_if_a_bit_is_wrong(
            size in 0..5000_u64,
            range_bytes in 1..600_u64,
            stored in prop::collection::vec(any::<bool>(), 64),
            flipped in any::<prop::sample::Index>(),
        ) {
            let mut record = StoredRanges::new(RangeLayout { size, range_bytes });
            for (index, is_stored) in iter::zip(0..record.layout.count(), stored) {
                record.set(index, is_stored);
                prop_assert_eq!(record.contains(index), is_stored);
            }
            let mut bytes = record.encode();
            prop_assert_eq!(StoredRanges::decode(&bytes, range_bytes), Some(record.clone()));
            prop_assert_eq!(StoredRanges::decode(&bytes, range_bytes + 1), None);
            let bit = flipped.index(8 * bytes.len());
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(StoredRanges::decode(&bytes, range_bytes), None);
            bytes[bit / 8] ^= 1 << (bit % 8);
            bytes.truncate(bit / 8);
            prop_assert_eq!(StoredRanges::decode(&bytes, range_bytes), None);
        }
    }
}
