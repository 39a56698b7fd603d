//! The result of an attempt, in the form of the API.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tinwright::workflow::v1::{ActionState, FinishActionRequest};
use tokio::task::JoinError;
use worker::ActionOutcome;

use super::assignment::ActionAttempt;

/// Maximum number of bytes of the reason in a shortened result.
const SHORT_REASON_BYTES: usize = 256;

/// The reason why an action was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CancelReason {
    /// The action exceeded its time limit.
    Timeout,
    /// The control plane requested it.
    Requested,
    /// The lease is no longer valid: another worker may run the action.
    LeaseLost,
}

/// A `FinishAction` call, as stored in the journal.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Finish {
    pub(crate) workflow_id: String,
    pub(crate) lease_id: String,
    pub(crate) state: FinalState,
    /// The reason of a failure, in one line.
    pub(crate) reason: String,
    /// The last lines of output.
    pub(crate) tail: String,
    pub(crate) duration: Duration,
}

/// The final state of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FinalState {
    Success,
    Failed,
    Timeout,
}

/// Returns state and reason. An action that succeeded before its cancellation took effect is a success.
pub(crate) fn action_result(
    attempt: &ActionAttempt,
    outcome: Result<ActionOutcome, JoinError>,
    cancelled: Option<CancelReason>,
) -> (FinalState, String) {
    let name = attempt.builtin.map_or_else(|| attempt.image.clone(), |builtin| builtin.to_string());
    match (outcome, cancelled) {
        (Ok(ActionOutcome::Success), _) => (FinalState::Success, String::new()),
        (Ok(ActionOutcome::Failure(reason)), _) => (FinalState::Failed, reason),
        (Err(_), _) => {
            (FinalState::Failed, format!("{name}: panicked: this is a bug of the worker"))
        }
        (Ok(_), Some(CancelReason::Timeout)) => {
            (FinalState::Timeout, format!("{name}: not done within {:?}", attempt.limit))
        }
        (Ok(_), Some(CancelReason::Requested) | None) => {
            (FinalState::Failed, format!("{name}: cancelled as requested"))
        }
        (Ok(_), Some(CancelReason::LeaseLost)) => {
            (FinalState::Failed, format!("{name}: cancelled: its lease is no longer valid"))
        }
    }
}

impl Finish {
    /// Returns a failure with `reason`, without output and duration.
    pub(crate) fn failed(attempt: &ActionAttempt, reason: String) -> Self {
        Self {
            workflow_id: attempt.workflow_id.clone(),
            lease_id: attempt.lease_id.clone(),
            state: FinalState::Failed,
            reason,
            tail: String::new(),
            duration: Duration::ZERO,
        }
    }

    /// Drops the output and the end of a long reason. Returns false if the result is already short.
    pub(crate) fn shorten(&mut self) -> bool {
        let reason_end = self.reason.floor_char_boundary(SHORT_REASON_BYTES);
        let shortened = !self.tail.is_empty() || reason_end < self.reason.len();
        self.tail.clear();
        self.reason.truncate(reason_end);
        shortened
    }
}

impl From<Finish> for FinishActionRequest {
    fn from(finish: Finish) -> Self {
        let Finish { workflow_id, lease_id, state, reason, tail, duration } = finish;
        let state = match state {
            FinalState::Success => ActionState::Success,
            FinalState::Failed => ActionState::Failed,
            FinalState::Timeout => ActionState::Timeout,
        };
        let (state, duration) = (state.into(), prost_types::Duration::try_from(duration).ok());
        Self { workflow_id, lease_id, state, reason, tail, duration }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use worker::{Builtin, Environment, Terminal};

    use super::*;

    fn result(outcome: ActionOutcome, cancelled: Option<CancelReason>) -> (FinalState, String) {
        let attempt = ActionAttempt {
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
            recorder: Arc::default(),
        };
        action_result(&attempt, Ok(outcome), cancelled)
    }

    #[test]
    fn a_result_is_shortened_once_and_keeps_its_state() {
        let mut finish = Finish {
            workflow_id: "workflow".into(),
            lease_id: "lease".into(),
            state: FinalState::Timeout,
            reason: "é".repeat(200),
            tail: "output".into(),
            duration: Duration::from_secs(1),
        };
        assert!(finish.shorten() && !finish.shorten());
        assert_eq!(
            (finish.state, finish.reason, finish.tail),
            (FinalState::Timeout, "é".repeat(128), String::new())
        );
    }

    #[test]
    fn a_cancelled_action_has_a_reason() {
        for (cause, state, reason) in [
            (CancelReason::Timeout, FinalState::Timeout, "image2disk: not done within 90s"),
            (CancelReason::Requested, FinalState::Failed, "image2disk: cancelled as requested"),
            (
                CancelReason::LeaseLost,
                FinalState::Failed,
                "image2disk: cancelled: its lease is no longer valid",
            ),
        ] {
            assert_eq!(result(ActionOutcome::Cancelled, Some(cause)), (state, reason.into()));
        }
    }

    #[test]
    fn a_terminal_action_that_exceeds_its_time_limit_is_a_timeout() {
        let result = result(ActionOutcome::Terminal(Terminal::Kexec), Some(CancelReason::Timeout));
        assert_eq!(result, (FinalState::Timeout, "image2disk: not done within 90s".into()));
    }

    #[test]
    fn an_action_that_succeeded_before_its_cancellation_is_a_success() {
        assert_eq!(
            result(ActionOutcome::Success, Some(CancelReason::Timeout)),
            (FinalState::Success, String::new())
        );
    }

    #[test]
    fn a_failure_has_its_own_reason_even_if_cancelled() {
        let failure = ActionOutcome::Failure("no disk".into());
        let result = result(failure, Some(CancelReason::Requested));
        assert_eq!(result, (FinalState::Failed, "no disk".into()));
    }
}
