//! From datagram to datagram, and who is told of it.
#![allow(clippy::unwrap_used)]

mod relay_port;

use super::*;
use crate::bootscripts::tests::fleet_of;
use crate::bootscripts::tests::{MAC, boots_at, site};
use dhcp::Packet;
use dhcp::options::{Options, code};
use runtime::feed::FeedEvent;
use tinwright::HardwareId;

const RELAY: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 254);

/// A server that knows one machine, which a workflow waits for, and who it tells of boots.
fn server() -> (Server, mpsc::Receiver<String>) {
    let site = crate::site::Site { rate_limits: false, ..site() };
    let mut link = Link::new(site.address, "http://192.0.2.1:7080");
    link.loaders.present = [String::from("snponly.efi")].into();
    let (firmware, signs) = mpsc::channel(8);
    let boots = Arc::new(boots_at(HardwareId::new(), site));
    (Server::new(boots, link, Metrics::default(), firmware, Arc::default()), signs)
}

/// What UEFI firmware at `mac` says through its relay.
fn request(kind: MessageType, mac: Mac, xid: u32) -> Vec<u8> {
    let mut options = Options::default();
    options.set(code::VENDOR_CLASS, "PXEClient:Arch:00007:UNDI:003016");
    options.set(code::CLIENT_ARCHITECTURE, [0, 7]);
    relayed_request(kind, mac, xid, options)
}

/// What the client at `mac` says through its relay, who wants the machine's address, with these `options` besides.
fn relayed_request(kind: MessageType, mac: Mac, xid: u32, mut options: Options) -> Vec<u8> {
    options.set(code::MESSAGE_TYPE, [kind.into()]);
    options.set(code::REQUESTED_ADDRESS, [192, 0, 2, 10]);
    let packet = Packet { xid, hops: 1, giaddr: RELAY, options, ..Packet::request(kind, mac.0) };
    packet.encode(1500).unwrap()
}

fn ask(server: &Server, datagram: &[u8]) -> Option<Sent> {
    let (length, source) = (datagram.len(), SocketAddrV4::new(RELAY, 67));
    let (to, local) = (server.link.id, server.link.id);
    let arrival = Arrival { length, source, to, local, interface: 1 };
    server.reply(datagram, &arrival, ListenPort::Dhcp)
}

#[test]
fn a_request_that_comes_again_gets_the_very_same_answer() {
    let (server, _signs) = server();
    let first = ask(&server, &request(MessageType::Request, MAC, 7)).unwrap();
    let packet = Packet::parse(&first.0).unwrap();
    assert_eq!((packet.kind(), packet.xid), (Some(MessageType::Ack), 7));
    assert_eq!((packet.yiaddr, first.1), ([192, 0, 2, 10].into(), SocketAddrV4::new(RELAY, 67)));
    assert_eq!(packet.options.get(code::BOOT_FILE_NAME), Some(&b"snponly.efi"[..]));
    assert_eq!(ask(&server, &request(MessageType::Request, MAC, 7)), Some(first));
}

#[test]
fn firmware_that_asks_is_told_of_where_a_workflow_may_wait_for_it() {
    let (server, mut signs) = server();
    let known = server.boots.index().by_mac(MAC).unwrap();
    let mut told = |kind, xid| {
        ask(&server, &request(kind, MAC, xid)).unwrap();
        signs.try_recv().ok()
    };
    assert_eq!(told(MessageType::Discover, 1), Some(known.hardware.id.clone()));
    assert_eq!(told(MessageType::Request, 2), None);
    fleet_of(&server.boots).workflow(FeedEvent::Snapshot(vec![]));
    assert_eq!(told(MessageType::Discover, 3), None, "no workflow is on the machine");
    fleet_of(&server.boots).workflow(FeedEvent::Disconnected);
    assert!(told(MessageType::Discover, 4).is_some(), "there may be one we do not know of");
}

#[test]
fn an_address_that_was_found_in_use_is_withheld() {
    let (server, _signs) = server();
    assert_eq!(ask(&server, &request(MessageType::Decline, MAC, 1)), None);
    assert_eq!(ask(&server, &request(MessageType::Discover, MAC, 2)), None);
    let other = ask(&server, &request(MessageType::Discover, Mac([2, 0, 0, 0, 0, 2]), 3));
    assert!(other.is_some(), "another machine's is not");
}
