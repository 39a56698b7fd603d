//! Errors of downloads, and their classification into temporary and final.

use std::error::Error as _;
use std::io;
use std::time::Duration;

use reqwest::StatusCode;
use reqwest::header::{HeaderMap, RETRY_AFTER};

/// A failed download.
#[derive(Debug, thiserror::Error)]
#[error("{request}")]
pub(crate) struct Error {
    /// The request, with its URL redacted.
    pub(crate) request: String,
    pub(crate) source: AttemptError,
}

impl crate::error::StepError for Error {}

/// The error of one attempt.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AttemptError {
    /// The response has another status than success.
    #[error("{status}")]
    Status { status: StatusCode, retry_after: Duration },
    /// The connection failed. Only the innermost cause is stored: the outer errors add no information.
    #[error("{cause}")]
    Connection { cause: String, is_final: bool },
    /// The body is shorter than the file, although the HTTP framing is valid.
    #[error("the response ended early")]
    Short,
    /// The file has no content.
    #[error("the file is empty")]
    Empty,
    /// The responses belong to two versions of the file.
    #[error("changed while it was downloaded: was {was}, is {is}")]
    Changed { was: String, is: String },
    /// A partial response with another range.
    #[error("the response does not begin at the requested byte {position}")]
    WrongRange { position: u64 },
    /// The server sent more data than its Content-Length.
    #[error("more data than the {length} bytes that the server announced")]
    TooLong { length: u64 },
    /// No new byte arrived within the time limit.
    #[error("no progress for {seconds} s, after {progress} bytes")]
    GaveUp { seconds: f64, progress: String, source: Box<AttemptError> },
}

impl AttemptError {
    /// Creates the error for a response with another status than success.
    pub(super) fn status(status: StatusCode, headers: &HeaderMap) -> Self {
        let seconds = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        Self::Status { status, retry_after: Duration::from_secs(seconds.unwrap_or_default()) }
    }

    /// True if another attempt would fail in the same way.
    pub(super) fn is_final(&self) -> bool {
        match self {
            // Overload, maintenance and proxy errors are temporary; a missing or forbidden file is final.
            Self::Status { status, .. } => {
                !matches!(status.as_u16(), 408 | 425 | 429 | 500 | 502..=504)
            }
            Self::Connection { is_final, .. } => *is_final,
            Self::Short => false,
            Self::Empty
            | Self::Changed { .. }
            | Self::WrongRange { .. }
            | Self::TooLong { .. }
            | Self::GaveUp { .. } => true,
        }
    }

    /// Returns the delay in the server's Retry-After header.
    pub(super) fn retry_after(&self) -> Duration {
        if let Self::Status { retry_after, .. } = self { *retry_after } else { Duration::ZERO }
    }
}

impl From<reqwest::Error> for AttemptError {
    fn from(error: reqwest::Error) -> Self {
        if error.is_timeout() {
            let operation = if error.is_connect() { "connecting" } else { "reading" };
            let cause = format!("timed out while {operation}");
            return Self::Connection { cause, is_final: false };
        }
        let is_invalid = error.is_builder() || error.is_redirect();
        let (mut cause, mut distrusted) = (None, false);
        let mut next = error.source();
        while let Some(error) = next {
            distrusted |= is_distrust(error);
            cause = Some(error.to_string());
            next = error.source();
        }
        let cause = cause.unwrap_or_else(|| error.without_url().to_string());
        Self::Connection { cause, is_final: is_invalid || distrusted }
    }
}

/// True if the server's certificate is not trusted, which is final. An I/O error does not return the error inside it as its
/// source, so this function unwraps nested I/O errors.
fn is_distrust(error: &(dyn std::error::Error + 'static)) -> bool {
    if let Some(inner) = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        return is_distrust(inner);
    }
    matches!(error.downcast_ref(), Some(rustls::Error::InvalidCertificate(_)))
}
