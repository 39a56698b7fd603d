//! A small stored image for tests, and changes to it.

use std::io::Write as _;
use std::ops::Range;

use prost::Message as _;

use tinwright::image::v1 as pb;

use crate::encoder::{Encoder, EncoderSettings};
use crate::map::{CheckedMap, MIN_BLOCK_BYTES};
use crate::seek_table;

/// Size of a block.
pub(crate) const BLOCK: usize = MIN_BLOCK_BYTES as usize;
/// Number of a block of text. Its frame is short.
pub(crate) const TEXT: usize = 1;
/// Number of a block of zeros.
pub(crate) const ZERO: usize = 2;

/// Returns a raw disk, its stored form and its map. Blocks: noise, text, zeros, noise at the end of
/// zeros, one byte.
pub(crate) fn stored() -> (Vec<u8>, Vec<u8>, CheckedMap) {
    let text = b"boot ".iter().copied().cycle().take(BLOCK).collect();
    let mut late = vec![0; BLOCK];
    late[BLOCK - 4096..].copy_from_slice(&noise(7, 4096));
    let raw = [noise(1, BLOCK), text, vec![0; BLOCK], late, vec![5]].concat();
    let (stored, map) = encode(&raw);
    (raw, stored, map)
}

/// Encodes `raw` in small blocks.
pub(crate) fn encode(raw: &[u8]) -> (Vec<u8>, CheckedMap) {
    let mut stored = Vec::new();
    let mut encoder = Encoder::start(&mut stored, &settings()).unwrap();
    encoder.write_all(raw).unwrap();
    let image = encoder.finish().unwrap();
    (stored, image.map)
}

/// Settings for small blocks and two threads.
pub(crate) fn settings() -> EncoderSettings {
    let threads = std::num::NonZero::new(2).unwrap();
    EncoderSettings { threads, block_bytes: MIN_BLOCK_BYTES, ..EncoderSettings::default() }
}

/// Returns the bytes of `range`.
pub(crate) fn slice<'a>(bytes: &'a [u8], range: &Range<u64>) -> &'a [u8] {
    &bytes[usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()]
}

/// Returns the message of a map.
pub(crate) fn message(map: &CheckedMap) -> pb::Map {
    pb::Map::decode(map.encode().as_slice()).unwrap()
}

/// Sets the offsets of all frames, and the size of the stored file, after a length was changed.
pub(crate) fn move_frames(map: &mut pb::Map) {
    let mut end = 0;
    for block in &mut map.blocks {
        block.offset = end;
        end += u64::from(block.length);
    }
    map.stored_bytes = end + seek_table::bytes(map.blocks.len());
}

/// Returns bytes that do not compress: a generator of the kind xorshift64.
pub(crate) fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.flatten().take(length).collect()
}
