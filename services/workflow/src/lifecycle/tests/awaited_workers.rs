//! Workers that are awaited, and machines that are prepared again.

use super::deadlines::around;
use super::*;

/// A workflow whose machine was prepared at second 5.
fn prepared(plan: Plan, steps: Vec<Step>) -> Workflow {
    Workflow::new(plan, steps, at(0)).does(Event::BeginTurn, 1).does(Event::Prepared, 5)
}

fn one_prepared() -> Workflow {
    prepared(PREPARES, vec![step("one")])
}

fn boot_step(seconds: u64, text: &str) -> Event {
    Event::BootStep(BootStep { at: at(seconds), text: text.into() })
}

/// After the deadline of `workflow`, and the preparation that may follow.
fn next_preparation(workflow: Workflow) -> Workflow {
    let due = workflow.deadline().unwrap();
    workflow.after(Event::Tick, due).unwrap().after(Event::Prepared, due).unwrap()
}

fn no_worker(rest: &str) -> WorkflowOutcome {
    let reason = "the machine's worker requests no action, after 4 preparations; ";
    WorkflowOutcome::Failed { reason: [reason, rest].concat() }
}

#[test]
fn a_machine_whose_worker_does_not_come_is_prepared_again_three_times() {
    let (mut workflow, mut since) = (one_prepared(), 5);
    for count in 2..=4 {
        let (before, after) = around(&workflow, since + 1800);
        assert_eq!(before, workflow);
        assert_eq!((after.state.name().as_str(), after.preparations), ("preparing", count));
        since += 1860;
        workflow = after.does(Event::Prepared, since);
    }
    let (before, after) = around(&workflow, since + 1800);
    assert_eq!(before, workflow);
    assert_eq!(after.outcome(), Some(&no_worker("no step of a boot was seen")));
}

#[test]
fn a_worker_has_ten_minutes_from_the_latest_step_of_its_boot() {
    let workflow =
        one_prepared().does(boot_step(100, "kernel"), 100).does(boot_step(1500, "initrd"), 1500);
    let (before, again) = around(&workflow, 1500 + 600);
    assert_eq!((before, again.state.name().as_str()), (workflow, "preparing"));
    let next = again.does(Event::Prepared, 2200);
    assert_eq!(next.deadline(), Some(at(2200 + 1800)), "no step of the new boot was seen");
}

#[test]
fn a_machine_that_boots_again_and_again_is_awaited_for_an_hour() {
    let mut workflow = one_prepared();
    for minute in 1..60 {
        workflow = workflow.does(boot_step(minute * 60, "kernel"), minute * 60);
    }
    let (before, again) = around(&workflow, 5 + 3600);
    assert_eq!((before, again.state.name().as_str()), (workflow, "preparing"));
}

#[test]
fn the_reason_of_the_failure_has_the_last_boot_step() {
    let mut workflow = one_prepared().does(boot_step(70, "kernel"), 70);
    for _ in 0..4 {
        workflow = next_preparation(workflow);
    }
    // Ten minutes after the step, and three times half an hour.
    let reason = no_worker("last boot step, 100 minutes ago: kernel");
    assert_eq!(workflow.outcome(), Some(&reason));
}

#[test]
fn a_step_counts_once_and_not_before_the_preparation_nor_in_the_future() {
    let workflow = one_prepared();
    assert_eq!(workflow.clone().does(boot_step(4, "off"), 20), workflow);
    let seen = workflow.does(boot_step(5000, "ahead"), 20);
    assert_eq!(seen.deadline(), Some(at(20 + 600)));
    assert_eq!(seen.clone().does(boot_step(19, "late"), 30), seen);
    let running = seen.started();
    assert_eq!(running.clone().does(boot_step(50, "of another boot"), 50), running);
}

#[test]
fn a_lease_that_is_not_used_is_taken_back_and_the_machine_is_prepared_again() {
    let leased = one_prepared().does(request("b1", "p1", None, "l1"), 50);
    let leased = leased.does(Event::Renew("l1".into()), 80);
    let (before, after) = around(&leased, 80 + 1800);
    assert_eq!(before, leased);
    assert_eq!((after.state.name().as_str(), after.lease()), ("preparing", None));
    let late = after.clone().after(start("l1"), at(1881));
    assert_eq!(late, Err(EventRefused::Superseded("l1".into())));
    let again = after.does(Event::Prepared, 1900).does(request("b2", "p2", None, "l2"), 1950);
    assert_eq!((again.lease().unwrap().attempt, again.begun), (1, Some(at(50))));
}

#[test]
fn after_a_loss_the_next_attempt_is_awaited_and_then_the_machine_is_prepared_again() {
    let after_loss = AfterLoss::Retry;
    let running = prepared(PREPARES, vec![Step { after_loss, ..step("one") }]).started();
    let (_, lost) = around(&running, 10 + 600 + 60);
    let (before, again) = around(&lost, 671 + 1800);
    assert_eq!((before.state.name(), lost.actions[0].lost), ("running".to_owned(), 1));
    assert_eq!((again.state.name(), again.actions[0].lost), ("preparing".to_owned(), 1));
}

#[test]
fn after_a_reported_failure_the_worker_has_time_for_the_reaction_to_it() {
    let running = prepared(PREPARES, vec![Step { retries: 1, ..step("one") }]).started();
    let retried = running.does(report("l1", failed("disk")), 20);
    assert_eq!(retried.deadline(), Some(at(21 + 600 + 1800)));
}

#[test]
fn the_next_action_is_awaited_from_the_end_of_the_previous_one() {
    let next =
        prepared(PREPARES, vec![step("one"), step("two")]).runs("l1", ActionEnd::Success, 2000);
    let (before, again) = around(&next, 2000 + 1800);
    assert_eq!((before, again.state.name().as_str()), (next, "preparing"));
}

#[test]
fn the_time_limit_goes_on_while_the_machine_is_prepared_again() {
    let plan = Plan { time_limit: Some(Duration::from_secs(2000)), ..PREPARES };
    let leased = prepared(plan, vec![step("one")]).does(request("b1", "p1", None, "l1"), 50);
    let (_, again) = around(&leased, 50 + 1800);
    let (before, after) = around(&again, 50 + 2000);
    assert_eq!((before, after.outcome()), (again, Some(&WorkflowOutcome::Timeout)));
}

#[test]
fn the_site_sets_how_long_a_worker_is_awaited() {
    let worker_timeouts =
        WorkerTimeouts { silent: Duration::from_secs(90), step: Duration::from_secs(20) };
    let workflow = prepared(Plan { worker_timeouts, ..PREPARES }, vec![step("one")]);
    assert_eq!(workflow.deadline(), Some(at(5 + 90)));
    let seen = workflow.does(boot_step(10, "kernel"), 10);
    assert_eq!(seen.deadline(), Some(at(10 + 20)));
    assert_eq!(seen.does(boot_step(180, "kernel"), 180).deadline(), Some(at(5 + 180)));
}

#[test]
fn a_machine_that_is_booted_by_hand_is_awaited_without_a_limit() {
    let waiting = two_steps();
    assert_eq!(waiting.deadline(), None);
    assert_eq!(waiting.does(request("b1", "p1", None, "l1"), 10).deadline(), None);
}
