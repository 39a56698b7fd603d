//! Replies to requests.
#![allow(clippy::unwrap_used)]

mod boot_file;
mod boot_reply;
mod captured;
mod codec;
mod exchange;
mod infiniband;
mod messages;
mod relay_ports;
mod reply_options;

use std::net::{Ipv4Addr, SocketAddrV4};

use ipnet::Ipv4Net;

use super::options::{code, sub_option};
use super::*;

const MAC: MacAddress = [0x52, 0x54, 0, 0, 0, 1];
const US: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
const OURS: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 50);
const OTHER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 77);
const RELAY: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 254);
const BROADCAST: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::BROADCAST, 68);

fn packet(kind: MessageType) -> Packet {
    let mut packet = Packet::request(kind, MAC);
    (packet.xid, packet.secs) = (0x1234_5678, 3);
    packet
}

fn with(mut packet: Packet, options: &[(u8, &[u8])]) -> Packet {
    options.iter().for_each(|(code, value)| packet.options.set(*code, *value));
    packet
}

fn reservation() -> Reservation {
    let reservation = Reservation::new(MAC, Some(Ipv4Net::new_assert(OURS, 24)));
    Reservation { gateway: Some(US), hostname: "node1".into(), ..reservation }
}

fn link() -> Link {
    let mut link = Link::new(US, "http://198.51.100.1:7080");
    link.loaders.present = ["undionly.kpxe", "snponly.efi"].map(str::to_owned).into();
    link
}

fn broadcast() -> Received {
    let source = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 68);
    Received { source, broadcast: true, port: ListenPort::Dhcp }
}

fn unicast() -> Received {
    Received { source: SocketAddrV4::new(OURS, 68), broadcast: false, ..broadcast() }
}

fn boot_service() -> Received {
    let source = SocketAddrV4::new(OURS, 4011);
    Received { source, broadcast: false, port: ListenPort::BootService }
}

fn request(packet: &Packet) -> Request {
    Request::new(packet.clone(), broadcast(), &link()).unwrap()
}

/// Returns the reply to `packet` in the link's mode.
fn reply_to(
    packet: &Packet,
    received: Received,
    reservation: Option<&Reservation>,
    link: &Link,
    offer: BootOffer,
) -> Result<Reply, DropReason> {
    let request = Request::new(packet.clone(), received, link).unwrap();
    reply(&request, ReplyInputs { link, mode: link.mode, reservation, offer, is_withheld: false })
}

/// Returns the reply to a machine that has a record and may boot.
fn ask(packet: &Packet) -> Result<Reply, DropReason> {
    ask_as(packet, broadcast(), &reservation(), &link())
}

fn ask_as(
    packet: &Packet,
    received: Received,
    reservation: &Reservation,
    link: &Link,
) -> Result<Reply, DropReason> {
    reply_to(packet, received, Some(reservation), link, BootOffer::Offered)
}

fn kind(reply: &Result<Reply, DropReason>) -> Result<MessageType, DropReason> {
    reply.as_ref().map(|reply| reply.packet.kind().unwrap()).map_err(|reason| *reason)
}

fn pxe(kind: MessageType, architecture: u16) -> Packet {
    let architecture = architecture.to_be_bytes();
    with(
        packet(kind),
        &[(code::VENDOR_CLASS, b"PXEClient:Arch:00007:UNDI:003000"), (93, &architecture)],
    )
}

fn http(kind: MessageType) -> Packet {
    with(
        packet(kind),
        &[(code::VENDOR_CLASS, b"HTTPClient:Arch:00016:UNDI:003001"), (93, &[0, 16])],
    )
}

/// Returns a packet of iPXE, which also sends PXEClient as its vendor class.
fn ipxe(kind: MessageType) -> Packet {
    let features = [19, 1, 1, 235, 3, 1, 0, 0];
    with(
        packet(kind),
        &[(code::VENDOR_CLASS, b"PXEClient"), (code::USER_CLASS, b"iPXE"), (code::IPXE, &features)],
    )
}

/// Returns the boot file in the header, up to its NUL.
fn file(packet: &Packet) -> &str {
    std::str::from_utf8(packet.file.split(|byte| *byte == 0).next().unwrap()).unwrap()
}
