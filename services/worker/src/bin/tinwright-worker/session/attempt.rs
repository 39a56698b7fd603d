//! One try at an action.
//!
//! ```text
//! StartAction ─▶ journal ─▶ run ───────────────▶ journal ─▶ rest of the log ─▶ FinishAction ─▶ reaction ─▶ journal
//!     │                     ├ ReportProgress: each second that brings news, every 15 s at least: it keeps the lease
//!     │                     ├ AppendLog: each second that brings news
//!     │                     └ told to stop, or overdue: cancelled
//!     └ terminal: nothing can be told afterwards, so the machine leaves now
//! ```
//!
//! A reaction is what the template wants run after a bad end. A worker that is killed in it tells the result again, and kills
//! what was left running.
//!
//! An action that has to prepare the machine's leave says so by another StartAction, once it has.
//!
//! The control plane may come and go meanwhile: the action runs on, and what is to be told waits.

use std::sync::Arc;

use runtime::Clock;
use serde::{Deserialize, Serialize};
use tinwright::workflow::v1::{Assignment, StartActionRequest};
use tokio_util::sync::CancellationToken;
use worker::{Builtin, Context, Outcome, RetryPolicy, Terminal};

use super::ending::{Finish, ending};
use super::feed::Feed;
use super::log::Sent;
use super::order::{Order, Runner};
use super::reaction::Reaction;
use super::{Session, Step};
use crate::journal::Page;

/// What the journal knows of an attempt: Running ──▶ Ended ──▶ gone, once it is told.
#[derive(Debug, Deserialize, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub(crate) enum Attempt {
    /// Begun.
    Running { lease_id: String, action: String },
    /// Over, and the control plane may not know it yet.
    Ended { finish: Finish },
}

/// What an action came to.
enum End {
    /// A result to tell, and what to run then.
    Told(Finish, Option<Reaction>),
    /// The machine is to leave this boot.
    Leaving(Terminal),
}

impl Session {
    /// Does what `assignment` says, and tells how it ended.
    #[tracing::instrument(skip_all, fields(workflow.id = assignment.workflow_id, lease.id = assignment.lease_id))]
    pub(super) async fn take(&self, assignment: Assignment) -> Step {
        let (boot_id, hardware_id) = (&self.holder.boot_id, &self.hardware_id);
        let Some(order) = Order::read(assignment, Runner { boot_id, hardware_id }) else {
            tracing::error!("an assignment without an action");
            return Step::Idle;
        };
        let terminal = order.builtin.and_then(Builtin::terminal);
        if !self.start(&order, terminal.is_some()).await {
            return Step::Idle;
        }
        let (feed, mut sent) = (Arc::new(Feed::default()), Sent::default());
        let end = match (order.builtin, terminal) {
            (_, Some(terminal)) => End::Leaving(terminal),
            (Some(builtin), None) => self.run_to_its_end(&order, builtin, &feed, &mut sent).await,
            (None, None) => End::Told(Finish::failed(&order, unknown(&order)), None),
        };
        let (finish, reaction) = match end {
            End::Told(finish, reaction) => (finish, reaction),
            End::Leaving(_) if terminal.is_none() && !self.start(&order, true).await => {
                self.forget().await;
                return Step::Idle;
            }
            End::Leaving(terminal) => match self.power.leave(terminal) {
                Ok(()) => return Step::Left,
                Err(error) => (Finish::failed(&order, format!("{}: {error}", order.image)), None),
            },
        };
        tracing::info!(action = order.name, state = ?finish.state, reason = finish.reason, "action ended");
        let step = self.tell(finish).await;
        if let (Step::Done, Some(reaction)) = (step, reaction) {
            self.react(&order, reaction, &feed, &mut sent).await;
        }
        self.forget().await;
        step
    }

    /// Whether the action may be run.
    async fn start(&self, order: &Order, terminal: bool) -> bool {
        let (workflow_id, lease_id) = (order.workflow_id.clone(), order.lease_id.clone());
        let started =
            self.link.start_action(StartActionRequest { workflow_id, lease_id, terminal });
        match started.await {
            Ok(_) => {
                let (action, image) = (&order.name, &order.image);
                tracing::info!(action, image, terminal, "action begins");
                true
            }
            Err(status) => {
                let error = &status as &dyn std::error::Error;
                tracing::warn!(action = order.name, error, "not begun: it is not ours any more");
                false
            }
        }
    }

    async fn run_to_its_end(
        &self,
        order: &Order,
        builtin: Builtin,
        feed: &Arc<Feed>,
        sent: &mut Sent,
    ) -> End {
        let (lease_id, action) = (order.lease_id.clone(), order.name.clone());
        let begun = self.journal.write(Page::Attempt, &Attempt::Running { lease_id, action }).await;
        if let Err(error) = begun {
            // Without it a crash could not be told from a result that was never told.
            let why = format!("not begun: {:#}", anyhow::Error::new(error));
            return End::Told(Finish::failed(order, why), None);
        }
        let end = self.carry_out(order, builtin, feed, sent).await;
        if let End::Told(finish, _) = &end {
            let ended = Attempt::Ended { finish: finish.clone() };
            if let Err(error) = self.journal.write(Page::Attempt, &ended).await {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "a crash would lose the result");
            }
        }
        while self.send_piece(order, feed, sent).await {}
        end
    }

    async fn carry_out(
        &self,
        order: &Order,
        builtin: Builtin,
        feed: &Arc<Feed>,
        sent: &mut Sent,
    ) -> End {
        let (begun, stop) = (Clock::system().monotonic(), CancellationToken::new());
        let context = Context {
            progress: feed.clone(),
            stop: stop.clone(),
            roots: self.roots.clone(),
            retry_policy: RetryPolicy::default(),
        };
        let environment = order.environment.clone();
        let mut action =
            tokio::spawn(async move { worker::run(builtin, &environment, &context).await });
        let cause = tokio::select! {
            outcome = &mut action => Err(outcome),
            cause = self.reason_to_stop(order, feed) => Ok(cause),
            never = self.send_log(order, feed, sent) => match never {},
        };
        let (outcome, stopped) = match cause {
            Err(outcome) => (outcome, None),
            Ok(cause) => {
                tracing::warn!(?cause, "the action is stopped");
                stop.cancel();
                (action.await, Some(cause))
            }
        };
        // One that was to stop meanwhile has nothing to leave for any more.
        if let (Ok(Outcome::Terminal(terminal)), None) = (&outcome, stopped) {
            return End::Leaving(*terminal);
        }
        let (state, reason) = ending(order, outcome, stopped);
        let (tail, duration) = (feed.log.tail(), Clock::system().monotonic() - begun);
        let finish = Finish { state, tail, duration, ..Finish::failed(order, reason) };
        End::Told(finish, Reaction::to(order, state, stopped))
    }

    /// Tells a result.
    pub(super) async fn tell(&self, finish: Finish) -> Step {
        if let Err(status) = self.link.finish_action(finish.into()).await {
            // For good, and kept it would be of no use to anybody.
            tracing::error!(error = &status as &dyn std::error::Error, "the result is not wanted");
            return Step::Idle;
        }
        Step::Done
    }

    /// Takes the attempt out of the journal.
    pub(super) async fn forget(&self) {
        if let Err(error) = self.journal.clear(Page::Attempt).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "the result will be told again after a restart");
        }
    }
}

fn unknown(order: &Order) -> String {
    format!(
        "{:?} is no built-in action with its usual command, and containers are not run here",
        order.image
    )
}
