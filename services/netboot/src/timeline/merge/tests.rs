//! Events that are one boot.
#![allow(clippy::unwrap_used)]

use tinwright::HardwareId;
use tinwright::netboot::v1::ScriptKind;

use super::super::open_boots::OpenBoots;
use tinwright::netboot::v1::BootEventKind as Kind;

use super::super::BootStep;
use super::*;
use crate::Mac;
use crate::decision::Fact;

const IPXE: ClientClass = ClientClass::Ipxe { http: true };

fn event(seconds: u64, what: BootStep) -> Event {
    Event {
        owner: BootOwner::Machine(HardwareId::from_bytes([1; 16])),
        mac: Mac([2, 0, 0, 0, 0, 1]),
        step: what,
        source: None,
        at: SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000 + seconds),
    }
}

fn script() -> BootStep {
    BootStep::script(ScriptKind::Worker, Fact::WorkflowWaits)
}

/// The boots that `events`, each at its second, make.
fn made(events: Vec<(u64, BootStep)>) -> Vec<pb::Boot> {
    let mut held = OpenBoots::default();
    for (at, what) in events {
        assert_eq!(held.add(event(at, what)), 0);
    }
    let batch = held.batch(usize::MAX).into_iter();
    let mut all: Vec<_> = batch.map(|waiting| waiting.record).collect();
    all.sort_by(|a, b| a.id.cmp(&b.id));
    all
}

fn uefi(from: u64) -> Vec<(u64, BootStep)> {
    vec![
        (from, BootStep::request(Kind::DhcpDiscover, ClientClass::Pxe)),
        (from + 1, BootStep::ack(ClientClass::Pxe, "file")),
        (from + 2, BootStep::new(Kind::BinaryServed, "snponly.efi")),
        (from + 3, BootStep::request(Kind::DhcpDiscover, IPXE)),
        (from + 3, BootStep::request(Kind::DhcpDiscover, IPXE)),
        (from + 4, BootStep::ack(IPXE, "file")),
        (from + 5, script()),
        (from + 6, BootStep::new(Kind::KernelServed, "vmlinuz")),
        (from + 7, BootStep::new(Kind::InitrdServed, "initramfs")),
        (from + 9, BootStep::new(Kind::Started, "")),
    ]
}

#[test]
fn firmware_loader_script_and_files_are_one_boot_and_a_repetition_is_counted() {
    let boots = made(uefi(0));
    assert_eq!(boots.len(), 1);
    let boot = &boots[0];
    assert_eq!(
        (boot.script(), boot.fact.as_str()),
        (ScriptKind::Worker, "its workflow waits for the worker")
    );
    assert_eq!(boot.events.len(), 9);
    assert_eq!((boot.events[3].count, boot.events[3].last_time.is_some()), (2, true));
}

#[test]
fn ipxe_that_loads_ours_is_one_boot() {
    let chained = |from| {
        let loader = [
            (from, BootStep::request(Kind::DhcpDiscover, IPXE)),
            (from + 1, BootStep::ack(IPXE, "file")),
            (from + 2, BootStep::new(Kind::BinaryServed, "undionly.kpxe")),
        ];
        let script = [
            (from + 3, BootStep::request(Kind::DhcpDiscover, IPXE)),
            (from + 4, BootStep::ack(IPXE, "file")),
            (from + 5, script()),
        ];
        [loader, script].concat()
    };
    assert_eq!(made(chained(0)).len(), 1);
    assert_eq!(made([chained(0), chained(60)].concat()).len(), 2);
}

#[test]
fn a_repeated_request_of_a_client_class_begins_another_boot() {
    assert_eq!(made([uefi(0), uefi(60)].concat()).len(), 2);
    // Sent to its disk, and started anew at once: there was no script to tell the boots apart.
    let sent_on = |at| {
        vec![
            (at, BootStep::request(Kind::DhcpDiscover, IPXE)),
            (at + 1, BootStep::ack(IPXE, "sent on")),
        ]
    };
    assert_eq!(made([sent_on(0), sent_on(30)].concat()).len(), 2);
    assert_eq!(made(vec![(0, script()), (5, script())]).len(), 2, "one script a boot");
    let silent = vec![
        (0, BootStep::request(Kind::DhcpDiscover, IPXE)),
        (301, BootStep::request(Kind::DhcpDiscover, IPXE)),
    ];
    assert_eq!(made(silent).len(), 2);
}

#[test]
fn a_request_repeated_within_a_second_is_the_same_boot() {
    let asked = |at| {
        vec![
            (at, BootStep::request(Kind::DhcpDiscover, ClientClass::Pxe)),
            (at, BootStep::ack(ClientClass::Pxe, "file")),
        ]
    };
    let boots = made((0..100).flat_map(|_| asked(0)).collect());
    let counts: Vec<_> = boots[0].events.iter().map(|event| event.count).collect();
    assert_eq!((boots.len(), counts), (1, vec![100, 100]));
    assert_eq!(made([asked(0), asked(1)].concat()).len(), 2);
}

#[test]
fn a_boot_without_a_script_has_the_reason_of_its_refusal() {
    let refused = |kind| {
        let step = BootStep::request(kind, ClientClass::Pxe);
        step.with_refusal(Some("no loader for architecture 12".into()))
    };
    let steps = || vec![(0, refused(Kind::DhcpDiscover)), (1, refused(Kind::DhcpAck))];
    let boot = &made(steps())[0];
    assert_eq!(boot.fact, "no loader for architecture 12");
    let details = boot.events.iter().map(|event| event.detail.as_str()).collect::<Vec<_>>();
    assert_eq!(details, ["PXE, refused: no loader for architecture 12"; 2]);
    let served = &made([steps(), vec![(2, script())]].concat())[0];
    assert_eq!(served.fact, "its workflow waits for the worker");
}

#[test]
fn a_late_phone_home_belongs_to_the_previous_boot() {
    let boots = made([uefi(0), vec![(3600, BootStep::new(Kind::PhoneHome, ""))]].concat());
    assert_eq!(boots.len(), 1);
    assert_eq!(boots[0].events.last().unwrap().kind(), pb::BootEventKind::PhoneHome);
}

#[test]
fn a_boot_keeps_64_events_and_counts_the_others() {
    let endless = |n: u64| BootStep::new(Kind::GateRefused, format!("for the {n}th time"));
    let boots = made((0..100).map(|n| (n, endless(n))).collect());
    assert_eq!((boots[0].events.len(), boots[0].events_left_out), (64, 36));
}
