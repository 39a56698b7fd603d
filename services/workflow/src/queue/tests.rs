//! Queues that are fed by hand.

use super::*;
use pb::WorkflowState as State;

const M: HardwareId = HardwareId::from_bytes([7; 16]);

fn id(letter: char) -> WorkflowId {
    WorkflowId::from_bytes([letter as u8; 16])
}

fn ids(letters: &[char]) -> Vec<WorkflowId> {
    letters.iter().map(|letter| id(*letter)).collect()
}

fn record(letter: char, state: State) -> pb::Workflow {
    let now = Some(prost_types::Timestamp { seconds: 1_000_000, nanos: 0 });
    let options =
        pb::BootOptions { mode: pb::boot_options::Mode::Netboot.into(), power_off_after: false };
    pb::Workflow {
        id: id(letter).to_string(),
        hardware_id: M.to_string(),
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

#[test]
fn the_first_in_line_is_reconciled_and_the_next_when_it_has_ended() {
    let queues = MachineQueues::default();
    assert_eq!(queues.put(&record('a', State::Pending)), ids(&['a']));
    assert_eq!(queues.put(&record('b', State::Pending)), ids(&['a']));
    assert_eq!(queues.put(&record('a', State::Running)), ids(&[]), "its worker does the rest");
    assert_eq!(queues.turn(id('b')), Some(Turn::Behind { blocker: id('a'), ahead: 1 }));
    assert_eq!(queues.put(&record('a', State::Post)), ids(&['a']));
    assert_eq!(queues.put(&record('a', State::Success)), ids(&['b']));
    assert_eq!(queues.delete(&id('a').to_string()), ids(&[]), "it had left the queue already");
    assert_eq!(queues.first(M), Some(id('b')));
}

#[test]
fn a_change_wakes_the_subscribers_of_its_machine_only() {
    let queues = Arc::new(MachineQueues::default());
    let machine = |n: u16| {
        let [high, low] = n.to_be_bytes();
        HardwareId::from_bytes([high, low, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1])
    };
    let all: Vec<_> = (0..10_000).map(|n| queues.subscribe(machine(n))).collect();
    let hardware_id = machine(77).to_string();
    queues.put(&pb::Workflow { hardware_id, ..record('a', State::Pending) });
    let woken = |it: &&Subscription| it.changed.as_ref().unwrap().has_changed().unwrap();
    let woken: Vec<_> = all.iter().filter(woken).map(|it| it.machine).collect();
    assert_eq!(woken, [machine(77)]);
}

#[test]
fn dropped_subscriptions_leave_nothing_behind() {
    let queues = Arc::new(MachineQueues::default());
    let (first, second) = (queues.subscribe(M), queues.subscribe(M));
    drop(first);
    assert_eq!(queues.lock().subscribers.len(), 1);
    drop(second);
    assert_eq!(queues.lock().subscribers.len(), 0);
}

#[test]
fn a_deadline_is_due_once_until_its_workflow_changes() {
    let queues = MachineQueues::default();
    queues.put(&record('a', State::Preparing));
    let at = queues.next_deadline().unwrap();
    assert_eq!(queues.take_due(at - std::time::Duration::from_nanos(1)), ids(&[]));
    assert_eq!(queues.take_due(at), ids(&['a']));
    assert_eq!((queues.take_due(at), queues.next_deadline()), (ids(&[]), None));
    queues.put(&record('a', State::Post));
    assert_eq!(queues.next_deadline(), Some(at));
    queues.put(&record('a', State::Success));
    assert_eq!(queues.next_deadline(), None);
}

/// An ended workflow whose last action was in `boot`, at a second.
fn ended(letter: char, instance: &str, boot: &str, at: i64) -> pb::Workflow {
    let lease = Some(pb::Lease { boot_id: boot.into(), ..Default::default() });
    let action = pb::Action { lease, ..Default::default() };
    pb::Workflow {
        instance_id: instance.into(),
        boot_options: None,
        end_time: Some(prost_types::Timestamp { seconds: at, nanos: 0 }),
        actions: vec![action],
        ..record(letter, State::Success)
    }
}

fn idle(queues: &MachineQueues, boot: &str) -> IdleBoot {
    queues.set_history_complete(M);
    queues.idle_boot(M, &boot.into()).unwrap()
}

#[test]
fn the_history_of_a_machine_is_read_before_a_boot_gets_an_instruction() {
    let queues = MachineQueues::default();
    queues.put(&ended('b', "", "b2", 2));
    assert_eq!(queues.idle_boot(M, &"b3".into()), None);
    queues.put(&record('c', State::Pending));
    assert_eq!(queues.idle_boot(M, &"b3".into()), Some(IdleBoot::Wait), "work will follow");
    queues.put(&pb::Workflow { state: State::Cancelled.into(), ..ended('c', "", "", 1) });
    queues.add_ended(M, &ended('a', "i", "b1", 1));
    assert_eq!(idle(&queues, "b3"), IdleBoot::Unexpected(id('b')));
}

#[test]
fn a_workflow_that_is_not_put_again_has_ended() {
    let queues = MachineQueues::default();
    queues.put(&record('a', State::Pending));
    queues.put(&record('b', State::Pending));
    assert_eq!(queues.set_synced(), ids(&[]));
    queues.begin_again();
    queues.put(&record('b', State::Pending));
    assert_eq!(queues.set_synced(), ids(&['b']), "it is the first now");
    assert_eq!((queues.turn(id('a')), queues.first(M)), (None, Some(id('b'))));
    assert_eq!(queues.put(&ended('b', "i", "b1", 1)), ids(&[]));
    assert_eq!(queues.idle_boot(M, &"b1".into()), None, "the end of another is not known");
}

#[test]
fn after_an_installation_its_boot_reboots_and_another_boot_is_unexpected() {
    let queues = MachineQueues::default();
    assert_eq!(idle(&queues, "b1"), IdleBoot::Wait, "the disk is not known to be installed");
    queues.put(&ended('a', "i", "b1", 1));
    assert_eq!(idle(&queues, "b1"), IdleBoot::Reboot);
    assert_eq!(idle(&queues, "b2"), IdleBoot::Unexpected(id('a')));
    queues.put(&record('b', State::Pending));
    assert_eq!(idle(&queues, "b1"), IdleBoot::Wait);
}

#[test]
fn a_later_workflow_without_an_instance_leaves_the_disk_installed() {
    let queues = MachineQueues::default();
    queues.put(&ended('b', "", "b2", 2));
    queues.put(&ended('a', "i", "b1", 1));
    assert_eq!(idle(&queues, "b2"), IdleBoot::Wait, "another workflow may follow");
    assert_eq!(idle(&queues, "b3"), IdleBoot::Unexpected(id('b')));
}

#[test]
fn a_machine_that_is_not_installed_waits_for_work_in_every_boot() {
    let failed = pb::Workflow { state: State::Failed.into(), ..ended('b', "i", "b2", 2) };
    let options = Some(pb::BootOptions { power_off_after: true, ..Default::default() });
    let wiped = pb::Workflow { boot_options: options, ..ended('b', "i", "b2", 2) };
    let other = ended('b', "", "b2", 2);
    let wait = (IdleBoot::Wait, IdleBoot::Wait);
    for last in [failed, wiped] {
        let queues = MachineQueues::default();
        queues.put(&ended('a', "i", "b1", 1));
        queues.put(&last);
        assert_eq!((idle(&queues, "b2"), idle(&queues, "b3")), wait);
    }
    let queues = MachineQueues::default();
    queues.put(&other);
    assert_eq!((idle(&queues, "b2"), idle(&queues, "b3")), wait);
}

#[test]
fn a_worker_that_became_overdue_while_the_server_was_down_gets_half_a_minute_from_the_start() {
    let prepared = pb::Workflow { prepared: true, start_time: None, ..record('a', State::Pending) };
    let overdue =
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000) + WorkerTimeouts::DEFAULT.silent;
    let deadline_of = |start: SystemTime| {
        let queues = MachineQueues::new(WorkerTimeouts::DEFAULT, start);
        queues.put(&prepared);
        queues.next_deadline().unwrap()
    };
    let half_a_minute = Duration::from_secs(30);
    for down in [Duration::ZERO, Duration::from_secs(3600)] {
        assert_eq!(deadline_of(overdue + down), overdue + down + half_a_minute);
    }
    assert_eq!(deadline_of(overdue - half_a_minute), overdue, "the server was up all the time");
}
