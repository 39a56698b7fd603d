//! A workflow's record and the workflow it stands for.
//!
//! The record is the API's own message: what the lifecycle decides is written over it, what it knows nothing of
//! (labels, images, progress, what people read) stays. Reading back what was written gives the same value, so a restart
//! forgets nothing.

mod read;
#[cfg(test)]
mod tests;
pub mod tries;
mod write;

use tinwright::workflow::v1 as pb;

use crate::queue::Standing;

pub use read::{Damaged, read};
pub use write::{newborn, write};

/// Between how a workflow ended and what could not be undone after it.
const WARNING: &str = "; could not be undone: ";

/// What a workflow is to its machine, by its record alone.
pub fn standing(record: &pb::Workflow) -> Standing {
    use pb::WorkflowState as State;
    match record.state() {
        State::Pending if !record.prepared => Standing::Waiting,
        State::Pending | State::Preparing | State::Running | State::Post => Standing::Active,
        State::Unspecified | State::Success | State::Failed | State::Timeout | State::Cancelled => {
            Standing::Over
        }
    }
}
