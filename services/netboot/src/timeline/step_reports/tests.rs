//! Steps that are reported, and steps that are not.
#![allow(clippy::unwrap_used)]

use fleet::Fleet;
use runtime::feed::FeedEvent;
use tinwright::hardware::v1::{Hardware, Interface};
use tinwright::workflow::v1::Workflow;

use super::*;
use crate::Mac;
use crate::bootscripts::BootRefusal;

fn report(machine: HardwareId, text: &str) -> StepReport {
    StepReport { machine, text: text.into(), at: SystemTime::UNIX_EPOCH, is_refused: false }
}

fn event(owner: BootOwner, step: BootStep) -> Event {
    Event { owner, mac: Mac([2; 6]), step, source: None, at: SystemTime::UNIX_EPOCH }
}

#[test]
fn the_first_step_of_a_machine_is_reported_at_once_and_then_the_latest_every_thirty_seconds() {
    let (mut latest, [a, b]) = (LatestSteps::default(), [HardwareId::new(), HardwareId::new()]);
    let began = Clock::system().monotonic();
    let at = |seconds| began + Duration::from_secs(seconds);
    let mut steps = |machine, texts: &[&str], seconds| {
        for text in texts {
            latest.add(report(machine, text), at(seconds));
        }
        std::iter::from_fn(|| latest.take_due(at(seconds))).map(|it| it.text).collect::<Vec<_>>()
    };
    assert_eq!(steps(a, &["DHCP"], 0), ["DHCP"]);
    assert_eq!(steps(a, &["kernel", "initramfs"], 29), [""; 0]);
    assert_eq!(steps(b, &["DHCP"], 29), ["DHCP"], "another machine");
    assert_eq!(steps(a, &[], 30), ["initramfs"]);
    assert_eq!(steps(a, &[], 60), [""; 0]);
    assert_eq!(steps(a, &["started"], 61), ["started"]);
    assert_eq!(steps(b, &[], 91), [""; 0]);
    let refused = StepReport { is_refused: true, ..report(a, "") };
    for step in [report(a, "DHCP"), refused.clone(), report(a, "loader")] {
        latest.add(step, at(100));
    }
    let due: Vec<_> = std::iter::from_fn(|| latest.take_due(at(100))).collect();
    assert_eq!(due, [report(a, "loader"), refused], "a refused boot is beside the steps");
    assert!(latest.take_due(at(130)).is_none());
    assert!(latest.machines.is_empty() && latest.due.is_empty(), "{latest:?}");
}

#[test]
fn steps_of_a_machine_that_a_workflow_wants_are_reported() {
    let index = Arc::new(Index::default());
    let fleet = Fleet::new(vec![index.clone()]);
    let [wanted, other] = [HardwareId::new(), HardwareId::new()];
    let hardware = |id: HardwareId, last: u8| {
        let mac = Mac([2, 0, 0, 0, 0, last]).to_string();
        let interfaces = vec![Interface { mac, ..Interface::default() }];
        Hardware { id: id.to_string(), interfaces, ..Hardware::default() }
    };
    fleet.hardware(FeedEvent::Snapshot(vec![hardware(wanted, 1), hardware(other, 2)]));
    let (id, hardware_id) = ("w".into(), wanted.to_string());
    let workflow = Workflow { id, hardware_id, wants_machine: true, ..Workflow::default() };
    fleet.workflow(FeedEvent::Snapshot(vec![workflow]));
    let (observer, mut reports) = StepObserver::new(index);
    let kernel = || BootStep::new(Kind::KernelServed, "vmlinuz");
    for (owner, step) in [
        (BootOwner::Machine(wanted), BootStep::new(Kind::GateRefused, "closed")),
        (BootOwner::Machine(wanted), BootStep::refused(&BootRefusal::Unseen)),
        (BootOwner::Machine(other), BootStep::refused(&BootRefusal::Unseen)),
        (BootOwner::Machine(wanted), kernel()),
        (BootOwner::Machine(wanted), BootStep::new(Kind::Started, "")),
        (BootOwner::Machine(other), kernel()),
        (BootOwner::UnknownClient(Mac([2; 6])), kernel()),
    ] {
        observer.observe(&event(owner, step));
    }
    let sent: Vec<_> = std::iter::from_fn(|| reports.try_recv().ok()).collect();
    let refused = StepReport { is_refused: true, ..report(wanted, "") };
    assert_eq!(sent, [refused, report(wanted, "kernel: vmlinuz"), report(wanted, "started")]);
}
