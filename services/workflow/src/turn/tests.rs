//! The order of a queue.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn id(number: u8) -> WorkflowId {
    WorkflowId::from_bytes([number; 16])
}

fn entry(number: u8, created: u64, active: bool) -> QueueEntry {
    let created = SystemTime::UNIX_EPOCH + Duration::from_secs(created);
    let state = if active { QueueState::Active } else { QueueState::Waiting };
    QueueEntry { id: id(number), created, state }
}

fn behind(blocker: u8, ahead: usize) -> Turn {
    Turn::Behind { blocker: id(blocker), ahead }
}

/// The turn of each entry, in order.
fn turns(queue: &[QueueEntry]) -> Vec<Turn> {
    queue.iter().map(|entry| turn(entry, queue.iter())).collect()
}

#[test]
fn the_oldest_workflow_comes_first() {
    let queue = [entry(2, 2, false), entry(1, 1, false), entry(3, 2, false)];
    assert_eq!(turns(&queue), [behind(1, 1), Turn::Now, behind(1, 2)]);
}

#[test]
fn an_active_workflow_blocks_the_others_and_is_the_one_named() {
    let queue = [entry(1, 1, false), entry(2, 2, false), entry(9, 9, true)];
    assert_eq!(turns(&queue), [behind(9, 1), behind(9, 2), Turn::Holding]);
}

#[test]
fn a_workflow_that_is_held_back_is_passed_over_and_keeps_its_place() {
    let held_back = QueueEntry { state: QueueState::HeldBack, ..entry(1, 1, false) };
    let queue = [held_back, entry(2, 2, false), entry(3, 3, false)];
    assert_eq!(turns(&queue), [Turn::HeldBack, Turn::Now, behind(2, 1)]);
    let released = [entry(1, 1, false), entry(2, 2, false), entry(3, 3, false)];
    assert_eq!(turns(&released), [Turn::Now, behind(1, 1), behind(1, 2)]);
}

/// A queue with at most one active workflow.
fn any_queue() -> impl Strategy<Value = Vec<QueueEntry>> {
    let entries = prop::collection::vec(0_u64..4, 0..10);
    (entries, prop::option::of(0_usize..10)).prop_map(|(created, active)| {
        let entries = created.into_iter().zip(1_u8..).enumerate();
        entries.map(|(place, (created, id))| entry(id, created, active == Some(place))).collect()
    })
}

proptest! {
    #[test]
    fn one_workflow_may_use_the_machine(queue in any_queue()) {
        let turns = turns(&queue);
        let may_use = turns.iter().filter(|turn| matches!(turn, Turn::Now | Turn::Holding));
        prop_assert_eq!(may_use.count(), usize::from(!queue.is_empty()));
    }

    #[test]
    fn the_blocker_is_the_one_that_may_use_the_machine(queue in any_queue()) {
        for entry in &queue {
            let Turn::Behind { blocker, ahead } = turn(entry, queue.iter()) else { continue };
            let blocker = queue.iter().find(|it| it.id == blocker).unwrap();
            prop_assert!(matches!(turn(blocker, queue.iter()), Turn::Now | Turn::Holding));
            prop_assert!((1..queue.len()).contains(&ahead));
        }
    }
}
