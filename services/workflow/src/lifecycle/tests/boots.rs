//! Two boots of one machine.

use super::*;
use crate::lifecycle::boots::{Boots, SeenBoot};

fn prepared() -> Workflow {
    let retried = Step { after_loss: AfterLoss::Retry, ..step("one") };
    let preparing = Workflow::new(PREPARES, vec![retried, step("two")], at(0));
    preparing
        .does(Event::BeginTurn, 1)
        .does(Event::PoweredOff { epoch: 7 }, 2)
        .does(Event::Prepared, 3)
}

fn of_epoch(epoch: u64, boot: &str, lease: &str) -> Event {
    let holder = Holder { epoch, ..holder(boot, "p") };
    Event::RequestAction { holder, running: None, new_lease: lease.into() }
}

fn started() -> Workflow {
    prepared().does(of_epoch(7, "b1", "l1"), 10).does(start("l1"), 10)
}

/// After boot `b2` called ten seconds after boot `b1`.
fn waiting() -> Workflow {
    let started = started();
    let waiting = started.clone().does(of_epoch(7, "b2", "l2"), 20);
    assert_eq!(waiting.actions, started.actions);
    waiting
}

#[test]
fn a_boot_epoch_begins_once_in_each_preparation_and_only_its_workers_get_a_lease() {
    let prepared = prepared();
    assert_eq!(prepared.boot_epoch, 7);
    assert_eq!(prepared.clone().does(Event::PoweredOff { epoch: 8 }, 4), prepared);
    for epoch in [0, 6, 8] {
        let refused = EventRefused::OtherEpoch { held: epoch, present: 7 };
        assert_eq!(
            prepared.clone().after(of_epoch(epoch, "b1", "l1"), at(5)),
            Err(refused.clone())
        );
        let held = Holder { epoch, ..holder("b1", "p") };
        let held = Event::RetryRequest { holder: held, new_lease: "l1".into() };
        assert_eq!(prepared.clone().after(held, at(5)), Err(refused));
    }
    let due = prepared.deadline().unwrap();
    let again = prepared.after(Event::Tick, due).unwrap();
    assert_eq!((again.state.name().as_str(), again.boot_epoch), ("preparing", 0));
}

#[test]
fn a_machine_that_is_booted_by_hand_may_be_in_a_newer_boot_epoch_and_not_in_an_older_one() {
    let begun = two_steps().does(of_epoch(3, "b1", "l1"), 10);
    assert_eq!(begun.boot_epoch, 3);
    let newer = begun.clone().does(of_epoch(4, "b1", "l2"), 20).does(of_epoch(4, "b1", "l2"), 21);
    assert_eq!(newer.boot_epoch, 4);
    assert!(newer.after(of_epoch(3, "b1", "l3"), at(22)).is_err());
}

#[test]
fn a_second_boot_waits_until_the_first_is_silent_for_ninety_seconds_and_takes_over_then() {
    let waiting = waiting().does(of_epoch(7, "b2", "l2"), 99);
    assert_eq!(waiting.lease().unwrap().id, "l1".into());
    let next = waiting.does(of_epoch(7, "b2", "l2"), 100);
    assert_eq!((next.lease(), next.actions[0].lost), (None, 1));
    let next = next.does(of_epoch(7, "b2", "l2"), 101);
    assert_eq!(next.lease().unwrap().holder.boot, "b2".into());
}

#[test]
fn two_boots_that_call_at_once_are_both_refused_whatever_the_first_calls() {
    let calls = [
        of_epoch(7, "b1", "l3"),
        Event::Renew("l1".into()),
        start("l1"),
        report("l1", ActionEnd::Success),
    ];
    for call in calls {
        let conflict = waiting().does(call, 30);
        assert_eq!(conflict.boots.conflict, Some(at(30)));
        assert_eq!(conflict.actions, waiting().actions, "the call has no effect");
        for refused in [of_epoch(7, "b1", "l3"), of_epoch(7, "b2", "l3"), of_epoch(7, "b3", "l3")] {
            assert_eq!(conflict.clone().after(refused, at(500)), Err(EventRefused::TwoBoots));
        }
        let result = conflict.clone().after(report("l1", ActionEnd::Success), at(500));
        assert_eq!(result, Err(EventRefused::TwoBoots));
        assert_eq!(conflict.deadline(), None, "it waits for an operator");
    }
}

#[test]
fn a_second_boot_that_fell_silent_is_no_conflict() {
    let alone = waiting().does(Event::Renew("l1".into()), 110);
    let current = Some(SeenBoot { id: "b1".into(), at: at(110) });
    assert_eq!(alone.boots, Boots { current, ..Boots::default() });
}

#[test]
fn a_new_boot_after_a_preparation_or_an_expected_reboot_takes_over_at_once() {
    let due = prepared().does(of_epoch(7, "b1", "l1"), 10).deadline().unwrap();
    let again = prepared().does(of_epoch(7, "b1", "l1"), 10).after(Event::Tick, due).unwrap();
    assert_eq!(again.boots, Boots::default());
    let leaving = prepared().does(of_epoch(7, "b1", "l1"), 10).does(leave("l1"), 10);
    for next in [leaving.clone(), leaving.does(Event::Booted, 15)] {
        let next = next.does(of_epoch(7, "b2", "l2"), 20);
        assert_eq!(next.actions[0].result(), Some(ActionEnd::Success));
        assert_eq!(next.lease().unwrap().holder.boot, "b2".into());
    }
}

#[test]
fn after_a_confirmed_restart_only_workers_of_the_new_boot_epoch_are_admitted() {
    let conflict = waiting().does(Event::Renew("l1".into()), 30);
    let confirmed = conflict.does(Event::RestartConfirmed { epoch: 8 }, 5000);
    assert_eq!((confirmed.boots.clone(), confirmed.boot_epoch), (Boots::default(), 8));
    assert_eq!((confirmed.lease(), confirmed.actions[0].lost), (None, 1));
    assert!(confirmed.clone().after(of_epoch(7, "b1", "l3"), at(5001)).is_err());
    assert!(confirmed.deadline().is_some_and(|due| due >= at(5000 + 30 * 60)));
    let next = confirmed.does(of_epoch(8, "b3", "l3"), 5010);
    assert_eq!(next.lease().unwrap().holder.boot, "b3".into());
}
