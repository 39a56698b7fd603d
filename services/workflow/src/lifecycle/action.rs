//! One action and its attempts.

use std::time::SystemTime;

use tinwright::{BootId, LeaseId, ProcessId};

use super::deadline::{LEASE_DURATION, RETRY_BACKOFF, later};
use super::{AfterLoss, Step};

/// The number of lost attempts after which an action fails, so that a machine that crashes in it is not retried for ever.
pub const MAX_LOST_ATTEMPTS: u32 = 5;

/// An action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// The part that never changes.
    pub step: Step,
    /// Attempts that failed or timed out.
    pub failed: u32,
    /// Attempts whose result is unknown.
    pub lost: u32,
    /// Its state.
    pub state: State,
    /// Cause of the end of the last attempt that ended, in one line for people.
    pub reason: String,
    /// True if the worker of the latest attempt reported its end.
    pub reported: bool,
}

/// The state of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Not leased.
    Pending {
        /// End of the backoff.
        not_before: Option<SystemTime>,
    },
    /// A worker holds it and has not started it.
    Leased {
        /// The worker's lease.
        lease: Lease,
    },
    /// A worker runs it.
    Running {
        /// The worker's lease.
        lease: Lease,
        /// Its first start under this lease.
        since: SystemTime,
        /// Time from which it may end this boot of the machine.
        terminal: Option<SystemTime>,
    },
    /// Final.
    Ended {
        /// Time of the end.
        at: SystemTime,
        /// Result.
        end: ActionEnd,
        /// The lease under which it ended, if there was one.
        lease: Option<LeaseId>,
    },
}

/// The result of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActionEnd {
    /// It succeeded.
    Success,
    /// It failed.
    Failed,
    /// It exceeded its timeout.
    Timeout,
    /// Its condition was false.
    Skipped,
}

/// A worker's report of the end of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptReport {
    /// Result.
    pub end: ActionEnd,
    /// Cause, in one line for people; may be empty.
    pub reason: String,
}

/// The permission to make one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The fence: every report names it.
    pub id: LeaseId,
    /// The worker that has it.
    pub holder: Holder,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// The time from which its holder counts as silent. It stays the holder.
    pub expires: SystemTime,
}

/// One process of a worker in one boot of its machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The boot.
    pub boot: BootId,
    /// The process.
    pub process: ProcessId,
    /// The boot epoch of its machine in which it was given its identity.
    pub epoch: u64,
}

impl Action {
    pub(super) fn new(step: Step, now: SystemTime) -> Self {
        let state = match step.skipped {
            true => State::Ended { at: now, end: ActionEnd::Skipped, lease: None },
            false => State::Pending { not_before: None },
        };
        Self { step, failed: 0, lost: 0, state, reason: String::new(), reported: false }
    }

    /// True once it has ended.
    pub fn has_ended(&self) -> bool {
        self.result().is_some()
    }

    /// Its result, once it has ended.
    pub fn result(&self) -> Option<ActionEnd> {
        match &self.state {
            State::Ended { end, .. } => Some(*end),
            State::Pending { .. } | State::Leased { .. } | State::Running { .. } => None,
        }
    }

    /// The time of its end.
    pub(super) fn end_time(&self) -> Option<SystemTime> {
        match &self.state {
            State::Ended { at, .. } => Some(*at),
            State::Pending { .. } | State::Leased { .. } | State::Running { .. } => None,
        }
    }

    /// The lease that a worker holds on it.
    pub fn lease(&self) -> Option<&Lease> {
        match &self.state {
            State::Leased { lease } | State::Running { lease, .. } => Some(lease),
            State::Pending { .. } | State::Ended { .. } => None,
        }
    }

    /// True if it runs and may end this boot at any moment.
    pub fn is_terminal(&self) -> bool {
        matches!(self.state, State::Running { terminal: Some(_), .. })
    }

    pub(super) fn is_running(&self) -> bool {
        matches!(self.state, State::Running { .. })
    }

    /// Leases the action to `holder`, if it is pending and its backoff is over.
    pub(super) fn lease_to(&mut self, holder: Holder, id: LeaseId, now: SystemTime) {
        let State::Pending { not_before } = self.state else { return };
        if not_before.is_none_or(|time| time <= now) {
            let attempt = self.failed.saturating_add(self.lost).saturating_add(1);
            let lease = Lease { id, holder, attempt, expires: later(now, LEASE_DURATION) };
            self.state = State::Leased { lease };
            self.reported = false;
        }
    }

    /// Renews the lease, and passes it to `holder` if one is given.
    pub(super) fn renew(&mut self, holder: Option<Holder>, now: SystemTime) {
        if let State::Leased { lease } | State::Running { lease, .. } = &mut self.state {
            lease.expires = later(now, LEASE_DURATION);
            lease.holder = holder.unwrap_or_else(|| lease.holder.clone());
        }
    }

    /// Starts the attempt. If it was started before, the first start counts.
    pub(super) fn start(&mut self, terminal: bool, now: SystemTime) {
        let (lease, since, terminal_since) = match &self.state {
            State::Leased { lease } => (lease.clone(), now, None),
            State::Running { lease, since, terminal } => (lease.clone(), *since, *terminal),
            State::Pending { .. } | State::Ended { .. } => return,
        };
        let terminal = terminal_since.or(terminal.then_some(now));
        self.state = State::Running { lease, since, terminal };
        self.renew(None, now);
        if self.step.background {
            self.end(ActionEnd::Success, "", now);
        }
    }

    /// Ends an attempt as its worker reported.
    pub(super) fn end_attempt(&mut self, report: AttemptReport, may_retry: bool, now: SystemTime) {
        self.reported = true;
        match report.end {
            ActionEnd::Failed | ActionEnd::Timeout => {
                self.fail(report.end, &report.reason, may_retry, now);
            }
            ActionEnd::Success | ActionEnd::Skipped => self.end(report.end, &report.reason, now),
        }
    }

    /// Ends an attempt with `end`, failed or timeout, without its worker's report. Retries it later if retries are left.
    pub(super) fn fail(&mut self, end: ActionEnd, reason: &str, may_retry: bool, now: SystemTime) {
        self.failed = self.failed.saturating_add(1);
        if may_retry && self.failed <= self.step.retries {
            return self.retry_later(self.failed, reason, now);
        }
        self.end(end, reason, now);
    }

    /// Ends an attempt whose result is unknown.
    pub(super) fn lose_attempt(&mut self, reason: &str, may_retry: bool, now: SystemTime) {
        self.lost = self.lost.saturating_add(1);
        let reason = format!("lost: {reason}");
        let retried = self.step.after_loss == AfterLoss::Retry && self.lost < MAX_LOST_ATTEMPTS;
        if may_retry && retried {
            return self.retry_later(self.lost, &reason, now);
        }
        self.end(ActionEnd::Failed, &reason, now);
    }

    /// Takes the lease back from a holder that has not started the action.
    pub(super) fn release(&mut self) {
        if matches!(self.state, State::Leased { .. }) {
            self.state = State::Pending { not_before: None };
        }
    }

    /// Lets a pending action be awaited from `now` on.
    pub(super) fn await_from(&mut self, now: SystemTime) {
        if let State::Pending { not_before } = &mut self.state {
            *not_before = (*not_before).max(Some(now));
        }
    }

    /// Ends the action.
    pub(super) fn end(&mut self, end: ActionEnd, reason: &str, now: SystemTime) {
        let lease = self.lease().map(|lease| lease.id.clone());
        self.state = State::Ended { at: now, end, lease };
        reason.clone_into(&mut self.reason);
    }

    /// True if it ended under `lease` with the result of `report`.
    pub(super) fn ended_with(&self, lease: &LeaseId, report: &AttemptReport) -> bool {
        let State::Ended { end, lease: Some(id), .. } = &self.state else { return false };
        let same_reason = *end != ActionEnd::Failed || self.reason == report.reason;
        id == lease && *end == report.end && same_reason
    }

    fn retry_later(&mut self, attempts: u32, reason: &str, now: SystemTime) {
        self.state =
            State::Pending { not_before: Some(later(now, RETRY_BACKOFF.delay_after(attempts))) };
        reason.clone_into(&mut self.reason);
    }
}
