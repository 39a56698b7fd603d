//! Tests of maps from untrusted sources.

use proptest::prelude::*;

use super::*;
use crate::samples::{self, BLOCK};

const LIMIT: u64 = 1 << 30;

/// Parses the sample's map after a change.
fn changed(change: impl FnOnce(&mut pb::Map)) -> Result<CheckedMap, Error> {
    let mut message = samples::message(&samples::stored().2);
    change(&mut message);
    CheckedMap::parse(&message.encode_to_vec(), LIMIT)
}

fn refusal(change: impl FnOnce(&mut pb::Map)) -> String {
    changed(change).unwrap_err().to_string()
}

#[test]
fn an_encoded_map_is_parsed() {
    let (_, _, map) = samples::stored();
    assert_eq!(CheckedMap::parse(&map.encode(), LIMIT).unwrap(), map);
}

#[test]
fn blocks_cover_the_raw_disk_and_frames_the_file() {
    let (raw, stored, map) = samples::stored();
    assert_eq!((map.block_count(), map.blocks().len()), (5, 5));
    assert_eq!((map.size_bytes(), map.stored_bytes()), (raw.len() as u64, stored.len() as u64));
    assert_eq!((map.sha256(), map.stored_sha256()), (Digest::of(&raw), Digest::of(&stored)));
    let (mut raw_end, mut stored_end) = (0, 0);
    for (index, block) in map.blocks().enumerate() {
        assert_eq!(
            (block.index, block.raw.start, block.stored.start),
            (index, raw_end, stored_end)
        );
        let content = samples::slice(&raw, &block.raw);
        let digest = content.iter().any(|byte| *byte != 0).then(|| Digest::of(content));
        assert_eq!(block.digest, digest, "{index}");
        (raw_end, stored_end) = (block.raw.end, block.stored.end);
    }
    assert_eq!(raw_end, raw.len() as u64);
    assert_eq!(map.used_bytes(), 3 * BLOCK as u64 + 1);
}

#[test]
fn sizes_over_the_limit_are_refused() {
    let bytes = samples::stored().2.encode();
    assert!(CheckedMap::parse(&bytes, 262_145).is_ok());
    let error = CheckedMap::parse(&bytes, 262_144).unwrap_err().to_string();
    assert_eq!(error, "map: blocks: the limit is 4 blocks: 5");
    let large = changed(|map| map.size_bytes = LIMIT + 1).unwrap_err().to_string();
    assert_eq!(large, "map: size_bytes: the limit is 1073741824 bytes: 1073741825");
}

#[test]
fn block_sizes_are_powers_of_two_in_range() {
    for block_bytes in [0, 1, 32 << 10, 96 << 10, (4 << 20) + 1, 32 << 20, 1 << 31, u32::MAX] {
        let problem = "not a power of two from 65536 to 16777216";
        let expected = format!("map: block_bytes: {problem}: {block_bytes}");
        assert_eq!(refusal(|map| map.block_bytes = block_bytes), expected);
    }
}

#[test]
fn the_number_of_blocks_follows_from_the_size() {
    let expected = "map: blocks: expected 5 blocks: 4";
    assert_eq!(refusal(|map| drop(map.blocks.pop())), expected);
    assert_eq!(refusal(|map| map.size_bytes = 1), "map: blocks: expected 1 blocks: 5");
    assert_eq!(refusal(|map| map.size_bytes = 0), "map: blocks: expected 0 blocks: 5");
    let huge = refusal(|map| (map.size_bytes, map.block_bytes) = (LIMIT, 64 << 10));
    assert_eq!(huge, "map: blocks: expected 16384 blocks: 5");
}

#[test]
fn digests_have_32_bytes() {
    assert_eq!(refusal(|map| map.sha256.clear()), "map: sha256: expected 32 bytes: 0");
    let stored = refusal(|map| map.stored_sha256.push(0));
    assert_eq!(stored, "map: stored_sha256: expected 32 bytes: 33");
    let block = refusal(|map| map.blocks[3].sha256.truncate(31));
    assert_eq!(block, "map: block 3: sha256: expected 0 or 32 bytes: 31");
}

#[test]
fn frames_have_no_gaps_and_a_bounded_length() {
    let first = refusal(|map| map.blocks[0].offset = 1);
    assert_eq!(first, "map: block 0: offset: expected 0, the end of the frame before: 1");
    let wild = refusal(|map| map.blocks[4].offset = u64::MAX);
    assert!(wild.starts_with("map: block 4: offset: expected "), "{wild}");
    let empty = refusal(|map| map.blocks[1].length = 0);
    assert!(empty.starts_with("map: block 1: length: not from 1 to "), "{empty}");
    let long = refusal(|map| map.blocks[0].length = u32::MAX);
    assert!(long.ends_with(": 4294967295"), "{long}");
}

#[test]
fn the_stored_size_is_that_of_the_frames_and_the_seek_table() {
    for change in [-1, 1] {
        let error = refusal(|map| map.stored_bytes = map.stored_bytes.wrapping_add_signed(change));
        assert!(error.starts_with("map: stored_bytes: expected "), "{error}");
    }
    assert!(refusal(|map| map.stored_bytes = u64::MAX).ends_with(": 18446744073709551615"));
}

#[test]
fn a_truncated_map_is_refused() {
    let bytes = samples::stored().2.encode();
    for length in 0..bytes.len() {
        assert!(CheckedMap::parse(&bytes[..length], LIMIT).is_err(), "{length} bytes");
    }
}

/// A changed digest, or another size of the last block, is a valid map. The content is refused.
#[test]
fn a_changed_byte_is_refused_in_the_map_or_in_the_content() {
    let (_, stored, map) = samples::stored();
    let bytes = map.encode();
    let mut accepted = 0;
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1 << (at % 8);
        let Ok(other) = CheckedMap::parse(&changed, LIMIT) else { continue };
        accepted += 1;
        let is_refused = crate::verify(stored.as_slice(), &other, |_| ()).is_err();
        assert!(is_refused || other == map, "byte {at}");
    }
    assert!(accepted >= 6 * 32, "{accepted}: fewer than the bytes of the digests");
}

proptest! {
    #[test]
    fn random_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(CheckedMap::parse(&bytes, u64::MAX).is_err());
    }

    #[test]
    fn random_fields_do_not_panic(
        size_bytes in any::<u64>(),
        stored_bytes in any::<u64>(),
        block_bytes in prop_oneof![any::<u32>(), Just(64 << 10), Just(16 << 20)],
        blocks in prop::collection::vec((any::<u64>(), any::<u32>(), 0..40_usize), 0..4),
    ) {
        let block = |(offset, length, digest)| pb::Block { offset, length, sha256: vec![1; digest] };
        let map = pb::Map {
            size_bytes,
            sha256: vec![1; 32],
            stored_bytes,
            stored_sha256: vec![1; 32],
            block_bytes,
            blocks: blocks.into_iter().map(block).collect(),
        };
        let parsed = CheckedMap::parse(&map.encode_to_vec(), u64::MAX);
        prop_assert!(parsed.is_err() || size_bytes <= 4 * u64::from(MAX_BLOCK_BYTES));
    }
}
