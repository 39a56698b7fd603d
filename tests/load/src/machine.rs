//! Boots one simulated machine: the requests of its firmware, of iPXE and of its operating system, up to its instance-id.
//!
//! ```text
//! firmware ─DHCP─▶ address, loader ─TFTP─▶ size ─TFTP─▶ loader ─▶ iPXE ─DHCP─▶ URL ─HTTP─▶ script ─▶ system ─HTTP─▶ its id
//! ```
//!
//! Every response is checked: the machine's own address, the complete loader, the machine's own script and id.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use dhcp::options::code;
use dhcp::{MessageType, Packet};
use rack::SERVER;
use tokio::net::UdpSocket;

use crate::fleet;
use crate::http::{self, METADATA};
use crate::request::{MAX_PACKET_BYTES, PORT, Program, XID, request};
use crate::tftp::{Fetch, TransferOptions};

/// Retransmission timeouts of a DHCP client, in seconds (RFC 2131 §4.1).
const DHCP_TIMEOUTS: [u64; 4] = [4, 8, 16, 32];
/// Timeout of an HTTP request, and maximum number of attempts.
const HTTP_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_HTTP_ATTEMPTS: u32 = 10;

/// A machine that is powered off.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Its number.
    pub n: usize,
    /// Its hardware id.
    pub id: String,
    /// The expected loader.
    pub loader: Rc<[u8]>,
}

/// The result of a complete boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Booted {
    /// Times after power on at which it had its first address, its loader, its script and its id.
    pub at: [Duration; 4],
    /// Number of repeated requests, after a timeout or a 503.
    pub retries: u32,
}

/// The names of the steps in [`Booted::at`].
pub const STEPS: [&str; 4] = ["address", "loader", "script", "metadata"];

impl Machine {
    /// Boots the machine. An error names the missing or wrong response.
    pub async fn boot(self) -> anyhow::Result<Booted> {
        let mut boot = Boot { start: Instant::now(), retries: 0, machine: &self };
        let booted = boot.run().await;
        booted.with_context(|| format!("machine {}", self.n))
    }
}

/// A boot in progress.
struct Boot<'a> {
    start: Instant,
    retries: u32,
    machine: &'a Machine,
}

impl Boot<'_> {
    async fn run(&mut self) -> anyhow::Result<Booted> {
        let offered = self.address(Program::Firmware).await.context("the firmware's address")?;
        let address = self.start.elapsed();
        self.load(offered.siaddr, &file(&offered)?).await.context("the loader")?;
        let loader = self.start.elapsed();
        let offered = self.address(Program::Ipxe).await.context("iPXE's address")?;
        let (server, path) = url(&file(&offered)?)?;
        let text = self.get(server, &path).await.context("the script")?;
        let own = text.starts_with("#!ipxe\n") && text.contains(&self.machine.id);
        anyhow::ensure!(own, "not this machine's script: {text:?}");
        let script = self.start.elapsed();
        let path = "/latest/meta-data/instance-id";
        let id = self.get(METADATA, path).await.context("the metadata")?;
        anyhow::ensure!(id == self.machine.id, "{id}, expected {}", self.machine.id);
        let at = [address, loader, script, self.start.elapsed()];
        Ok(Booted { at, retries: self.retries })
    }

    /// Exchanges DISCOVER, OFFER, REQUEST and ACK. Returns the ACK.
    async fn address(&mut self, program: Program) -> anyhow::Result<Packet> {
        let relay = fleet::relay(self.machine.n);
        let socket = UdpSocket::bind((relay, PORT)).await?;
        socket.connect((SERVER, PORT)).await?;
        let mut last = None;
        for (kind, answer) in
            [(MessageType::Discover, MessageType::Offer), (MessageType::Request, MessageType::Ack)]
        {
            // The transaction id is unique per machine and program.
            let xid = self.machine.n as u32 * 2 + u32::from(program == Program::Ipxe);
            let request = request(self.machine.n, program, kind, relay, xid)?;
            let packet = self.exchange(&socket, &request, answer).await?;
            let own = fleet::address(self.machine.n);
            anyhow::ensure!(packet.yiaddr == own, "{}, expected {own}", packet.yiaddr);
            last = Some(packet);
        }
        last.context("no exchange")
    }

    /// Sends `request`, repeated after timeouts, and returns the response of type `kind`; others are ignored.
    async fn exchange(
        &mut self,
        socket: &UdpSocket,
        request: &[u8],
        kind: MessageType,
    ) -> anyhow::Result<Packet> {
        for timeout in DHCP_TIMEOUTS.map(Duration::from_secs) {
            socket.send(request).await?;
            match tokio::time::timeout(timeout, receive(socket, request, kind)).await {
                Ok(answer) => return answer,
                Err(_) => self.retries += 1,
            }
        }
        anyhow::bail!("no {kind:?} after {} requests", DHCP_TIMEOUTS.len())
    }

    /// Downloads the loader as UEFI does: one request for the size, which is aborted, then one for the file.
    async fn load(&mut self, server: Ipv4Addr, name: &str) -> anyhow::Result<()> {
        let own = fleet::address(self.machine.n);
        let probe = Fetch::begin(own, server, name, TransferOptions::FIRMWARE).await?;
        self.retries += probe.abort().await?.retries;
        let fetch = Fetch::begin(own, server, name, TransferOptions::FIRMWARE).await?;
        let mut rest = &*self.machine.loader;
        let mut whole = true;
        let fetched = fetch.finish(|part| match rest.strip_prefix(part) {
            Some(after) => rest = after,
            None => whole = false,
        });
        self.retries += fetched.await?.retries;
        anyhow::ensure!(whole && rest.is_empty(), "the received file is not the loader");
        Ok(())
    }

    /// Returns the body at `path`. Repeats the request after errors, timeouts and 503.
    async fn get(&mut self, server: SocketAddrV4, path: &str) -> anyhow::Result<String> {
        let own = fleet::address(self.machine.n);
        for _ in 0..MAX_HTTP_ATTEMPTS {
            match tokio::time::timeout(HTTP_TIMEOUT, http::get(own, server, path)).await {
                Ok(Ok(answer)) if answer.status == 200 => return Ok(answer.body),
                Ok(Ok(answer)) if answer.status == 503 => tokio::time::sleep(HTTP_TIMEOUT).await,
                Ok(Ok(answer)) => anyhow::bail!("status {} for {path}", answer.status),
                // Retry at once: after an error there is nothing to wait for, and a timeout has waited already.
                Ok(Err(_)) | Err(_) => {}
            }
            self.retries += 1;
        }
        anyhow::bail!("no response for {path} after {MAX_HTTP_ATTEMPTS} requests")
    }
}

/// Receives the next response of type `kind` with the transaction id of `request`.
async fn receive(socket: &UdpSocket, request: &[u8], kind: MessageType) -> anyhow::Result<Packet> {
    let mut buffer = [0; MAX_PACKET_BYTES];
    loop {
        let length = socket.recv(&mut buffer).await?;
        let packet = Packet::parse(buffer.get(..length).unwrap_or_default())?;
        if request.get(XID) == Some(&packet.xid.to_be_bytes()) && packet.kind() == Some(kind) {
            return Ok(packet);
        }
    }
}

/// Returns the boot file name: option 67 (RFC 2132 §9.5), or else the header field `file`.
fn file(packet: &Packet) -> anyhow::Result<String> {
    let header = packet.file.split(|octet| *octet == 0).next().unwrap_or_default();
    let name = packet.options.get(code::BOOT_FILE_NAME).unwrap_or(header);
    anyhow::ensure!(!name.is_empty(), "no boot file");
    Ok(String::from_utf8(name.into())?.trim_end_matches('\0').to_owned())
}

/// Splits an HTTP URL into server and path.
fn url(text: &str) -> anyhow::Result<(SocketAddrV4, String)> {
    let rest =
        text.strip_prefix("http://").with_context(|| format!("{text} is not an HTTP URL"))?;
    let (server, path) = rest.split_once('/').with_context(|| format!("{text} has no path"))?;
    Ok((server.parse()?, format!("/{path}")))
}
