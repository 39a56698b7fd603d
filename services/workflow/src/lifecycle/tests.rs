//! Workflows, event by event.

#![allow(clippy::unwrap_used)]

mod actions;
mod awaited_workers;
mod boots;
mod deadlines;
mod held_back;
mod restarts;
mod suspensions;

use std::time::Duration;

use tinwright::workflow::v1 as pb;

use super::{action::State as ActionState, *};
use crate::record;
use crate::turn::QueueState;

/// A second on the tests' clock.
pub(super) fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds)
}

pub(super) fn step(name: &str) -> Step {
    Step {
        task: "os-installation".into(),
        name: name.into(),
        timeout: Duration::from_secs(600),
        retries: 0,
        background: false,
        skipped: false,
        after_loss: AfterLoss::Fail,
    }
}

/// A workflow that switches the machine off, and so has a post state.
pub(super) fn workflow(steps: Vec<Step>) -> Workflow {
    Workflow::new(Plan { powers_off: true, ..Plan::default() }, steps, at(0))
}

pub(super) fn two_steps() -> Workflow {
    workflow(vec![step("one"), step("two")])
}

pub(super) const PREPARES: Plan = Plan {
    prepares: true,
    powers_off: false,
    time_limit: None,
    worker_timeouts: WorkerTimeouts::DEFAULT,
};

fn preparing() -> Workflow {
    Workflow::new(PREPARES, vec![step("one")], at(0)).does(Event::BeginTurn, 1)
}

pub(super) fn holder(boot: &str, process: &str) -> Holder {
    Holder { boot: boot.into(), process: process.into(), epoch: 0 }
}

pub(super) fn request(boot: &str, process: &str, running: Option<&str>, lease: &str) -> Event {
    let running = running.map(LeaseId::from);
    Event::RequestAction { holder: holder(boot, process), running, new_lease: lease.into() }
}

pub(super) fn start(lease: &str) -> Event {
    Event::Start { lease: lease.into(), terminal: false }
}

pub(super) fn leave(lease: &str) -> Event {
    Event::Start { lease: lease.into(), terminal: true }
}

pub(super) fn report(lease: &str, report: impl Into<AttemptReport>) -> Event {
    Event::Report { lease: lease.into(), report: report.into() }
}

pub(super) fn failed(reason: &str) -> AttemptReport {
    AttemptReport { reason: reason.into(), ..ActionEnd::Failed.into() }
}

impl From<ActionEnd> for AttemptReport {
    fn from(end: ActionEnd) -> Self {
        Self { end, reason: String::new() }
    }
}

impl Workflow {
    /// After an event that must be accepted.
    pub(super) fn does(self, event: Event, seconds: u64) -> Self {
        self.after(event.clone(), at(seconds))
            .unwrap_or_else(|refused| panic!("{event:?}: {refused}"))
    }

    /// After process `p1` of boot `b1` requested an action, started it and reported its end.
    pub(super) fn runs(self, lease: &str, end: impl Into<AttemptReport>, seconds: u64) -> Self {
        let started =
            self.does(request("b1", "p1", None, lease), seconds).does(start(lease), seconds);
        started.does(report(lease, end), seconds)
    }

    /// After process `p1` of boot `b1` started the first action under `l1`.
    pub(super) fn started(self) -> Self {
        self.does(request("b1", "p1", None, "l1"), 10).does(start("l1"), 10)
    }

    /// The action that is leased to `holder`.
    pub(super) fn assigned(&self, holder: &Holder) -> Option<&Action> {
        self.current().filter(|action| action.lease().is_some_and(|lease| lease.holder == *holder))
    }

    pub(super) fn outcome(&self) -> Option<&WorkflowOutcome> {
        match &self.state {
            State::Post { outcome, .. } | State::Ended { outcome, .. } => Some(outcome),
            State::HeldBack { .. }
            | State::Pending { .. }
            | State::Preparing { .. }
            | State::Running { .. } => None,
        }
    }
}

#[test]
fn success_of_every_action_is_success_of_the_workflow_after_post() {
    let post = two_steps().runs("l1", ActionEnd::Success, 1).runs("l2", ActionEnd::Success, 2);
    assert_eq!(post.state, State::Post { since: at(2), outcome: WorkflowOutcome::Success });
    let ended = post.does(Event::PostDone, 3);
    assert_eq!(
        ended.state,
        State::Ended { at: at(3), outcome: WorkflowOutcome::Success, warning: None }
    );
}

#[test]
fn without_anything_to_undo_there_is_no_post() {
    let running = Workflow::new(Plan::default(), vec![step("one")], at(0)).started();
    let ended = |outcome| State::Ended { at: at(12), outcome, warning: None };
    let success = running.clone().does(report("l1", ActionEnd::Success), 12);
    assert_eq!(success.state, ended(WorkflowOutcome::Success));
    let cancelled = running.does(Event::Cancel, 11).does(report("l1", failed("killed")), 12);
    assert_eq!(cancelled.state, ended(WorkflowOutcome::CANCELLED));
}

#[test]
fn the_first_lease_starts_the_workflow_and_its_time_limit() {
    let workflow = two_steps().does(request("b1", "p1", None, "l1"), 7);
    assert_eq!((workflow.state, workflow.begun), (State::Running { stop: None }, Some(at(7))));
}

#[test]
fn no_action_is_leased_before_the_preparation_is_complete() {
    let waiting =
        Workflow::new(PREPARES, vec![step("one")], at(0)).does(request("b1", "p1", None, "l1"), 1);
    assert_eq!(waiting.lease(), None);
    let idle = preparing().does(request("b1", "p1", None, "l1"), 2);
    assert_eq!(idle.lease(), None);
    let given = idle.does(Event::Prepared, 3).does(request("b1", "p1", None, "l1"), 4);
    assert_eq!(given.lease().map(|lease| lease.id.clone()), Some("l1".into()));
}

#[test]
fn a_failed_preparation_leads_to_post() {
    let post = preparing().does(Event::PrepareFailed("no answer".into()), 2);
    assert_eq!(post.state.name(), "post");
    let ended = post.does(Event::PostDone, 3);
    assert_eq!(ended.outcome(), Some(&WorkflowOutcome::Failed { reason: "no answer".into() }));
}

#[test]
fn a_cancelled_preparation_leads_to_post_and_its_late_result_is_ignored() {
    let post = preparing().does(Event::Cancel, 2);
    assert_eq!(post.state, State::Post { since: at(2), outcome: WorkflowOutcome::CANCELLED });
    assert_eq!(post.clone().does(Event::Prepared, 3), post);
}

#[test]
fn a_pending_workflow_is_cancelled_at_once() {
    let ended = two_steps().does(Event::Cancel, 2);
    assert_eq!(
        ended.state,
        State::Ended { at: at(2), outcome: WorkflowOutcome::CANCELLED, warning: None }
    );
}

#[test]
fn a_cancel_waits_for_the_running_action_to_stop() {
    let stopping = two_steps().started().does(Event::Cancel, 11);
    assert!(stopping.is_stopping());
    let post = stopping.does(report("l1", failed("killed")), 12);
    assert_eq!(post.state, State::Post { since: at(12), outcome: WorkflowOutcome::CANCELLED });
}

#[test]
fn a_cancel_between_actions_waits_for_nothing() {
    let leased = two_steps().does(request("b1", "p1", None, "l1"), 1);
    let post = leased.does(Event::Cancel, 2);
    assert_eq!(post.outcome(), Some(&WorkflowOutcome::CANCELLED));
    assert_eq!(post.after(start("l1"), at(3)), Err(EventRefused::Superseded("l1".into())));
}

#[test]
fn a_cancelled_workflow_whose_last_action_succeeds_is_a_success() {
    let stopping = workflow(vec![step("one")]).started().does(Event::Cancel, 11);
    assert_eq!(
        stopping.does(report("l1", ActionEnd::Success), 12).outcome(),
        Some(&WorkflowOutcome::Success)
    );
}

#[test]
fn an_ended_workflow_cannot_be_cancelled_except_a_cancelled_one() {
    let done =
        workflow(vec![step("one")]).runs("l1", ActionEnd::Success, 1).does(Event::PostDone, 2);
    let refused = done.after(Event::Cancel, at(3)).unwrap_err().to_string();
    assert_eq!(refused, "a workflow that is success cannot be cancelled");
    let cancelled = two_steps().does(Event::Cancel, 2);
    assert_eq!(cancelled.clone().does(Event::Cancel, 3), cancelled);
}

#[test]
fn a_cancellation_in_time_is_refused_once_only_the_end_is_left() {
    let running = workflow(vec![step("one")]).does(request("b1", "p1", None, "l1"), 1);
    let cancelled = running.clone().does(Event::Cancel, 2);
    assert_eq!(running.clone().does(Event::CancelInTime, 2), cancelled);
    assert_eq!(cancelled.clone().does(Event::CancelInTime, 2), cancelled, "repeated in post");
    let leaving = running.does(leave("l1"), 2);
    assert!(matches!(
        leaving.clone().after(Event::CancelInTime, at(3)),
        Err(EventRefused::TooLate(_))
    ));
    assert!(leaving.clone().does(Event::Cancel, 3).is_stopping(), "a service");
    let post = leaving.does(Event::Booted, 3);
    let refused = post.clone().after(Event::CancelInTime, at(4)).unwrap_err().to_string();
    assert_eq!(refused, "too late: its outcome is decided, and only the clean-up is left");
    let ended = post.does(Event::PostDone, 4).after(Event::CancelInTime, at(5));
    assert!(matches!(ended, Err(EventRefused::WrongState { .. })), "{ended:?}");
}

#[test]
fn a_failed_clean_up_turns_success_into_failure_and_is_a_warning_otherwise() {
    let post = workflow(vec![step("one")]).runs("l1", ActionEnd::Success, 1);
    let ended = post.does(Event::PostFailed("iso stuck".into()), 2);
    assert_eq!(ended.outcome(), Some(&WorkflowOutcome::Failed { reason: "iso stuck".into() }));
    let post = preparing().does(Event::Cancel, 2);
    let ended = post.does(Event::PostFailed("iso stuck".into()), 3);
    let warning = Some("iso stuck".to_owned());
    assert_eq!(
        ended.state,
        State::Ended { at: at(3), outcome: WorkflowOutcome::CANCELLED, warning }
    );
}

#[test]
fn a_workflow_of_skipped_actions_ends_when_its_turn_comes() {
    let skipped = workflow(vec![Step { skipped: true, ..step("one") }]);
    assert_eq!(skipped.actions[0].result(), Some(ActionEnd::Skipped));
    assert_eq!(skipped.does(Event::BeginTurn, 1).outcome(), Some(&WorkflowOutcome::Success));
}

#[test]
fn a_skipped_action_is_not_leased() {
    let workflow = workflow(vec![Step { skipped: true, ..step("one") }, step("two")]);
    let given = workflow.does(request("b1", "p1", None, "l1"), 1);
    assert_eq!(
        given.assigned(&holder("b1", "p1")).map(|action| action.step.name.as_str()),
        Some("two")
    );
}

/// The place in the queue, by the record.
fn queue_state(workflow: &Workflow) -> QueueState {
    record::queue_state(&record::write(&pb::Workflow::default(), workflow))
}

#[test]
fn a_workflow_holds_its_machine_from_preparing_to_the_end_of_post() {
    assert_eq!(queue_state(&two_steps()), QueueState::Waiting);
    assert_eq!(queue_state(&preparing()), QueueState::Active);
    assert_eq!(queue_state(&preparing().does(Event::Prepared, 2)), QueueState::Active);
    assert_eq!(queue_state(&two_steps().started()), QueueState::Active);
    let post = preparing().does(Event::Cancel, 2);
    assert_eq!(queue_state(&post), QueueState::Active);
    assert_eq!(queue_state(&post.does(Event::PostDone, 3)), QueueState::Ended);
}

#[test]
fn the_machine_boots_its_disk_once_the_last_terminal_action_has_started() {
    let install = two_steps();
    assert!(install.wants_machine());
    let leased = install.runs("l1", ActionEnd::Success, 1).does(request("b1", "p1", None, "l2"), 2);
    assert!(leased.wants_machine());
    let leaving = leased.does(leave("l2"), 3);
    assert!(leaving.state.name() == "running" && !leaving.wants_machine());
}

#[test]
fn after_a_terminal_action_before_the_last_the_machine_boots_the_worker() {
    let leaving = two_steps().does(request("b1", "p1", None, "l1"), 1).does(leave("l1"), 2);
    assert!(leaving.wants_machine());
}

#[test]
fn after_success_or_failure_no_action_is_left_to_run() {
    for end in [ActionEnd::Success.into(), failed("x")] {
        assert!(!workflow(vec![step("one")]).runs("l1", end, 1).wants_machine());
    }
}

#[test]
fn the_reference_page_lists_every_state() {
    let page = include_str!("../../../../docs/reference/workflow-lifecycle.md");
    let (workflow, action) = page.split_once("## States of an action").unwrap();
    let states = |section: &'static str| -> Vec<&str> {
        let rows = section
            .split("## Restarts")
            .next()
            .unwrap()
            .lines()
            .skip_while(|line| !line.starts_with("|---"));
        rows.skip(1).filter_map(|row| row.strip_prefix("| ")?.split(' ').next()).collect()
    };
    let names = |known: fn(i32) -> Option<&'static str>| -> Vec<String> {
        (1..)
            .map_while(known)
            .map(|name| name.rsplit("STATE_").next().unwrap().to_lowercase())
            .collect()
    };
    assert_eq!(
        states(workflow),
        names(|n| Some(pb::WorkflowState::try_from(n).ok()?.as_str_name()))
    );
    assert_eq!(states(action), names(|n| Some(pb::ActionState::try_from(n).ok()?.as_str_name())));
}
