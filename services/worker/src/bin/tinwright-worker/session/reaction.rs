//! What a template wants run after a try ended badly. The result is told before: nothing here changes it.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use worker::{Context, RetryPolicy};

use super::Session;
use super::ending::{Cause, State};
use super::feed::Feed;
use super::log::Sent;
use super::order::Order;

/// What is to be run, and after what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reaction {
    after: &'static str,
    command: Vec<String>,
}

impl Reaction {
    /// What `order` wants after an end in `state`, for which there was this cause if it was stopped. Where the control plane
    /// wanted it to stop, or another worker may be at it, nothing more is done.
    pub(super) fn to(order: &Order, state: State, stopped: Option<Cause>) -> Option<Self> {
        let (after, command) = match (state, stopped) {
            (State::Timeout, _) => ("on-timeout", &order.on_timeout),
            (State::Failed, None | Some(Cause::Overdue)) => ("on-failure", &order.on_failure),
            (State::Failed, Some(Cause::Unwanted | Cause::Superseded)) | (State::Success, _) => {
                return None;
            }
        };
        (!command.is_empty()).then(|| Self { after, command: command.clone() })
    }
}

impl Session {
    /// Runs `reaction`, for as long as `order` might have taken. What it writes is added to the log of the try.
    pub(super) async fn react(
        &self,
        order: &Order,
        reaction: Reaction,
        feed: &Arc<Feed>,
        sent: &mut Sent,
    ) {
        let Reaction { after, command } = reaction;
        tracing::info!(action = order.name, after, "running what the template wants");
        feed.log.write(format!("{after}:\n").as_bytes());
        let stop = CancellationToken::new();
        let context = Context {
            progress: feed.clone(),
            stop: stop.clone(),
            roots: self.roots.clone(),
            retry_policy: RetryPolicy::default(),
        };
        let (image, environment) = (order.image.clone(), order.environment.clone());
        let mut reacting =
            tokio::spawn(
                async move { worker::react(&image, &command, &environment, &context).await },
            );
        let ended = tokio::select! {
            ended = &mut reacting => ended,
            () = tokio::time::sleep(order.limit) => {
                stop.cancel();
                reacting.await
            }
            never = self.send_log(order, feed, sent) => match never {},
        };
        let line = match ended {
            Ok(Ok(())) => "done".into(),
            Ok(Err(_)) if stop.is_cancelled() => format!("not done within {:?}", order.limit),
            Ok(Err(reason)) => reason,
            Err(_) => "it broke: a defect of the worker".into(),
        };
        tracing::info!(action = order.name, after, line, "it ended");
        feed.log.write(format!("{after}: {line}\n").as_bytes());
        while self.send_piece(order, feed, sent).await {}
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use worker::Environment;

    use super::*;

    fn order() -> Order {
        Order {
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
        }
    }

    #[test]
    fn a_bad_end_of_its_own_is_reacted_to_and_no_other() {
        let to = |state, stopped| Reaction::to(&order(), state, stopped).map(|it| it.after);
        assert_eq!(to(State::Timeout, Some(Cause::Overdue)), Some("on-timeout"));
        assert_eq!(to(State::Failed, None), Some("on-failure"));
        assert_eq!(to(State::Success, None), None);
        assert_eq!(to(State::Failed, Some(Cause::Unwanted)), None);
        assert_eq!(to(State::Failed, Some(Cause::Superseded)), None);
        let silent = Order { on_failure: Vec::new(), ..order() };
        assert_eq!(Reaction::to(&silent, State::Failed, None), None);
    }
}
