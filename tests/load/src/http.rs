//! A minimal HTTP client, so that the measurement contains no overhead of a library.

use std::net::{Ipv4Addr, SocketAddrV4};

use anyhow::Context as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;

/// The metadata service's address.
pub const METADATA: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(169, 254, 169, 254), 80);

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpResponse {
    /// The status.
    pub status: u16,
    /// The body.
    pub body: String,
}

/// Returns the text of a GET request for `path`. With `keep_alive` the connection stays open after the response.
pub fn request(server: SocketAddrV4, path: &str, keep_alive: bool) -> String {
    let end = if keep_alive { "" } else { "Connection: close\r\n" };
    format!("GET {path} HTTP/1.1\r\nHost: {}\r\n{end}\r\n", server.ip())
}

/// Sends a GET request for `path` to `server` from the address `client`, on a new connection.
pub async fn get(
    client: Ipv4Addr,
    server: SocketAddrV4,
    path: &str,
) -> anyhow::Result<HttpResponse> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((client, 0).into())?;
    let mut stream = socket.connect(server.into()).await?;
    stream.write_all(request(server, path, false).as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    let (head, body) = text.split_once("\r\n\r\n").context("the response's headers do not end")?;
    let status = head.split(' ').nth(1).context("no status")?.parse()?;
    Ok(HttpResponse { status, body: body.into() })
}
