//! What answers look like: their headers, and the 304 that stands for one already given.

use aws_lc_rs::digest::{SHA256, digest};
use axum::body::{Body as Sent, HttpBody as _};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};

use crate::tree::{Body, Kind};

/// `body`, or 304 if the client says it has it.
pub(super) fn ok(body: Body, asked: &HeaderMap) -> Response {
    let tag = tag(&body.bytes);
    let mut response = if has(asked, &tag) {
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
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}

/// A JSON text.
pub(super) fn json(text: impl Into<Sent>) -> Response {
    let text: Sent = text.into();
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

/// Adds what every answer has, refusals included.
pub(super) fn finish(mut response: Response) -> Response {
    let empty = response.body().is_end_stream();
    let headers = response.headers_mut();
    // Any other length the server says by itself; and it is the server that leaves out the body of an answer to HEAD.
    if empty {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
    }
    headers.insert(header::SERVER, HeaderValue::from_static("tinwright"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// A strong validator: the body's hash (RFC 9110 §8.8.3).
fn tag(bytes: &[u8]) -> String {
    let digit = |half: u8| char::from_digit(half.into(), 16).unwrap_or_default();
    let mut tag = String::with_capacity(34);
    tag.push('"');
    for byte in digest(&SHA256, bytes).as_ref().iter().take(16) {
        tag.extend([digit(byte >> 4), digit(byte & 15)]);
    }
    tag.push('"');
    tag
}

/// Whether `If-None-Match` names `tag`; it compares weakly (RFC 9110 §13.1.2).
fn has(asked: &HeaderMap, tag: &str) -> bool {
    let named = asked.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    named.flat_map(|value| value.split(',')).map(str::trim).any(|candidate| {
        candidate == "*" || candidate.strip_prefix("W/").unwrap_or(candidate) == tag
    })
}
