//! Restarts of workers and machines: the table in `docs/reference/workflow-lifecycle.md`, row by row.

use super::*;

fn with(after_loss: AfterLoss) -> Workflow {
    workflow(vec![Step { after_loss, ..step("one") }, step("two")])
}

fn leaving() -> Workflow {
    two_steps().does(request("b1", "p1", None, "l1"), 10).does(leave("l1"), 10)
}

#[test]
fn the_same_process_continues() {
    let asked = two_steps().started().does(request("b1", "p1", None, "l2"), 50);
    assert_eq!(
        asked.lease().map(|lease| (lease.id.clone(), lease.expires)),
        Some(("l1".into(), at(140)))
    );
}

#[test]
fn a_restarted_worker_that_still_runs_the_action_continues() {
    let attached = two_steps().started().does(request("b1", "p2", Some("l1"), "l2"), 20);
    let lease = attached.lease().unwrap();
    assert_eq!((lease.id.clone(), lease.holder.clone()), ("l1".into(), holder("b1", "p2")));
}

#[test]
fn a_held_request_of_an_earlier_boot_takes_no_lease_from_the_next() {
    let started = with(AfterLoss::Fail).does(request("b2", "p2", None, "l1"), 10);
    let waiting = Event::RetryRequest { holder: holder("b1", "p1"), new_lease: "l2".into() };
    assert_eq!(started.clone().does(waiting.clone(), 20), started);
    let running = started.does(start("l1"), 10);
    assert_eq!(running.clone().does(waiting, 20), running);
}

#[test]
fn a_held_request_gets_the_next_action() {
    let idle = two_steps();
    let waiting = Event::RetryRequest { holder: holder("b1", "p1"), new_lease: "l2".into() };
    assert!(idle.does(waiting, 20).assigned(&holder("b1", "p1")).is_some());
}

#[test]
fn a_restarted_worker_may_report_a_result_from_its_journal() {
    let done = two_steps().started().does(report("l1", ActionEnd::Success), 20);
    assert!(done.does(request("b1", "p2", None, "l2"), 21).assigned(&holder("b1", "p2")).is_some());
}

#[test]
fn an_action_lost_by_a_restarted_worker_fails_unless_it_may_be_retried() {
    let lost = with(AfterLoss::Fail).started().does(request("b1", "p2", None, "l2"), 20);
    let reason = r#"action "one": lost: its worker restarted"#.to_owned();
    assert_eq!(lost.outcome(), Some(&WorkflowOutcome::Failed { reason }));
    let lost = with(AfterLoss::Retry).started().does(request("b1", "p2", None, "l2"), 20);
    assert_eq!(lost.actions[0].state, ActionState::Pending { not_before: Some(at(21)) });
}

#[test]
fn an_unexpected_reboot_loses_the_action_which_is_retried_if_it_may_be() {
    let lost = with(AfterLoss::Retry).started().does(request("b2", "p2", None, "l2"), 100);
    let again = lost.does(request("b2", "p2", None, "l2"), 101);
    assert_eq!(
        again.lease().map(|lease| (lease.id.clone(), lease.attempt)),
        Some(("l2".into(), 2))
    );
    let lost = with(AfterLoss::Fail).started().does(request("b2", "p2", None, "l2"), 100);
    assert_eq!(lost.state.name(), "post");
}

#[test]
fn a_worker_of_the_earlier_boot_cannot_report() {
    let lost = with(AfterLoss::Retry).started().does(request("b2", "p2", None, "l2"), 100);
    assert_eq!(
        lost.after(report("l1", ActionEnd::Success), at(101)),
        Err(EventRefused::Superseded("l1".into()))
    );
}

#[test]
fn an_action_is_not_retried_for_ever_after_losses() {
    let mut workflow = with(AfterLoss::Retry);
    for round in 0..u64::from(action::MAX_LOST_ATTEMPTS) {
        let (boot, lease) = (format!("b{round}"), format!("l{round}"));
        workflow = workflow
            .does(request(&boot, "p", None, &lease), round * 200 + 30)
            .does(start(&lease), round * 200 + 30);
        workflow =
            workflow.does(request(&format!("b{}", round + 1), "p", None, "x"), round * 200 + 130);
    }
    assert_eq!(workflow.state.name(), "post");
}

#[test]
fn an_expected_reboot_is_the_actions_success_and_the_next_one_is_leased() {
    let next = leaving().does(request("b2", "p2", None, "l2"), 60);
    assert_eq!(next.actions[0].result(), Some(ActionEnd::Success));
    assert_eq!(next.lease().map(|lease| lease.id.clone()), Some("l2".into()));
}

#[test]
fn an_action_that_expects_a_boot_succeeds_by_one_without_a_terminal_start() {
    let next = with(AfterLoss::ExpectBoot).started().does(request("b2", "p2", None, "l2"), 60);
    assert_eq!(next.actions[0].result(), Some(ActionEnd::Success));
    let lost = with(AfterLoss::ExpectBoot).started().does(request("b1", "p2", None, "l2"), 60);
    assert_eq!(lost.state.name(), "post");
}

#[test]
fn a_boot_report_is_a_terminal_actions_success() {
    let next = leaving().does(Event::Booted, 60);
    assert_eq!(next.actions[0].result(), Some(ActionEnd::Success));
}

#[test]
fn a_boot_report_before_the_action_is_terminal_is_ignored() {
    let running = two_steps().started();
    assert_eq!(running.clone().does(Event::Booted, 60), running);
}

#[test]
fn a_request_from_the_old_boot_is_a_failure() {
    for process in ["p1", "p2"] {
        let stayed = leaving().does(request("b1", process, None, "l2"), 60);
        let reason = r#"action "one": the machine did not leave its boot"#.to_owned();
        assert_eq!(stayed.outcome(), Some(&WorkflowOutcome::Failed { reason }));
    }
}

#[test]
fn an_action_may_become_terminal_while_it_runs() {
    let leaving = two_steps().started().does(leave("l1"), 30);
    assert!(
        matches!(leaving.actions[0].state, ActionState::Running { since, terminal: Some(left), .. }
        if since == at(10) && left == at(30))
    );
}
