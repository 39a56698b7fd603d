//! Failed requests to this service, and their gRPC status.

use std::time::Duration;

use store::records;
use tinwright::status::{self, Violations};
use tonic::Status;

use crate::objects;

/// Delay after which an upload may be repeated when the object store is full.
const RETRY_DELAY: Duration = Duration::from_secs(60);

/// A failed request about images, builds or content.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request has invalid fields.
    #[error(transparent)]
    Invalid(#[from] Violations),
    /// The object cannot be used in its state.
    #[error("{text}")]
    Precondition {
        /// The stable reason.
        reason: &'static str,
        /// Noun and id of the object.
        subject: String,
        /// The reason for people.
        text: String,
    },
    /// The caller may see the object, but not change it.
    #[error("image {0} belongs to the site or to another tenant")]
    NotOwned(String),
    /// The site has no object store.
    #[error("this site has no object store for images: set images.s3_url")]
    NoObjectStore,
    /// There is no content with this digest.
    #[error("content {0} is not stored")]
    BlobMissing(String),
    /// The content does not have the digest.
    #[error("content: sha256 {found}, expected {expected}")]
    Digest {
        /// The expected digest.
        expected: String,
        /// The digest of what was sent.
        found: String,
    },
    /// The content is longer than allowed, or longer than was declared.
    #[error("content: longer than {max} bytes")]
    TooLong {
        /// The maximum in bytes.
        max: u64,
    },
    /// The upload does not continue where it ended.
    #[error("offset: {sent}, expected {expected}")]
    Offset {
        /// The sent offset.
        sent: u64,
        /// The end of what is stored.
        expected: u64,
    },
    /// The sent bytes do not have the checksum of their request.
    #[error("Upload-Checksum: differs from that of the sent bytes")]
    Checksum,
    /// Another request writes to the upload.
    #[error("image {0}: another request uploads it")]
    UploadBusy(String),
    /// The request ended early.
    #[error("the request's body ended early")]
    Interrupted(#[source] axum::Error),
    /// The tenant or the directory of tenants refused.
    #[error(transparent)]
    Tenant(#[from] runtime::tenants::Error),
    /// Another service did not answer.
    #[error("the {service} service did not answer")]
    Unanswered {
        /// The service.
        service: &'static str,
        /// The status received.
        #[source]
        status: Box<Status>,
    },
    /// The object store failed.
    #[error("the object store failed: the server's log has the cause")]
    Objects(#[from] objects::Error),
    /// Other writers were first, each time.
    #[error("other requests came first: repeat")]
    Busy,
    /// The record is missing, has changed, or cannot be read or written.
    #[error(transparent)]
    Records(#[from] records::Error),
}

impl From<store::Error> for Error {
    fn from(error: store::Error) -> Self {
        Self::Records(error.into())
    }
}

impl Error {
    /// Returns the error of an object in the wrong state.
    pub(crate) fn precondition(
        reason: &'static str,
        noun: &str,
        id: &str,
        text: impl Into<String>,
    ) -> Self {
        Self::Precondition { reason, subject: format!("{noun}/{id}"), text: text.into() }
    }

    /// True if another writer came first, so that the same request may succeed now.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(
            self,
            Self::Busy
                | Self::Records(
                    records::Error::Changed { .. }
                        | records::Error::Exists { .. }
                        | records::Error::Missing { noun: "blob" | "content", .. }
                )
        )
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        match error {
            Error::Invalid(violations) => violations.into(),
            Error::Precondition { reason, subject, .. } => {
                status::failed_precondition(reason, &subject, text)
            }
            Error::NotOwned(_) => Self::permission_denied(text),
            Error::NoObjectStore => status::failed_precondition("NO_OBJECT_STORE", "site", text),
            Error::BlobMissing(digest) => {
                status::failed_precondition("BLOB_MISSING", &format!("blob/{digest}"), text)
            }
            Error::Digest { .. } | Error::Checksum | Error::TooLong { .. } => {
                Self::invalid_argument(text)
            }
            Error::Offset { .. } | Error::UploadBusy(_) | Error::Busy => Self::aborted(text),
            Error::Interrupted(_) => Self::cancelled(text),
            Error::Tenant(error) => error.into(),
            Error::Unanswered { .. } => Self::unavailable(text),
            Error::Objects(objects::Error::Full) => status::exhausted(
                "STORAGE_FULL",
                std::collections::HashMap::new(),
                Some(RETRY_DELAY),
                "the object store is full",
            ),
            Error::Objects(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "object store failed");
                Self::unavailable(text)
            }
            Error::Records(error) => error.into(),
        }
    }
}
