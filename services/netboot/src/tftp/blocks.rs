//! Cutting a file into blocks as it is read, so that no transfer holds more than its window and a chunk.
//!
//! What the kernel has in memory is read at once, and only what it would have to wait for by a thread that may wait: a
//! loader that a rack asks for comes from the disk once, and handing every chunk to another thread takes longer than
//! reading it.

use std::fs::File;
use std::io::{self, IoSliceMut, Read as _};

use bytes::Buf as _;
use rustix::io::{ReadWriteFlags, preadv2};

use super::files::Content;
use super::negotiation::Mode;

/// How much is read at a time: several small blocks, or one large one.
const CHUNK: usize = 16 * 1024;
/// Reads where the file is at, and moves on, as read(2) does.
const ONWARD: u64 = u64::MAX;

/// A file being read from its beginning to its end.
#[derive(Debug)]
pub struct Blocks {
    content: Content,
    mode: Mode,
    /// What was read, as it is sent.
    ready: Vec<u8>,
    /// How much of that was taken.
    taken: usize,
    ended: bool,
}

impl Blocks {
    /// Reads `content`.
    pub fn new(content: Content, mode: Mode) -> Self {
        Self { content, mode, ready: Vec::new(), taken: 0, ended: false }
    }

    /// The next `size` octets; fewer, or none, at the end.
    pub async fn next(&mut self, size: usize) -> io::Result<&[u8]> {
        while self.ready.len() - self.taken < size && !self.ended {
            self.ready.drain(..self.taken);
            self.taken = 0;
            self.read().await?;
        }
        let from = self.taken;
        self.taken = self.ready.len().min(from + size);
        Ok(self.ready.get(from..self.taken).unwrap_or_default())
    }

    /// Adds a chunk to what is ready.
    async fn read(&mut self) -> io::Result<()> {
        let before = self.ready.len();
        self.content.read(&mut self.ready).await?;
        self.ended = self.ready.len() == before;
        if self.mode == Mode::Netascii {
            let chunk = self.ready.split_off(before);
            netascii(&chunk, &mut self.ready);
        }
        Ok(())
    }
}

impl Content {
    /// Adds at most a chunk to `out`; nothing only at the end.
    async fn read(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        match self {
            Self::Shared(bytes) => {
                out.extend_from_slice(&bytes.split_to(room(out).min(bytes.remaining())));
            }
            Self::Open(file) => match read_now(file, out) {
                Ok(()) => {}
                Err(_) => read_waiting(file, out).await?,
            },
        }
        Ok(())
    }
}

/// How much is read behind what is `ready`: as much as makes whole chunks, so that a transfer's memory stays theirs.
fn room(ready: &[u8]) -> usize {
    CHUNK - ready.len() % CHUNK
}

/// Reads what need not be waited for. Fails where there is none, and where the file system cannot tell.
fn read_now(file: &File, out: &mut Vec<u8>) -> rustix::io::Result<()> {
    let before = out.len();
    out.resize(before + room(out), 0);
    let mut free = [IoSliceMut::new(out.get_mut(before..).unwrap_or_default())];
    let read = preadv2(file, &mut free, ONWARD, ReadWriteFlags::NOWAIT);
    out.truncate(before + read.unwrap_or(0));
    read.map(drop)
}

/// Reads what the disk has.
async fn read_waiting(file: &File, out: &mut Vec<u8>) -> io::Result<()> {
    let file = file.try_clone()?; // it reads on where this one is
    let room = room(out);
    let read = tokio::task::spawn_blocking(move || {
        let mut chunk = Vec::with_capacity(room);
        file.take(room as u64).read_to_end(&mut chunk).map(|_| chunk)
    });
    out.extend_from_slice(&read.await??);
    Ok(())
}

/// Octet by octet, so it matters not where a chunk ends (RFC 764, the network virtual terminal).
fn netascii(octets: &[u8], out: &mut Vec<u8>) {
    for octet in octets {
        match octet {
            b'\n' => out.extend_from_slice(b"\r\n"),
            b'\r' => out.extend_from_slice(b"\r\0"),
            other => out.extend_from_slice(&[*other]),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use bytes::Bytes;
    use std::io::{Seek as _, Write as _};

    async fn cut(content: impl Into<Content>, mode: Mode, size: usize) -> Vec<Vec<u8>> {
        let mut blocks = Blocks::new(content.into(), mode);
        let mut cut = Vec::new();
        while cut.last().is_none_or(|block: &Vec<u8>| block.len() == size) {
            cut.push(blocks.next(size).await.unwrap().to_vec());
        }
        cut
    }

    impl From<&'static [u8]> for Content {
        fn from(text: &'static [u8]) -> Self {
            Self::Shared(Bytes::from_static(text))
        }
    }

    /// A file of `octets` that is at its beginning.
    fn file(octets: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(octets).unwrap();
        file.rewind().unwrap();
        file
    }

    #[tokio::test]
    async fn an_exact_multiple_ends_with_an_empty_block() {
        assert_eq!(cut(&b"abcdef"[..], Mode::Octet, 3).await, [&b"abc"[..], b"def", b""]);
        assert_eq!(cut(&b"abcde"[..], Mode::Octet, 3).await, [&b"abc"[..], b"de"]);
        assert_eq!(cut(&b""[..], Mode::Octet, 3).await, [&b""[..]]);
    }

    #[tokio::test]
    async fn a_line_end_may_be_cut_in_two_by_a_block() {
        let cut = cut(&b"ab\nc\rd"[..], Mode::Netascii, 3).await;
        assert_eq!(cut, [&b"ab\r"[..], b"\nc\r", b"\0d"]);
    }

    #[tokio::test]
    async fn a_file_of_many_chunks_comes_whole() {
        let octets: Vec<u8> = (0..CHUNK * 3 + 5).map(|at| (at / 7) as u8).collect();
        for size in [8, 1428, CHUNK + 1, 65_464] {
            let cut = cut(Content::Open(file(&octets)), Mode::Octet, size).await;
            assert!(cut.concat() == octets, "{size}");
        }
    }

    #[tokio::test]
    async fn what_must_be_waited_for_is_read_where_the_rest_was() {
        let octets: Vec<u8> = (0..CHUNK * 2).map(|at| (at / 7) as u8).collect();
        let (file, mut read) = (file(&octets), Vec::new());
        read_waiting(&file, &mut read).await.unwrap();
        // It was just written, so the kernel has it.
        read_now(&file, &mut read).unwrap();
        assert!(read == octets);
    }
}
