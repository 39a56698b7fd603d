//! The size of a workflow's record, which the store limits.
//!
//! A record grows while its workflow runs. A workflow that could outgrow its record is refused when it is created. Everything
//! that the lifecycle adds is reserved. The last lines that an action wrote are stored beside its log. A record that would be too large
//! in spite of this is stored without parts that are only for people ([`shrink_to_fit`]). So every change can be stored, also of
//! records that were created before there was this limit.

use prost::Message as _;
use store::limits::MAX_VALUE_BYTES;
use tinwright::workflow::v1 as pb;

/// The most bytes of a reason that are stored.
pub const MAX_REASON_BYTES: usize = 1024;
/// The most bytes of the id of a boot or a process.
pub const MAX_HOLDER_ID_BYTES: usize = 64;
/// Bytes reserved for what a record gains apart from its actions: reasons, times, unexpected boots.
pub const RESERVED_BYTES: usize = 6 * 1024;
/// Bytes reserved for what each action gains: a reason, its present and past leases, late results, times, progress.
pub const RESERVED_BYTES_PER_ACTION: usize = 4 * 1024;

/// The record of a new workflow leaves too little room for what its actions add.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the rendered workflow has {bytes} bytes; with {actions} actions at most {most} are allowed, as the rest is reserved for their results"
)]
pub struct TooLarge {
    /// Size of the record.
    pub bytes: usize,
    /// Number of its actions.
    pub actions: usize,
    /// The most bytes allowed for that number.
    pub most: usize,
}

/// Passes if the record of a new workflow has room for everything that is added to it.
pub fn check(created: &pb::Workflow) -> Result<(), TooLarge> {
    let (bytes, actions) = (created.encoded_len(), created.actions.len());
    let reserved = RESERVED_BYTES.saturating_add(actions.saturating_mul(RESERVED_BYTES_PER_ACTION));
    let most = MAX_VALUE_BYTES.saturating_sub(reserved);
    if bytes <= most { Ok(()) } else { Err(TooLarge { bytes, actions, most }) }
}

/// Removes parts that are only for people from a record that is too large, until it can be stored: first past leases and late
/// results, then the rendered template.
pub fn shrink_to_fit(record: &mut pb::Workflow) {
    for remove in [remove_history, remove_rendered] {
        if record.encoded_len() <= MAX_VALUE_BYTES {
            return;
        }
        remove(record);
        tracing::warn!(workflow.id = record.id, "record too large: history removed");
    }
}

fn remove_history(record: &mut pb::Workflow) {
    for action in &mut record.actions {
        action.past_leases.clear();
        action.late_results.clear();
    }
}

fn remove_rendered(record: &mut pb::Workflow) {
    record.rendered.clear();
}

#[cfg(test)]
mod tests;
