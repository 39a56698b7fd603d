//! Whose turn it is: at most one workflow at a time on each machine.
//!
//! ```text
//! machine a:  [ w1 active ]  w2  w4        w4 names b as well: it waits until it is first on both
//! machine b:  w3  w4
//! ```
//!
//! Those that wait go by creation time, then by id, an order all queues share: the oldest that waits is blocked by
//! active ones only, so nothing waits in a circle. A disabled workflow keeps nobody waiting, unless it is active.
//!
//! The answer is about a listing, which may be old. Whoever acts on it commits the claim on each machine together
//! with the change, so that of two who both saw a free machine one is told to look again.

use std::{collections::BTreeSet, time::SystemTime};

use crate::ids::{HardwareId, WorkflowId};

/// What the queue needs to know about a workflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Which.
    pub id: WorkflowId,
    /// Its place among those that wait.
    pub created: SystemTime,
    /// All it runs on.
    pub machines: BTreeSet<HardwareId>,
    /// Somebody wishes it not to begin.
    pub disabled: bool,
    /// What it is doing.
    pub standing: Standing,
}

/// What a workflow is to its machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has not begun.
    Waiting,
    /// It holds its machines.
    Active,
    /// It has ended.
    Over,
}

/// Whether a workflow may have its machines, or why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It may begin now.
    Now,
    /// It holds them already.
    Holding,
    /// Others come first.
    Behind {
        /// The one to wait for: an active one if there is any, else the first in line.
        blocker: WorkflowId,
        /// How many come first on one machine or another.
        ahead: usize,
    },
    /// It is disabled.
    Disabled,
    /// It has ended.
    Over,
}

/// Whether `this` may begin, given all workflows (itself among them or not).
pub fn turn(this: &Summary, all: &[Summary]) -> Turn {
    match this.standing {
        Standing::Over => return Turn::Over,
        Standing::Active => return Turn::Holding,
        Standing::Waiting if this.disabled => return Turn::Disabled,
        Standing::Waiting => {}
    }
    let ahead = all.iter().filter(|other| other.blocks(this));
    match ahead.clone().min_by_key(|other| (other.standing != Standing::Active, other.place())) {
        Some(blocker) => Turn::Behind { blocker: blocker.id.clone(), ahead: ahead.count() },
        None => Turn::Now,
    }
}

impl Summary {
    /// Whether `other` has to wait for this one.
    fn blocks(&self, other: &Self) -> bool {
        let first = match self.standing {
            Standing::Over => false,
            Standing::Active => true,
            Standing::Waiting => !self.disabled && self.place() < other.place(),
        };
        first && self.id != other.id && !self.machines.is_disjoint(&other.machines)
    }

    fn place(&self) -> (SystemTime, &WorkflowId) {
        (self.created, &self.id)
    }
}

#[cfg(test)]
mod tests;
