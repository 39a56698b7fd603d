//! Requests over plain HTTP at the port of the API: the content of images. Each kind of request is a
//! row of the table of calls.
//!
//! ```text
//! GET, HEAD /blobs/<digest>          /blobs/read
//! PUT /blobs/<digest>                /blobs/write
//! GET, HEAD /images/<file>           /images/read
//! GET /uploads/<image id>            /uploads/read
//! other methods of /uploads          /uploads/write
//! ```

use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use http::{Method, StatusCode, header};
use tinwright::calls::Call;
use tinwright::common::v1::Audience;
use tonic::{Code, Status};

use crate::unread_body;

/// The rows of these requests.
pub(super) const HTTP_CALLS: [Call; 5] = [
    http_call("/blobs/read", Audience::Services, false),
    http_call("/blobs/write", Audience::Builders, false),
    Call { services: &["netboot"], ..http_call("/images/read", Audience::Services, false) },
    http_call("/uploads/read", Audience::Builders, false),
    http_call("/uploads/write", Audience::Operators, true),
];

const fn http_call(path: &'static str, audience: Audience, is_open_to_tenants: bool) -> Call {
    Call { path, audience, is_open_to_tenants, services: &[] }
}

/// Returns the path by which the table of calls has `request`.
pub fn call_path<B>(request: &http::Request<B>) -> &str {
    let path = request.uri().path();
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    if path.starts_with("/blobs/") {
        return if reads { "/blobs/read" } else { "/blobs/write" };
    }
    if path.starts_with("/images/") && reads {
        return "/images/read";
    }
    if path.starts_with("/uploads/") {
        // HEAD asks for the offset at which an upload goes on (tus 1.0).
        let reads = *request.method() == Method::GET;
        return if reads { "/uploads/read" } else { "/uploads/write" };
    }
    path
}

/// True if `request` is one of plain HTTP, and not a call of gRPC.
pub fn is_http<B>(request: &http::Request<B>) -> bool {
    call_path(request) != request.uri().path()
}

/// Refuses `request` with `status`, in the form of its protocol.
pub(super) async fn refuse(status: Status, request: Request) -> Response {
    if !is_http(&request) {
        return status.into_http();
    }
    let http = match status.code() == Code::Unauthenticated {
        true => StatusCode::UNAUTHORIZED,
        false => StatusCode::FORBIDDEN,
    };
    let text = format!("{}\n", status.message());
    let mut response = (http, [(header::CONTENT_TYPE, "text/plain")], text).into_response();
    // The record of refusals reads the status from here.
    if let Err(error) = status.add_header(response.headers_mut()) {
        tracing::debug!(error = crate::cause(&error), "status not sent");
    }
    let version = request.version();
    unread_body::finish(Some(request.into_body()), version, &mut response).await;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(method: Method, path: &str) -> String {
        let request = Request::builder().method(method).uri(path);
        call_path(&request.body(axum::body::Body::empty()).unwrap()).to_owned()
    }

    #[test]
    fn content_is_read_or_written_and_other_paths_are_calls() {
        for (method, uri, call) in [
            (Method::GET, "/blobs/ab", "/blobs/read"),
            (Method::HEAD, "/blobs/ab", "/blobs/read"),
            (Method::PUT, "/blobs/ab", "/blobs/write"),
            (Method::GET, "/images/ab.map", "/images/read"),
            (Method::PUT, "/images/ab.map", "/images/ab.map"),
            (Method::GET, "/uploads/1", "/uploads/read"),
            (Method::HEAD, "/uploads/1", "/uploads/write"),
            (Method::PATCH, "/uploads/1", "/uploads/write"),
            (Method::POST, "/tinwright.x.v1.Y/Z", "/tinwright.x.v1.Y/Z"),
            (Method::GET, "/uploadsx", "/uploadsx"),
        ] {
            assert_eq!(path(method.clone(), uri), call, "{method} {uri}");
        }
    }
}
