//! InfiniBand clients: they get no reply, and are listed with the reason.
#![allow(clippy::unwrap_used)]

use std::time::SystemTime;

use super::super::*;
use super::{ask_at, server_on};
use crate::allocation::tests::{MAC, Site, site};
use crate::pool::Unknown;
use crate::timeline::{BootStep, Timeline};
use dhcp::options::code;
use dhcp::{Link, MessageType, Packet};
use tinwright::hardware::v1::unknown_machine::Reason;

const GUID: [u8; 8] = [0x24, 0x8a, 0x07, 0x03, 0x00, 0x91, 0x6e, 0x12];
const ALIAS: &str = "24:8a:07:91:6e:12";

/// A DISCOVER of PXE firmware on InfiniBand with the client identifier `id`.
fn discover(id: &[u8]) -> Vec<u8> {
    let packet = Packet::request(MessageType::Discover, [0; 6]);
    let mut packet = Packet { htype: 32, hlen: 0, ..packet };
    packet.options.set(code::VENDOR_CLASS, "PXEClient:Arch:00007:UNDI:003016");
    packet.options.set(code::CLIENT_IDENTIFIER, id);
    packet.encode(1500).unwrap()
}

fn server(site: &Site, timeline: &Timeline) -> Server {
    let mut scripts = site.boots.clone();
    scripts.timeline = timeline.clone();
    let link = Link::new([192, 0, 2, 1].into(), "http://192.0.2.1:7080");
    server_on(Arc::new(scripts), link, mpsc::channel(1).0)
}

fn ask(server: &Server, datagram: &[u8]) -> Option<EncodedReply> {
    let source = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 68);
    ask_at(server, datagram, source, ListenPort::Dhcp)
}

#[tokio::test]
async fn an_infiniband_client_is_an_unknown_machine_with_its_reason_and_gets_no_address() {
    let (site, timeline) = (site(Unknown::Enrol, 1).await, Timeline::default());
    let server = server(&site, &timeline);
    for id in [[&[0xff][..], &[0; 11], &GUID].concat(), [&[0x20][..], &[0; 12], &GUID].concat()] {
        assert_eq!(ask(&server, &discover(&id)), None);
    }
    let known = site.unknown.due(SystemTime::now());
    assert_eq!(known.len(), 1);
    assert_eq!((known[0].mac.as_str(), known[0].reason()), (ALIAS, Reason::Infiniband));
    assert_eq!(known[0].requests, 2);
    assert_eq!(site.leases.table(|table| table.free(&site.subnet, SystemTime::now())), 1);
}

#[tokio::test]
async fn the_boot_of_an_infiniband_client_is_refused_in_its_timeline() {
    let (site, timeline) = (site(Unknown::Ignore, 1).await, Timeline::default());
    let server = server(&site, &timeline);
    assert_eq!(ask(&server, &discover(&[&[1][..], &MAC.0].concat())), None);
    let steps: Vec<_> = std::iter::from_fn(|| timeline.queue.next()).collect();
    let machine = site.boots.index.by_mac(MAC).unwrap();
    assert!(steps.iter().all(|step| step.owner == BootOwner::Machine(machine.id)));
    let refused = BootStep::new(Kind::GateRefused, "InfiniBand is not supported");
    assert_eq!(steps.last().unwrap().step, refused);
    assert_eq!(site.unknown.count(), 0, "its address is in a record");
}
