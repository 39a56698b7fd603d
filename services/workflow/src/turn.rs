//! The order of the workflows in one machine's queue: at most one is active, the others wait.
//!
//! Waiting workflows are ordered by creation time, then by id. The active one comes before all of them. A workflow that its creator
//! holds back has a place by its creation time, too, but is passed over until it is released.
//!
//! The result is computed from a listing that may be old. A caller that acts on it commits the claim on the machine together
//! with the change, so that of two callers that both saw a free machine one has to look again.

use std::time::SystemTime;

use tinwright::WorkflowId;

/// A workflow in a machine's queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueEntry {
    /// Its id.
    pub id: WorkflowId,
    /// The time of its creation.
    pub created: SystemTime,
    /// Its state.
    pub state: QueueState,
}

/// The place of a workflow in its machine's queue, by its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueState {
    /// Its creator holds it back: it has no turn, and is ahead of nobody.
    HeldBack,
    /// It has not begun.
    Waiting,
    /// It holds the machine.
    Active,
    /// It has ended, and is not in the queue.
    Ended,
}

/// Permission to use the machine, or the reason to wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It may begin.
    Now,
    /// It holds the machine already.
    Holding,
    /// Its creator holds it back.
    HeldBack,
    /// Others come first.
    Behind {
        /// The active workflow, or else the first in line.
        blocker: WorkflowId,
        /// The number of workflows that come first.
        ahead: usize,
    },
}

/// Returns the turn of `entry`, given all entries of the machine's queue (itself among them or not).
pub fn turn<'a>(entry: &QueueEntry, queue: impl Iterator<Item = &'a QueueEntry> + Clone) -> Turn {
    match entry.state {
        QueueState::Active => return Turn::Holding,
        QueueState::HeldBack => return Turn::HeldBack,
        QueueState::Waiting | QueueState::Ended => {}
    }
    let ahead = queue.filter(|other| other.is_in_line() && other.rank() < entry.rank());
    match ahead.clone().min_by_key(|other| other.rank()) {
        Some(blocker) => Turn::Behind { blocker: blocker.id, ahead: ahead.count() },
        None => Turn::Now,
    }
}

impl QueueEntry {
    fn is_in_line(&self) -> bool {
        matches!(self.state, QueueState::Waiting | QueueState::Active)
    }

    fn rank(&self) -> (bool, SystemTime, WorkflowId) {
        (self.state != QueueState::Active, self.created, self.id)
    }
}

#[cfg(test)]
mod tests;
