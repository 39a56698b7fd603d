//! Why a request gets no answer.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tonic::Status;

use crate::endpoints::Failure;

/// A refusal. Its body is empty: the BOSH agent, for one, takes what stands in an error's body for the key it asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// A header or body that makes no sense.
    Malformed,
    /// The session token is missing, or not good.
    NoSession,
    /// Closed to this machine, or to this way of asking; why, as it is counted.
    Forbidden(&'static str),
    /// There is nothing there, or nobody.
    NotFound,
    /// Only these methods.
    Method(&'static str),
    /// Another instance's id was given as the machine's own: a copied image.
    Conflict,
    /// Too many at once.
    TooMany,
    /// Nothing is known yet, or nothing can be stored: ask again.
    NotReady,
    /// What the site put there makes nothing of this machine.
    Failed,
}

impl Refusal {
    /// What it is counted as among the requests denied, if it is one.
    pub(super) fn reason(self) -> Option<&'static str> {
        match self {
            Self::NoSession => Some("session"),
            Self::Forbidden(reason) => Some(reason),
            Self::Conflict => Some("instance_id"),
            Self::TooMany => Some("limit"),
            Self::Malformed | Self::NotFound | Self::Method(_) | Self::NotReady | Self::Failed => {
                None
            }
        }
    }

    pub(super) fn status(self) -> StatusCode {
        match self {
            Self::Malformed => StatusCode::BAD_REQUEST,
            Self::NoSession => StatusCode::UNAUTHORIZED,
            Self::Forbidden(_) => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Method(_) => StatusCode::METHOD_NOT_ALLOWED,
            Self::Conflict => StatusCode::CONFLICT,
            Self::TooMany => StatusCode::TOO_MANY_REQUESTS,
            Self::NotReady => StatusCode::SERVICE_UNAVAILABLE,
            Self::Failed => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Failed | Failure::TooLong => Self::Failed,
            Failure::TooLate => Self::NotReady,
        }
    }
}

impl From<runtime::client_address::MalformedForwarding> for Refusal {
    fn from(_: runtime::client_address::MalformedForwarding) -> Self {
        Self::Malformed
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Malformed => Self::invalid_argument("a header makes no sense"),
            Refusal::NoSession => Self::unauthenticated("a good session token is needed"),
            Refusal::Forbidden(_) => Self::permission_denied("this is not for whoever calls"),
            Refusal::NotFound => Self::not_found("no machine has this address"),
            Refusal::TooMany => Self::resource_exhausted("too many at once"),
            Refusal::NotReady => Self::unavailable("nothing is known of machines yet"),
            // These are for paths, and no call has one.
            Refusal::Method(_) | Refusal::Conflict | Refusal::Failed => Self::internal("no path"),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = self.status().into_response();
        let headers = response.headers_mut();
        match self {
            Self::Method(allowed) => {
                headers.insert(header::ALLOW, HeaderValue::from_static(allowed));
            }
            Self::NotReady | Self::TooMany => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            Self::Malformed
            | Self::NoSession
            | Self::Forbidden(_)
            | Self::NotFound
            | Self::Conflict
            | Self::Failed => {}
        }
        response
    }
}
