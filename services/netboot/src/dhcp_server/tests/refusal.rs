//! Refused boots: the steps of the timeline say so, and why.
#![allow(clippy::unwrap_used)]

use super::super::*;
use super::{ask, boot_file, relayed_request, server_on};
use crate::bootscripts::tests::{MAC, boots, fleet_of, site};
use crate::timeline::{BootStep, Timeline};
use dhcp::options::{Options, code};
use dhcp::{MessageType, REFUSED_FILE};
use runtime::feed::FeedEvent;
use tinwright::HardwareId;
use tinwright::instance::v1::{Instance, State, instance};

/// A server that records in the timeline.
fn recording() -> (Server, Timeline) {
    let timeline = Timeline::default();
    let site = crate::site::Site { rate_limits: false, ..site() };
    let mut scripts = boots(HardwareId::new()).for_link(site);
    scripts.timeline = timeline.clone();
    let mut link = dhcp::Link::new([192, 0, 2, 1].into(), "http://192.0.2.1:7080");
    link.loaders.present = ["undionly.kpxe".to_owned()].into();
    (server_on(Arc::new(scripts), link, mpsc::channel(1).0), timeline)
}

/// Returns the steps of firmware with the architecture `number` that sends DISCOVER and REQUEST.
fn steps(number: u16, (server, timeline): &(Server, Timeline)) -> Vec<BootStep> {
    for kind in [MessageType::Discover, MessageType::Request] {
        let mut options = Options::default();
        options.set(code::VENDOR_CLASS, "PXEClient");
        options.set(code::CLIENT_ARCHITECTURE, number.to_be_bytes());
        let reply = ask(server, &relayed_request(kind, MAC, number.into(), options));
        assert_eq!(boot_file(reply) == REFUSED_FILE, number != 0);
    }
    std::iter::from_fn(|| timeline.queue.next()).map(|event| event.step).collect()
}

#[test]
fn firmware_without_a_loader_is_refused_in_both_steps() {
    let recording = recording();
    for (number, reason) in [
        (12, "no loader for architecture 12"),
        (7, "no loader for architecture 7: the site has no file snponly.efi"),
    ] {
        let steps = steps(number, &recording);
        assert_eq!([steps[0].kind, steps[1].kind], [Kind::DhcpDiscover, Kind::DhcpAck]);
        for step in &steps {
            assert_eq!(step.detail, format!("PXE, refused: {reason}"));
            assert_eq!(step.refusal.as_deref(), Some(reason));
        }
    }
    let offered = steps(0, &recording);
    assert_eq!([&offered[0].detail[..], &offered[1].detail], ["PXE", "PXE, file undionly.kpxe"]);
    assert!(offered.iter().all(|step| step.refusal.is_none()));
}

#[test]
fn a_machine_that_may_not_boot_is_refused_with_the_fact_that_decided() {
    let recording = recording();
    let fleet = fleet_of(&recording.0.view.scripts);
    fleet.workflow(FeedEvent::Snapshot(vec![]));
    let machine = recording.0.view.scripts.index.by_mac(MAC).unwrap();
    let hardware_id = machine.id.to_string();
    let os = Some(instance::Os::OperatingSystem(Default::default()));
    let state = State::Active.into();
    let active = Instance { id: "i".into(), hardware_id, os, state, ..Instance::default() };
    fleet.instance(FeedEvent::Snapshot(vec![active]));
    for step in steps(7, &recording) {
        assert_eq!(step.detail, "PXE, refused: its instance is active");
    }
}
