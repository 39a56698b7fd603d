//! Workflows that their creator holds back.

use super::*;

fn held_back() -> Workflow {
    Workflow::new(PREPARES, vec![step("one")], at(0)).held_back(at(0))
}

#[test]
fn a_workflow_that_is_held_back_has_neither_a_turn_nor_an_action() {
    let held = held_back();
    for event in [
        Event::BeginTurn,
        request("b1", "p1", None, "l1"),
        Event::Booted,
        Event::Suspend,
        Event::Tick,
    ] {
        assert_eq!(held.clone().does(event, 1), held);
    }
    for event in [Event::Prepared, Event::PostDone] {
        assert!(held.clone().after(event, at(1)).is_err());
    }
    assert_eq!((queue_state(&held), held.wants_machine()), (QueueState::HeldBack, false));
}

#[test]
fn a_released_workflow_waits_for_its_turn_and_a_later_release_changes_nothing() {
    let released = held_back().does(Event::Release, 1);
    assert_eq!(released, Workflow::new(PREPARES, vec![step("one")], at(0)));
    let preparing = released.does(Event::BeginTurn, 2);
    assert_eq!(preparing.clone().does(Event::Release, 3), preparing);
    let cancelled = held_back().does(Event::Cancel, 1);
    assert_eq!(cancelled.outcome(), Some(&WorkflowOutcome::CANCELLED));
    assert_eq!(cancelled.clone().does(Event::Release, 2), cancelled);
}

#[test]
fn a_workflow_that_is_not_released_within_ten_minutes_is_cancelled_without_post() {
    let (before, after) = deadlines::around(&held_back(), 600);
    assert_eq!(before, held_back());
    let reason = "its creator did not release it within 10 minutes".to_owned();
    let outcome = WorkflowOutcome::Cancelled { reason };
    assert_eq!(after.state, State::Ended { at: at(600), outcome, warning: None });
    assert_eq!(after.clone().does(Event::Cancel, 601), after);
}
