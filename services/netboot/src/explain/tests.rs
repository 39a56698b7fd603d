//! Explanations of boots.
#![allow(clippy::unwrap_used)]

use crate::bootscripts::tests::fleet_of;
use fleet::Fleet;
use runtime::SiteKey;
use runtime::boot_token::BootTokens;
use runtime::feed::FeedEvent;
use std::sync::Arc;
use tinwright::HardwareId;
use tinwright::hardware::v1 as hw;
use tinwright::instance::v1 as occ;
use tinwright::workflow::v1::Workflow;

use dhcp::Link;

use super::*;
use crate::machine_view::Index;

mod allocation;
mod link_state;
mod relayed;

const MAC: Mac = Mac([0x52, 0x54, 0, 0, 0, 1]);

fn machine(id: HardwareId) -> hw::Hardware {
    let address =
        hw::Address { address: "192.0.2.10".into(), prefix_length: 24, gateway: String::new() };
    let interface = hw::Interface {
        mac: MAC.to_string(),
        dhcp: Some(hw::Dhcp { address: Some(address), ..hw::Dhcp::default() }),
        netboot: Some(hw::Netboot { allow_pxe: true, ..hw::Netboot::default() }),
        ..hw::Interface::default()
    };
    hw::Hardware {
        id: id.to_string(),
        name: "node-1".into(),
        architecture: "x86_64".into(),
        interfaces: vec![interface],
        state: hw::State::Provisionable.into(),
        ..hw::Hardware::default()
    }
}

/// A site with one machine, an instance on it, and a workflow that waits for it.
fn boots(id: HardwareId) -> BootScripts {
    let index = Arc::new(Index::default());
    let fleet = Fleet::new(vec![index.clone()]);
    fleet.hardware(FeedEvent::Snapshot(vec![machine(id)]));
    let instance = occ::Instance {
        id: "i".into(),
        hardware_id: id.to_string(),
        state: occ::State::Provisioning.into(),
        hostname: "web-1".into(),
        ..occ::Instance::default()
    };
    fleet.instance(FeedEvent::Snapshot(vec![instance]));
    let hardware_id = id.to_string();
    let workflow =
        Workflow { id: "w".into(), hardware_id, wants_machine: true, ..Workflow::default() };
    fleet.workflow(FeedEvent::Snapshot(vec![workflow]));
    let tokens = BootTokens::new(&SiteKey::new([1; 32])).unwrap();
    BootScripts::new(index, tokens, crate::bootscripts::tests::site())
}

fn link() -> Link {
    let mut link = Link::new([192, 0, 2, 1].into(), "http://192.0.2.1:7080");
    link.loaders.present = ["undionly.kpxe", "snponly.efi"].map(str::to_owned).into();
    link
}

fn asked(boots: &BootScripts, target: Target, class: pb::ClientClass) -> pb::ExplainBootResponse {
    let question = BootQuestion { target, class, architecture: None, relay: None };
    explain(&question, &at(boots, link()), &runtime::Clock::system())
}

/// The only link of the site of `boots`, where nothing was heard yet.
fn at(boots: &BootScripts, link: Link) -> View {
    View { scripts: Arc::new(boots.clone()), link: Arc::new(link), link_state: Arc::default() }
}

#[test]
fn a_machine_is_explained_by_id_mac_address_and_host_name() {
    let id = HardwareId::new();
    let boots = boots(id);
    let names = [
        Target::Hardware(id.to_string()),
        Target::Mac(MAC),
        Target::Address([192, 0, 2, 10].into()),
        Target::Hostname("Node-1".into()),
        Target::Hostname("web-1".into()),
    ];
    for name in names {
        let told = asked(&boots, name, pb::ClientClass::Ipxe);
        assert_eq!(
            (told.boot, told.fact.as_str()),
            (i32::from(pb::BootTarget::Worker), "its workflow waits for the worker")
        );
        let dhcp = told.dhcp.unwrap();
        assert_eq!((dhcp.r#type(), dhcp.address.as_str()), (Type::Offer, "192.0.2.10"));
        assert_eq!(dhcp.boot_file, "http://192.0.2.1:7080/52-54-00-00-00-01/auto.ipxe");
        let script = told.script.unwrap();
        assert_eq!((script.status, script.kind()), (200, pb::ScriptKind::Worker));
        let facts = told.inputs.unwrap();
        assert_eq!(facts.waiting_workflow_ids, ["w"]);
        assert_eq!(facts.instance_state(), tinwright::instance::v1::State::Provisioning);
        assert!(facts.feeds_live);
    }
}

#[test]
fn a_platforms_system_is_explained_with_its_gate_and_its_script() {
    let id = HardwareId::new();
    let boots = boots(id);
    fleet_of(&boots).workflow(FeedEvent::Snapshot(vec![]));
    let put = |open, mac: Mac| {
        let boot_url = "/platform/start.ipxe".into();
        let boot = occ::PlatformBoot { boot_url, ..occ::PlatformBoot::default() };
        let mac = mac.to_string();
        let gate = occ::BootGate { open, mac, ..occ::BootGate::default() };
        fleet_of(&boots).instance(FeedEvent::Snapshot(vec![occ::Instance {
            id: "i".into(),
            hardware_id: id.to_string(),
            state: occ::State::Active.into(),
            os: Some(occ::instance::Os::Platform(boot)),
            boot_gate: Some(gate),
            ..occ::Instance::default()
        }]));
        asked(&boots, Target::Mac(MAC), pb::ClientClass::Ipxe)
    };
    let open = put(true, MAC);
    let fact = "its instance's system is loaded from its platform";
    assert_eq!((open.boot, &*open.fact), (pb::BootTarget::CustomScript.into(), fact));
    let (inputs, script) = (open.inputs.unwrap(), open.script.unwrap());
    assert_eq!(inputs.gate(), pb::decision_inputs::Gate::Open);
    let source = Some(pb::custom_script::Source::Url("/platform/start.ipxe".into()));
    assert_eq!(inputs.instance_script.unwrap().source, source);
    assert_eq!((script.status, script.kind()), (200, pb::ScriptKind::Custom));
    let other = put(true, Mac([2; 6])).script.unwrap();
    let rule = "not for you: the platform allows another Ethernet address";
    assert_eq!((other.status, &*other.refusal), (403, rule));
    let closed = put(false, MAC);
    let fact = "the boot gate of its platform's system is closed";
    assert_eq!((closed.boot, &*closed.fact), (pb::BootTarget::Refused.into(), fact));
    assert_eq!((closed.script.unwrap().status, closed.dhcp.unwrap().boot_offered), (403, false));
}

#[test]
fn a_disconnected_feed_is_named_and_decides() {
    let id = HardwareId::new();
    let boots = boots(id);
    fleet_of(&boots).workflow(FeedEvent::Disconnected);
    let told = asked(&boots, Target::Mac(MAC), pb::ClientClass::Ipxe);
    assert_eq!((told.boot, told.script.unwrap().status), (i32::from(pb::BootTarget::Later), 503));
    assert_eq!(told.inputs.unwrap().cut_feeds, ["workflow"]);
}

#[test]
fn firmware_gets_its_loader_and_an_installed_machine_boots_its_disk() {
    let id = HardwareId::new();
    let boots = boots(id);
    let pxe = asked(&boots, Target::Mac(MAC), pb::ClientClass::Pxe).dhcp.unwrap();
    assert_eq!((pxe.boot_file.as_str(), pxe.next_server.as_str()), ("snponly.efi", "192.0.2.1"));
    fleet_of(&boots).workflow(FeedEvent::Snapshot(vec![]));
    let pxe = asked(&boots, Target::Mac(MAC), pb::ClientClass::Pxe);
    assert_eq!(pxe.boot, i32::from(pb::BootTarget::LocalDisk));
    let dhcp = pxe.dhcp.unwrap();
    assert_eq!((dhcp.boot_file.as_str(), dhcp.boot_offered), (dhcp::REFUSED_FILE, false));
    assert_eq!(dhcp.boot_refusal, pxe.fact);
}

#[test]
fn firmware_is_explained_with_the_architecture_that_it_named_last() {
    let boots = boots(HardwareId::new());
    let machine = boots.index.by_mac(MAC).unwrap();
    let firmware = || asked(&boots, Target::Mac(MAC), pb::ClientClass::Pxe).dhcp.unwrap();
    let seen = |vendor_class: &str| {
        let mut packet = dhcp::Packet::request(MessageType::Discover, MAC.0);
        packet.options.set(code::VENDOR_CLASS, vendor_class);
        let request = Request::new(packet.clone(), request::received(&packet), &link()).unwrap();
        boots.history.record_firmware(&machine, &request);
    };
    seen("PXEClient:Arch:00000:UNDI:002001");
    assert_eq!(firmware().boot_file, "undionly.kpxe");
    seen("PXEClient:Arch:00012:UNDI:003016");
    let refused = firmware();
    assert_eq!((refused.boot_file.as_str(), refused.boot_offered), (dhcp::REFUSED_FILE, false));
    assert_eq!(refused.boot_refusal, "no loader for architecture 12");
    assert_eq!(refused.no_loader, [12]);
    seen("HTTPClient:Arch:00019:UNDI:003001");
    assert_eq!(firmware().boot_file, "snponly.efi", "its last firmware is of another class");
    let http = asked(&boots, Target::Mac(MAC), pb::ClientClass::Http).dhcp.unwrap();
    let reason = "no loader for architecture 19: the site has no file ipxe-arm64.efi";
    assert_eq!(http.boot_refusal, reason);
}

#[test]
fn a_client_that_does_not_boot_is_offered_no_boot_and_refused_none() {
    let id = HardwareId::new();
    let boots = boots(id);
    let ordinary = || {
        let told = asked(&boots, Target::Mac(MAC), pb::ClientClass::Ordinary);
        let dhcp = told.dhcp.unwrap();
        assert_eq!((dhcp.boot_offered, dhcp.boot_refusal.as_str()), (false, ""));
        told.boot
    };
    assert_eq!(ordinary(), i32::from(pb::BootTarget::Worker));
    fleet_of(&boots).workflow(FeedEvent::Snapshot(vec![]));
    fleet_of(&boots).instance(FeedEvent::Snapshot(vec![occ::Instance {
        id: "i".into(),
        hardware_id: id.to_string(),
        state: occ::State::Active.into(),
        os: Some(occ::instance::Os::OperatingSystem(Default::default())),
        ..occ::Instance::default()
    }]));
    assert_eq!(ordinary(), i32::from(pb::BootTarget::LocalDisk));
}

#[test]
fn a_client_without_a_record_gets_no_dhcp_reply_and_404() {
    let told = asked(&boots(HardwareId::new()), Target::Mac(Mac([2; 6])), pb::ClientClass::Pxe);
    assert_eq!(told.boot, i32::from(pb::BootTarget::Unknown));
    assert_eq!(told.dhcp.unwrap().drop_reason, "no record of this machine");
    assert_eq!(told.script.unwrap().status, 404);
}
