//! A TFTP client that behaves like firmware (RFC 1350, 2347, 2348, 2349, 7440).

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;

use anyhow::Context as _;
use tftp::{ErrorCode, error_packet};
use tokio::net::UdpSocket;

/// UDP port of TFTP servers.
pub const PORT: u16 = 69;
/// Timeout of a response, and maximum number of attempts: those of EDK2.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(4);
const MAX_ATTEMPTS: u32 = 6;
/// Maximum size of a packet, in bytes: larger than any block size requested here.
const MAX_PACKET_BYTES: usize = 2048;
/// Default block size, in bytes (RFC 1350 §2).
const DEFAULT_BLOCK_BYTES: usize = 512;

/// The requested options (RFC 2347).
#[derive(Clone, Copy, Debug, Default)]
pub struct TransferOptions {
    /// Block size, in bytes.
    pub block: Option<u16>,
    /// Blocks per acknowledgement.
    pub window: Option<u16>,
}

impl TransferOptions {
    /// The options of UEFI firmware: blocks that fit Ethernet, in windows of four.
    pub const FIRMWARE: Self = Self { block: Some(1468), window: Some(4) };

    /// Returns the options as they stand in a request.
    fn encode(self) -> String {
        let block = self.block.map(|block| format!("blksize\0{block}\0"));
        let window = self.window.map(|window| format!("windowsize\0{window}\0"));
        format!("tsize\x000\0{}{}", block.unwrap_or_default(), window.unwrap_or_default())
    }
}

/// The result of a transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FetchResult {
    /// Bytes received.
    pub bytes: u64,
    /// Packets sent again after a timeout.
    pub retries: u32,
}

/// A transfer, with the options that the server granted.
#[derive(Debug)]
pub struct Fetch {
    socket: UdpSocket,
    /// The last packet, sent again after a timeout.
    last: Vec<u8>,
    retries: u32,
    block: usize,
    window: u64,
    buffer: Vec<u8>,
}

impl Fetch {
    /// Requests the file `name` from `server`, from the address `client`, and waits for the granted options.
    pub async fn begin(
        client: Ipv4Addr,
        server: Ipv4Addr,
        name: &str,
        requested: TransferOptions,
    ) -> anyhow::Result<Self> {
        let socket = UdpSocket::bind((client, 0)).await?;
        let last = format!("\0\x01{name}\0octet\0{}", requested.encode()).into_bytes();
        let (block, window, buffer) = (DEFAULT_BLOCK_BYTES, 1, vec![0; MAX_PACKET_BYTES]);
        let mut fetch = Self { socket, last, retries: 0, block, window, buffer };
        let server = SocketAddrV4::new(server, PORT);
        fetch.socket.send_to(&fetch.last, server).await?;
        let (length, sender) = fetch.receive(Some(server)).await?;
        fetch.socket.connect(sender).await?;
        let response = fetch.received(length).to_vec();
        let [0, 6, granted @ ..] = response.as_slice() else {
            anyhow::bail!("{response:?}, expected OACK")
        };
        fetch.apply(std::str::from_utf8(granted)?)?;
        Ok(fetch)
    }

    fn apply(&mut self, granted: &str) -> anyhow::Result<()> {
        let mut texts = granted.split('\0');
        while let (Some(name), Some(value)) = (texts.next(), texts.next()) {
            match name {
                "blksize" => self.block = value.parse()?,
                "windowsize" => self.window = value.parse()?,
                _ => {}
            }
        }
        anyhow::ensure!(self.block + 4 <= MAX_PACKET_BYTES, "blocks of {} bytes", self.block);
        Ok(())
    }

    /// Aborts the transfer after the options, as firmware does that only needs the size.
    pub async fn abort(self) -> anyhow::Result<FetchResult> {
        let end = error_packet(ErrorCode::OPTIONS_REFUSED, "User aborted");
        self.socket.send(&end).await?;
        Ok(FetchResult { bytes: 0, retries: self.retries })
    }

    /// Receives the file to its end. `take` is called with each block, in order.
    pub async fn finish(mut self, mut take: impl FnMut(&[u8])) -> anyhow::Result<FetchResult> {
        self.acknowledge(0).await?;
        let (mut blocks, mut bytes) = (0_u64, 0);
        let mut acknowledged = 0;
        loop {
            let (length, _) = self.receive(None).await?;
            let Some((number, data)) = data(self.received(length))? else { continue };
            if number != (blocks + 1) as u16 {
                // A block is missing or repeated: acknowledge the last block in order (RFC 7440 §4).
                if acknowledged != blocks {
                    acknowledged = blocks;
                    self.acknowledge(blocks).await?;
                }
                continue;
            }
            take(data);
            let (last, length) = (data.len() < self.block, data.len() as u64);
            (blocks, bytes) = (blocks + 1, bytes + length);
            if last || blocks - acknowledged == self.window {
                acknowledged = blocks;
                self.acknowledge(blocks).await?;
            }
            if last {
                return Ok(FetchResult { bytes, retries: self.retries });
            }
        }
    }

    /// Receives the first window without acknowledging it.
    pub async fn stall(&mut self) -> anyhow::Result<()> {
        self.acknowledge(0).await?;
        for _ in 0..self.window {
            self.receive(None).await?;
        }
        Ok(())
    }

    async fn acknowledge(&mut self, blocks: u64) -> anyhow::Result<()> {
        self.last = [[0, 4], (blocks as u16).to_be_bytes()].concat();
        self.socket.send(&self.last).await?;
        Ok(())
    }

    /// Returns length and sender of the next packet. After a timeout the last packet is sent again: to `server` while the
    /// socket is not connected.
    async fn receive(
        &mut self,
        server: Option<SocketAddrV4>,
    ) -> anyhow::Result<(usize, SocketAddr)> {
        for _ in 0..MAX_ATTEMPTS {
            let received = self.socket.recv_from(&mut self.buffer);
            if let Ok(received) = tokio::time::timeout(RESPONSE_TIMEOUT, received).await {
                return Ok(received?);
            }
            self.retries += 1;
            match server {
                Some(server) => self.socket.send_to(&self.last, server).await?,
                None => self.socket.send(&self.last).await?,
            };
        }
        anyhow::bail!("no TFTP response after {MAX_ATTEMPTS} attempts")
    }

    fn received(&self, length: usize) -> &[u8] {
        self.buffer.get(..length).unwrap_or_default()
    }
}

/// Returns number and content of a DATA packet without copying it; `None` for a repeated OACK.
fn data(packet: &[u8]) -> anyhow::Result<Option<(u16, &[u8])>> {
    match packet {
        [0, 3, high, low, data @ ..] => Ok(Some((u16::from_be_bytes([*high, *low]), data))),
        [0, 6, ..] => Ok(None),
        _ => Err(anyhow::anyhow!("{packet:?}, expected DATA"))
            .context("the server ended the transfer"),
    }
}
