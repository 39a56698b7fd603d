//! One machine that is powered on: what its firmware, iPXE and its system ask for, until it knows who it is.
//!
//! ```text
//! firmware ─DHCP─▶ address, loader ─TFTP─▶ size ─TFTP─▶ loader ─▶ iPXE ─DHCP─▶ URL ─HTTP─▶ script ─▶ system ─HTTP─▶ its id
//! ```
//!
//! Every answer is looked at: the address must be the machine's own, the loader whole, the script and the id its own.

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
use crate::request::{LONGEST, PORT, Program, XID, request};
use crate::tftp::{Fetch, Wishes};

/// How many seconds a DHCP client waits before it asks again (RFC 2131, section 4.1).
const DHCP: [u64; 4] = [4, 8, 16, 32];
/// How long an HTTP client waits, and how often it asks.
const HTTP: Duration = Duration::from_secs(5);
const ASKED: u32 = 10;

/// What is known of a machine before it is powered on.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Its number.
    pub n: usize,
    /// Its id.
    pub id: String,
    /// The loader that it must get.
    pub loader: Rc<[u8]>,
}

/// A machine that has come all the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Booted {
    /// How long after power on it had its first address, its loader, its script, its id.
    pub at: [Duration; 4],
    /// How often it asked for something again, because nothing came or it was told to.
    pub again: u32,
}

/// The names of what is in [`Booted::at`].
pub const STEPS: [&str; 4] = ["address", "loader", "script", "metadata"];

impl Machine {
    /// Powers it on. Fails where an answer is missing or wrong, and says which.
    pub async fn boot(self) -> anyhow::Result<Booted> {
        let mut powered = Powered { start: Instant::now(), again: 0, machine: &self };
        let booted = powered.run().await;
        booted.with_context(|| format!("machine {}", self.n))
    }
}

struct Powered<'a> {
    start: Instant,
    again: u32,
    machine: &'a Machine,
}

impl Powered<'_> {
    async fn run(&mut self) -> anyhow::Result<Booted> {
        let offered = self.address(Program::Firmware).await.context("the firmware's address")?;
        let address = self.start.elapsed();
        self.load(offered.siaddr, &file(&offered)?).await.context("the loader")?;
        let loader = self.start.elapsed();
        let offered = self.address(Program::Ipxe).await.context("iPXE's address")?;
        let (server, path) = url(&file(&offered)?)?;
        let text = self.ask(server, &path).await.context("the script")?;
        let own = text.starts_with("#!ipxe\n") && text.contains(&self.machine.id);
        anyhow::ensure!(own, "not this machine's script: {text:?}");
        let script = self.start.elapsed();
        let path = "/latest/meta-data/instance-id";
        let id = self.ask(METADATA, path).await.context("the metadata")?;
        anyhow::ensure!(id == self.machine.id, "{id} in place of {}", self.machine.id);
        let at = [address, loader, script, self.start.elapsed()];
        Ok(Booted { at, again: self.again })
    }

    /// DISCOVER, OFFER, REQUEST, ACK. Answers the last.
    async fn address(&mut self, program: Program) -> anyhow::Result<Packet> {
        let relay = fleet::relay(self.machine.n);
        let socket = UdpSocket::bind((relay, PORT)).await?;
        socket.connect((SERVER, PORT)).await?;
        let mut last = None;
        for (kind, answer) in
            [(MessageType::Discover, MessageType::Offer), (MessageType::Request, MessageType::Ack)]
        {
            // The two programs' exchanges are told apart by their numbers, as are the machines'.
            let xid = self.machine.n as u32 * 2 + u32::from(program == Program::Ipxe);
            let asked = request(self.machine.n, program, kind, relay, xid)?;
            let packet = self.answered(&socket, &asked, answer).await?;
            let own = fleet::address(self.machine.n);
            anyhow::ensure!(packet.yiaddr == own, "{} in place of {own}", packet.yiaddr);
            last = Some(packet);
        }
        last.context("nothing asked")
    }

    /// What is answered to `request`: of the kind that is due, whatever else may come late.
    async fn answered(
        &mut self,
        socket: &UdpSocket,
        request: &[u8],
        kind: MessageType,
    ) -> anyhow::Result<Packet> {
        for patience in DHCP.map(Duration::from_secs) {
            socket.send(request).await?;
            match tokio::time::timeout(patience, receive(socket, request, kind)).await {
                Ok(answer) => return answer,
                Err(_) => self.again += 1,
            }
        }
        anyhow::bail!("no {kind:?}, asked {} times", DHCP.len())
    }

    /// As UEFI does: first for the size alone, then for the file.
    async fn load(&mut self, server: Ipv4Addr, name: &str) -> anyhow::Result<()> {
        let own = fleet::address(self.machine.n);
        let probe = Fetch::begin(own, server, name, Wishes::FIRMWARE).await?;
        self.again += probe.refuse().await?.again;
        let fetch = Fetch::begin(own, server, name, Wishes::FIRMWARE).await?;
        let mut rest = &*self.machine.loader;
        let mut whole = true;
        let fetched = fetch.finish(|part| match rest.strip_prefix(part) {
            Some(after) => rest = after,
            None => whole = false,
        });
        self.again += fetched.await?.again;
        anyhow::ensure!(whole && rest.is_empty(), "what came is not the loader");
        Ok(())
    }

    /// The body of what is at `path`, asked for again where nothing comes, or it is not there yet.
    async fn ask(&mut self, server: SocketAddrV4, path: &str) -> anyhow::Result<String> {
        let own = fleet::address(self.machine.n);
        for _ in 0..ASKED {
            match tokio::time::timeout(HTTP, http::get(own, server, path)).await {
                Ok(Ok(answer)) if answer.status == 200 => return Ok(answer.body),
                Ok(Ok(answer)) if answer.status == 503 => tokio::time::sleep(HTTP).await,
                Ok(Ok(answer)) => anyhow::bail!("{} answered {}", path, answer.status),
                // A connection that is refused or broken is made again at once, a silent one has taken its time.
                Ok(Err(_)) | Err(_) => {}
            }
            self.again += 1;
        }
        anyhow::bail!("no answer to {path}, asked {ASKED} times")
    }
}

/// The next answer of this exchange that is of this kind.
async fn receive(socket: &UdpSocket, request: &[u8], kind: MessageType) -> anyhow::Result<Packet> {
    let mut buffer = [0; LONGEST];
    loop {
        let length = socket.recv(&mut buffer).await?;
        let packet = Packet::parse(buffer.get(..length).unwrap_or_default())?;
        if request.get(XID) == Some(&packet.xid.to_be_bytes()) && packet.kind() == Some(kind) {
            return Ok(packet);
        }
    }
}

/// The boot file that an answer names (RFC 2132, option 67; else the header's field).
fn file(packet: &Packet) -> anyhow::Result<String> {
    let header = packet.file.split(|octet| *octet == 0).next().unwrap_or_default();
    let name = packet.options.get(code::BOOT_FILE_NAME).unwrap_or(header);
    anyhow::ensure!(!name.is_empty(), "no boot file");
    Ok(String::from_utf8(name.into())?.trim_end_matches('\0').to_owned())
}

/// Server and path of a URL.
fn url(text: &str) -> anyhow::Result<(SocketAddrV4, String)> {
    let rest = text.strip_prefix("http://").with_context(|| format!("{text} is not by HTTP"))?;
    let (server, path) = rest.split_once('/').with_context(|| format!("{text} has no path"))?;
    Ok((server.parse()?, format!("/{path}")))
}
