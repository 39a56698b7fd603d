//! A parsed request: the packet, the class of the client, its source and its socket.

use std::net::{Ipv4Addr, SocketAddrV4};

use smallvec::{SmallVec, smallvec};

use crate::architecture::{BIOS, HTTP, U_BOOT, U_BOOT_HTTP, X64_UEFI_HTTP, in_vendor_class};
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
    /// The client's Ethernet address, or the one that stands for an InfiniBand client.
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

    /// Classifies a request that was received on `link`. None if neither an Ethernet address nor a
    /// client identifier names the client.
    pub fn new(packet: Packet, received: Received, link: &Link) -> Option<Self> {
        let mac = packet.mac().or_else(|| packet.infiniband_alias())?;
        Some(Self::of(packet, mac, received, link))
    }

    /// Classifies a request of the client `mac`.
    pub(crate) fn of(packet: Packet, mac: MacAddress, received: Received, link: &Link) -> Self {
        let custom = link.custom_user_class.as_deref();
        let user_class = packet.options.get(code::USER_CLASS).unwrap_or_default();
        let is_site_build = custom.is_some_and(|custom| lists(user_class, custom.as_bytes()));
        let class = if is_site_build {
            ClientClass::Ipxe { http: true }
        } else {
            class(&packet, user_class)
        };
        Self { packet, mac, class, is_site_build, received }
    }

    /// True if the client is an InfiniBand interface. Such clients are not served, only reported.
    pub fn is_infiniband(&self) -> bool {
        self.packet.mac().is_none()
    }

    /// Returns the client's architectures in its order of preference: option 93. Firmware without
    /// that option gets the number in its vendor class, else the default of its kind. iPXE does
    /// not: its vendor class repeats the one of the last reply.
    pub fn architectures(&self) -> SmallVec<[u16; 4]> {
        let listed: SmallVec<_> = self.packet.architectures().collect();
        if !listed.is_empty() {
            return listed;
        }
        let default = match self.class {
            ClientClass::Pxe => BIOS,
            ClientClass::Http => X64_UEFI_HTTP,
            ClientClass::Ipxe { .. } | ClientClass::Ordinary => return listed,
        };
        let vendor_class = self.packet.options.get(code::VENDOR_CLASS).unwrap_or_default();
        smallvec![in_vendor_class(vendor_class).unwrap_or(default)]
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
    let vendor = packet.options.get(code::VENDOR_CLASS).unwrap_or_default();
    if vendor.starts_with(b"PXEClient") {
        return ClientClass::Pxe;
    }
    if vendor.starts_with(b"HTTPClient") {
        return ClientClass::Http;
    }
    match packet.architectures().next() {
        // U-Boot's vendor class is whatever its builder configured.
        Some(number) if U_BOOT.contains(&number) => ClientClass::Pxe,
        Some(number) if U_BOOT_HTTP.contains(&number) => ClientClass::Http,
        // Installed systems name no architecture.
        Some(number) if vendor.is_empty() && HTTP.contains(&number) => ClientClass::Http,
        Some(_) if vendor.is_empty() => ClientClass::Pxe,
        Some(_) | None => ClientClass::Ordinary,
    }
}

/// True if a user class is `name`, or is a list with the element `name`. iPXE sends the bare name, RFC 3004 requires a list.
/// NULs at the end of either do not matter.
fn lists(user_class: &[u8], name: &[u8]) -> bool {
    let mut list = user_class;
    let mut listed = without_nuls(user_class) == name;
    while let Some((length, rest)) = list.split_first()
        && let Some((element, rest)) = rest.split_at_checked((*length).into())
    {
        listed |= without_nuls(element) == name;
        list = rest;
    }
    listed
}

fn without_nuls(mut text: &[u8]) -> &[u8] {
    while let [rest @ .., 0] = text {
        text = rest;
    }
    text
}
