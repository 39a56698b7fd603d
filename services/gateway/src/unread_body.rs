//! Requests that are answered before their body was read.

use axum::body::{Body, HttpBody as _};
use axum::response::Response;
use http::{HeaderValue, Version, header};

/// Announces in `response` that the connection ends, if it will because of the `body` that is left of its request.
///
/// HTTP/1 ends a connection on which octets of a body may still arrive (RFC 9112 §9.3). Without the header the client would send its next
/// request there. In HTTP/2 only the stream ends.
pub(crate) fn announce_close(body: Option<&Body>, version: Version, response: &mut Response) {
    if body.is_some_and(|body| !body.is_end_stream()) {
        close(version, response);
    }
}

/// Announces in `response` that the connection ends, if it is one of HTTP/1.
pub(crate) fn close(version: Version, response: &mut Response) {
    if version < Version::HTTP_2 {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_body_that_is_left_ends_a_connection_of_http_1() {
        let closes = |body: Option<Body>, version| {
            let mut response = Response::new(Body::empty());
            announce_close(body.as_ref(), version, &mut response);
            response.headers().contains_key(header::CONNECTION)
        };
        assert!(closes(Some("{}".into()), Version::HTTP_11));
        assert!(!closes(Some("{}".into()), Version::HTTP_2));
        assert!(!closes(Some(Body::empty()), Version::HTTP_11));
        assert!(!closes(None, Version::HTTP_11));
    }
}
