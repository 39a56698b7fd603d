//! Requests as clients make them (netboot specification, section 3.2).

use std::net::Ipv4Addr;

use crate::Mac;
use crate::dhcp::options::{Options, code};
use crate::dhcp::{MessageType, Packet};

/// A program that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientClass {
    /// PXE in firmware.
    Pxe,
    /// HTTP boot in firmware.
    Http,
    /// iPXE that fetches by HTTP.
    Ipxe,
    /// An installed system.
    Ordinary,
}

/// iPXE's features as its current builds send them: HTTP (19) among them.
const IPXE_FEATURES: [u8; 3] = [19, 1, 1];

/// A DISCOVER of `mac`. Without a number of its own, `architecture` is that of UEFI on the `processor` that Linux calls so.
pub(super) fn discover(
    mac: Mac,
    class: ClientClass,
    architecture: Option<u16>,
    processor: &str,
) -> Packet {
    let mut options = Options::default();
    options.set(code::MESSAGE_TYPE, [u8::from(MessageType::Discover)]);
    let uefi = match (processor, class) {
        ("aarch64", ClientClass::Http) => 19,
        ("aarch64", _) => 11,
        (_, ClientClass::Http) => 16,
        (_, _) => 7,
    };
    let architecture = architecture.unwrap_or(uefi);
    let vendor = match class {
        ClientClass::Pxe | ClientClass::Ipxe => Some("PXEClient"),
        ClientClass::Http => Some("HTTPClient"),
        ClientClass::Ordinary => None,
    };
    if let Some(vendor) = vendor {
        options.set(code::CLIENT_ARCHITECTURE, architecture.to_be_bytes());
        options.set(code::VENDOR_CLASS, format!("{vendor}:Arch:{architecture:05}:UNDI:003000"));
    }
    if class == ClientClass::Ipxe {
        options.set(code::USER_CLASS, *b"iPXE");
        options.set(code::IPXE, IPXE_FEATURES);
    }
    let none = Ipv4Addr::UNSPECIFIED;
    let [a, b, c, d, e, f] = mac.0;
    Packet {
        op: 1,
        htype: 1,
        hlen: 6,
        hops: 0,
        xid: 0,
        secs: 0,
        flags: 0,
        ciaddr: none,
        yiaddr: none,
        siaddr: none,
        giaddr: none,
        chaddr: [a, b, c, d, e, f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        sname: [0; 64],
        file: [0; 128],
        options,
    }
}
