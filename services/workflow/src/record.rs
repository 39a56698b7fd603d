//! A workflow's record and its lifecycle value, converted into each other.
//!
//! The record is the API's own message. Writing replaces the lifecycle's part of it; the rest (labels, images, progress)
//! stays. Reading what was written returns an equal value, so a restart loses nothing.

pub mod attempts;
mod read;
pub mod size;
#[cfg(test)]
mod tests;
mod write;

use tinwright::workflow::v1 as pb;

use crate::turn::QueueState;

pub use read::{Damaged, read};
pub use write::{REFUSED_BOOT, new_record, write};

/// Returns the place of a workflow in its machine's queue, by its record alone.
pub fn queue_state(record: &pb::Workflow) -> QueueState {
    use pb::WorkflowState as State;
    match record.state() {
        State::Pending if record.held => QueueState::HeldBack,
        State::Pending if !record.prepared => QueueState::Waiting,
        State::Pending | State::Preparing | State::Running | State::Post => QueueState::Active,
        State::Unspecified | State::Success | State::Failed | State::Timeout | State::Cancelled => {
            QueueState::Ended
        }
    }
}
