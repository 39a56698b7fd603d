//! Errors over HTTP: the status of each code and reason in one table, and problem documents (RFC 9457).
//!
//! A door with error documents of its own takes [`http_status`], [`reason`] and [`retry_after`].

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde_json::{Value, json};
use tinwright::status;
use tonic::{Code, Status};
use tonic_types::{ErrorDetail, StatusExt as _};

/// The content type of problem documents.
pub const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");
/// The time after which a request may be repeated, where the service names none.
const DEFAULT_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Returns the HTTP status of `status`.
pub fn http_status(status: &Status) -> StatusCode {
    match status.code() {
        Code::Ok => StatusCode::OK,
        Code::InvalidArgument | Code::OutOfRange => StatusCode::BAD_REQUEST,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::AlreadyExists | Code::FailedPrecondition | Code::Aborted => StatusCode::CONFLICT,
        // Something is used up: waiting by itself does not help, unlike at a limit of the rate.
        Code::ResourceExhausted if reason(status).is_some() => StatusCode::CONFLICT,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        // The client is gone, or the server stops.
        Code::Cancelled => StatusCode::SERVICE_UNAVAILABLE,
        Code::Internal | Code::Unknown | Code::DataLoss => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// Returns the reason in the `ErrorInfo` of `status`.
pub fn reason(status: &Status) -> Option<String> {
    status.get_details_error_info().map(|info| info.reason)
}

/// Returns the name of a code, such as `NOT_FOUND`.
pub fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

/// Returns the value of `Retry-After` in seconds, if a response with this HTTP status has one.
pub fn retry_after(http: StatusCode, delay: Option<Duration>) -> Option<u64> {
    let waits = [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE].contains(&http);
    let delay = delay.or_else(|| waits.then_some(DEFAULT_RETRY_DELAY))?;
    Some(delay.as_millis().div_ceil(1000).try_into().unwrap_or(u64::MAX))
}

/// A problem document.
#[derive(Clone, Debug)]
pub struct Problem {
    /// The HTTP status.
    pub http: StatusCode,
    /// The code and what it says.
    pub status: Status,
    /// Further headers.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

impl From<Status> for Problem {
    fn from(status: Status) -> Self {
        Self { http: http_status(&status), status, headers: Vec::new() }
    }
}

impl Problem {
    /// A problem of HTTP itself, which has this status instead of that of its code.
    pub fn with_http(http: StatusCode, status: Status) -> Self {
        Self { http, ..status.into() }
    }

    /// The problem of a wrong field.
    pub fn field(field: &str, reason: impl std::fmt::Display) -> Self {
        Status::from(status::Violations::single(field, reason)).into()
    }

    /// Returns the document.
    pub fn document(&self) -> Value {
        let Self { http, status, .. } = self;
        let title = http.canonical_reason().unwrap_or_default();
        let mut document = json!({
            "type": "about:blank",
            "title": title,
            "status": http.as_u16(),
            "detail": status.message(),
            "code": code_name(status.code()),
        });
        if let Some(reason) = reason(status) {
            document["reason"] = reason.into();
        }
        if let Some(wrong) = status.get_details_bad_request() {
            let fields = wrong.field_violations.into_iter();
            let fields = fields.map(|it| json!({"field": it.field, "description": it.description}));
            document["fields"] = fields.collect();
        }
        let details: Vec<_> = status.get_error_details_vec().iter().filter_map(detail).collect();
        if !details.is_empty() {
            document["details"] = details.into();
        }
        document
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = self.document().to_string();
        let delay = status::retry_delay(&self.status);
        let mut response =
            (self.http, [(header::CONTENT_TYPE, PROBLEM_JSON)], body).into_response();
        if let Some(seconds) = retry_after(self.http, delay) {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        if self.http == StatusCode::UNAUTHORIZED {
            let challenge = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        response.headers_mut().extend(self.headers);
        response
    }
}

/// Returns the JSON of a detail, as protobuf's JSON of an `Any`; none for kinds that no service of ours uses.
fn detail(detail: &ErrorDetail) -> Option<Value> {
    let (name, mut value) = match detail {
        ErrorDetail::ErrorInfo(info) => (
            "ErrorInfo",
            json!({"reason": info.reason, "domain": info.domain, "metadata": info.metadata}),
        ),
        ErrorDetail::RetryInfo(info) => {
            let delay = info.retry_delay.map(|delay| format!("{}s", delay.as_secs_f64()));
            ("RetryInfo", json!({"retryDelay": delay}))
        }
        ErrorDetail::BadRequest(wrong) => {
            let wrong = wrong.field_violations.iter();
            let wrong = wrong.map(|it| json!({"field": it.field, "description": it.description}));
            ("BadRequest", json!({"fieldViolations": wrong.collect::<Value>()}))
        }
        ErrorDetail::PreconditionFailure(failure) => {
            let wrong = failure.violations.iter().map(
                |it| json!({"type": it.r#type, "subject": it.subject, "description": it.description}),
            );
            ("PreconditionFailure", json!({"violations": wrong.collect::<Value>()}))
        }
        ErrorDetail::QuotaFailure(failure) => {
            let wrong = failure.violations.iter();
            let wrong =
                wrong.map(|it| json!({"subject": it.subject, "description": it.description}));
            ("QuotaFailure", json!({"violations": wrong.collect::<Value>()}))
        }
        ErrorDetail::ResourceInfo(info) => (
            "ResourceInfo",
            json!({"resourceType": info.resource_type, "resourceName": info.resource_name}),
        ),
        // The services send no other details; later kinds are not known here.
        ErrorDetail::DebugInfo(_)
        | ErrorDetail::RequestInfo(_)
        | ErrorDetail::Help(_)
        | ErrorDetail::LocalizedMessage(_)
        | _ => return None,
    };
    value["@type"] = format!("type.googleapis.com/google.rpc.{name}").into();
    Some(value)
}

/// Answers a request for a path of no door.
pub(crate) async fn no_such_path() -> Problem {
    Status::not_found("no such path").into()
}

#[cfg(test)]
mod tests {
    use tinwright::status::{Violations, failed_precondition, over_quota, overloaded};

    use super::*;

    #[test]
    fn a_problem_names_code_reason_and_fields() {
        let problem = Problem::from(failed_precondition("INSTANCE_DELETED", "i1", "it is gone"));
        let document = problem.document();
        assert_eq!(
            (document["status"].as_u64(), document["title"].as_str()),
            (Some(409), Some("Conflict"))
        );
        assert_eq!(document["code"], "FAILED_PRECONDITION");
        assert_eq!(
            (&document["reason"], &document["detail"]),
            (&json!("INSTANCE_DELETED"), &json!("it is gone"))
        );
        let kinds: Vec<_> = document["details"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["@type"].as_str().unwrap())
            .collect();
        assert!(kinds.contains(&"type.googleapis.com/google.rpc.ErrorInfo"), "{kinds:?}");
        let wrong = Problem::from(Status::from(Violations::single("mac", "is empty"))).document();
        assert_eq!(wrong["fields"], json!([{"field": "mac", "description": "is empty"}]));
        assert_eq!(wrong["reason"], Value::Null);
    }

    #[test]
    fn what_is_used_up_is_a_conflict_and_a_limit_of_the_rate_says_when_to_come_again() {
        assert_eq!(http_status(&over_quota("acme", "too many")), StatusCode::CONFLICT);
        let limited = overloaded("too many", Duration::from_millis(1500));
        let response = Problem::from(limited).into_response();
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(response.headers()[header::RETRY_AFTER], "2");
        let away = Problem::from(Status::unavailable("away")).into_response();
        assert_eq!(away.headers()[header::RETRY_AFTER], "1");
    }
}
