//! A workflow and its actions, from created to ended, as values. No I/O; `now` is an argument.
//!
//! ```text
//!            BeginTurn        Prepared              RequestAction           every action succeeded,
//! Pending ────────▶ Preparing ─────────▶ Pending ───────────────▶ Running ─one failed, time is over,─▶ Post ──▶ Ended
//!    │                │ ▲               (prepared)                 │ ▲     or cancelled                 ▲  PostDone
//!    │                │ └─ no request in time, three times at most ┴─┼──────────────────────────────────┤  PostFailed
//!    │                └─ failed, too slow, or cancelled ─────────────┼──────────────────────────────────┘
//!    ├─ first RequestAction, if there is nothing to prepare ─────────┘
//!    └─ cancelled before anything was changed ──▶ Ended
//!
//! HeldBack ──Release──▶ Pending        HeldBack ──cancelled, or not released in time──▶ Ended
//!
//! an action:
//!        RequestAction         Start              Report
//! Pending ────────▶ Leased ───────▶ Running ────────────▶ Ended (success, failed, timeout, skipped)
//!    ▲                 │ other         │ lost (reboot, restart, silence past its deadline),
//!    │                 │ holder        │ failed or timed out with retries left
//!    └─────────────────┴───────────────┘ after a backoff
//! ```
//!
//! - **Held back**: the creator of a workflow may record its id before anything is done to the machine. Until it releases the
//!   workflow, that has no turn and no action for a worker.
//! - **One executor.** Actions run one after the other. The holder of an action's lease runs it; a report under any other
//!   lease is [`EventRefused::Superseded`] and changes nothing. A repeated request gets the same lease.
//! - **One boot epoch.** A machine that is prepared is switched off first, and with that a boot epoch begins. Only a worker whose
//!   identity is of that epoch gets a lease; an earlier one may be in the hands of the machine's tenant.
//! - **Lost** is not a state: within one transition the action becomes pending again or failed, as its [`AfterLoss`] says.
//!   A new boot id means a reboot, a new process id a restart of the worker.
//! - **A worker that does not come** (its machine is prepared, or an action is to be run or was leased and not started) is
//!   awaited for a limited time; then the machine is prepared again. A machine that is booted by hand has no such limit.
//! - **Post** is entered whenever the workflow may have changed the machine's boot device, or is to switch it off, whatever
//!   the outcome: a BMC may have acted on a request whose answer was lost. Otherwise there is nothing to undo, and the
//!   workflow ends at once.
//! - **The end is final.** Later events are repetitions (same answer) or superseded.
//!
//! Every deadline is computed from a stored time, so it survives a restart of the server; see [`deadline`].
//! [`Event::BeginTurn`] and the first [`Event::RequestAction`] must only be applied to the workflow whose
//! [turn](crate::turn) it is. The same states and transitions are described in `docs/reference/workflow-lifecycle.md`.

pub mod action;
pub mod boots;
pub mod deadline;
pub mod plan;
#[cfg(test)]
mod tests;
mod transitions;

use std::time::SystemTime;

use tinwright::LeaseId;
use tinwright::workflow::v1 as pb;

pub use crate::template::AfterLoss;
pub use action::{Action, ActionEnd, AttemptReport, Holder, Lease};
pub use boots::{Boots, SeenBoot};
pub use plan::{Plan, Step, WorkerTimeouts};

/// A workflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workflow {
    /// The part that never changes.
    pub plan: Plan,
    /// In the order they run.
    pub actions: Vec<Action>,
    /// Time of the first lease; the time limit counts from here.
    pub begun: Option<SystemTime>,
    /// The number of times that the preparation of the machine was begun.
    pub preparations: u32,
    /// The latest step of a boot of the machine while its worker was awaited.
    pub boot_step: Option<BootStep>,
    /// The boot epoch of the machine that began when it was switched off in the preparation; 0 before. Without a preparation,
    /// the epoch of the latest holder of a lease.
    pub boot_epoch: u64,
    /// The boots of the machine whose workers called.
    pub boots: Boots,
    /// Its state.
    pub state: State,
}

/// A step of a boot, as a boot server reported it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootStep {
    /// Its time.
    pub at: SystemTime,
    /// Description in one line for people.
    pub text: String,
}

/// The state of a workflow. Data lives in the state that owns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Held back by its creator.
    HeldBack {
        /// Start of this state.
        since: SystemTime,
    },
    /// Waits for its turn, or once `prepared` for the machine's worker.
    Pending {
        /// Time at which the BMC was set up; the workflow holds the machine.
        prepared: Option<SystemTime>,
    },
    /// Power and boot device are being set.
    Preparing {
        /// Start of this state.
        since: SystemTime,
    },
    /// Its actions run.
    Running {
        /// Time of the cancellation, if an action that runs must be stopped first.
        stop: Option<SystemTime>,
    },
    /// The changes to the machine's boot device are being undone, and its power is switched off where that was requested.
    Post {
        /// Start of this state.
        since: SystemTime,
        /// The outcome that follows.
        outcome: WorkflowOutcome,
    },
    /// Final.
    Ended {
        /// Time of the end.
        at: SystemTime,
        /// Result.
        outcome: WorkflowOutcome,
        /// The failure of the clean-up, if the outcome was decided before.
        warning: Option<String>,
    },
}

/// The result of a workflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkflowOutcome {
    /// Every action succeeded or was skipped.
    Success,
    /// Something failed.
    Failed {
        /// Cause, for people.
        reason: String,
    },
    /// An action or the whole workflow exceeded its time.
    Timeout,
    /// Cancelled by a caller, or not released by its creator.
    Cancelled {
        /// Cause, for people; empty if a caller cancelled it.
        reason: String,
    },
}

/// An event in the life of a workflow. Those that the reconciler applies have a text for the log.
#[derive(Clone, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Event {
    /// Its creator, who held it back, lets it take its place in the queue.
    Release,
    /// It is first in its machine's queue.
    #[strum(serialize = "the turn of the workflow began")]
    BeginTurn,
    /// The BMC reported the machine as off in its preparation: with it, this boot epoch begins. It must be stored in the same
    /// commit.
    PoweredOff {
        /// The new epoch.
        epoch: u64,
    },
    /// The BMC is set up, and its state was read back.
    #[strum(serialize = "machine prepared")]
    Prepared,
    /// The BMC could not be set up.
    #[strum(serialize = "preparing the machine failed")]
    PrepareFailed(String),
    /// The machine's worker requests an action; the call has just arrived.
    RequestAction {
        /// The boot and process of the worker.
        holder: Holder,
        /// The lease under which this worker still runs an action, by its journal.
        running: Option<LeaseId>,
        /// Id of the lease to create, if there is an action to run.
        new_lease: LeaseId,
    },
    /// A held request looks again for an action. Its boot and process were evaluated when it arrived
    /// ([`Event::RequestAction`]): by now its machine may have rebooted, and the caller be gone.
    RetryRequest {
        /// The caller.
        holder: Holder,
        /// Id of the lease to create.
        new_lease: LeaseId,
    },
    /// The machine's worker requests an action while no step may be taken on the machine: none is leased, but a restart is
    /// detected.
    RequestWhileSuspended {
        /// The boot and process of the worker.
        holder: Holder,
        /// The lease under which this worker still runs an action, by its journal.
        running: Option<LeaseId>,
    },
    /// The worker that holds this lease is alive.
    Renew(LeaseId),
    /// The worker starts the action. It runs it only if this is accepted.
    Start {
        /// Its lease.
        lease: LeaseId,
        /// The action ends this boot of the machine: no report will follow.
        terminal: bool,
    },
    /// The worker reports the end of an action.
    Report {
        /// Its lease.
        lease: LeaseId,
        /// The result.
        report: AttemptReport,
    },
    /// The machine is in a new boot: its firmware requested an address, or its installed system phoned home.
    Booted,
    /// An operator confirms that the machine was restarted: with it, this boot epoch begins. It must be stored in the same commit.
    RestartConfirmed {
        /// The new epoch.
        epoch: u64,
    },
    /// A boot server has seen a step of a boot of the machine.
    BootStep(BootStep),
    /// No step may be taken on the machine now, as it is in maintenance: the limits of preparing, of post and of an awaited
    /// worker count from now.
    Suspend,
    /// A caller cancels the workflow.
    #[strum(serialize = "workflow cancelled")]
    Cancel,
    /// A caller cancels the workflow, unless that is too late for an effect: the machine leaves the last boot, or the workflow is in post
    /// with another outcome.
    CancelInTime,
    /// Time has passed.
    #[strum(serialize = "time limit checked")]
    Tick,
    /// The clean-up is complete.
    #[strum(serialize = "clean-up after the workflow ended")]
    PostDone,
    /// The clean-up failed.
    #[strum(serialize = "clean-up after the workflow failed")]
    PostFailed(String),
}

impl Event {
    /// Returns the error of a step that failed.
    pub fn failure(&self) -> Option<&str> {
        if let Self::PrepareFailed(reason) | Self::PostFailed(reason) = self {
            return Some(reason);
        }
        None
    }
}

/// The reason why an event changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventRefused {
    /// The event does not fit the state.
    #[error("a workflow that is {state} cannot {event}")]
    WrongState {
        /// As the API spells it.
        state: String,
        /// As a verb.
        event: &'static str,
    },
    /// The event comes too late for an effect, for this reason.
    #[error("too late: {0}")]
    TooLate(&'static str),
    /// Another lease or a result came first. A result may be answered as if accepted; a start or a renewal must
    /// not, or the action runs twice.
    #[error("lease {0} is no longer current")]
    Superseded(LeaseId),
    /// Two boots of the machine called at once.
    #[error(
        "two boots of the machine call at once: both are refused until an operator confirms a restart"
    )]
    TwoBoots,
    /// The worker's identity is of another boot epoch.
    #[error("the worker's identity is of boot epoch {held}, and the present one is {present}")]
    OtherEpoch {
        /// The epoch in its identity.
        held: u64,
        /// The present epoch.
        present: u64,
    },
}

impl Workflow {
    /// A new workflow: pending, with the actions that need not run skipped.
    pub fn new(plan: Plan, steps: Vec<Step>, now: SystemTime) -> Self {
        let actions = steps.into_iter().map(|step| Action::new(step, now)).collect();
        let state = State::Pending { prepared: None };
        Self {
            plan,
            actions,
            begun: None,
            preparations: 0,
            boot_step: None,
            boot_epoch: 0,
            boots: Boots::default(),
            state,
        }
    }

    /// The same workflow, held back by its creator from `now` on.
    pub fn held_back(self, now: SystemTime) -> Self {
        Self { state: State::HeldBack { since: now }, ..self }
    }

    /// The action that runs or is next.
    pub fn current(&self) -> Option<&Action> {
        self.actions.iter().find(|action| !action.has_ended())
    }

    /// The lease of the current action, if a worker holds it.
    pub fn lease(&self) -> Option<&Lease> {
        self.current().and_then(Action::lease)
    }

    /// True if all that is left is that the machine leaves its boot, by the last action.
    pub fn is_leaving(&self) -> bool {
        let mut left = self.actions.iter().filter(|action| !action.has_ended());
        let last = left.next().filter(|_| left.next().is_none());
        matches!(self.state, State::Running { stop: None }) && last.is_some_and(Action::is_terminal)
    }

    /// True if the worker that runs an action is to stop it.
    pub fn is_stopping(&self) -> bool {
        matches!(self.state, State::Running { stop: Some(_), .. })
    }

    /// True if the current lease has expired without a renewal.
    pub fn is_silent(&self, now: SystemTime) -> bool {
        self.lease().is_some_and(|lease| lease.expires <= now)
    }

    /// True if the machine needs the worker's environment at its next boot, because actions are left to run.
    ///
    /// False once the last action is terminal and started: then the machine boots its disk, before anything else is known.
    /// What a machine boots after a workflow that failed is not decided here.
    pub fn wants_machine(&self) -> bool {
        let mut left = self.actions.iter().filter(|action| !action.has_ended());
        match self.state {
            State::Pending { .. } | State::Preparing { .. } => left.next().is_some(),
            State::Running { .. } => match (left.next(), left.next()) {
                (Some(last), None) => !last.is_terminal(),
                (first, _) => first.is_some(),
            },
            State::HeldBack { .. } | State::Post { .. } | State::Ended { .. } => false,
        }
    }
}

impl From<&State> for pb::WorkflowState {
    fn from(state: &State) -> Self {
        match state {
            State::HeldBack { .. } | State::Pending { .. } => Self::Pending,
            State::Preparing { .. } => Self::Preparing,
            State::Running { .. } => Self::Running,
            State::Post { .. } => Self::Post,
            State::Ended { outcome, .. } => outcome.into(),
        }
    }
}

impl From<&WorkflowOutcome> for pb::WorkflowState {
    fn from(outcome: &WorkflowOutcome) -> Self {
        match outcome {
            WorkflowOutcome::Success => Self::Success,
            WorkflowOutcome::Failed { .. } => Self::Failed,
            WorkflowOutcome::Timeout => Self::Timeout,
            WorkflowOutcome::Cancelled { .. } => Self::Cancelled,
        }
    }
}

impl WorkflowOutcome {
    /// The result of a workflow that a caller cancelled.
    pub const CANCELLED: Self = Self::Cancelled { reason: String::new() };
}

impl State {
    /// Returns the name in the API.
    pub fn name(&self) -> String {
        pb::WorkflowState::from(self).word()
    }
}
