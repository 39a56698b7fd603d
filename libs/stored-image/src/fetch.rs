//! Ranges of a stored file for HTTP requests.

use std::ops::Range;

use crate::error::Error;
use crate::map::CheckedMap;

/// Maximum size of a range in bytes, by agreement with caches.
pub const MAX_RANGE_BYTES: u64 = 16 << 20;
/// Maximum number of bytes between two frames of a range. Frames of zeros, of less than a kilobyte
/// each, lie between frames with data: to fetch them costs less than another request.
const MAX_GAP_BYTES: u64 = 64 << 10;

/// Bytes of the stored file that are fetched at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameRange {
    /// Bytes of the stored file.
    pub stored: Range<u64>,
    /// Numbers of the selected blocks. Frames of other blocks may lie between theirs.
    pub blocks: Vec<usize>,
}

/// Joins the frames of the selected `blocks` to ranges of at most `max_bytes` bytes. A frame with
/// more bytes has a range of its own. Numbers in ascending order make the fewest ranges.
pub fn ranges_to_fetch(
    map: &CheckedMap,
    blocks: impl IntoIterator<Item = usize>,
    max_bytes: u64,
) -> Result<Vec<FrameRange>, Error> {
    let mut ranges: Vec<FrameRange> = Vec::new();
    for index in blocks {
        let stored = map.block(index)?.stored;
        match ranges.last_mut().filter(|range| is_joined(&range.stored, &stored, max_bytes)) {
            Some(range) => {
                range.stored.end = stored.end;
                range.blocks.push(index);
            }
            None => ranges.push(FrameRange { stored, blocks: vec![index] }),
        }
    }
    Ok(ranges)
}

/// True if `frame` follows `range` closely, and both together have at most `max_bytes` bytes.
fn is_joined(range: &Range<u64>, frame: &Range<u64>, max_bytes: u64) -> bool {
    let gap = frame.start.checked_sub(range.end);
    gap.is_some_and(|gap| gap <= MAX_GAP_BYTES) && frame.end - range.start <= max_bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::samples;

    /// Returns a map with frames of the given lengths.
    fn map_of(lengths: &[u32]) -> CheckedMap {
        let (_, map) = samples::encode(&vec![1; lengths.len() * samples::BLOCK]);
        let mut message = samples::message(&map);
        for (block, length) in message.blocks.iter_mut().zip(lengths) {
            block.length = *length;
        }
        samples::move_frames(&mut message);
        CheckedMap::check(message).unwrap()
    }

    fn ranges(lengths: &[u32], blocks: &[usize], max_bytes: u64) -> Vec<(Range<u64>, Vec<usize>)> {
        let found = ranges_to_fetch(&map_of(lengths), blocks.iter().copied(), max_bytes).unwrap();
        found.into_iter().map(|range| (range.stored, range.blocks)).collect()
    }

    #[test]
    fn neighbours_are_joined_up_to_the_maximum() {
        let found = ranges(&[100, 100, 100, 100], &[0, 1, 2, 3], 200);
        assert_eq!(found, [(0..200, vec![0, 1]), (200..400, vec![2, 3])]);
        let single = ranges(&[100, 100], &[0, 1], 199);
        assert_eq!(single, [(0..100, vec![0]), (100..200, vec![1])]);
    }

    #[test]
    fn small_gaps_are_fetched_and_large_ones_are_not() {
        let found = ranges(&[9, 20, 9, 60_000, 9, 60_000, 6_000, 9], &[0, 2, 4, 7], 1 << 20);
        assert_eq!(found, [(0..60_047, vec![0, 2, 4]), (126_047..126_056, vec![7])]);
    }

    #[test]
    fn a_frame_over_the_maximum_has_its_own_range() {
        let found = ranges(&[10, 500, 10], &[0, 1, 2], 100);
        assert_eq!(found, [(0..10, vec![0]), (10..510, vec![1]), (510..520, vec![2])]);
    }

    #[test]
    fn an_unknown_block_is_refused() {
        let error = ranges_to_fetch(&map_of(&[1]), [1], 1).unwrap_err().to_string();
        assert_eq!(error, "block: 1: the map has 1 blocks");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn each_selected_frame_is_in_its_range(
            lengths in prop::collection::vec(1..65_000_u32, 1..20),
            selected in prop::collection::vec(0..20_usize, 0..20),
            max_bytes in 1..200_000_u64,
        ) {
            let map = map_of(&lengths);
            let selected: Vec<_> = selected.into_iter().filter(|i| *i < lengths.len()).collect();
            let ranges = ranges_to_fetch(&map, selected.clone(), max_bytes).unwrap();
            prop_assert_eq!(ranges.iter().flat_map(|r| r.blocks.clone()).collect::<Vec<_>>(), selected);
            for range in ranges {
                let length = range.stored.end - range.stored.start;
                prop_assert!(length <= max_bytes || range.blocks.len() == 1);
                for index in range.blocks {
                    let frame = map.block(index).unwrap().stored;
                    prop_assert!(range.stored.start <= frame.start && frame.end <= range.stored.end);
                }
            }
        }
    }
}
