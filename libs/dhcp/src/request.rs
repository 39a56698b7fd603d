//! A parsed request: the packet, the class of the client, its source and its socket.

use std::net::{Ipv4Addr, SocketAddrV4};

use crate::architecture::{U_BOOT, U_BOOT_HTTP};
use crate::config::Link;
use crate::options::{code, sub_option};
use crate::packet::{MacAddress, Malformed, Packet};
use crate::relay::Relayed;

/// iPXE's user class (option 77).
const IPXE: &[u8] = b"iPXE";
/// iPXE's feature flag for HTTP, inside option 175.
const IPXE_HTTP: u8 = 19;

/// The program that sent a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClientClass {
    /// Firmware that boots by PXE.
    Pxe,
    /// Firmware that boots by HTTP.
    Http,
    /// iPXE.
    Ipxe {
        /// True if it can fetch HTTP URLs.
        http: bool,
    },
    /// Anything else: an installed system, a BMC, a switch.
    Ordinary,
}

impl ClientClass {
    /// True if the client boots from the network.
    pub fn boots(self) -> bool {
        self != Self::Ordinary
    }
}

/// The socket that received a request; its reply is sent from the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ListenPort {
    /// 67.
    Dhcp,
    /// 4011, the boot service of PXE.
    BootService,
}

/// Source and socket of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Received {
    /// Source address of the datagram.
    pub source: SocketAddrV4,
    /// True if the datagram was broadcast.
    pub broadcast: bool,
    /// The socket.
    pub port: ListenPort,
}

/// A client's request.
#[derive(Clone, Debug)]
pub struct Request {
    /// The packet.
    pub packet: Packet,
    /// The client's Ethernet address.
    pub mac: MacAddress,
    /// The client's class.
    pub class: ClientClass,
    /// True if the client is the site's own iPXE build.
    pub is_site_build: bool,
    /// Source and socket.
    pub received: Received,
}

impl Request {
    /// Parses a datagram that was received on `link`.
    pub fn parse(datagram: &[u8], received: Received, link: &Link) -> Result<Self, Malformed> {
        let packet = Packet::parse_request(datagram)?;
        Self::new(packet, received, link).ok_or(Malformed::Hardware)
    }

    /// Classifies a request that was received on `link`. None if the client has no Ethernet address.
    pub fn new(packet: Packet, received: Received, link: &Link) -> Option<Self> {
        let (mac, custom) = (packet.mac()?, link.custom_user_class.as_deref());
        let user_class = packet.options.get(code::USER_CLASS).unwrap_or_default();
        let is_site_build = custom.is_some_and(|custom| lists(user_class, custom.as_bytes()));
        let class = if is_site_build {
            ClientClass::Ipxe { http: true }
        } else {
            class(&packet, user_class)
        };
        Some(Self { packet, mac, class, is_site_build, received })
    }

    /// Returns the relay's address; none if the client is on our own link.
    pub fn relay(&self) -> Option<Ipv4Addr> {
        address(self.packet.giaddr)
    }

    /// Returns the server identifier of replies: the relay's override (RFC 5107), so that renewals pass through the relay, or
    /// our address.
    pub fn server_id(&self, link: &Link) -> Ipv4Addr {
        self.relayed(link).server.unwrap_or(link.id)
    }

    /// Returns the address that the client uses already.
    pub fn client_address(&self) -> Option<Ipv4Addr> {
        address(self.packet.ciaddr)
    }

    /// Returns the SMBIOS UUID (option 97) in its wire order, if it is what RFC 4578 describes; some NICs send garbage.
    pub fn uuid(&self) -> Option<[u8; 16]> {
        self.packet.options.get(code::CLIENT_UUID)?.strip_prefix(&[0])?.try_into().ok()
    }

    /// Returns option 82 if `link` trusts its sender: a listed relay, or any switch if switches are trusted. Empty otherwise.
    pub fn relayed(&self, link: &Link) -> Relayed<'_> {
        let trusted = match self.relay() {
            None => link.trust_switches,
            Some(relay) => {
                [relay, *self.received.source.ip()].iter().any(|it| link.relays.contains(it))
            }
        };
        let option = self.packet.options.get(code::RELAY_AGENT).filter(|_| trusted);
        option.map(|option| Relayed::parse(option, self.relay())).unwrap_or_default()
    }
}

fn address(field: Ipv4Addr) -> Option<Ipv4Addr> {
    Some(field).filter(|field| !field.is_unspecified())
}

fn class(packet: &Packet, user_class: &[u8]) -> ClientClass {
    let features = packet.options.get(code::IPXE);
    if features.is_some() || lists(user_class, IPXE) {
        let http = features.and_then(|features| sub_option(features, IPXE_HTTP)).is_some();
        return ClientClass::Ipxe { http };
    }
    match packet.options.get(code::VENDOR_CLASS) {
        Some(vendor) if vendor.starts_with(b"PXEClient") => ClientClass::Pxe,
        Some(vendor) if vendor.starts_with(b"HTTPClient") => ClientClass::Http,
        // U-Boot's vendor class is whatever its builder configured.
        _ => match packet.architectures().next() {
            Some(number) if U_BOOT.contains(&number) => ClientClass::Pxe,
            Some(number) if U_BOOT_HTTP.contains(&number) => ClientClass::Http,
            _ => ClientClass::Ordinary,
        },
    }
}

/// True if a user class is `name`, or is a list with the element `name`. iPXE sends the bare name, RFC 3004 requires a list.
fn lists(user_class: &[u8], name: &[u8]) -> bool {
    let mut list = user_class;
    let mut listed = user_class == name;
    while let Some((length, rest)) = list.split_first()
        && let Some((element, rest)) = rest.split_at_checked((*length).into())
    {
        listed |= element == name;
        list = rest;
    }
    listed
}
