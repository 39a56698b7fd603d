//! One action and the tries made at it.

use std::time::{Duration, SystemTime};

use super::{
    deadline::{BACK_OFF, LEASE, later},
    plan::{AfterLoss, Step},
};
use crate::ids::{BootId, LeaseId, ProcessId};

/// How often an action may be lost before it fails: a machine that falls over in it does not do so for ever.
pub const LOSSES: u32 = 5;

/// An action as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// What never changes about it.
    pub step: Step,
    /// Tries that failed or took too long.
    pub failed: u32,
    /// Tries whose end nobody knows.
    pub lost: u32,
    /// Where it is.
    pub state: State,
}

/// Where an action is in its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Nobody has it.
    Pending {
        /// Not to be tried again earlier.
        not_before: Option<SystemTime>,
    },
    /// A worker has it and has not begun.
    Leased {
        /// Under which lease.
        lease: Lease,
    },
    /// A worker runs it.
    Running {
        /// Under which lease.
        lease: Lease,
        /// Its first start under this lease.
        since: SystemTime,
        /// Since when it may end this boot of the machine any moment.
        terminal: Option<SystemTime>,
    },
    /// For good.
    Ended {
        /// When.
        at: SystemTime,
        /// How.
        end: End,
        /// Under which lease, if it was settled under one.
        lease: Option<LeaseId>,
    },
}

/// How an action ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It did what it should.
    Success,
    /// It did not.
    Failed {
        /// Why, for people.
        reason: String,
    },
    /// It took too long.
    Timeout,
    /// It did not have to run.
    Skipped,
}

/// The permission to make one try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The fence: every report names it.
    pub id: LeaseId,
    /// Who was given it.
    pub holder: Holder,
    /// Which try this is, counted from 1.
    pub attempt: u32,
    /// When its holder counts as silent. It stays the holder.
    pub expires: SystemTime,
}

/// One process of a worker in one boot of its machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The boot.
    pub boot: BootId,
    /// The process.
    pub process: ProcessId,
}

impl Action {
    pub(super) fn new(step: Step, now: SystemTime) -> Self {
        let state = match step.skipped {
            true => State::Ended { at: now, end: End::Skipped, lease: None },
            false => State::Pending { not_before: None },
        };
        Self { step, failed: 0, lost: 0, state }
    }

    /// Whether it is over.
    pub fn has_ended(&self) -> bool {
        self.end().is_some()
    }

    /// How it ended, if it has.
    pub fn end(&self) -> Option<&End> {
        match &self.state {
            State::Ended { end, .. } => Some(end),
            State::Pending { .. } | State::Leased { .. } | State::Running { .. } => None,
        }
    }

    /// The lease somebody holds on it now.
    pub fn lease(&self) -> Option<&Lease> {
        match &self.state {
            State::Leased { lease } | State::Running { lease, .. } => Some(lease),
            State::Pending { .. } | State::Ended { .. } => None,
        }
    }

    /// Whether it runs and may end this boot any moment.
    pub fn is_terminal(&self) -> bool {
        matches!(self.state, State::Running { terminal: Some(_), .. })
    }

    pub(super) fn is_running(&self) -> bool {
        matches!(self.state, State::Running { .. })
    }

    /// Leased to `holder`, if it waits and its back-off is over.
    pub(super) fn lease_to(&mut self, holder: Holder, id: LeaseId, now: SystemTime) {
        let State::Pending { not_before } = self.state else { return };
        if not_before.is_none_or(|time| time <= now) {
            let attempt = self.failed.saturating_add(self.lost).saturating_add(1);
            self.state =
                State::Leased { lease: Lease { id, holder, attempt, expires: later(now, LEASE) } };
        }
    }

    /// The lease lasts on, in the hands of `holder` if one is given.
    pub(super) fn keep(&mut self, holder: Option<Holder>, now: SystemTime) {
        if let State::Leased { lease } | State::Running { lease, .. } = &mut self.state {
            lease.expires = later(now, LEASE);
            lease.holder = holder.unwrap_or_else(|| lease.holder.clone());
        }
    }

    /// Begun, or begun again: the first start counts.
    pub(super) fn start(&mut self, terminal: bool, now: SystemTime) {
        let (lease, since, until_now) = match &self.state {
            State::Leased { lease } => (lease.clone(), now, None),
            State::Running { lease, since, terminal } => (lease.clone(), *since, *terminal),
            State::Pending { .. } | State::Ended { .. } => return,
        };
        let terminal = until_now.or(terminal.then_some(now));
        self.state = State::Running { lease, since, terminal };
        self.keep(None, now);
        if self.step.background {
            self.finish(End::Success, now);
        }
    }

    /// A try ended. What failed with tries left waits for the next.
    pub(super) fn settle(&mut self, end: End, again: bool, now: SystemTime) {
        if matches!(end, End::Failed { .. } | End::Timeout) {
            self.failed = self.failed.saturating_add(1);
            if again && self.failed <= self.step.retries {
                return self.wait(self.failed, now);
            }
        }
        self.finish(end, now);
    }

    /// A try is gone and nobody can say how far it got.
    pub(super) fn lose(&mut self, reason: &str, again: bool, now: SystemTime) {
        self.lost = self.lost.saturating_add(1);
        if again && self.step.after_loss == AfterLoss::Retry && self.lost < LOSSES {
            return self.wait(self.lost, now);
        }
        self.finish(End::Failed { reason: format!("lost: {reason}") }, now);
    }

    /// Nobody's again; whoever had it has not begun.
    pub(super) fn release(&mut self) {
        if matches!(self.state, State::Leased { .. }) {
            self.state = State::Pending { not_before: None };
        }
    }

    /// Over.
    pub(super) fn finish(&mut self, end: End, now: SystemTime) {
        let lease = self.lease().map(|lease| lease.id.clone());
        self.state = State::Ended { at: now, end, lease };
    }

    /// Whether a lease that is not current brings this very end again.
    pub(super) fn ended_so(&self, lease: &LeaseId, end: &End) -> bool {
        matches!(&self.state, State::Ended { end: first, lease: Some(id), .. } if id == lease && first == end)
    }

    fn wait(&mut self, tries: u32, now: SystemTime) {
        self.state = State::Pending { not_before: Some(later(now, back_off(tries))) };
    }
}

/// One second after the first bad try, doubling to half a minute.
fn back_off(tries: u32) -> Duration {
    let (least, most) = BACK_OFF;
    let factor = 1_u32.checked_shl(tries.saturating_sub(1)).unwrap_or(u32::MAX);
    least.saturating_mul(factor).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_back_off_doubles_from_one_second_to_thirty() {
        let seconds: Vec<u64> =
            [1, 2, 5, 6, 40, u32::MAX].map(|tries| back_off(tries).as_secs()).into();
        assert_eq!(seconds, [1, 2, 16, 30, 30, 30]);
    }
}
