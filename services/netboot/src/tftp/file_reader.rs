//! Reads a file in blocks, so that no transfer holds more than its window and one chunk.
//!
//! Bytes in the kernel's page cache are read at once; only bytes on the disk are read by a thread that may block. A loader
//! that a rack requests comes from the disk once, and handing each chunk to another thread takes longer than reading it.

use std::fs::File;
use std::io::{self, IoSliceMut, Read as _};

use bytes::Buf as _;
use rustix::io::{ReadWriteFlags, preadv2};
use tftp::TransferMode;
use tftp::negotiation::encode_netascii;

use super::files::{DiskFile, OpenFile};

/// Bytes read at a time: several small blocks, or one large one.
const CHUNK_BYTES: usize = 16 * 1024;
/// The offset with which preadv2(2) reads at the file position and advances it, as read(2) does.
const AT_FILE_POSITION: u64 = u64::MAX;

/// Reads a file from its beginning to its end.
#[derive(Debug)]
pub struct FileReader {
    file: OpenFile,
    mode: TransferMode,
    /// Bytes that were read, encoded for the transfer.
    buffer: Vec<u8>,
    /// Bytes of the buffer that were returned.
    returned: usize,
    at_end: bool,
}

impl FileReader {
    /// Creates a reader of `file`.
    pub fn new(file: OpenFile, mode: TransferMode) -> Self {
        Self { file, mode, buffer: Vec::new(), returned: 0, at_end: false }
    }

    /// Returns the next `size` bytes; fewer, or none, at the end.
    pub async fn next(&mut self, size: usize) -> io::Result<&[u8]> {
        while self.buffer.len() - self.returned < size && !self.at_end {
            self.buffer.drain(..self.returned);
            self.returned = 0;
            self.read_chunk().await?;
        }
        let start = self.returned;
        self.returned = self.buffer.len().min(start + size);
        Ok(self.buffer.get(start..self.returned).unwrap_or_default())
    }

    async fn read_chunk(&mut self) -> io::Result<()> {
        let before = self.buffer.len();
        self.file.read(&mut self.buffer).await?;
        self.at_end = self.buffer.len() == before;
        if self.mode == TransferMode::Netascii {
            let chunk = self.buffer.split_off(before);
            encode_netascii(&chunk, &mut self.buffer);
        }
        Ok(())
    }
}

impl OpenFile {
    /// Appends at most a chunk to `out`. Appends nothing only at the end.
    async fn read(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        match self {
            Self::Memory(bytes) => {
                out.extend_from_slice(&bytes.split_to(next_read_bytes(out).min(bytes.remaining())));
            }
            Self::Disk(DiskFile { file, .. }) => {
                if read_cached(file, out).is_err() {
                    read_blocking(file, out).await?;
                }
            }
        }
        Ok(())
    }
}

/// Returns the number of bytes to append to `buffer`: it stays a multiple of the chunk, so that its allocation does not grow.
fn next_read_bytes(buffer: &[u8]) -> usize {
    CHUNK_BYTES - buffer.len() % CHUNK_BYTES
}

/// Appends bytes of the page cache. Fails if there are none, or if the file system does not support it.
fn read_cached(file: &File, out: &mut Vec<u8>) -> rustix::io::Result<()> {
    let before = out.len();
    out.resize(before + next_read_bytes(out), 0);
    let mut free = [IoSliceMut::new(out.get_mut(before..).unwrap_or_default())];
    let read = preadv2(file, &mut free, AT_FILE_POSITION, ReadWriteFlags::NOWAIT);
    out.truncate(before + read.unwrap_or(0));
    read.map(drop)
}

/// Appends bytes of the disk.
async fn read_blocking(file: &File, out: &mut Vec<u8>) -> io::Result<()> {
    let file = file.try_clone()?; // shares the file position
    let wanted = next_read_bytes(out);
    let read = tokio::task::spawn_blocking(move || {
        let mut chunk = Vec::with_capacity(wanted);
        file.take(wanted as u64).read_to_end(&mut chunk).map(|_| chunk)
    });
    out.extend_from_slice(&read.await??);
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use bytes::Bytes;
    use std::io::{Seek as _, Write as _};

    /// Reads `content` in blocks of `size`, the last of which is shorter.
    async fn blocks(content: impl Into<OpenFile>, mode: TransferMode, size: usize) -> Vec<Vec<u8>> {
        let mut reader = FileReader::new(content.into(), mode);
        let mut blocks = Vec::new();
        while blocks.last().is_none_or(|block: &Vec<u8>| block.len() == size) {
            blocks.push(reader.next(size).await.unwrap().to_vec());
        }
        blocks
    }

    impl From<&'static [u8]> for OpenFile {
        fn from(text: &'static [u8]) -> Self {
            Self::Memory(Bytes::from_static(text))
        }
    }

    /// A file with these bytes, at its beginning.
    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file.rewind().unwrap();
        file
    }

    #[tokio::test]
    async fn an_exact_multiple_ends_with_an_empty_block() {
        const OCTET: TransferMode = TransferMode::Octet;
        assert_eq!(blocks(&b"abcdef"[..], OCTET, 3).await, [&b"abc"[..], b"def", b""]);
        assert_eq!(blocks(&b"abcde"[..], OCTET, 3).await, [&b"abc"[..], b"de"]);
        assert_eq!(blocks(&b""[..], OCTET, 3).await, [&b""[..]]);
    }

    #[tokio::test]
    async fn a_line_end_may_be_split_between_two_blocks() {
        let blocks = blocks(&b"ab\nc\rd"[..], TransferMode::Netascii, 3).await;
        assert_eq!(blocks, [&b"ab\r"[..], b"\nc\r", b"\0d"]);
    }

    #[tokio::test]
    async fn a_file_of_many_chunks_is_read_whole() {
        let bytes: Vec<u8> = (0..CHUNK_BYTES * 3 + 5).map(|at| (at / 7) as u8).collect();
        for size in [8, 1428, CHUNK_BYTES + 1, 65_464] {
            let on_disk =
                DiskFile { file: file(&bytes), size: bytes.len() as u64, tag: String::new() };
            let blocks = blocks(OpenFile::Disk(on_disk), TransferMode::Octet, size).await;
            assert!(blocks.concat() == bytes, "{size}");
        }
    }

    #[tokio::test]
    async fn a_blocking_read_and_a_cached_read_share_the_file_position() {
        let bytes: Vec<u8> = (0..CHUNK_BYTES * 2).map(|at| (at / 7) as u8).collect();
        let (file, mut read) = (file(&bytes), Vec::new());
        read_blocking(&file, &mut read).await.unwrap();
        // It was just written, so it is in the page cache.
        read_cached(&file, &mut read).unwrap();
        assert!(read == bytes);
    }
}
