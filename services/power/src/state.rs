//! The lifecycle of a power job; `docs/reference/power-jobs.md` describes it for users.
//!
//! ```text
//! held back ──release──▶ pending, in the queue; held back ──cancel──▶ cancelled
//! pending ──begin──▶ running ──verified (the last)──▶ success
//!    │                │ ▲ └──try, verified──┐
//!    │                │ └───────────────────┘
//!    └──fail, cancel──┴─▶ failed, cancelled
//! ```
//!
//! An ended job does not change.

use std::time::SystemTime;

use prost_types::Timestamp;
use tinwright::power::v1::PowerJob;
use tinwright::power::v1::power_job::State;

/// A change in the life of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Its creator lets it go into its queue.
    Release,
    /// The job is the first of its queue.
    Begin,
    /// A new attempt at the present operation begins, for this reason.
    Try(String),
    /// A new reason for the present state.
    Note(String),
    /// The present operation is done and was read back, with these deviations.
    Verified(Vec<String>),
    /// The job failed for this reason.
    Fail(String),
    /// A caller cancelled it.
    Cancel,
    /// Its creator did not release it in time.
    Abandon,
}

/// The reason of a job that waits in its queue.
pub const QUEUED: &str = "waiting in the queue";
/// The reason of a job that is held back.
pub const HELD_BACK: &str = "held back until its creator releases it";

/// Returned for an event that the job's state does not allow.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("event not allowed for a power job in {}", .0.as_str_name())]
pub struct InvalidTransition(State);

/// Returns the job after `event`. Repeating begin or cancel changes nothing.
pub fn after(job: &PowerJob, event: Event, now: SystemTime) -> Result<PowerJob, InvalidTransition> {
    let mut next = job.clone();
    next.update_time = Some(Timestamp::from(now));
    match (job.state(), event) {
        (State::Pending, Event::Release) if job.held => {
            next.held = false;
            next.state_reason = QUEUED.into();
        }
        (State::Pending, Event::Abandon) if job.held => {
            end(&mut next, State::Cancelled, "its creator did not release it in time".into());
        }
        (State::Pending, Event::Begin) if !job.held => {
            next.set_state(State::Running);
            next.start_time = next.update_time;
            next.state_reason.clear();
        }
        (State::Running, Event::Begin) => return Ok(job.clone()),
        (State::Running, Event::Try(reason)) => {
            next.attempt = next.attempt.saturating_add(1);
            next.state_reason = reason;
        }
        (State::Running, Event::Note(reason)) => next.state_reason = reason,
        (State::Running, Event::Verified(downgrades)) => next_operation(&mut next, downgrades),
        (State::Pending | State::Running, Event::Fail(reason)) => {
            end(&mut next, State::Failed, reason);
        }
        (State::Pending | State::Running, Event::Cancel) => {
            end(&mut next, State::Cancelled, "cancelled on request".into());
        }
        (_, Event::Cancel) if job.is_terminal() => return Ok(job.clone()),
        (state, _) => return Err(InvalidTransition(state)),
    }
    next.overdue &= next.state == job.state;
    Ok(next)
}

/// Returns `text` on the present operation of `job`, with the number of the operation, from 1, if the job has several.
pub fn of_operation(job: &PowerJob, text: &str) -> String {
    match job.operations.len() {
        0 | 1 => text.to_owned(),
        _ => format!("operation {}: {text}", job.completed_operations.saturating_add(1)),
    }
}

/// Completes the present operation, and the job with its last one.
fn next_operation(job: &mut PowerJob, downgrades: Vec<String>) {
    let downgrades: Vec<_> = downgrades.iter().map(|text| of_operation(job, text)).collect();
    job.downgrades.extend(downgrades);
    job.completed_operations = job.completed_operations.saturating_add(1);
    job.attempt = 0;
    job.state_reason.clear();
    if usize::try_from(job.completed_operations).is_ok_and(|done| done >= job.operations.len()) {
        end(job, State::Success, String::new());
    }
}

fn end(job: &mut PowerJob, state: State, reason: String) {
    job.set_state(state);
    job.state_reason = reason;
    job.end_time = job.update_time;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::UNIX_EPOCH;
    use tinwright::power::v1::Operation;

    fn job(operations: usize) -> PowerJob {
        let operations = vec![Operation::default(); operations];
        PowerJob { operations, state: State::Pending.into(), ..PowerJob::default() }
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            Just(Event::Begin),
            Just(Event::Try("again".into())),
            Just(Event::Note("refused".into())),
            Just(Event::Verified(vec!["once reads as continuous".into()])),
            Just(Event::Fail("no".into())),
            Just(Event::Cancel),
        ]
    }

    #[test]
    fn the_reference_page_has_every_transition() {
        let word = |state: State| state.as_str_name().trim_start_matches("STATE_").to_lowercase();
        let events = [
            ("begin", Event::Begin),
            ("verified", Event::Verified(vec![])),
            ("fail", Event::Fail("no".into())),
            ("cancel", Event::Cancel),
        ];
        let mut table = String::from("| from | event | to |\n|---|---|---|\n");
        for state in [State::Pending, State::Running] {
            let job = PowerJob { state: state.into(), ..job(1) };
            for (name, event) in &events {
                if let Ok(next) = after(&job, event.clone(), UNIX_EPOCH)
                    && next != job
                {
                    table += &format!("| {} | {name} | {} |\n", word(state), word(next.state()));
                }
            }
        }
        let page = include_str!("../../../docs/reference/power-jobs.md");
        assert!(page.contains(&format!("\n{table}\n")), "the page needs:\n{table}");
    }

    #[test]
    fn a_job_ends_in_success_with_its_last_operation() {
        let mut job = job(2);
        for event in [Event::Begin, Event::Verified(vec![]), Event::Verified(vec!["x".into()])] {
            assert!(!job.is_terminal());
            job = after(&job, event, UNIX_EPOCH).unwrap();
        }
        assert_eq!((job.state(), job.completed_operations), (State::Success, 2));
        assert_eq!(job.downgrades, ["operation 2: x"]);
    }

    #[test]
    fn the_only_operation_of_a_job_has_no_number() {
        let running = after(&job(1), Event::Begin, UNIX_EPOCH).unwrap();
        let ended = after(&running, Event::Verified(vec!["x".into()]), UNIX_EPOCH).unwrap();
        assert_eq!(ended.downgrades, ["x"]);
    }

    #[test]
    fn a_job_that_is_held_back_begins_only_after_its_release() {
        let held = PowerJob { held: true, ..job(1) };
        after(&held, Event::Begin, UNIX_EPOCH).unwrap_err();
        let released = after(&held, Event::Release, UNIX_EPOCH).unwrap();
        assert!(!released.held && released.state() == State::Pending);
        after(&released, Event::Begin, UNIX_EPOCH).unwrap();
        after(&released, Event::Abandon, UNIX_EPOCH).unwrap_err();
        for end in [Event::Cancel, Event::Abandon] {
            let ended = after(&held, end, UNIX_EPOCH).unwrap();
            assert_eq!((ended.state(), ended.held), (State::Cancelled, true));
            after(&ended, Event::Release, UNIX_EPOCH).unwrap_err();
        }
    }

    #[test]
    fn attempts_are_counted_from_zero_for_each_operation() {
        let mut job = job(2);
        for event in [Event::Begin, Event::Try("on".into()), Event::Try("on".into())] {
            job = after(&job, event, UNIX_EPOCH).unwrap();
        }
        assert_eq!(job.attempt, 2);
        assert_eq!(after(&job, Event::Verified(vec![]), UNIX_EPOCH).unwrap().attempt, 0);
    }

    proptest! {
        #[test]
        fn an_ended_job_never_changes_and_only_verified_operations_are_counted(
            events in proptest::collection::vec(event(), 0..40),
        ) {
            let mut job = job(3);
            for event in events {
                let verified = matches!(event, Event::Verified(_));
                let Ok(next) = after(&job, event, UNIX_EPOCH) else { continue };
                if job.is_terminal() {
                    prop_assert_eq!(&next, &job);
                }
                prop_assert_eq!(
                    next.completed_operations, job.completed_operations + i32::from(verified)
                );
                prop_assert_eq!(next.state() == State::Success, next.completed_operations == 3);
                prop_assert_eq!(next.end_time.is_some(), next.is_terminal());
                job = next;
            }
        }
    }
}
