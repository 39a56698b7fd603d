//! Cutting a file into blocks as it is read, so that no transfer holds more than its window.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::AsyncReadExt;

use super::files::Content;
use super::negotiation::Mode;

/// How much is read at a time: several small blocks, or one large one.
const CHUNK: usize = 16 * 1024;

/// A file being read from its beginning to its end.
#[derive(Debug)]
pub struct Blocks {
    content: Content,
    mode: Mode,
    ready: BytesMut,
    ended: bool,
}

impl Blocks {
    /// Reads `content`.
    pub fn new(content: Content, mode: Mode) -> Self {
        Self { content, mode, ready: BytesMut::new(), ended: false }
    }

    /// The next `size` octets; fewer, or none, at the end.
    pub async fn next(&mut self, size: usize) -> io::Result<Bytes> {
        while self.ready.len() < size && !self.ended {
            let chunk = self.content.read(CHUNK).await?;
            self.ended = chunk.is_empty();
            match self.mode {
                Mode::Octet => self.ready.extend_from_slice(&chunk),
                Mode::Netascii => netascii(&chunk, &mut self.ready),
            }
        }
        Ok(self.ready.split_to(size.min(self.ready.len())).freeze())
    }
}

impl Content {
    /// At most `most` octets; none at the end.
    async fn read(&mut self, most: usize) -> io::Result<Bytes> {
        match self {
            Self::Shared(bytes) => Ok(bytes.split_to(most.min(bytes.remaining()))),
            Self::Open(file) => {
                let mut chunk = BytesMut::with_capacity(most);
                file.read_buf(&mut chunk).await?;
                Ok(chunk.freeze())
            }
        }
    }
}

/// Octet by octet, so it matters not where a chunk ends (RFC 764, the network virtual terminal).
fn netascii(octets: &[u8], out: &mut BytesMut) {
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

    async fn cut(text: &'static [u8], mode: Mode, size: usize) -> Vec<Bytes> {
        let mut blocks = Blocks::new(Content::Shared(Bytes::from_static(text)), mode);
        let mut cut = Vec::new();
        while cut.last().is_none_or(|block: &Bytes| block.len() == size) {
            cut.push(blocks.next(size).await.unwrap());
        }
        cut
    }

    #[tokio::test]
    async fn an_exact_multiple_ends_with_an_empty_block() {
        assert_eq!(cut(b"abcdef", Mode::Octet, 3).await, [&b"abc"[..], b"def", b""]);
        assert_eq!(cut(b"abcde", Mode::Octet, 3).await, [&b"abc"[..], b"de"]);
        assert_eq!(cut(b"", Mode::Octet, 3).await, [&b""[..]]);
    }

    #[tokio::test]
    async fn a_line_end_may_be_cut_in_two_by_a_block() {
        assert_eq!(cut(b"ab\nc\rd", Mode::Netascii, 3).await, [&b"ab\r"[..], b"\nc\r", b"\0d"]);
    }
}
