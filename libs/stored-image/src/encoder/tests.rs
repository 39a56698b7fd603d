//! Tests of the encoder.

use proptest::prelude::*;

use super::*;
use crate::reader::RawReader;
use crate::samples::{self, BLOCK};
use crate::verify;

/// Part of a disk: noise or zeros.
fn parts() -> impl Strategy<Value = Vec<(bool, usize)>> {
    let length = prop_oneof![0..9000_usize, Just(BLOCK), 0..4 * BLOCK, Just(4096)];
    prop::collection::vec((any::<bool>(), length), 0..6)
}

fn content(parts: &[(bool, usize)]) -> Vec<u8> {
    let part = |(seed, (is_zero, length)): (u64, &(bool, usize))| match is_zero {
        true => vec![0; *length],
        false => samples::noise(seed + 1, *length),
    };
    (0..).zip(parts).flat_map(part).collect()
}

fn decoded(stored: Vec<u8>, map: CheckedMap) -> Vec<u8> {
    let mut reader = RawReader::new(io::Cursor::new(stored), map.into()).unwrap();
    let mut raw = Vec::new();
    io::Read::read_to_end(&mut reader, &mut raw).unwrap();
    raw
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_disk_is_read_back(parts in parts(), threads in 1..4_usize) {
        let raw = content(&parts);
        let threads = NonZero::new(threads).unwrap();
        let settings = EncoderSettings { threads, ..samples::settings() };
        let mut stored = Vec::new();
        let mut encoder = Encoder::start(&mut stored, &settings).unwrap();
        for ((is_zero, length), seed) in parts.iter().zip(1..) {
            match is_zero {
                true => encoder.append_zeros(*length as u64).unwrap(),
                false => encoder.write_all(&samples::noise(seed, *length)).unwrap(),
            }
        }
        let EncodedImage { map, used_bytes } = encoder.finish().unwrap();
        verify(stored.as_slice(), &map, |_| ()).unwrap();
        let used = raw.chunks(BLOCK).filter(|block| block.iter().any(|byte| *byte != 0));
        prop_assert_eq!(used.map(<[u8]>::len).sum::<usize>() as u64, used_bytes);
        prop_assert!(decoded(stored.clone(), map.clone()) == raw);
        prop_assert!(zstd::decode_all(stored.as_slice()).unwrap() == raw);
        prop_assert!((stored, map) == samples::encode(&raw));
    }
}

#[test]
fn an_empty_disk_has_no_blocks() {
    let (stored, map) = samples::encode(&[]);
    assert_eq!((map.block_count(), map.size_bytes(), stored.len()), (0, 0, 17));
    verify(stored.as_slice(), &map, |_| ()).unwrap();
    assert_eq!(CheckedMap::parse(&map.encode(), 0).unwrap(), map);
    assert!(decoded(stored, map).is_empty());
}

#[test]
fn a_disk_of_one_byte_has_one_block() {
    for (byte, used) in [(0, 0), (7, 1)] {
        let (stored, map) = samples::encode(&[byte]);
        assert_eq!((map.block_count(), map.used_bytes()), (1, used));
        assert_eq!(decoded(stored, map), [byte]);
    }
}

#[test]
fn a_block_of_4_mib_of_zeros_has_a_short_frame() {
    let mut stored = Vec::new();
    let mut encoder = Encoder::start(&mut stored, &EncoderSettings::default()).unwrap();
    encoder.append_zeros(8 << 20).unwrap();
    let image = encoder.finish().unwrap();
    assert_eq!((image.map.block_count(), image.used_bytes), (2, 0));
    assert!(stored.len() < 400, "{} bytes", stored.len());
    assert!(zstd::decode_all(stored.as_slice()).unwrap() == vec![0; 8 << 20]);
}

#[test]
fn frames_have_their_size_and_a_checksum() {
    let (_, stored, map) = samples::stored();
    for block in map.blocks() {
        let frame = samples::slice(&stored, &block.stored);
        let size = zstd::zstd_safe::get_frame_content_size(frame).unwrap();
        assert_eq!(size, Some(block.raw_bytes()));
        assert_eq!(frame[4] & 0b100, 0b100, "RFC 8878 section 3.1.1.1.1: checksum flag");
    }
}

#[test]
fn memory_holds_a_few_blocks_for_each_thread() {
    let threads = NonZero::new(2).unwrap();
    let settings = EncoderSettings { threads, ..samples::settings() };
    let mut encoder = Encoder::start(io::sink(), &settings).unwrap();
    for _ in 0..100 {
        encoder.append(&samples::noise(1, BLOCK)).unwrap();
        assert!(encoder.pending.len() + encoder.spare.len() <= 5);
    }
    encoder.append_zeros(100 * BLOCK as u64).unwrap();
    assert!(encoder.pending.len() <= 4);
}

#[test]
fn invalid_settings_are_refused() {
    let start = |level, block_bytes| {
        let settings = EncoderSettings { level, block_bytes, ..samples::settings() };
        Encoder::start(io::sink(), &settings).unwrap_err().to_string()
    };
    let size = "settings: block_bytes: not a power of two in 65536..=16777216: 65537";
    assert_eq!(start(6, 65_537), size);
    assert!(start(23, 65_536).ends_with("..=22: 23"), "{}", start(23, 65_536));
}

#[test]
fn an_error_of_the_output_is_returned() {
    let mut room = [0; 70_000];
    let mut encoder = Encoder::start(room.as_mut_slice(), &samples::settings()).unwrap();
    let written = encoder.append(&samples::noise(1, 20 * BLOCK));
    let error = written.and_then(|()| encoder.finish().map(drop)).unwrap_err();
    assert_eq!(error.to_string(), "writing the stored image");
    assert_eq!(io::Error::from(error).kind(), io::ErrorKind::WriteZero);
}

/// Output with an error in its second call.
struct FailsOnce(usize);

impl Write for FailsOnce {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += 1;
        if self.0 == 2 { Err(io::Error::other("disk full")) } else { Ok(bytes.len()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn an_encoder_with_an_error_does_not_finish() {
    let mut encoder = Encoder::start(FailsOnce(0), &samples::settings()).unwrap();
    encoder.append_zeros(20 * BLOCK as u64).unwrap_err();
    let error = encoder.finish().unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(source, "an earlier call of the encoder failed");
}
