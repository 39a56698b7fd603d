//! The connection an answer goes out on: one socket that its reader, its writer and its request share.

use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::http::{HeaderValue, header};
use axum::response::Response;
use rustix::net::RecvFlags;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

/// How many bytes are read at once: a request with all its headers, as a rule.
const MOST: usize = 4096;

/// Who holds a connection between two requests: its server, as a stream and to hand on.
const HOLDERS: usize = 2;

/// A request's connection.
#[derive(Clone, Debug)]
pub(super) struct Wire(Arc<TcpStream>);

/// The connection's two directions, for the server.
pub(super) struct Stream(Arc<TcpStream>);

/// `stream`, to serve and to hand to its requests.
pub(super) fn split(stream: TcpStream) -> (Stream, Wire) {
    let stream = Arc::new(stream);
    (Stream(stream.clone()), Wire(stream))
}

impl Wire {
    /// Lets what is sent from now on cross `hops` - 1 routers, and makes `response` the last answer of the connection.
    pub(super) fn limit(&self, hops: u8, response: &mut Response) -> io::Result<()> {
        let (socket, hops) = (SockRef::from(&*self.0), u32::from(hops));
        match self.0.local_addr()? {
            SocketAddr::V4(_) => socket.set_ttl_v4(hops)?,
            // Its IPv4 peers, if it has any, go by the other limit.
            SocketAddr::V6(_) => {
                socket.set_unicast_hops_v6(hops)?;
                let _only_where_mapped = socket.set_ttl_v4(hops);
            }
        }
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        Ok(())
    }

    /// The listener's address; empty where the socket does not say.
    pub(super) fn listener(&self) -> String {
        self.0.local_addr().map_or_else(|_| String::new(), |address| address.to_string())
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(cx))?;
            let before = buffer.filled().len();
            let done = self.0.try_io(Interest::READABLE, || read(&self.0, buffer));
            match done {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                    return Poll::Ready(Err(error));
                }
                Err(_) if buffer.filled().len() == before => {}
                Ok(()) | Err(_) => return Poll::Ready(Ok(())),
            }
        }
    }
}

/// Reads what has arrived into `buffer`. If that was all, it says too that nothing is left: the next to read waits for
/// more, and does not ask the kernel in vain.
fn read(stream: &TcpStream, buffer: &mut ReadBuf<'_>) -> io::Result<()> {
    let mut bytes = [MaybeUninit::uninit(); MOST];
    let room = buffer.remaining().min(MOST);
    let (bytes, _) = rustix::net::recv(stream, &mut bytes[..room], RecvFlags::empty())?.0;
    buffer.put_slice(bytes);
    // No byte at all is the end of the stream, which is there to stay.
    if (1..room).contains(&bytes.len()) { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(cx))?;
            match self.0.try_write_vectored(slices) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Where nobody else holds it, it is closed now, which says the same to the peer.
        if Arc::strong_count(&self.0) <= HOLDERS {
            return Poll::Ready(Ok(()));
        }
        match SockRef::from(&*self.0).shutdown(std::net::Shutdown::Write) {
            // The peer hung up first.
            Err(error) if error.kind() != io::ErrorKind::NotConnected => Poll::Ready(Err(error)),
            Ok(()) | Err(_) => Poll::Ready(Ok(())),
        }
    }
}
