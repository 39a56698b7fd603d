//! Responses: their headers, and 304 for a client that has the document already.

use aws_lc_rs::digest::{SHA256, digest};
use axum::body::HttpBody as _;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};

use crate::tree::{Body, Kind};

/// Returns `body`, or 304 if `If-None-Match` in the request's headers names it.
pub(super) fn document(body: Body, request: &HeaderMap) -> Response {
    // A strong validator: the hash of the body (RFC 9110 §8.8.3).
    let tag = format!("\"{}\"", BASE64_URL_SAFE_NO_PAD.encode(digest(&SHA256, &body.bytes)));
    let mut response = if has_tag(request, &tag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        let kind = match body.kind {
            Kind::Text | Kind::ToSign(_) => "text/plain; charset=utf-8",
            Kind::Octets => "application/octet-stream",
            Kind::Json => "application/json",
            Kind::Yaml => "application/yaml",
        };
        ([(header::CONTENT_TYPE, kind)], body.bytes).into_response()
    };
    response.headers_mut().extend(HeaderValue::try_from(tag).map(|tag| (header::ETAG, tag)));
    response
}

/// Returns a response with a JSON text.
pub(super) fn json(text: impl Into<axum::body::Body>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], text.into()).into_response()
}

/// Adds the headers of every response, refusals included.
pub(super) fn with_common_headers(mut response: Response) -> Response {
    let is_empty = response.body().is_end_stream();
    let headers = response.headers_mut();
    // The server adds any other length, and leaves out the body in response to HEAD.
    if is_empty {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
    }
    headers.insert(header::SERVER, HeaderValue::from_static("tinwright"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// True if `If-None-Match` names `tag`; it compares weakly (RFC 9110 §13.1.2).
fn has_tag(request: &HeaderMap, tag: &str) -> bool {
    let values =
        request.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).any(|candidate| {
        candidate == "*" || candidate.strip_prefix("W/").unwrap_or(candidate) == tag
    })
}
