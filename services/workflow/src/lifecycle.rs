//! A workflow and its actions, from created to ended, as values. Nothing here waits, stores or talks.
//!
//! ```text
//!            Turn              Prepared                first Ask           every action ended well,
//! Pending ────────▶ Preparing ─────────▶ Pending ───────────────▶ Running ─one did not, time is up,─▶ Post ──▶ Ended
//!    │                  │               (prepared)                   ▲     or a cancel is through      ▲  PostDone
//!    │                  └─ failed, too slow, or cancelled ───────────┼─────────────────────────────────┘  PostFailed
//!    ├─ first Ask, where there is nothing to prepare ────────────────┘
//!    └─ cancelled before anything was touched ──▶ Ended
//!
//! an action:
//!            Ask            Start              Report
//! Pending ────────▶ Leased ───────▶ Running ────────────▶ Ended (success, failed, timeout, skipped)
//!    ▲                 │ other         │ lost (reboot, restart, silence past its deadline),
//!    │                 │ holder        │ failed or late with tries left
//!    └─────────────────┴───────────────┘ after a pause
//! ```
//!
//! - **One executor.** Actions run one after the other. Who runs one holds its lease; a report under any other lease
//!   is [`Refused::Superseded`] and changes nothing. Asking twice gives the same lease.
//! - **Lost** is no state of its own: within one transition it becomes pending again or failed, as the action's
//!   [`AfterLoss`] says. A new boot id means a reboot, a new process id a worker's restart.
//! - **Post always runs** once anything may have been set on a BMC or any action was leased, whatever the outcome.
//!   Leaving `Preparing` always leads there: a BMC may have acted on a request whose answer was lost.
//! - **The end is final.** What arrives later is a repetition (same answer) or superseded.
//!
//! Every deadline is computed from a stored time, so a server that restarts forgets none; see [`deadline`].
//! What waits for a machine's next queue turn is [`queue`](crate::queue)'s to say: [`Event::Turn`] and the first
//! [`Event::Ask`] are for the workflow that has it.

pub mod action;
pub mod deadline;
pub mod plan;
#[cfg(test)]
mod tests;
mod transitions;

use std::time::SystemTime;

use crate::ids::{HardwareId, LeaseId};

pub use action::{Action, End, Holder, Lease};
pub use plan::{AfterLoss, Plan, Step};

/// A workflow as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workflow {
    /// What never changes about it.
    pub plan: Plan,
    /// In the order they run.
    pub actions: Vec<Action>,
    /// Where it is.
    pub state: State,
}

/// Where a workflow is in its life. Data lives in the state that owns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Waits: for its turn, or once `prepared` for the machine's worker.
    Pending {
        /// The machines' BMCs are set; the machines are held.
        prepared: bool,
    },
    /// Power and boot device are being set.
    Preparing {
        /// Since when.
        since: SystemTime,
    },
    /// Its actions run.
    Running {
        /// The first lease; the time limit counts from here.
        since: SystemTime,
        /// When it was cancelled while an action ran that must be stopped first.
        stop: Option<SystemTime>,
    },
    /// What was set on the machines is being undone.
    Post {
        /// Since when.
        since: SystemTime,
        /// How it will end.
        outcome: Outcome,
    },
    /// For good.
    Ended {
        /// When.
        at: SystemTime,
        /// How.
        outcome: Outcome,
        /// What could not be undone, where the outcome was settled already.
        warning: Option<String>,
    },
}

/// How a workflow ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every action succeeded or was skipped.
    Success,
    /// Something failed.
    Failed {
        /// What, for people.
        reason: String,
    },
    /// An action or the whole took too long.
    Timeout,
    /// Somebody wished so.
    Cancelled,
}

/// What may happen to a workflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It is first in the queues of all its machines.
    Turn,
    /// The BMCs are set, and read back so.
    Prepared,
    /// The BMCs could not be set.
    PrepareFailed(String),
    /// A machine's worker asks what to do; the call has just come in.
    Ask {
        /// The machine.
        machine: HardwareId,
        /// Which boot and process of its worker.
        holder: Holder,
        /// The lease this worker still runs an action under, by its journal.
        running: Option<LeaseId>,
        /// The lease to give, should there be something to do.
        offer: LeaseId,
    },
    /// A call that was held because there was nothing to do looks again. What its boot and process tell was told
    /// when it came ([`Event::Ask`]): by now its machine may be a boot further, and the caller gone.
    Waiting {
        /// The machine.
        machine: HardwareId,
        /// Who asked.
        holder: Holder,
        /// The lease to give.
        offer: LeaseId,
    },
    /// A worker is alive, holding this lease.
    Renew(LeaseId),
    /// An action begins. A worker goes on only if this is accepted.
    Start {
        /// Under which lease.
        lease: LeaseId,
        /// It ends this boot of the machine: nothing will be reported after it.
        terminal: bool,
    },
    /// An action ended.
    Report {
        /// Under which lease.
        lease: LeaseId,
        /// How.
        end: End,
    },
    /// The machine shows itself in a new boot: its firmware asked for an address, or its system phoned home.
    Booted(HardwareId),
    /// Somebody wishes it to end.
    Cancel,
    /// Time has passed.
    Tick,
    /// Everything is undone.
    PostDone,
    /// Something could not be undone.
    PostFailed(String),
}

/// Why an event changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The event does not fit the state.
    #[error("a workflow that is {state} cannot {event}")]
    Illegal {
        /// As the API spells it.
        state: &'static str,
        /// As a verb.
        event: &'static str,
    },
    /// Another lease or a result came first. A result may be answered as if accepted; a start or a renewal must
    /// not, or the action runs twice.
    #[error("lease {0} is no longer current")]
    Superseded(LeaseId),
}

impl Workflow {
    /// As created: nothing touched, actions without need to run skipped.
    pub fn new(plan: Plan, steps: Vec<Step>, now: SystemTime) -> Self {
        let actions = steps.into_iter().map(|step| Action::new(step, now)).collect();
        Self { plan, actions, state: State::Pending { prepared: false } }
    }

    /// The action that runs or is next.
    pub fn current(&self) -> Option<&Action> {
        self.actions.iter().find(|action| !action.has_ended())
    }

    /// The lease of the action that a worker holds now.
    pub fn lease(&self) -> Option<&Lease> {
        self.current().and_then(Action::lease)
    }

    /// What this worker is to run, or is running: its answer after [`Event::Ask`].
    pub fn assigned(&self, holder: &Holder) -> Option<&Action> {
        self.current().filter(|action| action.lease().is_some_and(|lease| lease.holder == *holder))
    }

    /// Whether the worker running an action is to stop it.
    pub fn is_stopping(&self) -> bool {
        matches!(self.state, State::Running { stop: Some(_), .. })
    }

    /// Whether the holder of the current lease has not been heard of for longer than a lease lasts.
    pub fn is_silent(&self, now: SystemTime) -> bool {
        self.lease().is_some_and(|lease| lease.expires <= now)
    }

    /// Whether the machine still has something to run, and so needs the worker's environment at its next boot.
    ///
    /// Not once its last action is terminal and started: then it is the disk's turn, before anything else is known.
    /// What a machine boots after a workflow that failed is not decided here.
    pub fn wants_machine(&self, machine: &HardwareId) -> bool {
        let mut left = self
            .actions
            .iter()
            .filter(|action| !action.has_ended() && action.step.machine == *machine);
        match self.state {
            State::Pending { .. } | State::Preparing { .. } => left.next().is_some(),
            State::Running { .. } => match (left.next(), left.next()) {
                (Some(last), None) => !last.is_terminal(),
                (first, _) => first.is_some(),
            },
            State::Post { .. } | State::Ended { .. } => false,
        }
    }

    /// Whether it keeps other workflows from its machines, waits, or is over.
    pub fn standing(&self) -> crate::queue::Standing {
        use crate::queue::Standing;
        match self.state {
            State::Pending { prepared: false } => Standing::Waiting,
            State::Ended { .. } => Standing::Over,
            State::Pending { prepared: true }
            | State::Preparing { .. }
            | State::Running { .. }
            | State::Post { .. } => Standing::Active,
        }
    }
}

impl State {
    /// As the API spells it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Pending { .. } => "pending",
            Self::Preparing { .. } => "preparing",
            Self::Running { .. } => "running",
            Self::Post { .. } => "post",
            Self::Ended { outcome, .. } => outcome.name(),
        }
    }
}

impl Outcome {
    /// As the API spells it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failed { .. } => "failed",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
        }
    }
}
