//! The raw disk, read through the map.

use std::fmt;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;

use crate::decoder::BlockDecoder;
use crate::error::Error;
use crate::map::{CheckedMap, MapBlock};

/// Reads raw bytes at any position of a stored image. Each block is checked before its bytes are
/// returned. Blocks of zeros are not read from the file.
///
/// Memory holds one block and its frame. Errors of damaged files are of the kind
/// [`InvalidData`](io::ErrorKind::InvalidData), with an [`Error`] as the source.
pub struct RawReader<S> {
    stored: S,
    map: Arc<CheckedMap>,
    decoder: BlockDecoder,
    /// Next raw byte.
    position: u64,
    /// Number of the block in `raw`.
    current: Option<usize>,
    raw: Vec<u8>,
    frame: Vec<u8>,
}

impl<S: Read + Seek> RawReader<S> {
    /// Makes a reader at the beginning of the raw disk. Nothing is read from `stored` yet.
    pub fn new(stored: S, map: Arc<CheckedMap>) -> Result<Self, Error> {
        let decoder = BlockDecoder::new()?;
        Ok(Self {
            stored,
            map,
            decoder,
            position: 0,
            current: None,
            raw: Vec::new(),
            frame: Vec::new(),
        })
    }

    /// Decodes a block into `raw`, unless it is there already.
    fn load(&mut self, block: &MapBlock) -> io::Result<()> {
        if self.current == Some(block.index) {
            return Ok(());
        }
        self.current = None; // until the block was checked
        self.stored.seek(SeekFrom::Start(block.stored.start))?;
        resize(&mut self.frame, block.stored_bytes());
        self.stored.read_exact(&mut self.frame)?;
        resize(&mut self.raw, block.raw_bytes());
        self.decoder.decode(&self.map, block.index, &self.frame, &mut self.raw)?;
        self.current = Some(block.index);
        Ok(())
    }
}

impl<S: Read + Seek> Read for RawReader<S> {
    /// Reads up to the end of the block at the position.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.position >= self.map.size_bytes() || into.is_empty() {
            return Ok(0);
        }
        let index = self.position / u64::from(self.map.block_bytes());
        let block = self.map.block(usize::try_from(index).unwrap_or(usize::MAX))?;
        let left = usize::try_from(block.raw.end - self.position).unwrap_or(usize::MAX);
        let length = left.min(into.len());
        let into = into.split_at_mut(length).0;
        if block.is_zeros() {
            into.fill(0);
        } else {
            self.load(&block)?;
            let content = self.raw.get(self.raw.len() - left..).and_then(|rest| rest.get(..length));
            into.copy_from_slice(content.unwrap_or_default());
        }
        self.position += length as u64;
        Ok(length)
    }
}

impl<S> Seek for RawReader<S> {
    /// Sets the position. A position beyond the end is valid: nothing is read there.
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::End(offset) => self.map.size_bytes().checked_add_signed(offset),
            SeekFrom::Current(offset) => self.position.checked_add_signed(offset),
        };
        let before =
            || io::Error::new(io::ErrorKind::InvalidInput, format!("seek: out of range: {to:?}"));
        self.position = position.ok_or_else(before)?;
        Ok(self.position)
    }
}

impl<S> fmt::Debug for RawReader<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut reader = f.debug_struct("RawReader");
        reader.field("position", &self.position).field("current", &self.current);
        reader.finish_non_exhaustive()
    }
}

fn resize(buffer: &mut Vec<u8>, bytes: u64) {
    buffer.resize(usize::try_from(bytes).unwrap_or(usize::MAX), 0);
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use proptest::prelude::*;

    use super::*;
    use crate::samples::{self, BLOCK, TEXT, ZERO};

    fn reader(stored: Vec<u8>, map: CheckedMap) -> RawReader<Cursor<Vec<u8>>> {
        RawReader::new(Cursor::new(stored), Arc::new(map)).unwrap()
    }

    #[test]
    fn the_whole_disk_is_read() {
        let (raw, stored, map) = samples::stored();
        let mut content = Vec::new();
        reader(stored, map).read_to_end(&mut content).unwrap();
        assert!(content == raw);
    }

    #[test]
    fn zeros_are_not_read_from_the_file() {
        let (_, _, map) = samples::stored();
        let mut reader = reader(Vec::new(), map);
        let mut content = [9; BLOCK];
        reader.seek(SeekFrom::Start((ZERO * BLOCK) as u64)).unwrap();
        reader.read_exact(&mut content).unwrap();
        assert_eq!(content, [0; BLOCK]);
        let error = reader.read(&mut content).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_damaged_block_is_refused_each_time_and_others_are_read() {
        let (raw, mut stored, map) = samples::stored();
        stored[usize::try_from(map.block(TEXT).unwrap().stored.end).unwrap() - 1] ^= 1;
        let mut reader = reader(stored, map);
        let mut content = [0; BLOCK];
        reader.read_exact(&mut content).unwrap();
        assert!(content == raw[..BLOCK]);
        for _ in 0..2 {
            let error = reader.read(&mut content).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
            let prefix = "block 1 at raw byte 65536: frame: zstd: ";
            assert!(error.to_string().starts_with(prefix), "{error}");
        }
        reader.seek(SeekFrom::Start(0)).unwrap();
        reader.read_exact(&mut content).unwrap();
        assert!(content == raw[..BLOCK]);
    }

    #[test]
    fn positions_before_the_beginning_are_refused() {
        let (_, stored, map) = samples::stored();
        let mut reader = reader(stored, map);
        assert_eq!(reader.seek(SeekFrom::End(5)).unwrap(), 262_150);
        assert_eq!(reader.read(&mut [0]).unwrap(), 0);
        assert!(reader.seek(SeekFrom::Current(-262_151)).is_err());
        assert_eq!(reader.stream_position().unwrap(), 262_150);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn any_range_has_the_bytes_of_the_disk(begin in 0..262_145_usize, length in 0..90_000_usize) {
            let (raw, stored, map) = samples::stored();
            let mut reader = reader(stored, map);
            reader.seek(SeekFrom::Start(begin as u64)).unwrap();
            let mut content = Vec::new();
            reader.take(length as u64).read_to_end(&mut content).unwrap();
            prop_assert!(content == raw[begin..raw.len().min(begin + length)]);
        }
    }
}
