//! A deadline on the first bytes of a connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// The first bytes of an HTTP/2 client (RFC 9113 §3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A stream that fails unless its first bytes come in time: they show if the client speaks HTTP/1 or HTTP/2. hyper's timeouts begin
/// after them.
#[derive(Debug)]
pub(super) struct FirstBytes<S> {
    stream: S,
    /// The rest of the preface, and its deadline; none once the version is known.
    awaited: Option<(&'static [u8], Pin<Box<Sleep>>)>,
}

impl<S> FirstBytes<S> {
    /// The first bytes of `stream` have to come within `timeout`.
    pub(super) fn new(stream: S, timeout: Duration) -> Self {
        Self { stream, awaited: Some((PREFACE, Box::pin(tokio::time::sleep(timeout)))) }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FirstBytes<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { stream, awaited } = self.get_mut();
        let Some((rest, deadline)) = awaited else {
            return Pin::new(stream).poll_read(cx, buffer);
        };
        if deadline.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let begin = buffer.filled().len();
        ready!(Pin::new(stream).poll_read(cx, buffer))?;
        match rest.strip_prefix(&buffer.filled()[begin..]) {
            Some(left) if !left.is_empty() => *rest = left,
            // The whole preface, or HTTP/1.
            Some(_) | None => *awaited = None,
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FirstBytes<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
