//! Machines and operators of one site, asking. Whoever is asked for is drawn anew each time.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use cli::connect::Connection;
use netboot::dhcp::options::{Options, code};
use netboot::dhcp::{MessageType, Packet};
use rack::SERVER;
use tinwright::hardware::v1::ListHardwareRequest;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio::runtime::{Builder, Runtime};
use tonic::transport::Channel;

use crate::fleet::{self, RELAY};
use crate::site::Site;

/// Where machines ask who they are.
const METADATA: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(169, 254, 169, 254), 80);
/// Where relays and servers hear DHCP.
const DHCP: u16 = 67;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest DHCP packet, in bytes: what Ethernet carries.
const LONGEST: usize = 1500;

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Question {
    /// For a page of so many records, of an operator's.
    Page(usize),
    /// For an address: DISCOVER, OFFER, REQUEST, ACK, by UEFI firmware behind a relay.
    Exchange,
    /// For the machine's instance id, on a connection of its own.
    Metadata,
}

/// The machines of a site, and an operator.
#[derive(Debug)]
pub(crate) struct Asker<'a> {
    site: &'a Site,
    runtime: Runtime,
    hardware: HardwareServiceClient<Channel>,
    relay: UdpSocket,
    /// Ids by the machines' numbers.
    ids: Vec<String>,
    /// The same, in the order of pages.
    in_order: Vec<String>,
    drawn: u64,
}

impl<'a> Asker<'a> {
    /// Those of `site`, whose machines are numbered from 0 up to `count`.
    pub(crate) fn new(site: &'a Site, count: usize) -> anyhow::Result<Self> {
        site.enter()?;
        let runtime = runtime()?;
        let (hardware, ids) = runtime.block_on(async {
            let hardware = hardware(site).await?;
            let ids = ids(hardware.clone(), count).await?;
            anyhow::Ok((hardware, ids))
        })?;
        let relay = UdpSocket::bind((RELAY, DHCP))?;
        relay.set_read_timeout(Some(PATIENCE))?;
        let mut in_order = ids.clone();
        in_order.sort();
        Ok(Self { site, runtime, hardware, relay, ids, in_order, drawn: 0 })
    }

    /// How long the answer took, which has to be the right one.
    pub(crate) fn ask(&mut self, question: Question) -> anyhow::Result<Duration> {
        self.site.enter()?;
        match question {
            Question::Page(size) => self.page(size),
            Question::Exchange => {
                let n = self.draw(self.ids.len());
                self.exchange(n).with_context(|| format!("DHCP for machine {n}"))
            }
            Question::Metadata => {
                let n = self.draw(self.ids.len());
                self.metadata(n).with_context(|| format!("metadata for machine {n}"))
            }
        }
    }

    /// A page that begins anywhere it finds enough records after it.
    fn page(&mut self, size: usize) -> anyhow::Result<Duration> {
        let expected = size.min(self.in_order.len());
        let begin = self.draw(self.in_order.len() - expected + 1);
        let before = begin.checked_sub(1).map(|at| self.in_order[at].clone());
        let request = ListHardwareRequest {
            page_size: size.try_into()?,
            page_token: before.unwrap_or_default(),
            ..ListHardwareRequest::default()
        };
        let start = Instant::now();
        let page = self.runtime.block_on(self.hardware.list_hardware(request))?.into_inner();
        let took = start.elapsed();
        let listed = page.hardware.iter().map(|hardware| &hardware.id);
        anyhow::ensure!(listed.eq(&self.in_order[begin..begin + expected]), "another page");
        Ok(took)
    }

    fn exchange(&mut self, n: usize) -> anyhow::Result<Duration> {
        let (own, mut options) = (fleet::address(n), Options::default());
        let discover = self.packet(n, MessageType::Discover, &options)?;
        let start = Instant::now();
        let offer = self.answered(&discover)?;
        options.set(code::REQUESTED_ADDRESS, offer.yiaddr.octets());
        let server = offer.options.get(code::SERVER_IDENTIFIER).context("no server identifier")?;
        options.set(code::SERVER_IDENTIFIER, server);
        let request = self.packet(n, MessageType::Request, &options)?;
        let ack = self.answered(&request)?;
        let took = start.elapsed();
        let kinds = (offer.kind(), ack.kind());
        anyhow::ensure!(kinds == (Some(MessageType::Offer), Some(MessageType::Ack)), "{kinds:?}");
        anyhow::ensure!((offer.yiaddr, ack.yiaddr) == (own, own), "another address");
        Ok(took)
    }

    /// What UEFI firmware sends (PXE 2.1, section 2.2), as its relay passes it on.
    fn packet(
        &mut self,
        n: usize,
        kind: MessageType,
        options: &Options,
    ) -> anyhow::Result<Vec<u8>> {
        let mut options = options.clone();
        options.set(code::MESSAGE_TYPE, [kind.into()]);
        options.set(code::VENDOR_CLASS, "PXEClient:Arch:00007:UNDI:003016");
        options.set(code::CLIENT_ARCHITECTURE, [0, 7]);
        options.set(code::MAXIMUM_MESSAGE_SIZE, [0x05, 0xc0]);
        options.set(code::PARAMETER_REQUEST_LIST, [1, 3, 6, 12, 15, 43, 51, 54, 60, 66, 67]);
        let mut chaddr = [0; 16];
        chaddr[..6].copy_from_slice(&fleet::mac(n).0);
        let none = Ipv4Addr::UNSPECIFIED;
        let packet = Packet {
            op: 1,
            htype: 1,
            hlen: 6,
            hops: 1,
            xid: self.next() as u32,
            secs: 0,
            flags: 0,
            ciaddr: none,
            yiaddr: none,
            siaddr: none,
            giaddr: RELAY,
            chaddr,
            sname: [0; 64],
            file: [0; 128],
            options,
        };
        Ok(packet.encode(LONGEST)?)
    }

    /// What is answered to `request`: by its number, whatever else may come late.
    fn answered(&self, request: &[u8]) -> anyhow::Result<Packet> {
        self.relay.send_to(request, (SERVER, DHCP))?;
        let mut buffer = [0; LONGEST];
        loop {
            let length = self.relay.recv(&mut buffer)?;
            let answer = Packet::parse(&buffer[..length])?;
            if request[4..8] == answer.xid.to_be_bytes() {
                return Ok(answer);
            }
        }
    }

    fn metadata(&self, n: usize) -> anyhow::Result<Duration> {
        let request = "GET /latest/meta-data/instance-id HTTP/1.1\r\n\
                       Host: 169.254.169.254\r\nConnection: close\r\n\r\n";
        let asking = async {
            let start = Instant::now();
            let socket = TcpSocket::new_v4()?;
            socket.bind((fleet::address(n), 0).into())?;
            let mut stream = socket.connect(METADATA.into()).await?;
            stream.write_all(request.as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            anyhow::Ok((start.elapsed(), answer))
        };
        let bounded = async { tokio::time::timeout(PATIENCE, asking).await };
        let (took, answer) = self.runtime.block_on(bounded)??;
        let good = answer.starts_with("HTTP/1.1 200") && answer.ends_with(&self.ids[n]);
        anyhow::ensure!(good, "answered {answer:?}");
        Ok(took)
    }

    fn draw(&mut self, below: usize) -> usize {
        (self.next() % below as u64) as usize
    }

    /// The next of a fixed row of numbers without order (Steele, Lea, Flood: splitmix64).
    fn next(&mut self) -> u64 {
        self.drawn = self.drawn.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.drawn ^ (self.drawn >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// A runtime that is this thread's alone: it makes its sockets where the thread is.
pub(crate) fn runtime() -> anyhow::Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// The site's API, as its operator finds it.
pub(crate) async fn hardware(site: &Site) -> anyhow::Result<HardwareServiceClient<Channel>> {
    let server = format!("https://{SERVER}:42113");
    let connection = Connection { server, secrets: None, data: Some(site.data()) };
    Ok(HardwareServiceClient::new(connection.open().await?))
}

/// The ids of all machines, by their numbers.
async fn ids(
    mut hardware: HardwareServiceClient<Channel>,
    count: usize,
) -> anyhow::Result<Vec<String>> {
    let (mut by_mac, mut page_token) = (HashMap::new(), String::new());
    loop {
        let request = ListHardwareRequest { page_size: 1000, page_token, ..Default::default() };
        let page = hardware.list_hardware(request).await?.into_inner();
        for machine in page.hardware {
            let interface = machine.interfaces.into_iter().next().context("no interface")?;
            by_mac.insert(interface.mac, machine.id);
        }
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    anyhow::ensure!(by_mac.len() == count, "{} machines in place of {count}", by_mac.len());
    let id = |n| by_mac.remove(&fleet::mac(n).to_string()).context("a machine is not there");
    (0..count).map(id).collect()
}
