//! DHCP as a whole: requests in, answers out.
#![allow(clippy::unwrap_used)]

mod booting;
mod captured;
mod codec;
mod content;
mod messages;
mod ports;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

use super::client::{Class, Client};
use super::options::{Options, code, sub_option};
use super::site::{Mode, Network, Route};
use super::*;
use crate::Mac;

const MAC: Mac = Mac([0x52, 0x54, 0, 0, 0, 1]);
const US: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
const OURS: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 50);
const OTHER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 77);
const RELAY: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 254);

pub(crate) fn request(kind: MessageType) -> Packet {
    let mut chaddr = [0; 16];
    chaddr[..6].copy_from_slice(&MAC.0);
    let none = Ipv4Addr::UNSPECIFIED;
    let mut options = Options::default();
    options.set(code::MESSAGE_TYPE, [kind.into()]);
    let (sname, file) = ([0; 64], [0; 128]);
    Packet {
        op: 1,
        htype: 1,
        hlen: 6,
        hops: 0,
        xid: 0x1234_5678,
        secs: 3,
        flags: 0,
        ciaddr: none,
        yiaddr: none,
        siaddr: none,
        giaddr: none,
        chaddr,
        sname,
        file,
        options,
    }
}

fn with(mut packet: Packet, options: &[(u8, &[u8])]) -> Packet {
    options.iter().for_each(|(code, value)| packet.options.set(*code, *value));
    packet
}

fn reservation() -> Reservation {
    let machine = Reservation::new(MAC, Some(Network { address: OURS, prefix: 24 }));
    Reservation { gateway: Some(US), hostname: "node1".into(), ..machine }
}

fn link() -> Link {
    let mut link = Link::new(US, "http://198.51.100.1:7080");
    link.loaders.present = ["undionly.kpxe", "snponly.efi"].map(str::to_owned).into();
    link
}

fn broadcast() -> Received {
    Received {
        source: SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 68),
        broadcast: true,
        port: Port::Dhcp,
    }
}

fn unicast() -> Received {
    Received { source: SocketAddrV4::new(OURS, 68), broadcast: false, ..broadcast() }
}

fn boot_service() -> Received {
    Received { source: SocketAddrV4::new(OURS, 4011), broadcast: false, port: Port::BootService }
}

/// The answer to `request`, whose client is what it says there.
fn answer(
    request: &Packet,
    received: Received,
    machine: Option<&Reservation>,
    link: &Link,
    offer: BootOffer,
    now: Instant,
) -> Result<Reply, Silence> {
    let client = Client::of(request, link.own_ipxe.as_deref());
    super::answer(request, &client, received, machine, link, offer, now)
}

/// The answer to a known machine that may boot.
fn ask(request: &Packet) -> Result<Reply, Silence> {
    ask_as(request, broadcast(), &reservation(), &link())
}

fn ask_as(
    request: &Packet,
    received: Received,
    machine: &Reservation,
    link: &Link,
) -> Result<Reply, Silence> {
    answer(request, received, Some(machine), link, BootOffer::Offered, Instant::now())
}

fn kind(reply: &Result<Reply, Silence>) -> Result<MessageType, Silence> {
    reply.as_ref().map(|reply| reply.packet.kind().unwrap()).map_err(|silence| *silence)
}

fn pxe(kind: MessageType, architecture: u16) -> Packet {
    let architecture = architecture.to_be_bytes();
    with(
        request(kind),
        &[(code::VENDOR_CLASS, b"PXEClient:Arch:00007:UNDI:003000"), (93, &architecture)],
    )
}

fn http(kind: MessageType) -> Packet {
    with(
        request(kind),
        &[(code::VENDOR_CLASS, b"HTTPClient:Arch:00016:UNDI:003001"), (93, &[0, 16])],
    )
}

/// Calls itself PXEClient too, since that is what it was answered last.
fn ipxe(kind: MessageType) -> Packet {
    let features = [19, 1, 1, 235, 3, 1, 0, 0];
    with(
        request(kind),
        &[(code::VENDOR_CLASS, b"PXEClient"), (code::USER_CLASS, b"iPXE"), (code::IPXE, &features)],
    )
}

/// The name in the header, as far as its NUL.
fn file(packet: &Packet) -> &str {
    std::str::from_utf8(packet.file.split(|byte| *byte == 0).next().unwrap()).unwrap()
}
