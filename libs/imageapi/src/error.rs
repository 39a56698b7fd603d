//! Errors, and the JSON object that reports them: `{"code": …, "message": …}`.

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use serde::Serialize;
use tinwright::node::v1::ImageError;
use tinwright::node::v1::image_error::Reason;

/// The content type of all responses.
pub(crate) const JSON: &str = "application/json";

/// An error response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// The HTTP status.
    pub status: StatusCode,
    /// The code in the body: the HTTP status, or a number from 601 to 619 if the status is 422.
    pub code: u16,
    /// The message in the body. It never has a value of a body, which could be a secret.
    pub message: String,
    /// The header `Allow`, if the status is 405.
    pub allow: Option<&'static str>,
}

/// Returns the text with which the message of an error with this reason begins.
pub fn canonical_text(reason: Reason) -> &'static str {
    match reason {
        Reason::Invalid => "invalid data type",
        Reason::NotFound => "not found",
        Reason::Busy => "object is busy",
        Reason::Unspecified | Reason::Internal => "internal server error",
        Reason::Failed => "operation failed",
        Reason::NoDriver => "no driver found for this object type",
    }
}

/// Returns the HTTP status of errors with this reason.
fn status(reason: Reason) -> StatusCode {
    match reason {
        Reason::Invalid => StatusCode::BAD_REQUEST,
        Reason::NotFound => StatusCode::NOT_FOUND,
        Reason::Busy => StatusCode::CONFLICT,
        Reason::Unspecified | Reason::Internal | Reason::Failed => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
        Reason::NoDriver => StatusCode::NOT_IMPLEMENTED,
    }
}

impl ApiError {
    /// An error whose code is its HTTP status. For errors of the listener: a caller that is refused, a body that cannot be read.
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, code: status.as_u16(), message: message.into(), allow: None }
    }

    /// 503: the call did not reach the node, for example because the node is not connected (`cause`). It can be repeated.
    pub fn unavailable(cause: &str) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, format!("node not available: {cause}"))
    }

    /// An error with the canonical text of `reason`, and `cause`.
    pub(crate) fn with_reason(reason: Reason, cause: &str) -> Self {
        Self::new(status(reason), format!("{}: {cause}", canonical_text(reason)))
    }

    /// 400: the definition is missing or contradictory.
    pub(crate) fn invalid(cause: &str) -> Self {
        Self::with_reason(Reason::Invalid, cause)
    }

    /// 422: a property or a query parameter breaks a rule of the API description.
    pub(crate) fn validation(code: u16, message: String) -> Self {
        Self { status: StatusCode::UNPROCESSABLE_ENTITY, code, message, allow: None }
    }
}

impl From<ImageError> for ApiError {
    fn from(error: ImageError) -> Self {
        let reason = error.reason();
        let message = match error.message.is_empty() {
            true => canonical_text(reason).to_owned(),
            false => error.message,
        };
        Self::new(status(reason), message)
    }
}

impl From<ApiError> for Response<Bytes> {
    fn from(error: ApiError) -> Self {
        let body = serde_json::json!({"code": error.code, "message": error.message});
        let mut response = json_response(error.status, &body);
        if let Some(methods) = error.allow {
            response.headers_mut().insert(ALLOW, HeaderValue::from_static(methods));
        }
        response
    }
}

/// Returns a response with `body` as compact JSON and a newline.
pub(crate) fn json_response(status: StatusCode, body: &impl Serialize) -> Response<Bytes> {
    // Our bodies have text keys only, so they can always be written.
    let mut bytes = serde_json::to_vec(body).unwrap_or_default();
    bytes.push(b'\n');
    let mut response = Response::new(Bytes::from(bytes));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    response
}
