//! DHCP requests, encoded as clients send them.

use std::net::SocketAddrV4;

use crate::Mac;
use dhcp::options::code;
use dhcp::{ListenPort, MessageType, Packet, Received};
use tinwright::netboot::v1::ClientClass;

/// Returns the source and port of `request`: its relay, else a client without an address.
pub(super) fn received(request: &Packet) -> Received {
    let direct = request.giaddr.is_unspecified();
    let port = if direct { 68 } else { 67 };
    let source = SocketAddrV4::new(request.giaddr, port);
    Received { source, broadcast: direct, port: ListenPort::Dhcp }
}

/// The features that current builds of iPXE send; 19 is HTTP.
const IPXE_FEATURES: [u8; 3] = [19, 1, 1];

/// Returns a DISCOVER of `mac`. Without `architectures` it has that of UEFI on `processor`, which
/// is Linux's name.
pub(super) fn discover(
    mac: Mac,
    class: ClientClass,
    architectures: &[u16],
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
    let uefi = [uefi];
    let architectures = if architectures.is_empty() { &uefi } else { architectures };
    let vendor = match class {
        ClientClass::Pxe | ClientClass::Ipxe | ClientClass::IpxeRom => Some("PXEClient"),
        ClientClass::Http => Some("HTTPClient"),
        ClientClass::Ordinary | ClientClass::Unspecified => None,
    };
    if let Some(vendor) = vendor {
        let listed: Vec<_> = architectures.iter().copied().flat_map(u16::to_be_bytes).collect();
        let first = architectures.first().copied().unwrap_or_default();
        options.set(code::CLIENT_ARCHITECTURE, listed);
        options.set(code::VENDOR_CLASS, format!("{vendor}:Arch:{first:05}:UNDI:003000"));
    }
    if matches!(class, ClientClass::Ipxe | ClientClass::IpxeRom) {
        options.set(code::USER_CLASS, *b"iPXE");
        options.set(code::IPXE, IPXE_FEATURES);
    }
    packet
}
