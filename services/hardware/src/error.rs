//! Failed requests to this service.

use store::records;
use tinwright::status::Violations;

use crate::peers;
use crate::state::IllegalStateChange;

/// A failed request about machines, locations or models.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request has invalid fields.
    #[error(transparent)]
    Invalid(#[from] Violations),
    /// The machine's state does not allow the change.
    #[error(transparent)]
    Illegal(#[from] IllegalStateChange),
    /// The machine is protected.
    #[error("hardware {0} is protected: remove its protection first")]
    Protected(String),
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
    /// More machines enrol than are let through at once.
    #[error("too many machines enrol at once")]
    TooManyEnrolments,
    /// More reports of machines without a record come than are let through.
    #[error("too many reports of machines without a record at once")]
    TooManyReports,
    /// The machine is in use, or another service could not be called.
    #[error(transparent)]
    Peers(#[from] peers::Error),
    /// An address of the machine was not claimed.
    #[error(transparent)]
    Addresses(#[from] runtime::address_claims::Error),
    /// The record is missing, has changed, or cannot be read or written.
    #[error(transparent)]
    Records(#[from] records::Error),
}

impl Error {
    /// True if the machine is protected or in use: a delete is not to be repeated until that has ended.
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            Self::Protected(_) => true,
            Self::Peers(error) => error.is_refusal(),
            Self::Invalid(_)
            | Self::Illegal(_)
            | Self::Precondition { .. }
            | Self::TooManyEnrolments
            | Self::TooManyReports
            | Self::Addresses(_)
            | Self::Records(_) => false,
        }
    }
}
