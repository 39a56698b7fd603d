//! Errors of calls, and the one table from errors of the kernel to reasons of the contract.

use tinwright::node::v1::image_error::Reason;
use tinwright::node::v1::image_result;
use tinwright::node::v1::{ImageError, ImageResult};

use crate::kernel::{KernelError, KernelErrorKind};

/// A refused or failed call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", message(*reason, cause))]
pub(crate) struct CallError {
    pub(crate) reason: Reason,
    /// The cause, without the canonical text of the reason.
    pub(crate) cause: String,
}

impl CallError {
    pub(crate) fn invalid(cause: impl Into<String>) -> Self {
        Self { reason: Reason::Invalid, cause: cause.into() }
    }

    pub(crate) fn not_found(cause: impl Into<String>) -> Self {
        Self { reason: Reason::NotFound, cause: cause.into() }
    }

    pub(crate) fn busy(cause: impl Into<String>) -> Self {
        Self { reason: Reason::Busy, cause: cause.into() }
    }

    pub(crate) fn internal(cause: impl Into<String>) -> Self {
        Self { reason: Reason::Internal, cause: cause.into() }
    }

    pub(crate) fn failed(cause: impl Into<String>) -> Self {
        Self { reason: Reason::Failed, cause: cause.into() }
    }

    pub(crate) fn no_driver(cause: impl Into<String>) -> Self {
        Self { reason: Reason::NoDriver, cause: cause.into() }
    }
}

impl From<KernelError> for CallError {
    fn from(error: KernelError) -> Self {
        let reason = match error.kind {
            KernelErrorKind::Invalid => Reason::Invalid,
            KernelErrorKind::Busy => Reason::Busy,
            KernelErrorKind::MissingInterface => Reason::Internal,
            KernelErrorKind::Failed => Reason::Failed,
        };
        Self { reason, cause: error.cause }
    }
}

impl From<CallError> for ImageResult {
    fn from(error: CallError) -> Self {
        let message = message(error.reason, &error.cause);
        let error = ImageError { reason: error.reason.into(), message };
        Self { result: Some(image_result::Result::Error(error)) }
    }
}

/// Returns the canonical text of `reason`.
const fn canonical(reason: Reason) -> &'static str {
    match reason {
        Reason::Invalid => "invalid data type",
        Reason::NotFound => "not found",
        Reason::Busy => "object is busy",
        Reason::Unspecified | Reason::Internal => "internal server error",
        Reason::Failed => "operation failed",
        Reason::NoDriver => "no driver found for this object type",
    }
}

/// The message of a call that names no container. It is a canonical text itself.
pub(crate) const NO_IDENTIFICATION: &str = "either ID or Name must be provided";

/// Returns the message of an error.
fn message(reason: Reason, cause: &str) -> String {
    match cause {
        "" => canonical(reason).to_owned(),
        NO_IDENTIFICATION => cause.to_owned(),
        _ => format!("{}: {cause}", canonical(reason)),
    }
}
