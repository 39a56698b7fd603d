//! What the feeds tell is what is found.
#![allow(clippy::unwrap_used)]

use super::*;
use tinwright::hardware::v1::{Address, Dhcp};

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

fn index() -> Index {
    let index = Index::default();
    index.hardware(FeedEvent::Snapshot(vec![
        hardware(H1, 1, "192.0.2.1"),
        hardware(H2, 2, "192.0.2.2"),
    ]));
    index.instance(FeedEvent::Snapshot(vec![instance("i1", H1)]));
    index.workflow(FeedEvent::Snapshot(vec![workflow("w1", H1, true)]));
    index
}

fn at(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn a_machine_is_found_by_mac_and_address_with_what_occupies_and_wants_it() {
    let index = index();
    let known = index.by_mac(Mac([2, 0, 0, 0, 0, 1])).unwrap();
    assert_eq!(known.instance.as_ref().unwrap().id, "i1");
    assert!(known.worker_wanted && known.has(at("192.0.2.1")) && !known.has(at("192.0.2.2")));
    let other = index.by_address(at("192.0.2.2")).unwrap();
    assert_eq!((other.hardware.id.as_str(), other.mac), (H2, Mac([2, 0, 0, 0, 0, 2])));
    assert!(other.instance.is_none() && !other.worker_wanted);
}

#[test]
fn an_address_that_moves_is_the_new_machines_at_once_and_stays_so() {
    let index = index();
    index.hardware(FeedEvent::Put(hardware(H1, 1, "192.0.2.9")));
    assert!(index.by_address(at("192.0.2.1")).is_none());
    index.hardware(FeedEvent::Put(hardware(H2, 2, "192.0.2.1")));
    index.hardware(FeedEvent::Deleted(H1.into()));
    assert_eq!(index.by_address(at("192.0.2.1")).unwrap().hardware.id, H2);
}

#[test]
fn of_several_interfaces_with_one_address_the_first_stands_for_it() {
    let (index, mut bonded) = (index(), hardware(H1, 7, "192.0.2.1"));
    bonded.interfaces.extend(hardware(H1, 8, "192.0.2.1").interfaces);
    index.hardware(FeedEvent::Put(bonded));
    let first = || index.by_address(at("192.0.2.1")).unwrap().mac;
    assert_eq!(first(), Mac([2, 0, 0, 0, 0, 7]));
    index.instance(FeedEvent::Put(instance("i2", H1)));
    assert_eq!(first(), Mac([2, 0, 0, 0, 0, 7]));
}

#[test]
fn a_late_word_of_an_old_instance_does_not_unseat_the_new_one() {
    let index = index();
    index.instance(FeedEvent::Put(instance("i2", H1)));
    index.instance(FeedEvent::Deleted("i1".into()));
    assert_eq!(index.by_id(H1).unwrap().instance.as_ref().unwrap().id, "i2");
}

#[test]
fn a_machine_is_wanted_while_any_workflow_wants_it() {
    let index = index();
    index.workflow(FeedEvent::Put(workflow("w2", H1, true)));
    index.workflow(FeedEvent::Put(workflow("w1", H1, false)));
    assert!(index.by_id(H1).unwrap().worker_wanted);
    index.workflow(FeedEvent::Deleted("w2".into()));
    assert!(!index.by_id(H1).unwrap().worker_wanted);
}

#[test]
fn a_machine_is_worked_on_until_no_workflow_on_it_is_left_that_is_not_over() {
    let index = index();
    let worked_on = || index.by_mac(Mac([2, 0, 0, 0, 0, 1])).unwrap().worked_on;
    let ended = Workflow { state: WorkflowState::Failed.into(), ..workflow("w1", H1, false) };
    assert!(worked_on());
    index.workflow(FeedEvent::Put(workflow("w1", H1, false)));
    assert!(worked_on());
    index.workflow(FeedEvent::Put(ended));
    assert!(!worked_on());
}

#[test]
fn what_dhcp_tells_and_a_boot_goes_by_is_what_the_feeds_told_last() {
    let (index, mac) = (index(), Mac([2, 0, 0, 0, 0, 1]));
    let hostname = || index.by_mac(mac).unwrap().reservation().hostname.clone();
    let occupied = || index.by_address(at("192.0.2.1")).unwrap().machine().instance.is_some();
    index.instance(FeedEvent::Put(Instance {
        hostname: "web-1".into(),
        state: tinwright::instance::v1::State::Active.into(),
        ..instance("i1", H1)
    }));
    assert_eq!((hostname().as_str(), occupied()), ("web-1", true));
    index.instance(FeedEvent::Deleted("i1".into()));
    assert_eq!((hostname().as_str(), occupied()), ("", false));
    index.hardware(FeedEvent::Put(hardware(H1, 1, "192.0.2.9")));
    let own = index.by_mac(mac).unwrap().reservation().address.unwrap().addr();
    assert_eq!(IpAddr::from(own), at("192.0.2.9"));
}

#[test]
fn one_cut_feed_makes_all_stale_and_what_was_told_stays() {
    let index = index();
    assert_eq!(index.feed(), FeedState::Live);
    index.workflow(FeedEvent::Disconnected);
    assert_eq!(index.feed(), FeedState::Stale);
    assert!(index.by_id(H1).unwrap().worker_wanted);
    index.workflow(FeedEvent::Snapshot(vec![]));
    assert_eq!(index.feed(), FeedState::Live);
    assert!(!index.by_id(H1).unwrap().worker_wanted);
}
