//! DHCP: packets, and the server up to its socket, in each of the ways it serves a link.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

use anyhow::Context as _;
use dhcp::options::code;
use dhcp::{Link, ListenPort, Mode, Packet};
use ipnet::Ipv4Net;
use netboot::Metrics;
use netboot::allocation::Allocator;
use netboot::datagram::Arrival;
use netboot::dhcp_server::link_state::LinkState;
use netboot::dhcp_server::{Remaining, Server, View};
use netboot::leases::Leases;
use netboot::pool::{Subnet, Unknown};
use netboot::unknown_clients::UnknownClients;
use runtime::clock::Clock;
use store::memory::MemoryStore;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use crate::Target;
use crate::site::{NODE1, PORT, RELAY, US, boots, index};

/// The longest request read.
const LONGEST: usize = 4096;
/// The longest answer sent: an Ethernet frame without the headers of IP and UDP.
const ANSWER: usize = 1472;
/// Octets a datagram can have: what was read is written again whatever its size.
const DATAGRAM: usize = 65_507;
/// Where the header says which interface asks, and through which relay.
const CLIENT: usize = 28;
const GIADDR: usize = 24;

/// DISCOVERs as real programs sent them: udhcpc, dhclient, iPXE, and OVMF by PXE and by HTTP.
const CAPTURED: [&[u8]; 5] = [
    include_bytes!("../../../libs/dhcp/src/tests/captures/udhcpc.bin"),
    include_bytes!("../../../libs/dhcp/src/tests/captures/dhclient.bin"),
    include_bytes!("../../../libs/dhcp/src/tests/captures/ipxe.bin"),
    include_bytes!("../../../libs/dhcp/src/tests/captures/ovmf-pxe.bin"),
    include_bytes!("../../../libs/dhcp/src/tests/captures/ovmf-http.bin"),
];

/// The servers, and what what they put off runs on.
#[derive(Debug)]
pub struct Dhcp {
    runtime: Runtime,
    servers: Vec<Arc<Server>>,
}

impl Dhcp {
    /// A link with reservations, a pool and a relay; one where somebody else gives the addresses; and one of each with
    /// limits to how often is asked.
    pub fn new() -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let modes = [(Mode::Reservation, false), (Mode::AutoProxy, false), (Mode::Proxy, true)];
        let mut servers = Vec::new();
        for (mode, rate_limits) in modes {
            servers.push(runtime.block_on(async { server(mode, rate_limits) })?);
        }
        Ok(Self { runtime, servers })
    }
}

impl Target for Dhcp {
    fn corpus(&self) -> Vec<Vec<u8>> {
        let captured = CAPTURED.map(<[u8]>::to_vec);
        let read = captured.iter().filter_map(|bytes| Packet::parse(bytes).ok());
        let made =
            read.flat_map(|packet| said_after(&packet)).filter_map(|p| p.encode(ANSWER).ok());
        let made: Vec<_> = made.collect();
        captured.into_iter().chain(made).collect()
    }

    fn words(&self) -> Vec<Vec<u8>> {
        let codes = (0..=255_u8).map(|code| vec![code, 4]);
        let kinds = (0..=18_u8).map(|kind| vec![code::MESSAGE_TYPE, 1, kind]);
        let overloads = (0..=4_u8).map(|fields| vec![code::OVERLOAD, 1, fields]);
        let addresses = [US, NODE1, RELAY, [0; 4], [255; 4], [127, 0, 0, 1]].map(Vec::from);
        let texts = ["PXEClient:Arch:00007:UNDI:003000", "HTTPClient", "iPXE", PORT];
        let vendors =
            [[0x52, 0x54, 0, 0, 0, 1], [0x52, 0x54, 0, 0, 0, 2], [0xb8, 0x27, 0xeb, 1, 2, 3]];
        let texts = texts.map(|text| text.as_bytes().to_vec());
        let others = addresses.into_iter().chain(texts).chain(vendors.map(Vec::from));
        codes.chain(kinds).chain(overloads).chain(others).collect()
    }

    fn take(&mut self, input: &[u8]) -> anyhow::Result<()> {
        let datagram = input.get(..LONGEST).unwrap_or(input);
        if let Ok(packet) = Packet::parse(datagram)
            && let Ok(written) = packet.encode(DATAGRAM)
        {
            anyhow::ensure!(Packet::parse(&written) == Ok(packet), "not read as written");
        }
        let _entered = self.runtime.enter();
        for server in &self.servers {
            for (arrival, port) in arrivals(datagram) {
                let mut remaining = Remaining::default();
                if let Some((answer, to)) = server.reply(datagram, &arrival, port, &mut remaining) {
                    check(datagram, &arrival, &answer, to)?;
                }
            }
        }
        // What was put off has its turn.
        self.runtime.block_on(tokio::task::yield_now());
        Ok(())
    }
}

/// What a client says after its DISCOVER: it wants the address of the first machine, directly or through a relay; and it
/// gives back what it has.
fn said_after(discover: &Packet) -> Vec<Packet> {
    let with = |kind: u8, change: &dyn Fn(&mut Packet)| {
        let mut packet = discover.clone();
        packet.options.set(code::MESSAGE_TYPE, [kind]);
        change(&mut packet);
        packet
    };
    let wants = |packet: &mut Packet| {
        packet.options.set(code::REQUESTED_ADDRESS, NODE1);
        packet.options.set(code::SERVER_IDENTIFIER, US);
    };
    let relayed = |packet: &mut Packet| {
        packet.giaddr = RELAY.into();
        let port = PORT.as_bytes();
        let length = u8::try_from(port.len()).unwrap_or(u8::MAX);
        packet.options.set(code::RELAY_AGENT, [&[1, length], port].concat());
    };
    let renews = |packet: &mut Packet| packet.ciaddr = NODE1.into();
    vec![
        with(3, &wants),
        with(1, &relayed),
        with(3, &renews),
        with(4, &wants),
        with(7, &renews),
        with(8, &renews),
    ]
}

fn server(mode: Mode, rate_limits: bool) -> anyhow::Result<Arc<Server>> {
    let index = index();
    let mut link = Link::new(US.into(), "http://198.51.100.1:7080");
    link.mode = mode;
    link.relays = vec![RELAY.into()];
    link.trust_switches = true;
    link.custom_user_class = Some("tinwright".into());
    link.loaders.present = ["undionly.kpxe", "snponly.efi"].map(str::to_owned).into();
    // Nobody reads what it tells: a queue that is full is as good as any.
    let (firmware, _) = mpsc::channel(1);
    let network = Ipv4Net::new_assert(US.into(), 24);
    let range = "198.51.100.100-198.51.100.199".parse()?;
    let subnet = Subnet { unknown: Unknown::Enrol, ..Subnet::new(network, vec![range]) };
    let leases = Leases::new(Arc::new(MemoryStore::default()), Clock::system());
    tokio::spawn(leases.clone().run(tokio_util::sync::CancellationToken::new()));
    let unknown = Arc::new(UnknownClients::default());
    let allocator = Arc::new(Allocator::new(vec![subnet], leases, index.clone(), unknown));
    let view = View {
        scripts: Arc::new(
            Arc::unwrap_or_clone(boots(index, rate_limits)?).with_allocator(allocator),
        ),
        link: Arc::new(link),
        link_state: Arc::new(LinkState::new(Some(Arc::default()))),
    };
    Ok(Arc::new(Server::new(view, Metrics::default(), firmware)))
}

/// How `datagram` may come: from its relay or a client without an address to everybody; and to our own address, from who
/// boots by PXE already.
fn arrivals(datagram: &[u8]) -> [(Arrival, ListenPort); 3] {
    let giaddr = datagram.get(GIADDR..).and_then(|rest| rest.first_chunk::<4>());
    let relay = giaddr.map_or(Ipv4Addr::UNSPECIFIED, |octets| Ipv4Addr::from(*octets));
    let (length, local) = (datagram.len(), Ipv4Addr::from(US));
    let from = |source: Ipv4Addr, port| SocketAddrV4::new(source, port);
    let everybody = Arrival {
        length,
        source: from(Ipv4Addr::UNSPECIFIED, 68),
        to: Ipv4Addr::BROADCAST,
        local,
        interface: 1,
    };
    let relayed = Arrival { source: from(relay, 67), to: local, ..everybody };
    let booting = Arrival { source: from(NODE1.into(), 4011), to: local, ..everybody };
    [(everybody, ListenPort::Dhcp), (relayed, ListenPort::Dhcp), (booting, ListenPort::BootService)]
}

/// What holds of every answer, whatever was asked.
fn check(asked: &[u8], arrival: &Arrival, answer: &[u8], to: SocketAddrV4) -> anyhow::Result<()> {
    anyhow::ensure!(answer.len() <= ANSWER, "an answer of {} octets", answer.len());
    let read = Packet::parse(answer).context("an answer that nobody can read")?;
    let request = Packet::parse(asked).context("an answer to what cannot be read")?;
    anyhow::ensure!(read.op == 2 && read.xid == request.xid, "an answer to somebody else");
    let client = |bytes: &[u8]| bytes.get(CLIENT..CLIENT + 16).map(<[u8]>::to_vec);
    anyhow::ensure!(client(answer) == client(asked), "an answer for another interface");
    let known = [Ipv4Addr::BROADCAST, request.giaddr, request.ciaddr, *arrival.source.ip()];
    anyhow::ensure!(known.contains(to.ip()), "an answer to {to}, who has not asked");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::NODE2;

    #[test]
    fn good_inputs_are_answered_and_a_machine_at_its_port_gets_its_address() {
        let target = Dhcp::new().unwrap();
        let _entered = target.runtime.enter();
        let answers = |input: &[u8]| -> Vec<_> {
            let all = arrivals(input).into_iter();
            let all = all.filter_map(|(arrival, port)| {
                target.servers[0].reply(input, &arrival, port, &mut Remaining::default())
            });
            all.filter_map(|(answer, _)| Packet::parse(&answer).ok()).collect()
        };
        let corpus = target.corpus();
        let offered = corpus.iter().flat_map(|input| answers(input)).map(|answer| answer.yiaddr);
        let offered: std::collections::HashSet<_> = offered.collect();
        assert!(offered.contains(&NODE1.into()), "{offered:?}");
        let mut moved = corpus.iter().find_map(|input| {
            let packet = Packet::parse(input).ok()?;
            (packet.giaddr == Ipv4Addr::from(RELAY)).then_some(packet)
        });
        let packet = moved.as_mut().unwrap();
        packet.chaddr[..6].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
        let answers = answers(&packet.encode(ANSWER).unwrap());
        assert!(answers.iter().any(|answer| answer.yiaddr == Ipv4Addr::from(NODE2)), "{answers:?}");
    }
}
