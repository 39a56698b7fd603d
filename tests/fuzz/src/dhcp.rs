//! DHCP: the packet codec, and the server without its socket in three modes.

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
use crate::site::{CIRCUIT_ID, NODE1, RELAY, SERVER, boot_scripts, index};

/// Maximum size of a request, in octets. Longer inputs are truncated.
const MAX_REQUEST_OCTETS: usize = 4096;
/// Maximum size of a reply, in octets: the payload of an Ethernet frame without IP and UDP headers.
const MAX_REPLY_OCTETS: usize = 1472;
/// Maximum size of a UDP payload, in octets. A parsed packet is encoded again with this limit, so it always fits.
const MAX_UDP_PAYLOAD_OCTETS: usize = 65_507;
/// Offset of `giaddr` in the header (RFC 2131 section 2).
const GIADDR_OFFSET: usize = 24;
/// Offset of `chaddr` in the header (RFC 2131 section 2).
const CHADDR_OFFSET: usize = 28;

/// Captured DISCOVERs of real clients: udhcpc, dhclient, iPXE, and OVMF by PXE and by HTTP.
const CAPTURED: [&[u8]; 5] = [
    include_bytes!("../../../libs/dhcp/src/tests/captures/udhcpc.bin"),
    include_bytes!("../../../libs/dhcp/src/tests/captures/dhclient.bin"),
    include_bytes!("../../../libs/dhcp/src/tests/captures/ipxe.bin"),
    include_bytes!("../../../libs/dhcp/src/tests/captures/ovmf-pxe.bin"),
    include_bytes!("../../../libs/dhcp/src/tests/captures/ovmf-http.bin"),
];

/// The servers, and the runtime for their deferred work.
#[derive(Debug)]
pub struct Dhcp {
    runtime: Runtime,
    servers: Vec<Arc<Server>>,
}

impl Dhcp {
    /// Creates three servers: one that leases addresses from reservations and a pool, and two beside another DHCP server
    /// (the second of them with rate limits).
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
        let discovers = captured.iter().filter_map(|bytes| Packet::parse(bytes).ok());
        let derived = discovers.flat_map(|discover| later_requests(&discover));
        let derived: Vec<_> =
            derived.filter_map(|packet| packet.encode(MAX_REPLY_OCTETS)).collect();
        captured.into_iter().chain(derived).collect()
    }

    fn words(&self) -> Vec<Vec<u8>> {
        let codes = (0..=255_u8).map(|code| vec![code, 4]);
        let kinds = (0..=18_u8).map(|kind| vec![code::MESSAGE_TYPE, 1, kind]);
        let overloads = (0..=4_u8).map(|fields| vec![code::OVERLOAD, 1, fields]);
        let addresses = [SERVER, NODE1, RELAY, [0; 4], [255; 4], [127, 0, 0, 1]].map(Vec::from);
        let texts = ["PXEClient:Arch:00007:UNDI:003000", "HTTPClient", "iPXE", CIRCUIT_ID];
        let macs =
            [[0x52, 0x54, 0, 0, 0, 1], [0x52, 0x54, 0, 0, 0, 2], [0xb8, 0x27, 0xeb, 1, 2, 3]];
        let texts = texts.map(|text| text.as_bytes().to_vec());
        let others = addresses.into_iter().chain(texts).chain(macs.map(Vec::from));
        codes.chain(kinds).chain(overloads).chain(others).collect()
    }

    fn take(&mut self, input: &[u8]) -> anyhow::Result<()> {
        let datagram = input.get(..MAX_REQUEST_OCTETS).unwrap_or(input);
        if let Ok(packet) = Packet::parse(datagram)
            && let Some(encoded) = packet.encode(MAX_UDP_PAYLOAD_OCTETS)
        {
            anyhow::ensure!(
                Packet::parse(&encoded) == Ok(packet),
                "packet changed by encoding and parsing"
            );
        }
        let _entered = self.runtime.enter();
        for server in &self.servers {
            for (arrival, port) in arrivals(datagram) {
                let mut remaining = Remaining::default();
                if let Some((reply, to)) = server.reply(datagram, &arrival, port, &mut remaining) {
                    check_reply(datagram, &arrival, &reply, to)?;
                }
            }
        }
        // Runs the tasks that the servers spawned.
        self.runtime.block_on(tokio::task::yield_now());
        Ok(())
    }
}

/// Returns requests that `discover`'s client may send: a DISCOVER through the relay, and REQUEST, DECLINE, RELEASE and
/// INFORM for the address of the first machine.
fn later_requests(discover: &Packet) -> Vec<Packet> {
    let with = |kind: u8, change: &dyn Fn(&mut Packet)| {
        let mut packet = discover.clone();
        packet.options.set(code::MESSAGE_TYPE, [kind]);
        change(&mut packet);
        packet
    };
    let selects = |packet: &mut Packet| {
        packet.options.set(code::REQUESTED_ADDRESS, NODE1);
        packet.options.set(code::SERVER_IDENTIFIER, SERVER);
    };
    let relayed = |packet: &mut Packet| {
        packet.giaddr = RELAY.into();
        let circuit_id = CIRCUIT_ID.as_bytes();
        let length = u8::try_from(circuit_id.len()).unwrap_or(u8::MAX);
        packet.options.set(code::RELAY_AGENT, [&[1, length], circuit_id].concat());
    };
    let has_address = |packet: &mut Packet| packet.ciaddr = NODE1.into();
    vec![
        with(3, &selects),
        with(1, &relayed),
        with(3, &has_address),
        with(4, &selects),
        with(7, &has_address),
        with(8, &has_address),
    ]
}

fn server(mode: Mode, rate_limits: bool) -> anyhow::Result<Arc<Server>> {
    let index = index();
    let mut link = Link::new(SERVER.into(), "http://198.51.100.1:7080");
    link.mode = mode;
    link.relays = vec![RELAY.into()];
    link.trust_switches = true;
    link.custom_user_class = Some("tinwright".into());
    link.loaders.present = ["undionly.kpxe", "snponly.efi"].map(str::to_owned).into();
    // The reports have no receiver here, and the server ignores that.
    let (firmware, _) = mpsc::channel(1);
    let network = Ipv4Net::new_assert(SERVER.into(), 24);
    let range = "198.51.100.100-198.51.100.199".parse()?;
    let subnet = Subnet { unknown: Unknown::Enrol, ..Subnet::new(network, vec![range]) };
    let leases = Leases::new(Arc::new(MemoryStore::default()), Clock::system());
    tokio::spawn(leases.clone().run(tokio_util::sync::CancellationToken::new()));
    let unknown = Arc::new(UnknownClients::default());
    let allocator = Arc::new(Allocator::new(vec![subnet], leases, index.clone(), unknown));
    let mut scripts = boot_scripts(index, rate_limits)?;
    Arc::make_mut(&mut scripts).allocator = Some(allocator);
    let view = View {
        scripts,
        link: Arc::new(link),
        link_state: Arc::new(LinkState::new(Some(Arc::default()))),
    };
    Ok(Arc::new(Server::new(view, Metrics::default(), firmware)))
}

/// Returns the ways in which `datagram` can arrive: broadcast by a client without an address, sent by its relay to port 67,
/// and sent by a PXE client that has an address to port 4011.
fn arrivals(datagram: &[u8]) -> [(Arrival, ListenPort); 3] {
    let giaddr = datagram.get(GIADDR_OFFSET..).and_then(|rest| rest.first_chunk::<4>());
    let relay = giaddr.map_or(Ipv4Addr::UNSPECIFIED, |octets| Ipv4Addr::from(*octets));
    let (length, local) = (datagram.len(), Ipv4Addr::from(SERVER));
    let from = |source: Ipv4Addr, port| SocketAddrV4::new(source, port);
    let broadcast = Arrival {
        length,
        source: from(Ipv4Addr::UNSPECIFIED, 68),
        to: Ipv4Addr::BROADCAST,
        local,
        interface: 1,
    };
    let relayed = Arrival { source: from(relay, 67), to: local, ..broadcast };
    let pxe = Arrival { source: from(NODE1.into(), 4011), to: local, ..broadcast };
    [(broadcast, ListenPort::Dhcp), (relayed, ListenPort::Dhcp), (pxe, ListenPort::BootService)]
}

/// Checks the invariants of a reply.
fn check_reply(
    request: &[u8],
    arrival: &Arrival,
    reply: &[u8],
    to: SocketAddrV4,
) -> anyhow::Result<()> {
    anyhow::ensure!(reply.len() <= MAX_REPLY_OCTETS, "reply of {} octets", reply.len());
    let chaddr = |bytes: &[u8]| bytes.get(CHADDR_OFFSET..CHADDR_OFFSET + 16).map(<[u8]>::to_vec);
    anyhow::ensure!(chaddr(reply) == chaddr(request), "reply with another chaddr");
    let reply = Packet::parse(reply).context("reply cannot be parsed")?;
    let request = Packet::parse(request).context("reply to a malformed request")?;
    anyhow::ensure!(reply.op == 2 && reply.xid == request.xid, "reply with another op or xid");
    let allowed = [Ipv4Addr::BROADCAST, request.giaddr, request.ciaddr, *arrival.source.ip()];
    anyhow::ensure!(allowed.contains(to.ip()), "reply to {to}, which is not the client's");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::NODE2;

    #[test]
    fn reservations_are_found_by_mac_and_by_relay_port() {
        let target = Dhcp::new().unwrap();
        let _entered = target.runtime.enter();
        let replies = |input: &[u8]| -> Vec<_> {
            let all = arrivals(input).into_iter();
            let all = all.filter_map(|(arrival, port)| {
                target.servers[0].reply(input, &arrival, port, &mut Remaining::default())
            });
            all.filter_map(|(reply, _)| Packet::parse(&reply).ok()).collect()
        };
        let corpus = target.corpus();
        let offered = corpus.iter().flat_map(|input| replies(input)).map(|reply| reply.yiaddr);
        let offered: std::collections::HashSet<_> = offered.collect();
        assert!(offered.contains(&NODE1.into()), "{offered:?}");
        let mut relayed = corpus.iter().find_map(|input| {
            let packet = Packet::parse(input).ok()?;
            (packet.giaddr == Ipv4Addr::from(RELAY)).then_some(packet)
        });
        let packet = relayed.as_mut().unwrap();
        // Another network card at the same switch port.
        packet.chaddr[..6].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
        let replies = replies(&packet.encode(MAX_REPLY_OCTETS).unwrap());
        assert!(replies.iter().any(|reply| reply.yiaddr == Ipv4Addr::from(NODE2)), "{replies:?}");
    }
}
