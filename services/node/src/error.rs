//! Failed requests to this service.

use std::collections::HashMap;
use std::time::Duration;

use store::records;
use tinwright::status::{self, Violations};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

/// The time after which a call above a limit may be repeated.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// A failed request about nodes or stacks.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request has invalid fields.
    #[error(transparent)]
    Invalid(#[from] Violations),
    /// The object cannot be used, or be removed, in its state.
    #[error("{text}")]
    Precondition {
        /// The stable reason.
        reason: &'static str,
        /// Noun and id of the object.
        subject: String,
        /// The reason for people.
        text: String,
    },
    /// The stack does not have the version.
    #[error("version {number} of stack {stack} not found")]
    NoVersion {
        /// The stack's name.
        stack: String,
        /// The version.
        number: i64,
    },
    /// There is no node that a call without a name could mean.
    #[error("no node has connected yet")]
    NoNode,
    /// The machine has no record.
    #[error("hardware {0} not found")]
    NoMachine(String),
    /// The identity or the boot of an agent was replaced by a later one.
    #[error("{0}")]
    Replaced(String),
    /// No stream leads to the node: it did not get the call.
    #[error("node {0} is not connected")]
    NotConnected(String),
    /// There was no result in time: the node may have carried out the call.
    #[error("node {0} did not answer in time; it may have carried out the call")]
    TimedOut(String),
    /// The call id was used for another call.
    #[error("call id {0} was used for another call")]
    CallIdReused(String),
    /// The result is longer than another process can pass on.
    #[error("the result is too long to be passed on")]
    ResultTooLong,
    /// More calls are open than are let through.
    #[error("too many open calls")]
    TooManyCalls,
    /// The agent broke the protocol of its stream.
    #[error("{0}")]
    Protocol(&'static str),
    /// Another service could not be called.
    #[error("the service {service} did not answer: {text}")]
    Peer {
        /// The service.
        service: &'static str,
        /// Its answer.
        text: String,
    },
    /// The record is missing, has changed, or cannot be read or written.
    #[error(transparent)]
    Records(#[from] records::Error),
}

impl Error {
    /// Returns the error for an object of `noun` that cannot be used or removed.
    pub(crate) fn precondition(
        reason: &'static str,
        noun: &str,
        id: &str,
        text: impl Into<String>,
    ) -> Self {
        Self::Precondition { reason, subject: format!("{noun}/{id}"), text: text.into() }
    }
}

impl From<store::Error> for Error {
    fn from(error: store::Error) -> Self {
        Self::Records(error.into())
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        match error {
            Error::Invalid(violations) => violations.into(),
            Error::Precondition { reason, subject, text } => {
                status::failed_precondition(reason, &subject, text)
            }
            Error::NoVersion { stack, number } => {
                status::not_found("stack version", &format!("{stack}/{number}"))
            }
            Error::NoNode => Self::not_found(text),
            Error::NoMachine(id) => status::not_found("hardware", &id),
            Error::Replaced(_) => Self::permission_denied(text),
            Error::NotConnected(id) => not_connected(&id, text),
            Error::TimedOut(_) => Self::deadline_exceeded(text),
            Error::CallIdReused(id) => status::already_exists("call", &id, text),
            Error::ResultTooLong => Self::resource_exhausted(text),
            Error::TooManyCalls => status::overloaded(text, RETRY_DELAY),
            Error::Protocol(_) => Self::invalid_argument(text),
            Error::Peer { .. } => Self::unavailable(text),
            Error::Records(error) => error.into(),
        }
    }
}

/// `UNAVAILABLE` with an `ErrorInfo` that names the node, and a `RetryInfo`.
fn not_connected(id: &str, text: String) -> Status {
    let metadata = HashMap::from([("node".to_owned(), id.to_owned())]);
    let mut details = ErrorDetails::with_error_info("NODE_NOT_CONNECTED", "tinwright", metadata);
    details.set_retry_info(Some(RETRY_DELAY));
    Status::with_error_details(Code::Unavailable, text, details)
}
