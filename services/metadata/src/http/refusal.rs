//! Reasons to refuse a request, as HTTP and gRPC statuses.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use runtime::rate_limit::TooManyRequests;
use tonic::{Code, Status};

use crate::endpoints::Failure;

/// A refusal. Its body is empty: the BOSH agent, for one, takes the body of an error for the value that it requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// A header or the body cannot be read.
    Malformed,
    /// The session token is missing or invalid.
    NoSession,
    /// Not allowed, for this reason (a label in metrics).
    Forbidden(&'static str),
    /// There is no such document or machine.
    NotFound,
    /// Only these methods are allowed.
    Method(&'static str),
    /// The caller names another instance than the machine's: a copied image.
    Conflict,
    /// A rate limit or a maximum number is reached.
    TooMany,
    /// Nothing is known yet, or nothing can be stored: to be repeated.
    NotReady,
    /// A custom endpoint's filter fails on this machine.
    Failed,
}

impl Refusal {
    /// Returns the label in the metric of denied requests; `None` if it is not counted there.
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
        StatusCode::from_u16(self.statuses().0).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// Returns the status over HTTP, and code and message over gRPC. The last three are for paths, which no call has.
    fn statuses(self) -> (u16, Code, &'static str) {
        match self {
            Self::Malformed => (400, Code::InvalidArgument, "malformed header"),
            Self::NoSession => (401, Code::Unauthenticated, "no valid session token"),
            Self::Forbidden(_) => (403, Code::PermissionDenied, "not allowed for this caller"),
            Self::NotFound => (404, Code::NotFound, "no machine has this address"),
            Self::TooMany => (429, Code::ResourceExhausted, "too many requests"),
            Self::NotReady => (503, Code::Unavailable, "no machine records yet"),
            Self::Method(_) => (405, Code::Internal, "method not allowed"),
            Self::Conflict => (409, Code::Internal, "conflict"),
            Self::Failed => (500, Code::Internal, "custom endpoint failed"),
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

impl From<TooManyRequests> for Refusal {
    fn from(_: TooManyRequests) -> Self {
        Self::TooMany
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        let (_, code, message) = refusal.statuses();
        Self::new(code, message)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let header = match self {
            Self::Method(allowed) => Some((header::ALLOW, HeaderValue::from_static(allowed))),
            Self::NotReady | Self::TooMany => {
                Some((header::RETRY_AFTER, HeaderValue::from_static("1")))
            }
            Self::Malformed
            | Self::NoSession
            | Self::Forbidden(_)
            | Self::NotFound
            | Self::Conflict
            | Self::Failed => None,
        };
        (self.status(), HeaderMap::from_iter(header)).into_response()
    }
}
