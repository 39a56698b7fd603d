//! What goes wrong on the way, and whether trying again can help.

use std::error::Error as _;
use std::io;
use std::time::Duration;

use reqwest::StatusCode;
use reqwest::header::{HeaderMap, RETRY_AFTER};

/// A download that failed for good.
#[derive(Debug, thiserror::Error)]
#[error("{at}")]
pub(crate) struct Error {
    /// The request, its URL without secrets.
    pub(crate) at: String,
    #[source]
    pub(crate) trouble: Trouble,
}

/// What one try ran into.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    /// The server answered, but not with the file.
    #[error("{status}")]
    Status { status: StatusCode, asked_pause: Duration },
    /// No answer, or no more of it; the innermost cause, since the layers above it only repeat each other.
    #[error("{cause}")]
    Connection { cause: String, hopeless: bool },
    /// The body ended early, in a way its framing allows.
    #[error("the reply ended early")]
    Short,
    /// There is nothing in it.
    #[error("the file is empty")]
    Empty,
    /// There are two versions of the file.
    #[error("changed while it was downloaded: was {was}, is {is}")]
    Changed { was: String, is: String },
    /// A partial reply that is not the part asked for.
    #[error("the reply to a request for the bytes from {wanted} on has others")]
    WrongRange { wanted: u64 },
    /// More than the length that was announced.
    #[error("more came than the {length} bytes announced")]
    TooLong { length: u64 },
    /// Time is up.
    #[error("nothing new for {seconds} s, after {place} bytes")]
    GaveUp { seconds: f64, place: String, source: Box<Trouble> },
}

impl Trouble {
    /// A reply without the file in it.
    pub(super) fn status(status: StatusCode, headers: &HeaderMap) -> Self {
        let seconds = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        Self::Status { status, asked_pause: Duration::from_secs(seconds.unwrap_or_default()) }
    }

    /// Whether another try would meet the same trouble.
    pub(super) fn is_final(&self) -> bool {
        match self {
            // Overload, maintenance and a proxy's own trouble pass; a missing or forbidden file stays so.
            Self::Status { status, .. } => {
                !matches!(status.as_u16(), 408 | 425 | 429 | 500 | 502..=504)
            }
            Self::Connection { hopeless, .. } => *hopeless,
            Self::Short => false,
            Self::Empty
            | Self::Changed { .. }
            | Self::WrongRange { .. }
            | Self::TooLong { .. }
            | Self::GaveUp { .. } => true,
        }
    }

    /// How long the server asks to be left alone.
    pub(super) fn asked_pause(&self) -> Duration {
        if let Self::Status { asked_pause, .. } = self { *asked_pause } else { Duration::ZERO }
    }
}

impl From<reqwest::Error> for Trouble {
    fn from(error: reqwest::Error) -> Self {
        if error.is_timeout() {
            let doing = if error.is_connect() { "connecting" } else { "reading" };
            return Self::Connection { cause: format!("timed out while {doing}"), hopeless: false };
        }
        let hopeless = error.is_builder() || error.is_redirect();
        let (mut cause, mut distrusted) = (None, false);
        let mut next = error.source();
        while let Some(error) = next {
            distrusted |= is_distrust(error);
            cause = Some(error.to_string());
            next = error.source();
        }
        let cause = cause.unwrap_or_else(|| error.without_url().to_string());
        Self::Connection { cause, hopeless: hopeless || distrusted }
    }
}

/// Whether the peer's certificate is not to be trusted: asking again does not make it better. I/O errors that hold
/// another error do not name it as their source, so it is looked for inside, at any depth.
fn is_distrust(error: &(dyn std::error::Error + 'static)) -> bool {
    if let Some(inner) = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        return is_distrust(inner);
    }
    matches!(error.downcast_ref(), Some(rustls::Error::InvalidCertificate(_)))
}
