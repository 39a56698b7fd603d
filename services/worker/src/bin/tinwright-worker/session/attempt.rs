//! One attempt at an action.
//!
//! ```text
//! StartAction ─▶ journal ─▶ run ───────────────▶ journal ─▶ rest of the log ─▶ FinishAction ─▶ reaction ─▶ journal
//!     │                     ├ ReportProgress: at most each second, at least every 15 s: it renews the lease
//!     │                     ├ AppendLog: at most each second
//!     │                     └ cancelled by the control plane or by the time limit
//!     └ terminal action: the boot ends now, nothing can be reported afterwards
//! ```
//!
//! A reaction is the template's command after a failure or timeout. If the worker crashes during the reaction, the restarted
//! worker reports the result again and kills leftover processes.
//!
//! A result that the control plane refuses stays in the journal. If its lease is assigned again, the result is reported again,
//! and the action is not run again.
//!
//! For an action that prepares the end of the boot (kexec), StartAction is called again before the boot ends.
//!
//! If the control plane is not reachable meanwhile, the action continues, and reports wait.

use machine::control_plane::CALL_TIMEOUT;
use machine::journal::Page;
use runtime::Clock;
use serde::{Deserialize, Serialize};
use tinwright::workflow::v1::{Assignment, FinishActionRequest, StartActionRequest};
use tokio_util::sync::CancellationToken;
use worker::{ActionOutcome, Builtin, Context, RetryPolicy, Terminal};

use super::assignment::{ActionAttempt, WorkerIds};
use super::outcome::{Finish, action_result};
use super::reaction::Reaction;
use super::{CallOutcome, Session};

/// The running action in the journal, or its result.
pub(super) const ATTEMPT: Page = Page::new("attempt.json");

/// An attempt in the journal: Running ──▶ Ended ──▶ deleted once the result is accepted.
#[derive(Debug, Deserialize, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub(crate) enum AttemptRecord {
    /// The action is running. A restarted worker goes on with it if it can.
    Running {
        lease_id: String,
        action: String,
        #[serde(default)]
        can_go_on: bool,
    },
    /// The action ended; the result may not be reported yet, or was refused.
    Ended { finish: Finish },
}

/// The end of an attempt.
enum AttemptEnd {
    /// A result to report, and the reaction to run afterwards.
    Result(Finish, Option<Reaction>),
    /// The boot has to end.
    EndBoot(Terminal),
}

impl Session {
    /// Runs the action of `assignment`, and reports its result. If an earlier report under this lease was refused, only reports
    /// that result again. With `goes_on`, an earlier process began the attempt.
    #[tracing::instrument(skip_all, fields(workflow.id = assignment.workflow_id, lease.id = assignment.lease_id))]
    pub(super) async fn run_assignment(
        &self,
        assignment: Assignment,
        goes_on: bool,
    ) -> CallOutcome {
        if let Some(finish) = self.refused_result(&assignment.lease_id).await {
            return self.repeat_result(finish).await;
        }
        let (boot_id, hardware_id) = (&self.holder.boot_id, &self.hardware_id);
        let Some(attempt) = ActionAttempt::parse(assignment, WorkerIds { boot_id, hardware_id })
        else {
            tracing::error!("assignment without an action ignored");
            return CallOutcome::Idle;
        };
        let terminal = attempt.builtin.and_then(Builtin::terminal);
        if !self.start(&attempt, terminal.is_some()).await {
            return CallOutcome::Idle;
        }
        if goes_on {
            self.continue_log(&attempt).await;
        }
        let end = match (attempt.builtin, terminal) {
            (_, Some(terminal)) => AttemptEnd::EndBoot(terminal),
            (Some(builtin), None) => self.run_journalled(&attempt, builtin).await,
            (None, None) => {
                AttemptEnd::Result(Finish::failed(&attempt, unsupported_image(&attempt)), None)
            }
        };
        let (finish, reaction) = match end {
            AttemptEnd::Result(finish, reaction) => (finish, reaction),
            AttemptEnd::EndBoot(_) if terminal.is_none() && !self.start(&attempt, true).await => {
                self.clear_attempt().await;
                return CallOutcome::Idle;
            }
            AttemptEnd::EndBoot(terminal) => match self.power.end_boot(terminal) {
                Ok(()) => return CallOutcome::BootEnded,
                Err(error) => {
                    (Finish::failed(&attempt, format!("{}: {error}", attempt.image)), None)
                }
            },
        };
        tracing::info!(action = attempt.name, state = ?finish.state, reason = finish.reason, "action ended");
        let step = self.finish_action(finish).await;
        if step == CallOutcome::Done {
            if let Some(reaction) = reaction {
                self.react(&attempt, reaction).await;
            }
            self.clear_attempt().await;
        }
        step
    }

    /// Calls StartAction. Returns false if the action must not run.
    async fn start(&self, attempt: &ActionAttempt, terminal: bool) -> bool {
        let (workflow_id, lease_id) = (attempt.workflow_id.clone(), attempt.lease_id.clone());
        let request = StartActionRequest { workflow_id, lease_id, terminal };
        match self.link.repeat(request, CALL_TIMEOUT).await {
            Ok(_) => {
                let (action, image) = (&attempt.name, &attempt.image);
                tracing::info!(action, image, terminal, "action started");
                true
            }
            Err(status) => {
                let error = runtime::cause(&status);
                tracing::warn!(
                    action = attempt.name,
                    error,
                    "action not started: the lease is no longer valid"
                );
                false
            }
        }
    }

    async fn run_journalled(&self, attempt: &ActionAttempt, builtin: Builtin) -> AttemptEnd {
        let (lease_id, action) = (attempt.lease_id.clone(), attempt.name.clone());
        let can_go_on = builtin.can_go_on(&attempt.environment);
        let running = AttemptRecord::Running { lease_id, action, can_go_on };
        if let Err(error) = self.journal.write(ATTEMPT, &running).await {
            // Without the journal, a crash of the worker could lose the result.
            let reason = format!("not started: {:#}", anyhow::Error::new(error));
            return AttemptEnd::Result(Finish::failed(attempt, reason), None);
        }
        let end = self.run_action(attempt, builtin).await;
        if let AttemptEnd::Result(finish, _) = &end {
            let ended = AttemptRecord::Ended { finish: finish.clone() };
            if let Err(error) = self.journal.write(ATTEMPT, &ended).await {
                let error = runtime::cause(&error);
                tracing::warn!(error, "result not journalled: a crash would lose it");
            }
        }
        while self.send_piece(attempt).await {}
        end
    }

    async fn run_action(&self, attempt: &ActionAttempt, builtin: Builtin) -> AttemptEnd {
        // Actions before this one may have made partitions.
        self.machine.refresh_links().await;
        let (begun, context) = (Clock::system().monotonic(), self.context(attempt));
        let stop = context.stop.clone();
        let environment = attempt.environment.clone();
        let mut action =
            tokio::spawn(async move { worker::run(builtin, &environment, &context).await });
        let cause = tokio::select! {
            outcome = &mut action => Err(outcome),
            cause = self.wait_for_cancellation(attempt) => Ok(cause),
            never = self.send_log(attempt) => match never {},
        };
        let (outcome, cancelled) = match cause {
            Err(outcome) => (outcome, None),
            Ok(cause) => {
                tracing::warn!(?cause, "cancelling the action");
                stop.cancel();
                (action.await, Some(cause))
            }
        };
        // A cancelled action does not end the boot.
        if let (Ok(ActionOutcome::Terminal(terminal)), None) = (&outcome, cancelled) {
            return AttemptEnd::EndBoot(*terminal);
        }
        let (state, reason) = action_result(attempt, outcome, cancelled);
        let (tail, duration) = (attempt.recorder.log.tail(), Clock::system().monotonic() - begun);
        let finish = Finish { state, tail, duration, ..Finish::failed(attempt, reason) };
        AttemptEnd::Result(finish, Reaction::for_result(attempt, state, cancelled))
    }

    /// Returns the context of an action, or of its reaction.
    pub(super) fn context(&self, attempt: &ActionAttempt) -> Context {
        let (progress, stop) = (attempt.recorder.clone(), CancellationToken::new());
        let boot_server = Some(self.boot_server.clone());
        let (roots, image_keys) = (self.roots.clone(), self.image_keys.clone());
        let retry_policy = RetryPolicy::default();
        Context { progress, stop, roots, boot_server, image_keys, retry_policy }
    }

    /// Reports a result. If it is refused, reports it without its output, which may be too large for the workflow's record. If
    /// this is refused, too, the result stays in the journal.
    pub(super) async fn finish_action(&self, mut finish: Finish) -> CallOutcome {
        loop {
            let request = FinishActionRequest::from(finish.clone());
            let Err(status) = self.link.repeat(request, CALL_TIMEOUT).await else {
                return CallOutcome::Done;
            };
            tracing::error!(error = runtime::cause(&status), "result refused by the control plane");
            if !finish.shorten() {
                break;
            }
        }
        let ended = AttemptRecord::Ended { finish };
        if let Err(error) = self.journal.write(ATTEMPT, &ended).await {
            let error = runtime::cause(&error);
            tracing::error!(error, "refused result not journalled: its action may run again");
        }
        CallOutcome::Idle
    }

    /// Returns the result in the journal if it is one under `lease`. It was refused: an accepted one is deleted.
    async fn refused_result(&self, lease: &str) -> Option<Finish> {
        let attempt = self.journal.read(ATTEMPT).await.inspect_err(|error| {
            tracing::error!(error = runtime::cause(error), "journal not readable");
        });
        match attempt.ok().flatten()? {
            AttemptRecord::Ended { finish } => (finish.lease_id == lease).then_some(finish),
            AttemptRecord::Running { .. } => None,
        }
    }

    /// Reports a result that was refused. If it is refused again, waits a minute.
    async fn repeat_result(&self, finish: Finish) -> CallOutcome {
        tracing::warn!("action not run again: its result was refused; reporting the result again");
        let step = self.finish_action(finish).await;
        if step == CallOutcome::Done {
            self.clear_attempt().await;
        } else {
            self.wait_for_retry().await;
        }
        step
    }

    /// Deletes the attempt from the journal.
    pub(super) async fn clear_attempt(&self) {
        if let Err(error) = self.journal.clear(ATTEMPT).await {
            let error = runtime::cause(&error);
            tracing::warn!(
                error,
                "journal not cleared: the result would be reported again after a restart"
            );
        }
    }
}

fn unsupported_image(attempt: &ActionAttempt) -> String {
    format!(
        "{:?} is not a built-in action with its usual command, and containers are not supported",
        attempt.image
    )
}
