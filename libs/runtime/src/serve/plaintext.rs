//! A connection in plaintext, which ends by being closed, and whose hop limit a request may set.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};

use socket2::SockRef;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The hop limit (TTL in IPv4) of everything that is sent on a connection from now on.
#[derive(Clone, Debug, Default)]
pub struct HopLimit(Arc<AtomicU8>);

impl HopLimit {
    /// Sets the limit before the next bytes are written. If the system refuses it, the connection ends without them. 0 changes
    /// nothing.
    pub fn set(&self, hops: u8) {
        self.0.store(hops, Ordering::Relaxed);
    }
}

/// A stream that is not shut down before it is closed: nothing comes in between, and closing says the same to the peer.
#[derive(Debug)]
pub(super) struct Plaintext(TcpStream, HopLimit);

impl Plaintext {
    /// Returns the stream, and the hop limit that its requests may set.
    pub(super) fn new(stream: TcpStream) -> (Self, HopLimit) {
        let hop_limit = HopLimit::default();
        (Self(stream, hop_limit.clone()), hop_limit)
    }

    fn apply_hop_limit(&self) -> io::Result<()> {
        match self.1.0.swap(0, Ordering::Relaxed) {
            0 => Ok(()),
            hops => self.set_hop_limit(hops.into()).inspect_err(|error| {
                let error = crate::cause(error);
                tracing::error!(error, hops, "hop limit refused by the system; connection closed");
            }),
        }
    }

    fn set_hop_limit(&self, hops: u32) -> io::Result<()> {
        let socket = SockRef::from(&self.0);
        if self.0.local_addr()?.is_ipv4() {
            return socket.set_ttl_v4(hops);
        }
        // The socket's IPv4 peers, if it has any, have the other limit.
        let _fails_without_ipv4 = socket.set_ttl_v4(hops);
        socket.set_unicast_hops_v6(hops)
    }
}

impl AsyncRead for Plaintext {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Plaintext {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.apply_hop_limit()?;
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.apply_hop_limit()?;
        Pin::new(&mut self.0).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
