//! Asking by HTTP, with nothing between the bench and the wire that would have to be measured too.

use std::net::{Ipv4Addr, SocketAddrV4};

use anyhow::Context as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;

/// Where machines ask who they are.
pub const METADATA: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(169, 254, 169, 254), 80);

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The body.
    pub body: String,
}

/// A GET of `path`; `kept` says whether the connection shall stay open after it.
pub fn request(server: SocketAddrV4, path: &str, kept: bool) -> String {
    let end = if kept { "" } else { "Connection: close\r\n" };
    format!("GET {path} HTTP/1.1\r\nHost: {}\r\n{end}\r\n", server.ip())
}

/// Asks `server`, from the address `own`, for `path`, on a connection of its own.
pub async fn get(own: Ipv4Addr, server: SocketAddrV4, path: &str) -> anyhow::Result<Answer> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((own, 0).into())?;
    let mut stream = socket.connect(server.into()).await?;
    stream.write_all(request(server, path, false).as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    let (head, body) = text.split_once("\r\n\r\n").context("an answer without its end")?;
    let status = head.split(' ').nth(1).context("no status")?.parse()?;
    Ok(Answer { status, body: body.into() })
}
