//! Machines that are identified by their switch port.
#![allow(clippy::unwrap_used)]

use fleet::Fleet;
use runtime::SiteKey;
use runtime::boot_token::BootTokens;
use runtime::feed::FeedEvent;
use tinwright::HardwareId;
use tinwright::hardware::v1::RelayPort;

use super::super::*;
use super::{RELAY, relayed_request};
use crate::bootscripts::tests::{MAC, hardware, site};
use crate::machine_view::Index;
use crate::timeline::Timeline;
use dhcp::options::{Options, code};
use dhcp::{Link, MessageType};

use crate::bootscripts::BootScripts;

/// A server that trusts its relay, with one machine that is identified by its switch port.
fn server() -> Server {
    server_with(HardwareId::new(), Timeline::default())
}

/// The same with the machine `id`; boot steps are recorded in `timeline`.
fn server_with(id: HardwareId, timeline: Timeline) -> Server {
    let mut machine = hardware(id, MAC, "192.0.2.10");
    // eth7, in hex.
    let port = RelayPort { circuit_id: "65746837".into(), ..RelayPort::default() };
    machine.interfaces[0].relay_port = Some(port);
    let index = Arc::new(Index::default());
    let fleet = Fleet::new(vec![index.clone()]);
    fleet.hardware(FeedEvent::Snapshot(vec![machine]));
    fleet.instance(FeedEvent::Snapshot(vec![]));
    fleet.workflow(FeedEvent::Snapshot(vec![]));
    let tokens = BootTokens::new(&SiteKey::new([1; 32])).unwrap();
    let mut boots = BootScripts::new(index, tokens, site());
    boots.timeline = timeline;
    let mut link = Link::new([192, 0, 2, 1].into(), "http://192.0.2.1:7080");
    link.relays = vec![RELAY];
    super::server_on(Arc::new(boots), link, mpsc::channel(1).0)
}

/// The reply to a client at the machine's port with the MAC `mac`.
fn ask(server: &Server, kind: MessageType, mac: Mac) -> Option<EncodedReply> {
    let mut options = Options::default();
    options.set(code::VENDOR_CLASS, "PXEClient:Arch:00007:UNDI:003016");
    options.set(code::RELAY_AGENT, *b"\x01\x04eth7");
    super::ask(server, &relayed_request(kind, mac, 7, options))
}

fn mac(n: u16) -> Mac {
    let [high, low] = n.to_be_bytes();
    Mac([2, 0, 0, 9, high, low])
}

#[test]
fn a_declined_address_is_offered_to_no_client_at_that_port() {
    let server = server();
    assert!(ask(&server, MessageType::Discover, mac(1)).is_some());
    assert!(ask(&server, MessageType::Decline, mac(1)).is_none());
    assert!(ask(&server, MessageType::Discover, mac(1)).is_none());
    assert!(ask(&server, MessageType::Discover, mac(2)).is_none());
}

#[test]
fn a_request_from_a_machines_port_is_in_its_timeline() {
    let id = HardwareId::new();
    let timeline = Timeline::default();
    assert!(ask(&server_with(id, timeline.clone()), MessageType::Discover, mac(1)).is_some());
    let event = timeline.queue.next().unwrap();
    assert_eq!((event.owner, event.mac), (BootOwner::Machine(id), mac(1)));
}

#[test]
fn forged_macs_at_a_port_do_not_fill_the_memory() {
    let server = server();
    (0..3000).for_each(|n| assert!(ask(&server, MessageType::Decline, mac(n)).is_none()));
    assert_eq!(server.view.link_state.declined_count(), 1);
}
