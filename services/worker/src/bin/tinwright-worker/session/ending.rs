//! How a try at an action ended, in the words of the contract. Pure.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tinwright::workflow::v1::{ActionState, FinishActionRequest};
use tokio::task::JoinError;
use worker::Outcome;

use super::order::Order;

/// Why an action was told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// It took too long.
    Overdue,
    /// The control plane wants it to stop.
    Unwanted,
    /// The lease is no longer current: somebody else may be at it.
    Superseded,
}

/// A `FinishAction` to make, as the journal keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Finish {
    pub(crate) workflow_id: String,
    pub(crate) lease_id: String,
    pub(crate) state: State,
    /// Why, in one line.
    pub(crate) reason: String,
    /// The last lines it wrote.
    pub(crate) tail: String,
    pub(crate) duration: Duration,
}

/// The ends there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    Success,
    Failed,
    Timeout,
}

/// How it ended and why. `stopped` says why it was told to stop, if it was: one that was done before it heard is done.
pub(crate) fn ending(
    order: &Order,
    outcome: Result<Outcome, JoinError>,
    stopped: Option<Cause>,
) -> (State, String) {
    let name = order.builtin.map_or_else(|| order.image.clone(), |builtin| builtin.to_string());
    match (outcome, stopped) {
        (Ok(Outcome::Success), _) => (State::Success, String::new()),
        (Ok(Outcome::Failure(failure)), _) => (State::Failed, failure.reason),
        (Ok(Outcome::Cancelled | Outcome::Terminal(_)), Some(Cause::Overdue)) => {
            (State::Timeout, format!("{name}: not done within {:?}", order.limit))
        }
        (Ok(Outcome::Cancelled | Outcome::Terminal(_)), Some(Cause::Unwanted) | None) => {
            (State::Failed, format!("{name}: stopped, as was asked"))
        }
        (Ok(Outcome::Cancelled | Outcome::Terminal(_)), Some(Cause::Superseded)) => {
            (State::Failed, format!("{name}: stopped, since its lease is no longer current"))
        }
        (Err(_), _) => (State::Failed, format!("{name}: it broke: a defect of the worker")),
    }
}

impl Finish {
    /// Of `order`, before it was begun or as good as that.
    pub(crate) fn failed(order: &Order, reason: String) -> Self {
        Self {
            workflow_id: order.workflow_id.clone(),
            lease_id: order.lease_id.clone(),
            state: State::Failed,
            reason,
            tail: String::new(),
            duration: Duration::ZERO,
        }
    }
}

impl From<Finish> for FinishActionRequest {
    fn from(finish: Finish) -> Self {
        let Finish { workflow_id, lease_id, state, reason, tail, duration } = finish;
        let state = match state {
            State::Success => ActionState::Success,
            State::Failed => ActionState::Failed,
            State::Timeout => ActionState::Timeout,
        };
        let (state, duration) = (state.into(), prost_types::Duration::try_from(duration).ok());
        Self { workflow_id, lease_id, state, reason, tail, duration }
    }
}

#[cfg(test)]
mod tests {
    use worker::{Builtin, Environment, Failure, Terminal};

    use super::*;

    fn ended(outcome: Outcome, stopped: Option<Cause>) -> (State, String) {
        let order = Order {
            workflow_id: "workflow".into(),
            lease_id: "lease".into(),
            name: "stream".into(),
            image: "image2disk".into(),
            builtin: Some(Builtin::Image2Disk),
            environment: Environment::default(),
            limit: Duration::from_secs(90),
            background: false,
            on_timeout: Vec::new(),
            on_failure: Vec::new(),
        };
        ending(&order, Ok(outcome), stopped)
    }

    #[test]
    fn what_was_stopped_says_why() {
        for (cause, state, why) in [
            (Cause::Overdue, State::Timeout, "image2disk: not done within 90s"),
            (Cause::Unwanted, State::Failed, "image2disk: stopped, as was asked"),
            (
                Cause::Superseded,
                State::Failed,
                "image2disk: stopped, since its lease is no longer current",
            ),
        ] {
            assert_eq!(ended(Outcome::Cancelled, Some(cause)), (state, why.into()));
        }
    }

    #[test]
    fn a_leave_that_was_prepared_too_late_is_not_taken() {
        let ended = ended(Outcome::Terminal(Terminal::Kexec), Some(Cause::Overdue));
        assert_eq!(ended, (State::Timeout, "image2disk: not done within 90s".into()));
    }

    #[test]
    fn what_was_done_before_it_heard_is_done() {
        assert_eq!(ended(Outcome::Success, Some(Cause::Overdue)), (State::Success, String::new()));
    }

    #[test]
    fn a_failure_keeps_its_own_reason_even_if_it_was_to_stop() {
        let failure = Failure { reason: "no disk".into(), output: String::new(), exit_code: 1 };
        let ended = ended(Outcome::Failure(failure), Some(Cause::Unwanted));
        assert_eq!(ended, (State::Failed, "no disk".into()));
    }
}
