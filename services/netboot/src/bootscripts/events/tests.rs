//! Timeline events of scripts, files and phone-home calls.
#![allow(clippy::unwrap_used)]

use fleet::Fleet;
use runtime::feed::FeedEvent;
use tinwright::HardwareId;
use tinwright::instance::v1::Instance;

use tinwright::netboot::v1::BootEventKind as Kind;

use super::*;
use crate::bootscripts::ScriptRequest;
use crate::bootscripts::tests::{MAC, at, boots, hardware, now};
use crate::decision::Fact;
use tinwright::netboot::v1::ScriptKind;

use crate::timeline::{Queue, Timeline};

fn site(id: HardwareId) -> (BootScripts, Arc<Queue>) {
    let timeline = Timeline::default();
    let boots = BootScripts { timeline: timeline.clone(), ..boots(id) };
    (boots, timeline.queue)
}

#[test]
fn a_script_is_recorded_with_the_fact_that_decided_and_a_refusal_with_its_reason() {
    let id = HardwareId::new();
    let (boots, events) = site(id);
    boots.serve(&ScriptRequest::new(Some(MAC), at("192.0.2.10")), now()).unwrap();
    let event = events.next().unwrap();
    assert_eq!((event.owner, event.mac), (BootOwner::Machine(id), MAC));
    let fact = Fact::WorkflowWaits;
    assert_eq!(event.step, BootStep::script(ScriptKind::Worker, fact));
    boots.serve(&ScriptRequest::new(Some(MAC), at("192.0.2.99")), now()).unwrap_err();
    let event = events.next().unwrap();
    assert_eq!(event.step.kind, tinwright::netboot::v1::BootEventKind::GateRefused);
    assert_eq!(event.source, Some(at("192.0.2.99")));
    assert!(boots.simulate(&ScriptRequest::new(Some(MAC), at("192.0.2.10")), now()).is_ok());
    assert!(events.next().is_none(), "a simulated request has no event");
}

#[test]
fn kernel_and_initrd_are_distinguished_and_a_missing_file_is_a_failure() {
    let (boots, events) = site(HardwareId::new());
    let record = |name, missing| boots.record_file(at("192.0.2.10"), name, missing, now());
    record("vmlinuz-x86_64", None);
    record("initramfs-x86_64", None);
    record("initramfs-x86_64", Some("404 Not Found"));
    let next = || events.next().unwrap().step;
    assert_eq!(next(), BootStep::new(Kind::KernelServed, "vmlinuz-x86_64"));
    assert_eq!(next(), BootStep::new(Kind::InitrdServed, "initramfs-x86_64"));
    assert_eq!(next(), BootStep::new(Kind::Failed, "initramfs-x86_64: 404 Not Found"));
}

#[test]
fn a_phone_home_call_is_recorded_once() {
    let id = HardwareId::new();
    let (boots, events) = site(id);
    let fleet = Fleet::new(vec![boots.index.clone(), Arc::new(boots.clone())]);
    fleet.hardware(FeedEvent::Snapshot(vec![hardware(id, MAC, "192.0.2.10")]));
    let instance = Instance { id: "i".into(), hardware_id: id.to_string(), ..Instance::default() };
    fleet.instance(FeedEvent::Snapshot(vec![instance.clone()]));
    let instance = Instance { phone_home_time: Some(now().into()), ..instance };
    for _ in 0..2 {
        fleet.instance(FeedEvent::Put(instance.clone()));
    }
    assert_eq!(events.next().unwrap().step, BootStep::new(Kind::PhoneHome, ""));
    assert!(events.next().is_none());
}

#[test]
fn a_loader_is_recorded_only_for_a_machine_with_a_record() {
    let (boots, events) = site(HardwareId::new());
    let finished = |name: &str, client: [u8; 4], result| FinishedRequest {
        client: std::net::SocketAddrV4::new(client.into(), 2000),
        file: RequestedFile::parse(name.as_bytes()).ok(),
        result,
        acknowledged_bytes: 0,
    };
    let complete = RequestResult::Transfer(TransferOutcome::Complete);
    boots.record_transfer(&finished("snponly.efi", [192, 0, 2, 99], complete), now());
    boots.record_transfer(
        &finished("netboot-not-allowed", [192, 0, 2, 10], RequestResult::Refused(1)),
        now(),
    );
    boots.record_transfer(&finished("snponly.efi", [192, 0, 2, 10], complete), now());
    boots.record_transfer(&finished("x.efi", [192, 0, 2, 10], RequestResult::Refused(1)), now());
    let next = || events.next().unwrap().step;
    assert_eq!(next(), BootStep::new(Kind::BinaryServed, "snponly.efi"));
    assert_eq!(next(), BootStep::new(Kind::Failed, "x.efi by TFTP: refused"));
    assert!(events.next().is_none());
}
