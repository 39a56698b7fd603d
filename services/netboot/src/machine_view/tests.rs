//! Lookups return the records that the feeds reported.
#![allow(clippy::unwrap_used)]

use fleet::Fleet;
use runtime::feed::FeedEvent;
use tinwright::hardware::v1::{Address, Dhcp, Hardware, RelayPort};
use tinwright::instance::v1::Instance;
use tinwright::instance::v1::instance::{AttachedAddress, Ip};
use tinwright::workflow::v1::Workflow;

use super::*;

impl Index {
    /// Returns all machines.
    pub(crate) fn all(&self) -> Vec<Arc<MachineView>> {
        self.views.read().machines().cloned().collect()
    }
}

const H1: &str = "01a20370-0000-7000-8000-000000000001";
const H2: &str = "01a20370-0000-7000-8000-000000000002";

fn hardware(id: &str, mac: u8, address: &str) -> Hardware {
    let address = Address { address: address.into(), prefix_length: 24, gateway: String::new() };
    let interface = Interface {
        mac: Mac([2, 0, 0, 0, 0, mac]).to_string(),
        dhcp: Some(Dhcp { address: Some(address), ..Dhcp::default() }),
        ..Interface::default()
    };
    Hardware { id: id.into(), interfaces: vec![interface], ..Hardware::default() }
}

fn instance(id: &str, hardware: &str) -> Instance {
    Instance { id: id.into(), hardware_id: hardware.into(), ..Instance::default() }
}

fn workflow(id: &str, hardware: &str, wants_machine: bool) -> Workflow {
    Workflow { id: id.into(), hardware_id: hardware.into(), wants_machine, ..Workflow::default() }
}

/// Two machines, one with an instance and a workflow.
fn site() -> (Fleet, Arc<Index>) {
    let index = Arc::new(Index::default());
    let fleet = Fleet::new(vec![index.clone()]);
    fleet.hardware(FeedEvent::Snapshot(vec![
        hardware(H1, 1, "192.0.2.1"),
        hardware(H2, 2, "192.0.2.2"),
    ]));
    fleet.instance(FeedEvent::Snapshot(vec![instance("i1", H1)]));
    fleet.workflow(FeedEvent::Snapshot(vec![workflow("w1", H1, true)]));
    (fleet, index)
}

fn at(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn mac(last: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, last])
}

#[test]
fn a_machine_is_found_by_mac_and_address_with_its_instance_and_its_workflow() {
    let (_fleet, index) = site();
    let known = index.by_mac(mac(1)).unwrap();
    assert_eq!(known.instance.as_ref().unwrap().id, "i1");
    assert!(known.worker_wanted() && known.has(at("192.0.2.1")) && !known.has(at("192.0.2.2")));
    let other = index.by_address(at("192.0.2.2")).unwrap();
    assert_eq!((other.hardware.id.as_str(), other.mac), (H2, mac(2)));
    assert!(other.instance.is_none() && !other.worker_wanted());
}

#[test]
fn of_several_interfaces_with_one_address_the_first_is_found() {
    let ((fleet, index), mut bonded) = (site(), hardware(H1, 7, "192.0.2.1"));
    bonded.interfaces.extend(hardware(H1, 8, "192.0.2.1").interfaces);
    fleet.hardware(FeedEvent::Put(bonded));
    let first = || index.by_address(at("192.0.2.1")).unwrap().mac;
    assert_eq!(first(), mac(7));
    fleet.instance(FeedEvent::Put(instance("i2", H1)));
    assert_eq!(first(), mac(7));
}

#[test]
fn a_machine_does_not_have_an_address_that_another_machine_claimed_first() {
    let (fleet, index) = site();
    fleet.hardware(FeedEvent::Put(hardware(H1, 1, "192.0.2.2")));
    let later = index.by_mac(mac(1)).unwrap();
    assert_eq!((later.address, later.reservation.address), (None, None));
    assert!(!later.has(at("192.0.2.2")) && index.is_reserved(at("192.0.2.2")));
    assert_eq!(index.by_address(at("192.0.2.2")).unwrap().hardware.id, H2);
    fleet.hardware(FeedEvent::Deleted(H2.into()));
    let holder = index.by_address(at("192.0.2.2")).unwrap();
    assert_eq!(holder.hardware.id, H1);
    assert!(holder.reservation.address.is_some() && holder.has(at("192.0.2.2")));
}

#[test]
fn an_address_that_two_machines_claim_stays_reserved() {
    let (fleet, index) = site();
    let ip = Ip { address: "192.0.2.9".into(), ..Ip::default() };
    fleet.instance(FeedEvent::Put(Instance { ips: vec![ip], ..instance("i1", H1) }));
    fleet.hardware(FeedEvent::Put(hardware(H2, 2, "192.0.2.9")));
    assert!(index.by_address(at("192.0.2.9")).is_none());
    assert!(index.is_reserved(at("192.0.2.9")));
    fleet.hardware(FeedEvent::Deleted(H2.into()));
    assert!(!index.is_reserved(at("192.0.2.9")));
}

#[test]
fn a_reservation_and_the_inputs_of_the_boot_decision_follow_the_records() {
    let (fleet, index) = site();
    let hostname = || index.by_mac(mac(1)).unwrap().reservation.hostname.clone();
    let occupied = || index.by_address(at("192.0.2.1")).unwrap().facts.instance.is_some();
    fleet.instance(FeedEvent::Put(Instance {
        hostname: "web-1".into(),
        state: tinwright::instance::v1::State::Active.into(),
        ..instance("i1", H1)
    }));
    assert_eq!((hostname().as_str(), occupied()), ("web-1", true));
    fleet.instance(FeedEvent::Deleted("i1".into()));
    assert_eq!((hostname().as_str(), occupied()), ("", false));
    fleet.hardware(FeedEvent::Put(hardware(H1, 1, "192.0.2.9")));
    let own = index.by_mac(mac(1)).unwrap().reservation.address.unwrap().addr();
    assert_eq!(IpAddr::from(own), at("192.0.2.9"));
}

#[test]
fn a_primary_granted_address_takes_the_place_of_the_reserved_one_while_it_is_attached() {
    let (fleet, index) = site();
    let attached = |address: &str, primary| AttachedAddress {
        address: address.into(),
        prefix_length: 25,
        gateway: "192.0.2.126".into(),
        mac: mac(1).to_string(),
        primary,
        ..AttachedAddress::default()
    };
    let addresses = vec![attached("192.0.2.50", true), attached("192.0.2.51", false)];
    let state = tinwright::instance::v1::State::Active;
    let with = Instance { addresses, state: state.into(), ..instance("i1", H1) };
    fleet.instance(FeedEvent::Put(with.clone()));
    let view = index.by_mac(mac(1)).unwrap();
    let given = view.reservation.address.unwrap();
    assert_eq!(
        (given.to_string().as_str(), view.address),
        ("192.0.2.50/25", Some(at("192.0.2.50")))
    );
    assert_eq!(view.reservation.gateway, Some([192, 0, 2, 126].into()));
    for own in ["192.0.2.1", "192.0.2.50", "192.0.2.51"].map(at) {
        assert!(view.has(own) && index.is_reserved(own), "{own}");
        assert_eq!(index.by_address(own).unwrap().hardware.id, H1);
    }
    // What was attached is not the next instance's, nor that of the clean-up.
    let state = tinwright::instance::v1::State::Deprovisioning.into();
    fleet.instance(FeedEvent::Put(Instance { state, ..with }));
    let view = index.by_mac(mac(1)).unwrap();
    assert_eq!((view.address, view.has(at("192.0.2.50"))), (Some(at("192.0.2.1")), false));
    assert!(!index.is_reserved(at("192.0.2.51")));
}

#[test]
fn one_disconnected_feed_makes_the_index_stale_and_the_records_stay() {
    let (fleet, index) = site();
    assert_eq!(index.feed(), Freshness::Live);
    fleet.workflow(FeedEvent::Disconnected);
    assert!(matches!(index.feed(), Freshness::StaleSince(_)));
    assert_eq!(index.disconnected_feeds(), ["workflow"]);
    assert!(index.by_id(H1).unwrap().worker_wanted());
    fleet.workflow(FeedEvent::Snapshot(vec![]));
    assert_eq!(index.feed(), Freshness::Live);
    assert!(!index.by_id(H1).unwrap().worker_wanted());
}

/// A machine whose interface is plugged in at a relay port.
fn plugged(id: &str, last: u8, (circuit_id, remote_id, link): (&str, &str, &str)) -> Hardware {
    let mut hardware = hardware(id, last, "");
    hardware.interfaces[0].relay_port = Some(RelayPort {
        circuit_id: circuit_id.into(),
        remote_id: remote_id.into(),
        link_address: link.into(),
        pinned: false,
    });
    hardware
}

/// Returns the interface that is found at a relay port.
fn found(index: &Index, circuit: &[u8], remote: &[u8], relay: [u8; 4]) -> Option<u8> {
    let relayed = Relayed {
        circuit_id: Some(circuit),
        remote_id: Some(remote),
        relay: Some(relay.into()),
        ..Relayed::default()
    };
    index.by_port(&relayed).map(|view| view.mac.0[5])
}

const H3: &str = "01a20370-0000-7000-8000-000000000003";

#[test]
fn a_port_is_found_by_its_whole_circuit_id_or_up_to_the_last_colon() {
    let (fleet, index) = site();
    fleet.hardware(FeedEvent::Put(plugged(H1, 1, ("6769302f31", "", "")))); // gi0/1
    fleet.hardware(FeedEvent::Put(plugged(H2, 2, ("6769302f313a37", "", "")))); // gi0/1:7
    assert_eq!(found(&index, b"gi0/1", b"", [192, 0, 2, 1]), Some(1));
    assert_eq!(found(&index, b"gi0/1:8", b"", [192, 0, 2, 1]), Some(1));
    assert_eq!(found(&index, b"gi0/1:7", b"", [192, 0, 2, 1]), Some(2));
    assert_eq!(found(&index, b"gi0/1:7:8", b"", [192, 0, 2, 1]), Some(2));
    assert_eq!(found(&index, b"gi0/10", b"", [192, 0, 2, 1]), None);
}

#[test]
fn the_record_with_the_most_specific_matching_port_wins() {
    let (fleet, index) = site();
    fleet.hardware(FeedEvent::Put(plugged(H1, 1, ("31", "6c65616632", "")))); // leaf2
    fleet.hardware(FeedEvent::Put(plugged(H2, 2, ("31", "", ""))));
    fleet.hardware(FeedEvent::Put(plugged(H3, 3, ("31", "6c65616632", "198.51.100.254"))));
    assert_eq!(found(&index, b"1", b"leaf2", [192, 0, 2, 1]), Some(1));
    assert_eq!(found(&index, b"1", b"leaf3", [192, 0, 2, 1]), Some(2));
    assert_eq!(found(&index, b"1", b"leaf2", [198, 51, 100, 254]), Some(3));
}

#[test]
fn a_deleted_machine_is_not_found_by_port() {
    let (fleet, index) = site();
    fleet.hardware(FeedEvent::Put(plugged(H1, 1, ("31", "", ""))));
    assert_eq!(found(&index, b"1", b"", [192, 0, 2, 1]), Some(1));
    fleet.hardware(FeedEvent::Deleted(H1.into()));
    assert_eq!(found(&index, b"1", b"", [192, 0, 2, 1]), None);
}
