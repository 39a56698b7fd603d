//! Decompression and checks of single frames.

use std::fmt;

use zstd::bulk::Decompressor;

use crate::digest::Digest;
use crate::error::Error;
use crate::map::{CheckedMap, MapBlock};
use crate::zeros;

/// Decodes blocks. Its zstd context is used for all of them: each thread has a decoder of its own.
pub struct BlockDecoder {
    context: Decompressor<'static>,
}

impl BlockDecoder {
    /// Makes a decoder.
    pub fn new() -> Result<Self, Error> {
        let context = Decompressor::new().map_err(Error::io("creating a zstd context"))?;
        Ok(Self { context })
    }

    /// Decompresses the `frame` of block `index` into a buffer of the block's raw size, and checks
    /// its digest.
    ///
    /// After an error the buffer may have bytes of a damaged block.
    pub fn decode(
        &mut self,
        map: &CheckedMap,
        index: usize,
        frame: &[u8],
        into: &mut [u8],
    ) -> Result<(), Error> {
        let block = map.block(index)?;
        check_buffer(&block, into.len() as u64)?;
        self.decompress(&block, frame, into)?;
        check_content(&block, into)
    }

    /// Fills the buffer with the content of `frame`. More content than the buffer's size is an
    /// error: zstd writes none of the excess.
    fn decompress(&mut self, block: &MapBlock, frame: &[u8], into: &mut [u8]) -> Result<(), Error> {
        let damaged =
            |problem| Error::Frame { index: block.index, offset: block.raw.start, problem };
        let expected = block.stored_bytes();
        if frame.len() as u64 != expected {
            return Err(damaged(format!("expected {expected} bytes: {}", frame.len())));
        }
        let read = self.context.decompress_to_buffer(frame, into);
        let length = read.map_err(|error| damaged(format!("zstd: {error}")))?;
        match length == into.len() {
            true => Ok(()),
            false => Err(damaged(format!("expected {} raw bytes: {length}", into.len()))),
        }
    }
}

impl fmt::Debug for BlockDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockDecoder").finish_non_exhaustive()
    }
}

/// Decodes one block, as [`BlockDecoder::decode`] does, in a context of its own.
pub fn decode_block(
    map: &CheckedMap,
    index: usize,
    frame: &[u8],
    into: &mut [u8],
) -> Result<(), Error> {
    BlockDecoder::new()?.decode(map, index, frame, into)
}

fn check_buffer(block: &MapBlock, found: u64) -> Result<(), Error> {
    let expected = block.raw_bytes();
    match found == expected {
        true => Ok(()),
        false => Err(Error::Buffer { index: block.index, expected, found }),
    }
}

/// Compares the content of a block with its digest. Zeros are compared without a digest.
fn check_content(block: &MapBlock, content: &[u8]) -> Result<(), Error> {
    let MapBlock { index, ref raw, stored: _, digest } = *block;
    if digest.is_none() && zeros::is_all(content) {
        return Ok(());
    }
    let found = Digest::of(content);
    let expected = digest.unwrap_or_else(|| Digest::of_zeros(content.len() as u64));
    match found == expected {
        true => Ok(()),
        false => Err(Error::BlockDigest { index, offset: raw.start, expected, found }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{self, BLOCK, TEXT, ZERO};

    fn decoded(index: usize, change: impl FnOnce(&mut Vec<u8>)) -> Result<Vec<u8>, Error> {
        let (_, stored, map) = samples::stored();
        let block = map.block(index).unwrap();
        let mut frame = samples::slice(&stored, &block.stored).to_vec();
        change(&mut frame);
        let mut raw = vec![0xaa; usize::try_from(block.raw_bytes()).unwrap()];
        decode_block(&map, index, &frame, &mut raw).map(|()| raw)
    }

    #[test]
    fn blocks_have_the_content_of_the_disk() {
        let (raw, _, map) = samples::stored();
        for block in map.blocks() {
            let content = decoded(block.index, |_| ()).unwrap();
            assert!(content == samples::slice(&raw, &block.raw), "{block:?}");
        }
    }

    #[test]
    fn other_content_is_refused_with_both_digests() {
        let (raw, stored, map) = samples::stored();
        let frame = samples::slice(&stored, &map.block(TEXT).unwrap().stored);
        let (expected, found) = (Digest::of(b"other"), Digest::of(&raw[BLOCK..2 * BLOCK]));
        let mut message = samples::message(&map);
        message.blocks[TEXT].sha256 = expected.0.to_vec();
        let map = CheckedMap::check(message).unwrap();
        let error = decode_block(&map, TEXT, frame, &mut [0; BLOCK]).unwrap_err().to_string();
        let block = "block 1 at raw byte 65536";
        assert_eq!(error, format!("{block}: sha256: expected {expected}: {found}"));
    }

    #[test]
    fn content_of_a_block_of_zeros_is_refused() {
        let (_, stored, map) = samples::stored();
        let block = map.block(0).unwrap();
        let mut message = samples::message(&map);
        message.blocks[0].sha256.clear();
        let map = CheckedMap::check(message).unwrap();
        let frame = samples::slice(&stored, &block.stored);
        let error = decode_block(&map, 0, frame, &mut [0; BLOCK]).unwrap_err();
        let zeros = Digest::of(&[0; BLOCK]);
        assert!(matches!(error, Error::BlockDigest { expected, .. } if expected == zeros));
    }

    #[test]
    fn every_changed_byte_of_a_frame_is_refused_or_without_effect() {
        for index in [TEXT, ZERO] {
            let (raw, _, map) = samples::stored();
            let block = map.block(index).unwrap();
            for at in 0..usize::try_from(block.stored_bytes()).unwrap() {
                let changed = decoded(index, |frame| frame[at] ^= 1 << (at % 8));
                let same = |content: &Vec<u8>| content == samples::slice(&raw, &block.raw);
                assert!(changed.as_ref().map_or(true, same), "byte {at} of {block:?}");
            }
        }
    }

    #[test]
    fn frames_of_another_length_are_refused() {
        let truncated =
            decoded(0, |frame| frame.truncate(frame.len() - 1)).unwrap_err().to_string();
        assert!(truncated.starts_with("block 0 at raw byte 0: frame: expected "), "{truncated}");
        assert!(matches!(decoded(0, |frame| frame.push(0)), Err(Error::Frame { .. })));
        assert!(matches!(decoded(0, Vec::clear), Err(Error::Frame { .. })));
    }

    #[test]
    fn content_longer_or_shorter_than_the_block_is_refused() {
        for length in [BLOCK - 1, BLOCK + 1, 64 << 20] {
            let frame = zstd::bulk::compress(&vec![7; length], 1).unwrap();
            let (_, _, map) = samples::stored();
            let mut message = samples::message(&map);
            message.blocks[0].length = frame.len() as u32;
            samples::move_frames(&mut message);
            let map = CheckedMap::check(message).unwrap();
            let error = decode_block(&map, 0, &frame, &mut [0; BLOCK]).unwrap_err();
            assert!(matches!(error, Error::Frame { index: 0, .. }), "{length}: {error}");
        }
    }

    #[test]
    fn encoders_decoders_and_readers_move_between_threads() {
        fn check<T: Send>() {}
        check::<BlockDecoder>();
        check::<crate::Encoder<Vec<u8>>>();
        check::<crate::RawReader<std::fs::File>>();
    }

    #[test]
    fn unknown_blocks_and_buffers_of_another_size_are_refused() {
        let (_, _, map) = samples::stored();
        let error = decode_block(&map, 9, &[], &mut []).unwrap_err().to_string();
        assert_eq!(error, "block: 9: the map has 5 blocks");
        let error = decode_block(&map, 1, &[], &mut [0; 7]).unwrap_err().to_string();
        assert_eq!(error, format!("block 1: buffer: expected {BLOCK} bytes: 7"));
    }
}
