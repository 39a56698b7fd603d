//! Steps that wait while their machine is in maintenance.

use super::*;

#[test]
fn the_limits_of_preparing_and_post_are_extended_at_most_once_a_minute() {
    let post = preparing().does(Event::Cancel, 1);
    for waiting in [preparing(), post] {
        assert_eq!(waiting.deadline(), Some(at(1 + 30 * 60)));
        assert_eq!(waiting.clone().does(Event::Suspend, 60), waiting);
        let extended = waiting.clone().does(Event::Suspend, 61);
        assert_eq!(extended.deadline(), Some(at(61 + 30 * 60)));
        let late = waiting.does(Event::Suspend, 3 * 60 * 60);
        assert_eq!(late.state.name(), extended.state.name());
        assert_eq!(late.deadline(), Some(at((3 * 60 + 30) * 60)));
    }
}

#[test]
fn other_states_do_not_change() {
    for workflow in [two_steps(), two_steps().started(), two_steps().does(Event::Cancel, 1)] {
        assert_eq!(workflow.clone().does(Event::Suspend, 1 << 20), workflow);
    }
}

#[test]
fn a_request_leases_nothing_and_detects_a_restart() {
    let request = |boot: &str, running: Option<&str>| Event::RequestWhileSuspended {
        holder: holder(boot, "p2"),
        running: running.map(LeaseId::from),
    };
    let waiting = two_steps().does(request("b1", None), 1);
    assert_eq!((waiting.actions, waiting.state), (two_steps().actions, two_steps().state));
    let goes_on = two_steps().started().does(request("b1", Some("l1")), 11);
    assert_eq!(goes_on.lease().map(|lease| lease.id.clone()), Some("l1".into()));
    let after_loss = AfterLoss::Retry;
    let started = workflow(vec![Step { after_loss, ..step("one") }, step("two")]).started();
    let rebooted = started.does(request("b2", None), 100);
    assert_eq!((rebooted.lease(), rebooted.actions[0].lost), (None, 1));
}

#[test]
fn a_worker_is_awaited_from_the_end_of_the_maintenance() {
    let two = || vec![step("one"), step("two")];
    let prepared = Workflow::new(PREPARES, two(), at(0)).does(Event::BeginTurn, 1);
    let prepared = prepared.does(Event::Prepared, 5);
    let between = prepared.clone().runs("l1", ActionEnd::Success, 10);
    for awaiting in [prepared, between] {
        let suspended = awaiting.clone().does(Event::Suspend, 1800);
        assert!(awaiting.is_worker_overdue(at(1810)) && !suspended.is_worker_overdue(at(1810)));
        assert_eq!(suspended.deadline(), Some(at(1800 + 1800)));
        let leased = suspended.does(request("b1", "p1", None, "l2"), 1800);
        assert!(leased.lease().is_some());
    }
}
