//! The answers to calls that did not reach a node: `{"code": …, "message": …}`, as errors of nodes.

use ::imageapi::ApiError;
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use tinwright::status;
use tonic::{Code, Status};

use crate::errors::{http_status, reason, retry_after};

/// Returns the response for `status`. The code in its body is the HTTP status.
pub fn failed(status: &Status) -> Response<Bytes> {
    let http = http(status);
    let message = status.message();
    let error = if status.code() == Code::Unavailable {
        ApiError::unavailable(message)
    } else if status.code() == Code::NotFound {
        let object = message.strip_suffix(" not found").unwrap_or(message);
        ApiError::new(http, format!("not found: {object}"))
    } else {
        ApiError::new(http, message)
    };
    let mut response = Response::from(error);
    if let Some(seconds) = retry_after(http, status::retry_delay(status)) {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    if http == StatusCode::UNAUTHORIZED {
        let challenge = HeaderValue::from_static("Bearer");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    }
    response
}

/// Returns the HTTP status. A node that is not named is a wrong request, and no conflict.
fn http(status: &Status) -> StatusCode {
    match reason(status).as_deref() {
        Some("SEVERAL_NODES" | "NAME_NOT_UNIQUE") => StatusCode::BAD_REQUEST,
        Some(_) | None => http_status(status),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::Value;
    use tinwright::status::{failed_precondition, not_found, overloaded};

    use super::*;

    fn answer(status: &Status) -> (u16, String, Option<HeaderValue>) {
        let response = failed(status);
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json");
        let retry = response.headers().get(header::RETRY_AFTER).cloned();
        let (http, body) = (response.status().as_u16(), response.into_body());
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["code"], http);
        (http, body["message"].as_str().unwrap().to_owned(), retry)
    }

    #[test]
    fn each_failure_is_json_with_its_http_status() {
        let (http, text, retry) = answer(&Status::unavailable("node n1 is not connected"));
        assert_eq!((http, text.as_str()), (503, "node not available: node n1 is not connected"));
        assert_eq!(retry.unwrap(), "1");
        let several = failed_precondition("SEVERAL_NODES", "node/", "there are several nodes");
        assert_eq!(answer(&several).0, 400);
        let (http, text, _) = answer(&not_found("node", "n9"));
        assert_eq!((http, text.as_str()), (404, "not found: node n9"));
        let (_, text, _) = answer(&Status::not_found("no node has connected yet"));
        assert_eq!(text, "not found: no node has connected yet");
        assert_eq!(answer(&Status::deadline_exceeded("x")).0, 504);
        assert_eq!(answer(&Status::permission_denied("x")).0, 403);
        let (http, _, retry) = answer(&overloaded("x", Duration::from_secs(3)));
        assert_eq!((http, retry.unwrap()), (429, HeaderValue::from_static("3")));
        assert!(failed(&Status::unauthenticated("x")).headers().contains_key("www-authenticate"));
    }
}
