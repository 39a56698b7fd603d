//! Contents of compressed files: of each stream in them, one after the other.
//!
//! ```text
//! stream ─▶ zeros (padding) ─▶ stream ─▶ … ─▶ end of the file
//! ```
//!
//! Anything else behind a stream is refused: it may be a damaged stream, and the image would be cut
//! there without a sign.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

use bzip2::bufread::BzDecoder;
use flate2::bufread::GzDecoder;
use liblzma::bufread::XzDecoder;
use liblzma::stream::Stream;
use zstd::stream::read::Decoder as ZstdDecoder;

use crate::format::Wrapping;
use crate::refusal::Refusal;
use crate::sparse::SparseFile;

/// Maximum window of a decoder: that of `zstd --long` without an argument, as on the machines.
const MAX_WINDOW_LOG: u32 = 27;
/// Maximum memory of a decoder of xz: a window of 128 MiB, and what it needs besides.
const MAX_XZ_BYTES: u64 = (1 << MAX_WINDOW_LOG) + (2 << 20);
/// Bytes that are read from the file at once.
const BUFFER_BYTES: usize = 256 << 10;

/// Appends the content of the compressed `file`, which is read from its beginning, to `to`.
pub(crate) fn decompress(
    wrapping: Wrapping,
    file: File,
    to: &mut SparseFile,
    progress: &mut dyn FnMut(u64),
) -> Result<(), Refusal> {
    let mut input = Input { reader: BufReader::with_capacity(BUFFER_BYTES, file), position: 0 };
    loop {
        stream(wrapping, &mut input, to, progress)?;
        skip_zeros(&mut input).map_err(|error| reading(&error))?;
        let next = input.fill_buf().map_err(|error| reading(&error))?;
        if next.is_empty() {
            return Ok(());
        }
        if !begins_stream(wrapping, next) {
            let reason = format!("bytes behind the end of its content, at byte {}", input.position);
            return Err(Refusal::damaged(wrapping, reason));
        }
    }
}

/// Appends the content of one stream.
fn stream(
    wrapping: Wrapping,
    input: &mut Input,
    to: &mut SparseFile,
    progress: &mut dyn FnMut(u64),
) -> Result<(), Refusal> {
    let setting_up = |error: io::Error| Refusal::io("setting up a decoder", &error);
    let at = input.position;
    let mut decoder: Box<dyn Read + '_> = match wrapping {
        Wrapping::Gzip => Box::new(GzDecoder::new(&mut *input)),
        Wrapping::Bzip2 => Box::new(BzDecoder::new(&mut *input)),
        Wrapping::Xz => {
            let stream = Stream::new_stream_decoder(MAX_XZ_BYTES, 0);
            let stream = stream.map_err(|error| setting_up(error.into()))?;
            Box::new(XzDecoder::new_stream(&mut *input, stream))
        }
        Wrapping::Zstd => {
            let mut decoder = ZstdDecoder::with_buffer(&mut *input).map_err(setting_up)?;
            decoder.window_log_max(MAX_WINDOW_LOG).map_err(setting_up)?;
            Box::new(decoder.single_frame())
        }
        Wrapping::Zip => return Err(Refusal::unsupported(wrapping, "streaming")),
    };
    // The decoder holds the input: its position is not known before the end.
    let failure = |error: io::Error| failed(wrapping, at, &error);
    let copied = to.copy(&mut *decoder, progress, &failure);
    drop(decoder);
    match copied {
        Err(Refusal::Truncated { format, needs, .. }) => {
            Err(Refusal::Truncated { format, at: input.position, needs })
        }
        copied => copied,
    }
}

/// Returns the refusal of the stream that begins at byte `at`.
fn failed(wrapping: Wrapping, at: u64, error: &io::Error) -> Refusal {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return Refusal::truncated(wrapping, at, format!("the stream from byte {at} has no end"));
    }
    let text = error.to_string();
    if text.to_lowercase().contains("memory") {
        let feature = format!("a window of more than {} MiB", (1 << MAX_WINDOW_LOG) >> 20);
        return Refusal::unsupported(wrapping, feature);
    }
    let reason = format!("{text}, in the stream from byte {at}");
    Refusal::damaged(wrapping, reason)
}

fn reading(error: &io::Error) -> Refusal {
    Refusal::io("reading the source", error)
}

fn skip_zeros(input: &mut Input) -> io::Result<()> {
    loop {
        let bytes = input.fill_buf()?;
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        let is_end = zeros < bytes.len() || bytes.is_empty();
        input.consume(zeros);
        if is_end {
            return Ok(());
        }
    }
}

/// True if `next` may begin a stream. The decoder verifies the rest.
fn begins_stream(wrapping: Wrapping, next: &[u8]) -> bool {
    match wrapping {
        Wrapping::Gzip => next.first() == Some(&0x1f),
        Wrapping::Xz => next.first() == Some(&0xfd),
        Wrapping::Zstd => matches!(next.first(), Some(0x28 | 0x50..=0x5f)),
        Wrapping::Bzip2 => next.first() == Some(&b'B'),
        Wrapping::Zip => false,
    }
}

/// A file that counts the bytes read.
struct Input {
    reader: BufReader<File>,
    position: u64,
}

impl Read for Input {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(into)?;
        self.position += read as u64;
        Ok(read)
    }
}

impl BufRead for Input {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.reader.fill_buf()
    }

    fn consume(&mut self, length: usize) {
        self.position += length as u64;
        self.reader.consume(length);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Seek as _, Write as _};

    use proptest::prelude::*;

    use super::*;
    use crate::sparse::{Budget, Limits};

    const ALL: [Wrapping; 4] = [Wrapping::Gzip, Wrapping::Xz, Wrapping::Zstd, Wrapping::Bzip2];

    fn packed(wrapping: Wrapping, content: &[u8]) -> Vec<u8> {
        let packed = match wrapping {
            Wrapping::Gzip => {
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Default::default());
                encoder.write_all(content).and_then(|()| encoder.finish())
            }
            Wrapping::Xz => {
                let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 1);
                encoder.write_all(content).and_then(|()| encoder.finish())
            }
            Wrapping::Bzip2 => {
                let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), Default::default());
                encoder.write_all(content).and_then(|()| encoder.finish())
            }
            Wrapping::Zstd | Wrapping::Zip => zstd::encode_all(content, 1),
        };
        packed.unwrap()
    }

    fn unpacked(wrapping: Wrapping, file: &[u8]) -> Result<Vec<u8>, String> {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("content");
        let mut source = tempfile::tempfile().unwrap();
        source.write_all(file).unwrap();
        source.rewind().unwrap();
        let budget = Budget::new(&Limits::default(), file.len() as u64);
        let mut to = SparseFile::create(&path, budget).unwrap();
        decompress(wrapping, source, &mut to, &mut |_| {}).map_err(|error| error.to_string())?;
        to.finish().unwrap();
        Ok(std::fs::read(path).unwrap())
    }

    fn content() -> Vec<u8> {
        let numbers = (0..20_000_u32).map(|n| n.wrapping_mul(2_654_435_761) >> (n % 13));
        numbers.flat_map(u32::to_le_bytes).collect()
    }

    #[test]
    fn streams_with_zeros_between_and_behind_them_are_one_content() {
        for wrapping in ALL {
            let first = packed(wrapping, b"first ");
            let second = packed(wrapping, b"second");
            for padding in [0, 8, 512] {
                let zeros = vec![0; padding];
                let file = [&first[..], &zeros, &second, &zeros].concat();
                assert_eq!(unpacked(wrapping, &file).unwrap(), b"first second", "{wrapping}");
            }
        }
    }

    #[test]
    fn skippable_frames_of_zstd_have_no_content() {
        let skipped = [&[0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
        let frame = packed(Wrapping::Zstd, b"content");
        let file = [&skipped[..], &frame, &skipped, &frame, &skipped].concat();
        assert_eq!(unpacked(Wrapping::Zstd, &file).unwrap(), b"contentcontent");
    }

    #[test]
    fn an_end_in_the_middle_of_a_stream_is_named() {
        for wrapping in ALL {
            let whole = [packed(wrapping, b"first"), packed(wrapping, &content())].concat();
            for missing in [1, 2, 4, 7, 8, 9, 12, whole.len() / 2] {
                let length = whole.len() - missing;
                let error = unpacked(wrapping, &whole[..length]).unwrap_err();
                let expected = format!("source: format {wrapping}: truncated at byte {length}: ");
                assert!(error.starts_with(&expected), "{missing}: {error}");
            }
        }
    }

    #[test]
    fn bytes_behind_the_last_stream_are_refused() {
        for wrapping in ALL {
            let whole = packed(wrapping, &content());
            let file = [&whole[..], b"\n{}"].concat();
            let error = unpacked(wrapping, &file).unwrap_err();
            let end = whole.len();
            let expected = format!(
                "source: format {wrapping}: damaged: bytes behind the end of its content, at byte {end}"
            );
            assert_eq!(error, expected);
        }
    }

    #[test]
    fn a_changed_byte_is_refused() {
        for wrapping in ALL {
            let mut file = packed(wrapping, &content());
            let middle = file.len() / 2;
            file[middle] ^= 0x40;
            // Frames of zstd have no checksum here, but their blocks end elsewhere then.
            let changed = unpacked(wrapping, &file);
            assert!(changed.as_ref().is_err() || wrapping == Wrapping::Zstd, "{wrapping}");
            assert_ne!(changed.ok(), Some(content()));
        }
    }

    #[test]
    fn a_window_of_more_than_128_mib_is_refused() {
        let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
        encoder.window_log(28).unwrap();
        encoder.write_all(&content()).unwrap();
        let error = unpacked(Wrapping::Zstd, &encoder.finish().unwrap()).unwrap_err();
        assert_eq!(error, "source: format zstd: a window of more than 128 MiB: not supported");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn no_bytes_make_decompression_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..256),
            which in 0..ALL.len(),
            at in 0..40_usize,
        ) {
            let magic = packed(ALL[which], b"content");
            let cut = magic.get(..at).unwrap_or(&magic);
            let _either = unpacked(ALL[which], &[cut, &bytes].concat());
        }
    }
}
