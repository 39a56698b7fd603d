//! The content of a compressed file: of each stream in it, one after the other.
//!
//! ```text
//! stream ─▶ zeroes (padding) ─▶ stream ─▶ … ─▶ bytes that begin no stream: not content, counted
//! ```
//!
//! Some projects append metadata to their compressed images; gzip(1) calls them trailing garbage
//! and ignores them, too. A stream that is damaged or cut is an error, wherever the damage is:
//! behind bytes that begin no stream, no other stream may follow.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll};

use async_compression::tokio::bufread::{BzDecoder, GzipDecoder, XzDecoder, ZstdDecoder};
use async_compression::zstd::DParameter;
use bytes::{Buf, BytesMut};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, ReadBuf};

use super::{Compression, magic};

/// Memory in bytes that an xz stream may need besides its window.
const XZ_EXTRA_BYTES: u64 = 2 << 20;

/// The compressed file.
pub(crate) type File = Pin<Box<dyn AsyncBufRead + Send>>;

/// The content of a compressed file.
pub(crate) struct Members {
    format: Compression,
    /// The largest window allowed, in bytes; a power of two.
    limit: u64,
    /// The decoder of the present stream. None at the end of the file.
    decoder: Option<Box<dyn Decoder>>,
    /// Bytes behind the last stream.
    trailing: u64,
}

impl Members {
    /// Decompresses `file` with windows of at most `limit` bytes, a power of two.
    pub(super) fn new(format: Compression, file: File, limit: u64) -> Self {
        let file = Lookahead { read: BytesMut::new(), file };
        Self { format, limit, decoder: Some(decoder(format, file, limit)), trailing: 0 }
    }

    /// Reads content into `space`, which is not empty. Returns 0 at the end of the file. Not to be
    /// cancelled.
    pub(crate) async fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        while let Some(decoder) = &mut self.decoder {
            let read = decoder.read(space).await?;
            if read > 0 {
                return Ok(read);
            }
            self.next().await?;
        }
        Ok(0)
    }

    /// Returns the number of bytes behind the last stream, zeroes included, once the content is
    /// read.
    pub(crate) fn trailing_bytes(&self) -> u64 {
        self.trailing
    }

    /// Goes to the next stream. Without one, reads the file to its end.
    async fn next(&mut self) -> io::Result<()> {
        let Some(ended) = self.decoder.take() else { return Ok(()) };
        let mut file = ended.into_file();
        let padding = file.skip_zeroes().await?;
        let head = file.peek(magic::MAX_BYTES).await?;
        if magic::begins_stream(self.format, head) {
            self.decoder = Some(decoder(self.format, file, self.limit));
        } else {
            self.trailing = padding + file.skip_trailing(self.format).await?;
        }
        Ok(())
    }
}

/// The decoder of one stream.
trait Decoder: AsyncRead + Send + Unpin {
    /// Returns the file, at the end of the stream.
    fn into_file(self: Box<Self>) -> Lookahead;
}

macro_rules! decoders {
    ($($decoder:ident)*) => {
        $(impl Decoder for $decoder<Lookahead> {
            fn into_file(self: Box<Self>) -> Lookahead {
                self.into_inner()
            }
        })*
    };
}

decoders!(BzDecoder GzipDecoder XzDecoder ZstdDecoder);

fn decoder(format: Compression, file: Lookahead, limit: u64) -> Box<dyn Decoder> {
    match format {
        Compression::Gzip => Box::new(GzipDecoder::new(file)),
        Compression::Xz => Box::new(XzDecoder::with_mem_limit(file, limit + XZ_EXTRA_BYTES)),
        Compression::Zstd => {
            let window = DParameter::window_log_max(limit.ilog2());
            Box::new(ZstdDecoder::with_params(file, &[window]))
        }
        Compression::Bzip2 => Box::new(BzDecoder::new(file)),
    }
}

/// A file with a look at its next bytes before they are read.
struct Lookahead {
    /// Bytes that were looked at.
    read: BytesMut,
    file: File,
}

impl Lookahead {
    /// Returns the next `length` bytes; fewer at the end of the file.
    async fn peek(&mut self, length: usize) -> io::Result<&[u8]> {
        while self.read.len() < length {
            let more = self.file.fill_buf().await?;
            if more.is_empty() {
                break;
            }
            let taken = more.get(..length - self.read.len()).unwrap_or(more);
            self.read.extend_from_slice(taken);
            let taken = taken.len();
            self.file.consume(taken);
        }
        Ok(&self.read)
    }

    /// Reads the zeroes that come next. Returns their number.
    async fn skip_zeroes(&mut self) -> io::Result<u64> {
        let mut skipped = 0;
        loop {
            let bytes = self.fill_buf().await?;
            let zeroes = bytes.iter().take_while(|byte| **byte == 0).count();
            let is_end = zeroes < bytes.len() || bytes.is_empty();
            self.consume(zeroes);
            skipped += zeroes as u64;
            if is_end {
                return Ok(skipped);
            }
        }
    }

    /// Reads the file to its end. Returns the number of bytes. A stream of `format` in them is an
    /// error.
    async fn skip_trailing(mut self, format: Compression) -> io::Result<u64> {
        const KEPT: usize = magic::MAX_BYTES - 1;
        let mut skipped = 0;
        let mut seen = Vec::new();
        loop {
            let bytes = self.fill_buf().await?;
            if bytes.is_empty() {
                return Ok(skipped);
            }
            let length = bytes.len();
            seen.extend_from_slice(bytes);
            self.consume(length);
            if magic::has_stream(format, &seen) {
                let text = "bytes between two of its streams begin no stream";
                return Err(io::Error::new(ErrorKind::InvalidData, text));
            }
            skipped += length as u64;
            seen.drain(..seen.len().saturating_sub(KEPT));
        }
    }
}

impl AsyncRead for Lookahead {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let bytes = match self.as_mut().poll_fill_buf(context) {
            Poll::Ready(bytes) => bytes?,
            Poll::Pending => return Poll::Pending,
        };
        let length = bytes.len().min(into.remaining());
        into.put_slice(bytes.get(..length).unwrap_or_default());
        self.consume(length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncBufRead for Lookahead {
    fn poll_fill_buf(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let this = self.get_mut();
        if this.read.is_empty() {
            return this.file.as_mut().poll_fill_buf(context);
        }
        Poll::Ready(Ok(&this.read))
    }

    fn consume(self: Pin<&mut Self>, length: usize) {
        let this = self.get_mut();
        if this.read.is_empty() {
            this.file.as_mut().consume(length);
        } else {
            this.read.advance(length);
        }
    }
}
