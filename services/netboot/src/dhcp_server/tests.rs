//! From datagram to datagram, and the effects.
#![allow(clippy::unwrap_used)]

mod exchange;
mod infiniband;
mod refusal;
mod relay_port;

use super::*;
use crate::bootscripts::BootScripts;
use crate::bootscripts::tests::{MAC, boots_at, fleet_of, site};
use dhcp::options::{Options, code};
use dhcp::{Link, MessageType, Packet};
use runtime::feed::FeedEvent;
use tinwright::HardwareId;

const RELAY: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 254);

/// A server with one machine, which has a workflow, and the receiver of its boot signs.
fn server() -> (Server, mpsc::Receiver<String>) {
    let site = crate::site::Site { rate_limits: false, ..site() };
    let mut link = Link::new(site.address, "http://192.0.2.1:7080");
    link.loaders.present = ["snponly.efi", "undionly.kpxe"].map(str::to_owned).into();
    let (firmware, signs) = mpsc::channel(8);
    let boots = Arc::new(boots_at(HardwareId::new(), site));
    (server_on(boots, link, firmware), signs)
}

fn server_on(scripts: Arc<BootScripts>, link: Link, signs: mpsc::Sender<String>) -> Server {
    let view = View { scripts, link: Arc::new(link), link_state: Arc::default() };
    Server::new(view, Metrics::default(), signs)
}

/// A message of UEFI firmware at `mac` through its relay.
fn request(kind: MessageType, mac: Mac, xid: u32) -> Vec<u8> {
    let mut options = Options::default();
    options.set(code::VENDOR_CLASS, "PXEClient:Arch:00007:UNDI:003016");
    options.set(code::CLIENT_ARCHITECTURE, [0, 7]);
    relayed_request(kind, mac, xid, options)
}

/// A message of the client at `mac` through its relay, requesting the machine's address, with further `options`.
fn relayed_request(kind: MessageType, mac: Mac, xid: u32, mut options: Options) -> Vec<u8> {
    options.set(code::MESSAGE_TYPE, [kind as u8]);
    options.set(code::REQUESTED_ADDRESS, [192, 0, 2, 10]);
    let packet = Packet { xid, hops: 1, giaddr: RELAY, options, ..Packet::request(kind, mac.0) };
    packet.encode(1500).unwrap()
}

fn ask(server: &Server, datagram: &[u8]) -> Option<EncodedReply> {
    ask_at(server, datagram, SocketAddrV4::new(RELAY, 67), ListenPort::Dhcp)
}

/// The reply to a datagram from `source` at `port`.
fn ask_at(
    server: &Server,
    datagram: &[u8],
    source: SocketAddrV4,
    port: ListenPort,
) -> Option<EncodedReply> {
    let (length, to, local) = (datagram.len(), server.view.link.id, server.view.link.id);
    let arrival = Arrival { length, source, to, local, interface: 1 };
    let mut remaining = Remaining::default();
    let reply = server.reply(datagram, &arrival, port, &mut remaining);
    server.record_events(remaining.events);
    reply
}

/// The boot file in a reply.
fn boot_file(reply: Option<EncodedReply>) -> String {
    let packet = Packet::parse(&reply.unwrap().0).unwrap();
    String::from_utf8_lossy(packet.options.get(code::BOOT_FILE_NAME).unwrap_or_default()).into()
}

#[test]
fn a_repeated_request_gets_the_same_reply() {
    let (server, _signs) = server();
    let first = ask(&server, &request(MessageType::Request, MAC, 7)).unwrap();
    let packet = Packet::parse(&first.0).unwrap();
    assert_eq!((packet.kind(), packet.xid), (Some(MessageType::Ack), 7));
    assert_eq!((packet.yiaddr, first.1), ([192, 0, 2, 10].into(), SocketAddrV4::new(RELAY, 67)));
    assert_eq!(packet.options.get(code::BOOT_FILE_NAME), Some(&b"snponly.efi"[..]));
    assert_eq!(ask(&server, &request(MessageType::Request, MAC, 7)), Some(first));
}

#[test]
fn a_new_boot_is_reported_if_a_workflow_may_wait_for_it() {
    let (server, mut signs) = server();
    let known = server.view.scripts.index.by_mac(MAC).unwrap();
    let mut sign = |kind, xid| {
        ask(&server, &request(kind, MAC, xid)).unwrap();
        signs.try_recv().ok()
    };
    assert_eq!(sign(MessageType::Discover, 1), Some(known.hardware.id.clone()));
    assert_eq!(sign(MessageType::Request, 2), None);
    fleet_of(&server.view.scripts).workflow(FeedEvent::Snapshot(vec![]));
    assert_eq!(sign(MessageType::Discover, 3), None, "no workflow is on the machine");
    fleet_of(&server.view.scripts).workflow(FeedEvent::Disconnected);
    assert!(sign(MessageType::Discover, 4).is_some(), "there may be one we do not know of");
}

#[test]
fn a_declined_address_is_withheld() {
    let (server, _signs) = server();
    assert_eq!(ask(&server, &request(MessageType::Decline, MAC, 1)), None);
    assert_eq!(ask(&server, &request(MessageType::Discover, MAC, 2)), None);
    let other = ask(&server, &request(MessageType::Discover, Mac([2, 0, 0, 0, 0, 2]), 3));
    assert!(other.is_some(), "another machine's is not");
}

#[test]
fn each_client_has_a_rate_limit_and_clients_without_a_record_share_another() {
    let link = Link::new(site().address, "http://192.0.2.1:7080");
    let (firmware, _signs) = mpsc::channel(8);
    let server = server_on(Arc::new(boots_at(HardwareId::new(), site())), link, firmware);
    let mac = |number: u32| {
        let [a, b, c, d] = number.to_be_bytes();
        Mac([2, 0, a, b, c, d])
    };
    let (now, second) = (Instant::now(), std::time::Duration::from_secs(1));
    let one = |at| (0..50).filter(|_| !server.is_over_limit(mac(1), true, at)).count();
    assert_eq!([one(now), one(now + second)], [20, 10]);
    let many = |first: u32, has_record, at| {
        (first..first + 1000).filter(|n| !server.is_over_limit(mac(*n), has_record, at)).count()
    };
    assert_eq!(many(10_000, true, now + second), 1000);
    assert_eq!(many(20_000, false, now + second), 100);
    assert_eq!(many(30_000, false, now + 2 * second), 100);
}
