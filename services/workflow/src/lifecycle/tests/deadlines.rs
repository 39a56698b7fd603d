//! Time limits.

use super::*;

/// The state a second before the deadline, and at it.
pub(super) fn around(workflow: &Workflow, seconds: u64) -> (Workflow, Workflow) {
    assert_eq!(workflow.deadline(), Some(at(seconds)));
    (workflow.clone().does(Event::Tick, seconds - 1), workflow.clone().does(Event::Tick, seconds))
}

#[test]
fn an_action_is_ended_a_minute_after_its_timeout() {
    let speaking = two_steps().started().does(Event::Renew("l1".into()), 660);
    let (before, after) = around(&speaking, 10 + 600 + 60);
    assert_eq!(before, speaking);
    assert_eq!(after.outcome(), Some(&WorkflowOutcome::Timeout));
}

#[test]
fn an_action_of_a_silent_worker_is_lost_at_its_deadline_and_not_before() {
    let after_loss = AfterLoss::Retry;
    let silent = workflow(vec![Step { after_loss, ..step("one") }]).started();
    let (before, after) = around(&silent, 670);
    assert_eq!(before, silent);
    assert_eq!((after.actions[0].lost, after.state.name().as_str()), (1, "running"));
}

#[test]
fn the_time_limit_counts_from_the_first_lease() {
    let plan =
        Plan { powers_off: true, time_limit: Some(Duration::from_secs(100)), ..Plan::default() };
    let running = Workflow::new(plan, vec![step("one")], at(0)).started();
    let (before, after) = around(&running, 110);
    assert_eq!(before, running);
    assert_eq!(after.state, State::Post { since: at(110), outcome: WorkflowOutcome::Timeout });
    assert_eq!(after.actions[0].result(), Some(ActionEnd::Timeout));
}

#[test]
fn a_limit_beyond_the_clock_has_no_deadline() {
    let plan = Plan { time_limit: Some(Duration::MAX), ..Plan::default() };
    let endless = Step { timeout: Duration::MAX, ..step("one") };
    let running = Workflow::new(plan, vec![endless], at(0)).started();
    assert_eq!(running.deadline(), None);
    assert_eq!(running.clone().does(Event::Tick, 1 << 40), running);
}

#[test]
fn a_clock_set_back_ends_nothing() {
    let running = two_steps().started();
    assert_eq!(running.clone().after(Event::Tick, SystemTime::UNIX_EPOCH), Ok(running));
}

#[test]
fn a_worker_that_does_not_stop_is_waited_for_a_minute() {
    let stopping = two_steps().started().does(Event::Cancel, 20);
    let (before, after) = around(&stopping, 80);
    assert_eq!(before, stopping);
    assert_eq!(after.outcome(), Some(&WorkflowOutcome::CANCELLED));
}

#[test]
fn a_last_terminal_action_succeeds_after_its_grace() {
    let leaving =
        workflow(vec![step("one")]).does(request("b1", "p1", None, "l1"), 10).does(leave("l1"), 10);
    let (before, after) = around(&leaving, 610);
    assert_eq!(before, leaving);
    assert_eq!(after.outcome(), Some(&WorkflowOutcome::Success));
}

#[test]
fn a_repeated_start_does_not_extend_the_grace() {
    let leaving =
        workflow(vec![step("one")]).does(request("b1", "p1", None, "l1"), 10).does(leave("l1"), 10);
    assert_eq!(leaving.does(leave("l1"), 20).deadline(), Some(at(610)));
}

#[test]
fn a_terminal_action_that_is_not_the_last_times_out() {
    let leaving = two_steps().does(request("b1", "p1", None, "l1"), 10).does(leave("l1"), 10);
    let (before, after) = around(&leaving, 670);
    assert_eq!(before, leaving);
    assert_eq!(after.outcome(), Some(&WorkflowOutcome::Timeout));
}

#[test]
fn preparing_and_post_have_half_an_hour_each() {
    let (before, post) = around(&preparing(), 1 + 1800);
    assert_eq!([before.state.name(), post.state.name()], ["preparing", "post"]);
    let (_, ended) = around(&post, 1801 + 1800);
    assert!(matches!(ended.state, State::Ended { warning: Some(_), .. }));
}
