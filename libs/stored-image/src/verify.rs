//! Verification of a whole stored file.

use std::io::{self, Read};

use crate::decoder::BlockDecoder;
use crate::digest::{Digest, Sum};
use crate::error::Error;
use crate::map::CheckedMap;
use crate::seek_table;

/// Operation that errors of the file name.
const READING: &str = "reading the stored file";
/// Name of the stored file in errors.
const STORED_FILE: &str = "stored file";

/// Reads the stored file from its beginning to its end, and checks each block, the raw disk and the
/// file itself against the map. Calls `progress` with the number of stored bytes so far after each
/// block.
///
/// The error names the first bad block, if a block is bad.
pub fn verify(
    mut stored: impl Read,
    map: &CheckedMap,
    mut progress: impl FnMut(u64),
) -> Result<(), Error> {
    let mut raw_sum = Sum::default();
    let mut stored_sum = Sum::default();
    let mut decoder = BlockDecoder::new()?;
    let mut frame = Vec::new();
    let mut raw = Vec::new();
    for block in map.blocks() {
        fill(&mut stored, &mut frame, block.stored_bytes(), map)?;
        stored_sum.update(&frame);
        raw.resize(usize::try_from(block.raw_bytes()).unwrap_or(usize::MAX), 0);
        decoder.decode(map, block.index, &frame, &mut raw)?;
        raw_sum.update(&raw);
        progress(block.stored.end);
    }
    fill(&mut stored, &mut frame, seek_table::bytes(map.block_count()), map)?;
    stored_sum.update(&frame);
    check_end(&mut stored, map)?;
    progress(map.stored_bytes());
    check_digest("raw disk", map.sha256(), raw_sum)?;
    check_digest(STORED_FILE, map.stored_sha256(), stored_sum)
}

/// Reads `bytes` bytes into the buffer. Their number was checked with the map.
fn fill(
    stored: &mut impl Read,
    buffer: &mut Vec<u8>,
    bytes: u64,
    map: &CheckedMap,
) -> Result<(), Error> {
    buffer.resize(usize::try_from(bytes).unwrap_or(usize::MAX), 0);
    stored.read_exact(buffer).map_err(|error| match error.kind() == io::ErrorKind::UnexpectedEof {
        true => wrong_size("shorter than in the map", map),
        false => Error::io(READING)(error),
    })
}

fn check_end(stored: &mut impl Read, map: &CheckedMap) -> Result<(), Error> {
    let mut excess = Vec::new();
    let read = stored.take(1).read_to_end(&mut excess).map_err(Error::io(READING))?;
    if read == 0 { Ok(()) } else { Err(wrong_size("longer than in the map", map)) }
}

fn wrong_size(problem: &'static str, map: &CheckedMap) -> Error {
    Error::Size { what: STORED_FILE, problem, bytes: map.stored_bytes() }
}

fn check_digest(what: &'static str, expected: Digest, sum: Sum) -> Result<(), Error> {
    let found = sum.finish();
    if found == expected { Ok(()) } else { Err(Error::Digest { what, expected, found }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{self, BLOCK, TEXT};

    #[test]
    fn a_stored_image_is_verified_with_progress() {
        let (_, stored, map) = samples::stored();
        let mut seen = Vec::new();
        verify(stored.as_slice(), &map, |at| seen.push(at)).unwrap();
        assert_eq!(seen.len(), 6);
        assert_eq!(*seen.last().unwrap(), stored.len() as u64);
    }

    #[test]
    fn every_changed_byte_is_refused() {
        let raw = [vec![0; BLOCK], b"boot ".repeat(4000), vec![0; 9]].concat();
        let (stored, map) = samples::encode(&raw);
        for at in 0..stored.len() {
            let mut changed = stored.clone();
            changed[at] ^= 1 << (at % 8);
            assert!(verify(changed.as_slice(), &map, |_| ()).is_err(), "byte {at}");
        }
    }

    #[test]
    fn the_first_bad_block_is_named() {
        let (_, mut stored, map) = samples::stored();
        for index in [3, TEXT] {
            let end = map.block(index).unwrap().stored.end;
            stored[usize::try_from(end).unwrap() - 1] ^= 1; // checksum of the frame
        }
        let error = verify(stored.as_slice(), &map, |_| ()).unwrap_err();
        assert!(matches!(error, Error::Frame { index: TEXT, offset: 65_536, .. }), "{error}");
        assert!(error.is_damage());
    }

    #[test]
    fn a_shorter_and_a_longer_file_are_refused() {
        let (_, mut stored, map) = samples::stored();
        let short = verify(&stored[..stored.len() - 1], &map, |_| ()).unwrap_err().to_string();
        let expected =
            format!("stored file: size: shorter than in the map: {} bytes", stored.len());
        assert_eq!(short, expected);
        stored.push(0);
        let long = verify(stored.as_slice(), &map, |_| ()).unwrap_err();
        assert!(matches!(long, Error::Size { problem: "longer than in the map", .. }), "{long}");
    }

    #[test]
    fn digests_of_the_whole_are_checked() {
        let (_, stored, map) = samples::stored();
        let verified = |change: fn(&mut tinwright::image::v1::Map)| {
            let mut message = samples::message(&map);
            change(&mut message);
            verify(stored.as_slice(), &CheckedMap::check(message).unwrap(), |_| ())
        };
        let raw = verified(|map| map.sha256[0] ^= 1).unwrap_err();
        assert!(matches!(raw, Error::Digest { what: "raw disk", .. }), "{raw}");
        let whole = verified(|map| map.stored_sha256[0] ^= 1).unwrap_err();
        assert!(matches!(whole, Error::Digest { what: "stored file", .. }), "{whole}");
    }
}
