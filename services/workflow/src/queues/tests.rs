//! Queues, fed by hand.

#![allow(clippy::unwrap_used)]

use super::*;
use pb::WorkflowState as State;

fn record(id: &str, machine: &str, state: State) -> pb::Workflow {
    let now = Some(prost_types::Timestamp { seconds: 1_000_000, nanos: 0 });
    let options =
        pb::BootOptions { mode: pb::boot_options::Mode::Netboot.into(), power_off_after: false };
    pb::Workflow {
        id: id.into(),
        hardware_id: machine.into(),
        state: state.into(),
        outcome: State::Success.into(),
        create_time: now,
        phase_time: now,
        end_time: now,
        start_time: now,
        boot_options: Some(options),
        ..Default::default()
    }
}

fn ids(ids: &[&str]) -> Vec<WorkflowId> {
    ids.iter().map(|id| WorkflowId::from(*id)).collect()
}

#[test]
fn the_first_in_line_is_looked_at_and_the_next_when_it_has_ended() {
    let queues = Queues::default();
    assert_eq!(queues.put(&record("a", "m", State::Pending)), ids(&["a"]));
    assert_eq!(queues.put(&record("b", "m", State::Pending)), ids(&["a"]));
    assert_eq!(queues.put(&record("a", "m", State::Running)), ids(&[]), "its worker does the rest");
    assert_eq!(queues.turn(&"b".into()), Some(Turn::Behind { blocker: "a".into(), ahead: 1 }));
    assert_eq!(queues.put(&record("a", "m", State::Post)), ids(&["a"]));
    assert_eq!(queues.put(&record("a", "m", State::Success)), ids(&["b"]));
    assert_eq!(queues.delete("a"), ids(&[]), "it was gone from here already");
    assert_eq!(queues.first(&"m".into()), Some("b".into()));
}

#[test]
fn a_change_wakes_who_waits_at_its_machine_and_nobody_else() {
    let queues = Arc::new(Queues::default());
    let waiters: Vec<_> =
        (0..10_000).map(|n| queues.wait(&n.to_string().as_str().into())).collect();
    queues.put(&record("a", "77", State::Pending));
    let awake = |waiter: &&Waiter| waiter.changed.as_ref().unwrap().has_changed().unwrap();
    let awake: Vec<_> =
        waiters.iter().filter(awake).map(|waiter| waiter.machine.0.as_str()).collect();
    assert_eq!(awake, ["77"]);
}

#[test]
fn who_has_left_is_not_remembered() {
    let queues = Arc::new(Queues::default());
    let (first, second) = (queues.wait(&"m".into()), queues.wait(&"m".into()));
    drop(first);
    assert_eq!(queues.lock().waiting.len(), 1);
    drop(second);
    assert_eq!(queues.lock().waiting.len(), 0);
}

#[test]
fn a_deadline_is_told_once_until_its_workflow_changes() {
    let queues = Queues::default();
    queues.put(&record("a", "m", State::Preparing));
    let at = queues.next_deadline().unwrap();
    assert_eq!(queues.take_due(at - std::time::Duration::from_nanos(1)), ids(&[]));
    assert_eq!(queues.take_due(at), ids(&["a"]));
    assert_eq!((queues.take_due(at), queues.next_deadline()), (ids(&[]), None));
    queues.put(&record("a", "m", State::Post));
    assert_eq!(queues.next_deadline(), Some(at));
    queues.put(&record("a", "m", State::Success));
    assert_eq!(queues.next_deadline(), None);
}

/// An ended workflow whose last action was in `boot`, at a second.
fn ended(id: &str, instance: &str, boot: &str, at: i64) -> pb::Workflow {
    let lease = Some(pb::Lease { boot_id: boot.into(), ..Default::default() });
    let action = pb::Action { lease, ..Default::default() };
    pb::Workflow {
        instance_id: instance.into(),
        boot_options: None,
        end_time: Some(prost_types::Timestamp { seconds: at, nanos: 0 }),
        actions: vec![action],
        ..record(id, "m", State::Success)
    }
}

fn idle(queues: &Queues, boot: &str) -> Idle {
    queues.idle(&"m".into(), &boot.into())
}

#[test]
fn the_boot_that_installed_leaves_and_another_strays_until_something_else_comes() {
    let queues = Queues::default();
    assert_eq!(idle(&queues, "b1"), Idle::Stays, "nothing is known of the disk");
    queues.put(&ended("a", "i", "b1", 1));
    assert_eq!(idle(&queues, "b1"), Idle::Leaves);
    assert_eq!(idle(&queues, "b2"), Idle::Strays("a".into()));
    queues.put(&record("b", "m", State::Pending));
    assert_eq!(idle(&queues, "b1"), Idle::Stays);
}

#[test]
fn what_is_done_to_an_installed_system_leaves_the_disk_its_turn() {
    let queues = Queues::default();
    queues.put(&ended("b", "", "b2", 2));
    queues.put(&ended("a", "i", "b1", 1));
    assert_eq!(idle(&queues, "b2"), Idle::Stays, "there may be more to do");
    assert_eq!(idle(&queues, "b3"), Idle::Strays("b".into()));
}

#[test]
fn a_machine_that_is_not_installed_waits_for_work_in_every_boot() {
    let failed = pb::Workflow { state: State::Failed.into(), ..ended("b", "i", "b2", 2) };
    let options = Some(pb::BootOptions { power_off_after: true, ..Default::default() });
    let wiped = pb::Workflow { boot_options: options, ..ended("b", "i", "b2", 2) };
    let other = ended("b", "", "b2", 2);
    for last in [failed, wiped] {
        let queues = Queues::default();
        queues.put(&ended("a", "i", "b1", 1));
        queues.put(&last);
        assert_eq!((idle(&queues, "b2"), idle(&queues, "b3")), (Idle::Stays, Idle::Stays));
    }
    let queues = Queues::default();
    queues.put(&other);
    assert_eq!((idle(&queues, "b2"), idle(&queues, "b3")), (Idle::Stays, Idle::Stays));
}
