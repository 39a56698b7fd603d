//! Sends HTTP requests as fast as the server responds: a closed loop over some connections, in one thread.
//!
//! Requests are written to all connections, then all responses are read: while the bench reads the first response, the server
//! works on the last request. So the server is never idle, and the bench needs only two system calls per request.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

use crate::http;
use crate::process::Measured;

/// Number of connections.
const CONNECTIONS: usize = 32;
/// Duration of a measurement.
const DURATION: Duration = Duration::from_secs(1);
/// Read timeout of a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of a response, in bytes.
const MAX_RESPONSE_BYTES: usize = 16 * 1024;

/// The use of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connections {
    /// All requests share the connections.
    KeepAlive,
    /// Each request has its own connection.
    PerRequest,
}

/// A GET request.
#[derive(Clone, Debug)]
pub struct Target {
    /// The client's address.
    pub client: Ipv4Addr,
    /// The server's address and port.
    pub server: SocketAddrV4,
    /// The path.
    pub path: String,
}

/// The result of a measurement. Every response had status 200.
#[derive(Clone, Copy, Debug)]
pub struct HttpResult {
    /// Number of requests.
    pub requests: usize,
    /// Elapsed time.
    pub elapsed: Duration,
    /// The server's processor time.
    pub cpu: Duration,
}

/// Sends requests for the `targets`, one after another and again from the first, to `server`.
pub fn measure(
    server: Measured<'_>,
    targets: &[Target],
    connections: Connections,
) -> anyhow::Result<HttpResult> {
    server.network.enter()?;
    let mut targets = targets.iter().cycle();
    let mut next = || targets.next().context("no targets");
    let keep_alive = connections == Connections::KeepAlive;
    let mut open = Vec::new();
    let (before, start) = (server.process.cpu_time()?, Instant::now());
    let mut requests = 0;
    while start.elapsed() < DURATION {
        if open.is_empty() {
            open = (0..CONNECTIONS)
                .map(|_| Connection::new(next()?, keep_alive))
                .collect::<Result<_, _>>()?;
        }
        for connection in &mut open {
            connection.stream.write_all(&connection.request)?;
        }
        for connection in &mut open {
            connection.read_response()?;
        }
        requests += open.len();
        if !keep_alive {
            open.clear();
        }
    }
    let elapsed = start.elapsed();
    Ok(HttpResult { requests, elapsed, cpu: server.process.cpu_time()? - before })
}

/// An open connection with the request that is sent on it.
struct Connection {
    stream: TcpStream,
    request: Vec<u8>,
}

impl Connection {
    fn new(target: &Target, keep_alive: bool) -> anyhow::Result<Self> {
        // The standard library cannot bind a client socket before connecting.
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
        bind(&socket, &SocketAddrV4::new(target.client, 0))?;
        connect(&socket, &target.server)
            .with_context(|| format!("connecting to {}", target.server))?;
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
        let request = http::request(target.server, &target.path, keep_alive).into_bytes();
        Ok(Self { stream, request })
    }

    /// Reads one whole response. Fails unless its status is 200.
    fn read_response(&mut self) -> anyhow::Result<()> {
        let (mut buffer, mut length) = ([0; MAX_RESPONSE_BYTES], 0);
        loop {
            let free = buffer.get_mut(length..).unwrap_or_default();
            let count = self.stream.read(free)?;
            anyhow::ensure!(count > 0, "a response is truncated or too long");
            length += count;
            let received = buffer.get(..length).unwrap_or_default();
            if let Some(whole) = response_size(received)?
                && length >= whole
            {
                return Ok(());
            }
        }
    }
}

/// Returns the size of the response that begins with `received`, in bytes, once its headers are complete. Fails unless the
/// status is 200 and Content-Length is given.
pub(crate) fn response_size(received: &[u8]) -> anyhow::Result<Option<usize>> {
    const END: &[u8] = b"\r\n\r\n";
    let Some(end) = received.windows(END.len()).position(|window| window == END) else {
        return Ok(None);
    };
    let head = std::str::from_utf8(received.get(..end).unwrap_or_default())?;
    anyhow::ensure!(head.starts_with("HTTP/1.1 200"), "response {head:?}");
    let named = |line: &&str| line.len() > 15 && line[..15].eq_ignore_ascii_case("content-length:");
    let line =
        head.lines().find(named).with_context(|| format!("no Content-Length in {head:?}"))?;
    let (_, body) = line.split_once(':').context("no Content-Length")?;
    Ok(Some(end + END.len() + body.trim().parse::<usize>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_responses_size_is_its_head_and_content_length() {
        let text = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel";
        assert_eq!(response_size(text.as_bytes()).unwrap(), Some(text.len() + 2));
        assert_eq!(response_size(b"HTTP/1.1 200 OK\r\nContent-").unwrap(), None);
    }

    #[test]
    fn another_status_or_a_missing_content_length_is_an_error() {
        assert!(
            response_size(b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n").is_err()
        );
        assert!(response_size(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
    }
}
