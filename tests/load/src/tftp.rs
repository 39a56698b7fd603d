//! Fetching a file by TFTP as firmware does (RFC 1350, 2347, 2348, 2349, 7440).

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;

use anyhow::Context as _;
use tftp::packet::FileRequest;
use tftp::{ErrorCode, Options, Packet};
use tokio::net::UdpSocket;

/// Where servers hear requests.
pub const PORT: u16 = 69;
/// How long to wait for an answer, and how often: as EDK2 does.
const PATIENCE: Duration = Duration::from_secs(4);
const TRIES: u32 = 6;
/// Larger than any block that is asked for here, in bytes.
const LONGEST: usize = 2048;
/// Octets of a block where nothing is agreed on.
const BLOCK: usize = 512;

/// What is asked for beside the file (RFC 2347).
#[derive(Clone, Copy, Debug, Default)]
pub struct Wishes {
    /// Octets of a block.
    pub block: Option<u16>,
    /// Blocks without an acknowledgement.
    pub window: Option<u16>,
}

impl Wishes {
    /// What UEFI asks for: as much as Ethernet carries, four at a time.
    pub const FIRMWARE: Self = Self { block: Some(1468), window: Some(4) };

    fn options(self) -> Options {
        let text = |number: u16| number.to_string().into_bytes();
        let block = self.block.map(|block| (b"blksize".to_vec(), text(block)));
        let window = self.window.map(|window| (b"windowsize".to_vec(), text(window)));
        block.into_iter().chain(window).collect()
    }
}

/// What came of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fetched {
    /// The file's octets.
    pub octets: u64,
    /// How often something was sent again, because nothing came.
    pub again: u32,
}

/// One request to a server, and what was agreed on.
#[derive(Debug)]
pub struct Fetch {
    socket: UdpSocket,
    /// What was sent last, for when nothing comes.
    last: Vec<u8>,
    again: u32,
    block: usize,
    window: u64,
    buffer: Vec<u8>,
}

impl Fetch {
    /// Asks `server`, from the address `own`, for the file `name`, and waits until it has agreed.
    pub async fn begin(
        own: Ipv4Addr,
        server: Ipv4Addr,
        name: &str,
        wishes: Wishes,
    ) -> anyhow::Result<Self> {
        let socket = UdpSocket::bind((own, 0)).await?;
        let mut options = wishes.options();
        options.insert(0, (b"tsize".to_vec(), b"0".to_vec()));
        let request = FileRequest { name: name.into(), mode: b"octet".into(), options };
        let last = Packet::Read(request).encode();
        let (block, window, buffer) = (BLOCK, 1, vec![0; LONGEST]);
        let mut fetch = Self { socket, last, again: 0, block, window, buffer };
        let asked = SocketAddrV4::new(server, PORT);
        fetch.socket.send_to(&fetch.last, asked).await?;
        let from = fetch.answered(Some(asked)).await?;
        fetch.socket.connect(from.1).await?;
        let answer = Packet::parse(fetch.received(from.0))?;
        let Packet::OptionAck(granted) = &answer else {
            anyhow::bail!("{answer:?} in place of options")
        };
        fetch.agree(granted)?;
        Ok(fetch)
    }

    fn agree(&mut self, granted: &Options) -> anyhow::Result<()> {
        for (name, value) in granted {
            let value: u16 = match name.as_slice() {
                b"blksize" | b"windowsize" => std::str::from_utf8(value)?.parse()?,
                _ => continue,
            };
            match name.as_slice() {
                b"blksize" => self.block = value.into(),
                _ => self.window = value.into(),
            }
        }
        anyhow::ensure!(self.block + 4 <= LONGEST, "blocks of {} octets", self.block);
        Ok(())
    }

    /// Ends it before it has begun: firmware that wanted to know the size does so.
    pub async fn refuse(self) -> anyhow::Result<Fetched> {
        let end = Packet::error(ErrorCode::OPTIONS_REFUSED, "User aborted").encode();
        self.socket.send(&end).await?;
        Ok(Fetched { octets: 0, again: self.again })
    }

    /// Takes the file to its end, giving each part to `take`, in order.
    pub async fn finish(mut self, mut take: impl FnMut(&[u8])) -> anyhow::Result<Fetched> {
        self.acknowledge(0).await?;
        let (mut blocks, mut octets) = (0_u64, 0);
        let mut acknowledged = 0;
        loop {
            let (length, _) = self.answered(None).await?;
            let Some((number, data)) = data(self.received(length))? else { continue };
            if number != (blocks + 1) as u16 {
                // Something is missing, or comes twice: what has come in order is told (RFC 7440, section 4).
                if acknowledged != blocks {
                    acknowledged = blocks;
                    self.acknowledge(blocks).await?;
                }
                continue;
            }
            take(data);
            let (ends, more) = (data.len() < self.block, data.len() as u64);
            (blocks, octets) = (blocks + 1, octets + more);
            if ends || blocks - acknowledged == self.window {
                acknowledged = blocks;
                self.acknowledge(blocks).await?;
            }
            if ends {
                return Ok(Fetched { octets, again: self.again });
            }
        }
    }

    /// Waits until the first window has come, and takes nothing from it.
    pub async fn stall(&mut self) -> anyhow::Result<()> {
        self.acknowledge(0).await?;
        for _ in 0..self.window {
            self.answered(None).await?;
        }
        Ok(())
    }

    async fn acknowledge(&mut self, blocks: u64) -> anyhow::Result<()> {
        self.last = Packet::Ack(blocks as u16).encode();
        self.socket.send(&self.last).await?;
        Ok(())
    }

    /// The next packet's length and sender; where none comes, what was sent last is sent again, to `asked` if the socket
    /// is nobody's yet.
    async fn answered(
        &mut self,
        asked: Option<SocketAddrV4>,
    ) -> anyhow::Result<(usize, SocketAddr)> {
        for _ in 0..TRIES {
            let received = self.socket.recv_from(&mut self.buffer);
            if let Ok(received) = tokio::time::timeout(PATIENCE, received).await {
                return Ok(received?);
            }
            self.again += 1;
            match asked {
                Some(asked) => self.socket.send_to(&self.last, asked).await?,
                None => self.socket.send(&self.last).await?,
            };
        }
        anyhow::bail!("no answer by TFTP, asked {TRIES} times")
    }

    fn received(&self, length: usize) -> &[u8] {
        self.buffer.get(..length).unwrap_or_default()
    }
}

/// Number and octets of a DATA packet, read without keeping a copy; none of a repeated agreement.
fn data(packet: &[u8]) -> anyhow::Result<Option<(u16, &[u8])>> {
    match packet {
        [0, 3, high, low, data @ ..] => Ok(Some((u16::from_be_bytes([*high, *low]), data))),
        [0, 6, ..] => Ok(None),
        _ => Err(anyhow::anyhow!("{:?} in place of data", Packet::parse(packet)))
            .context("the server ended the transfer"),
    }
}
