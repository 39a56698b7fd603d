//! DHCP requests, encoded as clients and relays send them.

use std::net::{Ipv4Addr, SocketAddrV4};

use crate::Mac;
use dhcp::options::code;
use dhcp::relay::{CIRCUIT_ID, LINK_SELECTION, REMOTE_ID, RelayPort};
use dhcp::{Link, ListenPort, MessageType, Packet, Received};
use ipnet::Ipv4Net;
use tinwright::netboot::v1::ClientClass;

/// A relay and the option 82 that it inserts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimulatedRelay {
    /// Its address on the client's link. Unspecified: the client is on netboot's own link, at a switch that may insert the option.
    pub address: Ipv4Addr,
    /// The circuit-id, sub-option 1. Empty: absent.
    pub circuit_id: Vec<u8>,
    /// The remote-id, sub-option 2. Empty: absent.
    pub remote_id: Vec<u8>,
    /// The link selection, sub-option 5: the client's network, if it is not the relay's own.
    pub link: Option<Ipv4Addr>,
}

impl SimulatedRelay {
    /// Returns the relay of `port`, whose machine has an address in `network`: the relay that the record names, else one in that
    /// network, else the first. None if no relay is trusted: then the port of a request is ignored.
    pub(super) fn of(port: &RelayPort, network: Option<Ipv4Net>, link: &Link) -> Option<Self> {
        let near = |relay: &&Ipv4Addr| network.is_some_and(|network| network.contains(*relay));
        let relays = || link.relays.iter();
        let named = relays().find(|relay| port.link == Some(**relay));
        let relay = named.or_else(|| relays().find(near)).or_else(|| relays().next()).copied();
        let address = relay.or(link.trust_switches.then_some(Ipv4Addr::UNSPECIFIED))?;
        Some(Self {
            address,
            circuit_id: port.circuit_id.clone(),
            remote_id: port.remote_id.clone(),
            link: port.link.filter(|link| *link != address),
        })
    }

    /// Returns `request` as the relay forwards it.
    pub(super) fn forward(&self, mut request: Packet) -> Packet {
        let link = self.link.map(|link| link.octets());
        let sub_options = [
            (CIRCUIT_ID, self.circuit_id.as_slice()),
            (REMOTE_ID, self.remote_id.as_slice()),
            (LINK_SELECTION, link.as_ref().map_or(&[], <[u8; 4]>::as_slice)),
        ];
        let mut option = Vec::new();
        for (code, value) in sub_options.into_iter().filter(|(_, value)| !value.is_empty()) {
            let Ok(length) = u8::try_from(value.len()) else { continue };
            option.extend([code, length]);
            option.extend(value);
        }
        if !option.is_empty() {
            request.options.set(code::RELAY_AGENT, option);
        }
        Packet { giaddr: self.address, ..request }
    }
}

/// Returns the source and port of `request`: its relay, else a client without an address.
pub(super) fn received(request: &Packet) -> Received {
    let direct = request.giaddr.is_unspecified();
    let port = if direct { 68 } else { 67 };
    let source = SocketAddrV4::new(request.giaddr, port);
    Received { source, broadcast: direct, port: ListenPort::Dhcp }
}

/// The features that current builds of iPXE send; 19 is HTTP.
const IPXE_FEATURES: [u8; 3] = [19, 1, 1];

/// Returns a DISCOVER of `mac`. Without `architecture` it has that of UEFI on `processor`, which is Linux's name.
pub(super) fn discover(
    mac: Mac,
    class: ClientClass,
    architecture: Option<u16>,
    processor: &str,
) -> Packet {
    let mut packet = Packet::request(MessageType::Discover, mac.0);
    let options = &mut packet.options;
    let uefi = match (processor, class) {
        ("aarch64", ClientClass::Http) => 19,
        ("aarch64", _) => 11,
        (_, ClientClass::Http) => 16,
        (_, _) => 7,
    };
    let architecture = architecture.unwrap_or(uefi);
    let vendor = match class {
        ClientClass::Pxe | ClientClass::Ipxe | ClientClass::IpxeRom => Some("PXEClient"),
        ClientClass::Http => Some("HTTPClient"),
        ClientClass::Ordinary | ClientClass::Unspecified => None,
    };
    if let Some(vendor) = vendor {
        options.set(code::CLIENT_ARCHITECTURE, architecture.to_be_bytes());
        options.set(code::VENDOR_CLASS, format!("{vendor}:Arch:{architecture:05}:UNDI:003000"));
    }
    if matches!(class, ClientClass::Ipxe | ClientClass::IpxeRom) {
        options.set(code::USER_CLASS, *b"iPXE");
        options.set(code::IPXE, IPXE_FEATURES);
    }
    packet
}
