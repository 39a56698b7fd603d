//! Leases, results and attempts.

use super::*;

#[test]
fn a_repeated_request_gets_the_same_lease() {
    let once = two_steps().does(request("b1", "p1", None, "l1"), 1);
    let twice = once.clone().does(request("b1", "p1", None, "l2"), 1);
    assert_eq!(twice, once);
}

#[test]
fn a_repeated_start_changes_nothing() {
    let started = two_steps().started();
    assert_eq!(started.clone().does(start("l1"), 10), started);
}

#[test]
fn a_lease_that_is_not_started_passes_to_the_next_caller_and_the_first_may_not_start() {
    let passed = two_steps()
        .does(request("b1", "p1", None, "l1"), 1)
        .does(request("b1", "p2", None, "l2"), 2);
    assert_eq!(
        passed.lease().map(|lease| (lease.id.clone(), lease.attempt)),
        Some(("l2".into(), 1))
    );
    assert_eq!(passed.after(start("l1"), at(3)), Err(EventRefused::Superseded("l1".into())));
}

#[test]
fn a_stale_lease_changes_nothing() {
    let started = two_steps().started();
    for event in [start("l0"), report("l0", ActionEnd::Success), Event::Renew("l0".into())] {
        assert_eq!(
            started.clone().after(event, at(11)),
            Err(EventRefused::Superseded("l0".into()))
        );
    }
}

#[test]
fn the_first_result_counts_and_may_be_repeated() {
    let done = two_steps().runs("l1", ActionEnd::Success, 1);
    assert_eq!(done.clone().does(report("l1", ActionEnd::Success), 2), done);
    assert_eq!(
        done.after(report("l1", failed("x")), at(2)),
        Err(EventRefused::Superseded("l1".into()))
    );
}

#[test]
fn a_result_repeated_after_the_end_is_accepted() {
    let ended =
        workflow(vec![step("one")]).runs("l1", ActionEnd::Success, 1).does(Event::PostDone, 2);
    assert_eq!(ended.clone().does(report("l1", ActionEnd::Success), 999), ended);
}

#[test]
fn a_failure_without_retries_ends_the_workflow_with_its_reason() {
    let post = two_steps().runs("l1", failed("exit code 1"), 1);
    let reason = r#"action "one": exit code 1"#.to_owned();
    assert_eq!(post.outcome(), Some(&WorkflowOutcome::Failed { reason }));
    let post = two_steps().runs("l1", ActionEnd::Timeout, 1);
    assert_eq!(post.outcome(), Some(&WorkflowOutcome::Timeout));
}

#[test]
fn a_failure_is_retried_after_a_backoff() {
    let workflow = workflow(vec![Step { retries: 1, ..step("one") }]);
    let failed_once = workflow.runs("l1", failed("x"), 10);
    let early = failed_once.does(request("b1", "p1", None, "l2"), 10);
    assert_eq!(early.actions[0].state, ActionState::Pending { not_before: Some(at(11)) });
    let again = early.does(request("b1", "p1", None, "l2"), 11);
    assert_eq!(again.lease().map(|lease| lease.attempt), Some(2));
    assert_eq!(again.does(report("l2", failed("y")), 12).state.name(), "post");
}

#[test]
fn a_result_of_an_earlier_attempt_is_superseded() {
    let workflow = workflow(vec![Step { retries: 1, ..step("one") }]).runs("l1", failed("x"), 10);
    let again = workflow.does(request("b1", "p1", None, "l2"), 11);
    assert_eq!(
        again.after(report("l1", ActionEnd::Success), at(12)),
        Err(EventRefused::Superseded("l1".into()))
    );
}

#[test]
fn a_background_action_is_done_when_it_starts() {
    let workflow = workflow(vec![Step { background: true, ..step("one") }, step("two")]);
    let begun = workflow.does(request("b1", "p1", None, "l1"), 1).does(start("l1"), 2);
    assert_eq!(begun.actions[0].result(), Some(ActionEnd::Success));
    assert_eq!(begun.current().map(|action| action.step.name.as_str()), Some("two"));
}

#[test]
fn a_renewal_extends_the_lease() {
    let started = two_steps().started();
    assert!(!started.is_silent(at(99)) && started.is_silent(at(100)));
    assert!(!started.does(Event::Renew("l1".into()), 60).is_silent(at(149)));
}
