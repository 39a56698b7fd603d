//! The error of records, and of all that reads them: lists of events, mirrors, services.

use tinwright::status::Violations;
use tonic::Status;

/// An error of a read or a change.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request has invalid fields.
    #[error(transparent)]
    Invalid(#[from] Violations),
    /// No such record.
    #[error("{noun} {name} not found")]
    Missing {
        /// The kind.
        noun: &'static str,
        /// Its id, or the value it was looked up by.
        name: String,
    },
    /// A record with this id exists already.
    #[error("{noun} {id} exists already")]
    Exists {
        /// The kind.
        noun: &'static str,
        /// Its id.
        id: String,
    },
    /// Another record has this value of a unique index.
    #[error("{} {value} is taken by {noun} {}", field(.index, .noun), holder(.value, .name, .by))]
    Taken {
        /// The kind.
        noun: &'static str,
        /// The index.
        index: String,
        /// The value.
        value: String,
        /// The id of the record that has it.
        by: String,
        /// The name of that record; empty if it has none.
        name: String,
    },
    /// The record is not at the caller's revision: somebody else changed or deleted it meanwhile.
    #[error("{noun} {id} was changed meanwhile")]
    Changed {
        /// The kind.
        noun: &'static str,
        /// Its id.
        id: String,
    },
    /// The tenant has as much as it may have.
    #[error("tenant {tenant} may have {limit}, and has {has}")]
    Quota {
        /// The tenant.
        tenant: String,
        /// The maximum, with its unit.
        limit: String,
        /// The present number or size.
        has: u64,
    },
    /// It is not known how much the tenant may have.
    #[error("the limits of tenant {tenant} are not known")]
    UnknownQuota {
        /// The tenant.
        tenant: String,
        /// The answer to the question.
        #[source]
        status: Box<Status>,
    },
    /// The request id was used for another request.
    #[error("request_id {0} was used for another request")]
    Reused(String),
    /// The page token was not given out by a listing of these records.
    #[error("{0:?} is not a page token of this listing")]
    PageToken(String),
    /// The store failed.
    #[error("records")]
    Store(#[from] crate::Error),
}

/// Returns the field that an index is of: `location-name` of a location is its name.
fn field<'a>(index: &'a str, noun: &str) -> &'a str {
    index.strip_prefix(noun).and_then(|rest| rest.strip_prefix('-')).unwrap_or(index)
}

/// Returns the text that names the holder of `value`: its `name`, or its `id` if it has no name or the name is that value.
fn holder<'a>(value: &str, name: &'a str, id: &'a str) -> &'a str {
    let is_value = value.strip_suffix(name).is_some_and(|it| it.is_empty() || it.ends_with('/'));
    if name.is_empty() || is_value { id } else { name }
}
