//! The order of the workflows in one machine's queue: at most one is active, the others wait.
//!
//! Waiting workflows are ordered by creation time, then by id. The active one comes before all of them.
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
    /// True if it holds the machine.
    pub active: bool,
}

/// The place of a workflow in its machine's queue, by its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueState {
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
    if entry.active {
        return Turn::Holding;
    }
    let ahead = queue.filter(|other| other.rank() < entry.rank());
    match ahead.clone().min_by_key(|other| other.rank()) {
        Some(blocker) => Turn::Behind { blocker: blocker.id, ahead: ahead.count() },
        None => Turn::Now,
    }
}

impl QueueEntry {
    fn rank(&self) -> (bool, SystemTime, WorkflowId) {
        (!self.active, self.created, self.id)
    }
}

#[cfg(test)]
mod tests;
