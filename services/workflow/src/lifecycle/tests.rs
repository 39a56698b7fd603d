//! What becomes of a workflow, event by event.

#![allow(clippy::unwrap_used)]

mod actions;
mod deadlines;
mod restarts;

use std::time::Duration;

use super::{action::State as Try, *};
use crate::queue::Standing;

/// Seconds on the tests' clock.
pub(super) fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds)
}

pub(super) fn step(name: &str) -> Step {
    Step {
        task: "os-installation".into(),
        name: name.into(),
        machine: "m".into(),
        timeout: Duration::from_secs(600),
        retries: 0,
        background: false,
        skipped: false,
        after_loss: AfterLoss::Fail,
    }
}

pub(super) fn workflow(steps: Vec<Step>) -> Workflow {
    Workflow::new(Plan::default(), steps, at(0))
}

pub(super) fn two_steps() -> Workflow {
    workflow(vec![step("one"), step("two")])
}

fn preparing() -> Workflow {
    let plan = Plan { prepares: true, time_limit: None };
    Workflow::new(plan, vec![step("one")], at(0)).does(Event::Turn, 1)
}

pub(super) fn holder(boot: &str, process: &str) -> Holder {
    Holder { boot: boot.into(), process: process.into() }
}

pub(super) fn ask(boot: &str, process: &str, running: Option<&str>, offer: &str) -> Event {
    let running = running.map(LeaseId::from);
    Event::Ask { machine: "m".into(), holder: holder(boot, process), running, offer: offer.into() }
}

pub(super) fn start(lease: &str) -> Event {
    Event::Start { lease: lease.into(), terminal: false }
}

pub(super) fn leave(lease: &str) -> Event {
    Event::Start { lease: lease.into(), terminal: true }
}

pub(super) fn report(lease: &str, end: End) -> Event {
    Event::Report { lease: lease.into(), end }
}

pub(super) fn failed(reason: &str) -> End {
    End::Failed { reason: reason.into() }
}

impl Workflow {
    /// After an event that must be taken.
    pub(super) fn does(self, event: Event, seconds: u64) -> Self {
        self.after(event.clone(), at(seconds))
            .unwrap_or_else(|refused| panic!("{event:?}: {refused}"))
    }

    /// After the same boot and process asked, started and reported.
    pub(super) fn runs(self, lease: &str, end: End, seconds: u64) -> Self {
        let asked = self.does(ask("b1", "p1", None, lease), seconds).does(start(lease), seconds);
        asked.does(report(lease, end), seconds)
    }

    /// With the first action started under `l1` by process `p1` of boot `b1`.
    pub(super) fn started(self) -> Self {
        self.does(ask("b1", "p1", None, "l1"), 10).does(start("l1"), 10)
    }

    pub(super) fn outcome(&self) -> Option<&Outcome> {
        match &self.state {
            State::Post { outcome, .. } | State::Ended { outcome, .. } => Some(outcome),
            State::Pending { .. } | State::Preparing { .. } | State::Running { .. } => None,
        }
    }
}

#[test]
fn every_action_done_is_success_after_post() {
    let post = two_steps().runs("l1", End::Success, 1).runs("l2", End::Success, 2);
    assert_eq!(post.state, State::Post { since: at(2), outcome: Outcome::Success });
    let ended = post.does(Event::PostDone, 3);
    assert_eq!(ended.state, State::Ended { at: at(3), outcome: Outcome::Success, warning: None });
}

#[test]
fn the_first_lease_begins_it_and_its_time() {
    let workflow = two_steps().does(ask("b1", "p1", None, "l1"), 7);
    assert_eq!(workflow.state, State::Running { since: at(7), stop: None });
}

#[test]
fn what_must_be_prepared_gives_nothing_out_before_it_is() {
    let plan = Plan { prepares: true, time_limit: None };
    let waiting =
        Workflow::new(plan, vec![step("one")], at(0)).does(ask("b1", "p1", None, "l1"), 1);
    assert_eq!(waiting.lease(), None);
    let idle = preparing().does(ask("b1", "p1", None, "l1"), 2);
    assert_eq!(idle.lease(), None);
    let given = idle.does(Event::Prepared, 3).does(ask("b1", "p1", None, "l1"), 4);
    assert_eq!(given.lease().map(|lease| lease.id.clone()), Some("l1".into()));
}

#[test]
fn a_failed_preparation_is_cleaned_up_after() {
    let post = preparing().does(Event::PrepareFailed("no answer".into()), 2);
    assert_eq!(post.state.name(), "post");
    let ended = post.does(Event::PostDone, 3);
    assert_eq!(ended.outcome(), Some(&Outcome::Failed { reason: "no answer".into() }));
}

#[test]
fn a_cancelled_preparation_is_cleaned_up_after_and_late_news_is_nothing() {
    let post = preparing().does(Event::Cancel, 2);
    assert_eq!(post.state, State::Post { since: at(2), outcome: Outcome::Cancelled });
    assert_eq!(post.clone().does(Event::Prepared, 3), post);
}

#[test]
fn what_was_never_touched_is_cancelled_at_once() {
    let ended = two_steps().does(Event::Cancel, 2);
    assert_eq!(ended.state, State::Ended { at: at(2), outcome: Outcome::Cancelled, warning: None });
}

#[test]
fn a_cancel_waits_for_the_running_action_to_stop() {
    let stopping = two_steps().started().does(Event::Cancel, 11);
    assert!(stopping.is_stopping());
    let post = stopping.does(report("l1", failed("killed")), 12);
    assert_eq!(post.state, State::Post { since: at(12), outcome: Outcome::Cancelled });
}

#[test]
fn a_cancel_between_actions_waits_for_nothing() {
    let leased = two_steps().does(ask("b1", "p1", None, "l1"), 1);
    let post = leased.does(Event::Cancel, 2);
    assert_eq!(post.outcome(), Some(&Outcome::Cancelled));
    assert_eq!(post.after(start("l1"), at(3)), Err(Refused::Superseded("l1".into())));
}

#[test]
fn what_was_done_to_its_end_is_no_cancel() {
    let stopping = workflow(vec![step("one")]).started().does(Event::Cancel, 11);
    assert_eq!(stopping.does(report("l1", End::Success), 12).outcome(), Some(&Outcome::Success));
}

#[test]
fn an_ended_workflow_cannot_be_cancelled_but_a_cancelled_one_can_again() {
    let done = workflow(vec![step("one")]).runs("l1", End::Success, 1).does(Event::PostDone, 2);
    let refused = done.after(Event::Cancel, at(3)).unwrap_err().to_string();
    assert_eq!(refused, "a workflow that is success cannot be cancelled");
    let cancelled = two_steps().does(Event::Cancel, 2);
    assert_eq!(cancelled.clone().does(Event::Cancel, 3), cancelled);
}

#[test]
fn failing_to_clean_up_spoils_a_success_and_warns_of_the_rest() {
    let post = workflow(vec![step("one")]).runs("l1", End::Success, 1);
    let ended = post.does(Event::PostFailed("iso stuck".into()), 2);
    assert_eq!(ended.outcome(), Some(&Outcome::Failed { reason: "iso stuck".into() }));
    let post = preparing().does(Event::Cancel, 2);
    let ended = post.does(Event::PostFailed("iso stuck".into()), 3);
    let warning = Some("iso stuck".to_owned());
    assert_eq!(ended.state, State::Ended { at: at(3), outcome: Outcome::Cancelled, warning });
}

#[test]
fn a_workflow_of_skipped_actions_is_done_when_its_turn_comes() {
    let skipped = workflow(vec![Step { skipped: true, ..step("one") }]);
    assert_eq!(skipped.actions[0].end(), Some(&End::Skipped));
    assert_eq!(skipped.does(Event::Turn, 1).outcome(), Some(&Outcome::Success));
}

#[test]
fn a_skipped_action_is_not_given_out() {
    let workflow = workflow(vec![Step { skipped: true, ..step("one") }, step("two")]);
    let given = workflow.does(ask("b1", "p1", None, "l1"), 1);
    assert_eq!(
        given.assigned(&holder("b1", "p1")).map(|action| action.step.name.as_str()),
        Some("two")
    );
}

#[test]
fn the_next_actions_machine_gets_it_and_no_other() {
    let workflow = workflow(vec![step("one"), Step { machine: "n".into(), ..step("two") }]);
    let other = workflow.runs("l1", End::Success, 1).does(ask("b1", "p1", None, "l2"), 2);
    assert_eq!(other.lease(), None);
    let event = Event::Ask {
        machine: "n".into(),
        holder: holder("b9", "p9"),
        running: None,
        offer: "l3".into(),
    };
    assert!(other.does(event, 3).assigned(&holder("b9", "p9")).is_some());
}

#[test]
fn it_holds_its_machines_from_preparation_to_the_end_of_post() {
    assert_eq!(two_steps().standing(), Standing::Waiting);
    assert_eq!(preparing().standing(), Standing::Active);
    assert_eq!(preparing().does(Event::Prepared, 2).standing(), Standing::Active);
    assert_eq!(two_steps().started().standing(), Standing::Active);
    let post = preparing().does(Event::Cancel, 2);
    assert_eq!(post.standing(), Standing::Active);
    assert_eq!(post.does(Event::PostDone, 3).standing(), Standing::Over);
}

#[test]
fn the_disks_turn_comes_when_the_last_terminal_action_has_started() {
    let machine = HardwareId::from("m");
    let install = two_steps();
    assert!(install.wants_machine(&machine) && !install.wants_machine(&"n".into()));
    let leased = install.runs("l1", End::Success, 1).does(ask("b1", "p1", None, "l2"), 2);
    assert!(leased.wants_machine(&machine));
    let leaving = leased.does(leave("l2"), 3);
    assert!(leaving.state.name() == "running" && !leaving.wants_machine(&machine));
}

#[test]
fn a_reboot_in_the_middle_comes_back_to_the_worker() {
    let leaving = two_steps().does(ask("b1", "p1", None, "l1"), 1).does(leave("l1"), 2);
    assert!(leaving.wants_machine(&"m".into()));
}

#[test]
fn a_machine_has_nothing_to_run_after_success_or_failure() {
    for end in [End::Success, failed("x")] {
        assert!(!workflow(vec![step("one")]).runs("l1", end, 1).wants_machine(&"m".into()));
    }
}
