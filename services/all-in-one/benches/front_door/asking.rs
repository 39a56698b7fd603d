//! Requests of machines and operators of one site. The requested machine is drawn at random each time.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use dhcp::{MessageType, Packet};
use load::draw::Draw;
use load::request::{MAX_PACKET_BYTES, PORT, Program, XID, request};
use load::site::Site;
use load::{api, fleet};
use rack::SERVER;
use runtime::Channel;
use tinwright::hardware::v1::ListHardwareRequest;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio::runtime::Runtime;

/// The path of the instance id.
const METADATA: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(169, 254, 169, 254), 80);
/// The time limit of a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The kind of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Question {
    /// An operator's request for a page of this many records.
    Page(usize),
    /// A DHCP exchange: DISCOVER, OFFER, REQUEST, ACK, of UEFI firmware behind a relay.
    Exchange,
    /// A request for the machine's instance id, on a new connection.
    Metadata,
}

/// The machines of a site, and an operator.
#[derive(Debug)]
pub(crate) struct Asker<'a> {
    site: &'a Site,
    runtime: Runtime,
    hardware: HardwareServiceClient<Channel>,
    relay: UdpSocket,
    /// Ids, by the number of the machine.
    ids: Vec<String>,
    /// The same ids in the order of pages.
    in_order: Vec<String>,
    draw: Draw,
}

impl<'a> Asker<'a> {
    /// The machines 0 up to `count` of `site`, and an operator.
    pub(crate) fn new(site: &'a Site, count: usize) -> anyhow::Result<Self> {
        site.enter()?;
        let runtime = api::runtime()?;
        let (hardware, ids) = runtime.block_on(async {
            let hardware = api::hardware(site).await?;
            let ids = api::ids(hardware.clone(), count).await?;
            anyhow::Ok((hardware, ids))
        })?;
        let relay = UdpSocket::bind((fleet::RELAY, PORT))?;
        relay.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
        let mut in_order = ids.clone();
        in_order.sort();
        Ok(Self { site, runtime, hardware, relay, ids, in_order, draw: Draw::default() })
    }

    /// Sends a request, checks the response, and returns the time that it took.
    pub(crate) fn ask(&mut self, question: Question) -> anyhow::Result<Duration> {
        self.site.enter()?;
        match question {
            Question::Page(size) => self.page(size),
            Question::Exchange => {
                let n = self.draw.below(self.ids.len());
                self.exchange(n).with_context(|| format!("DHCP for machine {n}"))
            }
            Question::Metadata => {
                let n = self.draw.below(self.ids.len());
                self.metadata(n).with_context(|| format!("metadata for machine {n}"))
            }
        }
    }

    /// Reads a page from a random position with enough records after it.
    fn page(&mut self, size: usize) -> anyhow::Result<Duration> {
        let expected = size.min(self.in_order.len());
        let begin = self.draw.below(self.in_order.len() - expected + 1);
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
        let own = fleet::address(n);
        let discover = self.packet(n, MessageType::Discover)?;
        let start = Instant::now();
        let offer = self.answered(&discover)?;
        let request = self.packet(n, MessageType::Request)?;
        let ack = self.answered(&request)?;
        let took = start.elapsed();
        let kinds = (offer.kind(), ack.kind());
        anyhow::ensure!(kinds == (Some(MessageType::Offer), Some(MessageType::Ack)), "{kinds:?}");
        anyhow::ensure!((offer.yiaddr, ack.yiaddr) == (own, own), "another address");
        Ok(took)
    }

    /// Returns the request of the machine's firmware, with a new transaction id.
    fn packet(&mut self, n: usize, kind: MessageType) -> anyhow::Result<Vec<u8>> {
        request(n, Program::Firmware, kind, fleet::RELAY, self.draw.number() as u32)
    }

    /// Returns the reply to `request`, by its transaction id: late replies to others are skipped.
    fn answered(&self, request: &[u8]) -> anyhow::Result<Packet> {
        self.relay.send_to(request, (SERVER, PORT))?;
        let mut buffer = [0; MAX_PACKET_BYTES];
        loop {
            let length = self.relay.recv(&mut buffer)?;
            let answer = Packet::parse(&buffer[..length])?;
            if request[XID] == answer.xid.to_be_bytes() {
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
        let bounded = async { tokio::time::timeout(RESPONSE_TIMEOUT, asking).await };
        let (took, answer) = self.runtime.block_on(bounded)??;
        let good = answer.starts_with("HTTP/1.1 200") && answer.ends_with(&self.ids[n]);
        anyhow::ensure!(good, "answered {answer:?}");
        Ok(took)
    }
}
