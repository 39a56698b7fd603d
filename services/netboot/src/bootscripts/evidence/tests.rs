//! Scripts for machines that a workflow has switched off.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use fleet::Fleet;
use runtime::boot_token::{Claims, Purpose};
use runtime::feed::FeedEvent;
use tinwright::HardwareId;
use tinwright::instance::v1 as occ;
use tinwright::netboot::v1::ScriptKind;
use tinwright::workflow::v1::{BootOptions, Workflow, WorkflowState, boot_options::Mode};

use super::*;
use crate::bootscripts::Script;
use crate::bootscripts::tests::{MAC, argument, at, boots_at, fetch, fleet_of, now, site};
use crate::site::Site;

/// A workflow for which `machine` was switched off, and is in this boot epoch.
fn workflow(machine: HardwareId, epoch: u64, prepared: bool) -> Workflow {
    Workflow {
        id: "w".into(),
        hardware_id: machine.to_string(),
        wants_machine: true,
        boot_options: Some(BootOptions { mode: Mode::Netboot.into(), power_off_after: false }),
        state: WorkflowState::Pending.into(),
        prepared,
        boot_epoch: epoch,
        ..Workflow::default()
    }
}

/// A machine that was switched off, and is prepared, while its feeds were live.
struct Prepared {
    boots: BootScripts,
    fleet: Fleet,
    id: HardwareId,
}

impl Prepared {
    fn new(site: Site) -> Self {
        let id = HardwareId::new();
        let boots = boots_at(id, site);
        let fleet = fleet_of(&boots);
        let prepared = Self { boots, fleet, id };
        prepared.begin(5);
        prepared
    }

    /// Begins a boot epoch.
    fn begin(&self, epoch: u64) {
        for (epoch, prepared) in [(0, false), (epoch, false), (epoch, true)] {
            self.fleet.workflow(FeedEvent::Put(workflow(self.id, epoch, prepared)));
        }
    }

    fn machine(&self) -> Arc<MachineView> {
        self.boots.index.by_mac(MAC).unwrap()
    }

    fn exchange(&self, is_loader: bool) {
        self.boots.history.record_exchange(&self.machine(), is_loader);
    }

    fn request(&self) -> BootResult<Script> {
        self.boots.serve(&ScriptRequest::new(Some(MAC), at("192.0.2.10")), now())
    }
}

#[test]
fn a_boot_that_was_not_seen_gets_nothing_and_one_that_was_gets_its_script() {
    let prepared = Prepared::new(site());
    assert_eq!(prepared.request(), Err(BootRefusal::Unseen));
    prepared.boots.history.record_loader(&prepared.machine());
    assert_eq!(prepared.request(), Err(BootRefusal::Unseen), "a loader without a DHCP exchange");
    prepared.exchange(false);
    let script = prepared.request().unwrap();
    assert!(script.text.contains("boot_token="), "{}", script.text);
}

#[test]
fn firmware_that_asked_dhcp_and_fetched_no_loader_did_not_boot_from_the_network() {
    let prepared = Prepared::new(site());
    prepared.exchange(false);
    assert_eq!(prepared.request(), Err(BootRefusal::Unseen));
    prepared.exchange(true);
    assert!(prepared.request().is_ok(), "iPXE is a loader");
}

#[test]
fn firmware_that_reads_the_configuration_itself_fetches_no_loader() {
    let prepared = Prepared::new(site());
    let request = ScriptRequest::new(Some(MAC), at("192.0.2.10"));
    let request = ScriptRequest { format: ScriptFormat::Pxelinux, ..request };
    assert_eq!(prepared.boots.serve(&request, now()), Err(BootRefusal::Unseen));
    prepared.exchange(false);
    assert!(prepared.boots.serve(&request, now()).is_ok());
}

#[test]
fn what_was_seen_before_the_machine_was_off_is_no_evidence_and_what_was_seen_before_it_is_prepared_is()
 {
    let prepared = Prepared::new(site());
    prepared.exchange(true);
    assert!(prepared.request().is_ok());
    prepared.begin(6);
    assert_eq!(prepared.request(), Err(BootRefusal::Unseen));
    prepared.fleet.workflow(FeedEvent::Put(workflow(prepared.id, 7, false)));
    prepared.exchange(true);
    prepared.fleet.workflow(FeedEvent::Put(workflow(prepared.id, 7, true)));
    assert!(prepared.request().is_ok());
}

#[test]
fn a_process_that_did_not_watch_the_begin_of_the_epoch_asks_for_no_evidence() {
    let prepared = Prepared::new(site());
    prepared.fleet.workflow(FeedEvent::Disconnected);
    prepared.fleet.workflow(FeedEvent::Snapshot(vec![workflow(prepared.id, 6, true)]));
    assert!(prepared.request().is_ok());
    prepared.begin(7);
    assert_eq!(prepared.request(), Err(BootRefusal::Unseen), "this one it has watched");
}

#[test]
fn no_evidence_is_asked_for_where_another_server_answers_dhcp() {
    let dhcp = crate::site::Dhcp { port_67: false, ..site().dhcp };
    assert!(Prepared::new(Site { dhcp, ..site() }).request().is_ok());
}

#[test]
fn a_simulated_request_needs_no_evidence() {
    let prepared = Prepared::new(site());
    let request = ScriptRequest::new(Some(MAC), at("192.0.2.10"));
    assert!(prepared.boots.simulate(&request, now()).is_ok());
    assert_eq!(prepared.request(), Err(BootRefusal::Unseen));
}

#[test]
fn the_token_in_a_script_names_the_boot_epoch() {
    let prepared = Prepared::new(site());
    prepared.exchange(true);
    let script = prepared.request().unwrap();
    let mut words = script.text.split_whitespace();
    let token = words.find_map(|word| word.strip_prefix("boot_token=")).unwrap();
    let purpose = runtime::boot_token::Purpose::Identity;
    let opened = prepared.boots.tokens.open(purpose, token, now()).unwrap();
    assert_eq!(opened.claims.boot_epoch, 5);
}

/// A node in boot epoch 0, whose feeds are live.
fn node(site: Site) -> Prepared {
    let id = HardwareId::new();
    let boots = boots_at(id, site);
    let fleet = fleet_of(&boots);
    fleet.workflow(FeedEvent::Snapshot(vec![]));
    let stack = occ::ImageStack { stack_id: "compute".into() };
    let instance = occ::Instance {
        id: "i".into(),
        hardware_id: id.to_string(),
        os: Some(occ::instance::Os::ImageStack(stack)),
        state: occ::State::Active.into(),
        ..occ::Instance::default()
    };
    fleet.instance(FeedEvent::Put(instance));
    Prepared { boots, fleet, id }
}

/// The token of the script's boot of a node.
fn node_token(boots: &BootScripts, script: &Script) -> Claims {
    let token = argument(&script.text, "boot_token");
    assert!(boots.tokens.open(Purpose::Identity, token, now()).is_err());
    boots.tokens.open(Purpose::Node, token, now()).unwrap().claims
}

#[test]
fn a_node_gets_its_script_once_for_each_boot_that_was_seen() {
    let node = node(site());
    assert_eq!(node.request(), Err(BootRefusal::Unseen));
    for _boot in 0..3 {
        node.exchange(false);
        assert_eq!(node.request(), Err(BootRefusal::Unseen), "no loader");
        node.exchange(true);
        let script = node.request().unwrap();
        assert_eq!(script.kind, ScriptKind::Node);
        assert!(script.text.contains("/vmlinuz-node-x86_64 "), "{}", script.text);
        assert!(script.text.contains("/initramfs-node-x86_64 "), "{}", script.text);
        let claims = node_token(&node.boots, &script);
        assert_eq!((claims.hardware, claims.address), (node.id, at("192.0.2.10")));
        // The loader may repeat it until it starts the kernel.
        assert!(node.request().is_ok());
        let boot = script.text.split_once("/v1/boot/").unwrap().1.split_whitespace().next();
        let started = fetch(&node.boots, boot.unwrap(), "started", at("192.0.2.10"), now()).0;
        assert!(started.is_ok(), "{started:?}");
        assert_eq!(node.request(), Err(BootRefusal::Unseen), "a container asks");
    }
}

#[test]
fn a_system_that_asks_dhcp_ends_the_loading_of_a_node_whose_loader_did_not_report() {
    let node = node(site());
    node.exchange(true);
    assert!(node.request().is_ok());
    node.boots.history.end_loading(node.id);
    assert_eq!(node.request(), Err(BootRefusal::Unseen));
}

#[test]
fn a_node_gets_its_script_unseen_where_another_server_answers_dhcp() {
    let dhcp = crate::site::Dhcp { port_67: false, ..site().dhcp };
    let node = node(Site { dhcp, ..site() });
    assert_eq!(node.request().unwrap().kind, ScriptKind::Node);
}

#[test]
fn a_node_behind_another_address_gets_no_identity() {
    let serving =
        crate::site::Serving { mac_only: vec!["192.0.2.0/24".parse().unwrap()], ..site().serving };
    let node = node(Site { serving, ..site() });
    let script = node.request().unwrap();
    assert!(!script.text.contains("boot_token="), "{}", script.text);
}
