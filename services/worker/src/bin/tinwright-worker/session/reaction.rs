//! The template's `on-failure` and `on-timeout` commands. They run after the result is reported and do not change it.

use super::Session;
use super::assignment::ActionAttempt;
use super::outcome::{CancelReason, FinalState};

/// A command to run, and the name of its setting: `on-failure` or `on-timeout`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reaction {
    after: &'static str,
    command: Vec<String>,
}

impl Reaction {
    /// Returns the reaction to the final `state` of `attempt`. There is none if the control plane cancelled the action, or if
    /// another worker may run the action.
    pub(super) fn for_result(
        attempt: &ActionAttempt,
        state: FinalState,
        cancelled: Option<CancelReason>,
    ) -> Option<Self> {
        let (after, command) = match (state, cancelled) {
            (FinalState::Timeout, _) => ("on-timeout", &attempt.on_timeout),
            (FinalState::Failed, None | Some(CancelReason::Timeout)) => {
                ("on-failure", &attempt.on_failure)
            }
            (FinalState::Failed, Some(CancelReason::Requested | CancelReason::LeaseLost))
            | (FinalState::Success, _) => {
                return None;
            }
        };
        (!command.is_empty()).then(|| Self { after, command: command.clone() })
    }
}

impl Session {
    /// Runs `reaction` with the time limit of `attempt`. Its output is appended to the attempt's log.
    pub(super) async fn react(&self, attempt: &ActionAttempt, reaction: Reaction) {
        let Reaction { after, command } = reaction;
        tracing::info!(action = attempt.name, after, "running the reaction");
        attempt.recorder.log.write(format!("{after}:\n").as_bytes());
        let context = self.context(attempt);
        let stop = context.stop.clone();
        let (image, environment) = (attempt.image.clone(), attempt.environment.clone());
        let mut reaction =
            tokio::spawn(
                async move { worker::react(&image, &command, &environment, &context).await },
            );
        let result = tokio::select! {
            result = &mut reaction => result,
            () = tokio::time::sleep(attempt.limit) => {
                stop.cancel();
                reaction.await
            }
            never = self.send_log(attempt) => match never {},
        };
        let line = match result {
            Ok(Ok(())) => "done".into(),
            Ok(Err(_)) if stop.is_cancelled() => format!("not done within {:?}", attempt.limit),
            Ok(Err(reason)) => reason,
            Err(_) => "panicked: this is a bug of the worker".into(),
        };
        tracing::info!(action = attempt.name, after, line, "reaction ended");
        attempt.recorder.log.write(format!("{after}: {line}\n").as_bytes());
        while self.send_piece(attempt).await {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use worker::Environment;

    use super::*;

    fn attempt() -> ActionAttempt {
        ActionAttempt {
            workflow_id: "workflow".into(),
            lease_id: "lease".into(),
            name: "stream".into(),
            image: "image2disk".into(),
            builtin: None,
            environment: Environment::default(),
            limit: Duration::from_secs(90),
            background: false,
            on_timeout: vec!["late".into()],
            on_failure: vec!["failed".into()],
            recorder: Arc::default(),
        }
    }

    #[test]
    fn only_failures_and_timeouts_of_the_action_itself_have_a_reaction() {
        let reaction = |state, cancelled| {
            Reaction::for_result(&attempt(), state, cancelled).map(|it| it.after)
        };
        assert_eq!(reaction(FinalState::Timeout, Some(CancelReason::Timeout)), Some("on-timeout"));
        assert_eq!(reaction(FinalState::Failed, None), Some("on-failure"));
        assert_eq!(reaction(FinalState::Success, None), None);
        assert_eq!(reaction(FinalState::Failed, Some(CancelReason::Requested)), None);
        assert_eq!(reaction(FinalState::Failed, Some(CancelReason::LeaseLost)), None);
        let silent = ActionAttempt { on_failure: Vec::new(), ..attempt() };
        assert_eq!(Reaction::for_result(&silent, FinalState::Failed, None), None);
    }
}
