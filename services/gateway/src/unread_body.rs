//! The bodies of requests, and requests that are answered before theirs was read.

use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody as _};
use axum::response::Response;
use http::{HeaderValue, Version, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

/// The most bytes of a body that are read, and dropped, for a response of HTTP/2.
const MAX_DRAINED_BYTES: usize = 16 << 20;
/// The longest time for that.
const DRAIN_TIME: Duration = Duration::from_secs(5);

/// Reads a `body` of at most `max` bytes, chunked or not, and leaves the rest of one that is larger. Its client may break it off.
pub(crate) async fn read<E>(
    body: &mut Option<Body>,
    max: usize,
    too_large: impl FnOnce() -> E,
    incomplete: impl FnOnce(&'static str) -> E,
) -> Result<Bytes, E> {
    let mut whole = body.take().unwrap_or_default();
    let read = Limited::new(&mut whole, max).collect().await;
    match read {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            *body = Some(whole);
            Err(too_large())
        }
        Err(_) => Err(incomplete("the body is not complete")),
    }
}

/// Prepares `response` for what is left of the `body` of its request.
///
/// HTTP/1 ends a connection on which octets of a body may still arrive (RFC 9112 §9.3), and the response announces that. Without the header
/// the client would send its next request there. HTTP/2 resets the stream after the response (RFC 9113 §8.1), and a client that is still
/// sending, such as curl 7.88, reports the reset in place of the response. So the body is read first, within limits.
pub(crate) async fn finish(body: Option<Body>, version: Version, response: &mut Response) {
    if let Some(body) = body.filter(|body| !body.is_end_stream()) {
        close(version, response);
        drain(body, version).await;
    }
}

/// Reads and drops the `body` of a request of HTTP/2, within the limits.
pub(crate) async fn drain(mut body: Body, version: Version) {
    if version < Version::HTTP_2 || body.size_hint().lower() > MAX_DRAINED_BYTES as u64 {
        return;
    }
    let read = async {
        let mut left = MAX_DRAINED_BYTES;
        while let Some(Ok(frame)) = body.frame().await {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            let Some(rest) = left.checked_sub(bytes) else { return };
            left = rest;
        }
    };
    // After that time the stream is reset.
    let _is_read = tokio::time::timeout(DRAIN_TIME, read).await;
}

/// Announces in `response` that the connection ends, if it is one of HTTP/1.
pub(crate) fn close(version: Version, response: &mut Response) {
    if version < Version::HTTP_2 {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::stream::{self, StreamExt as _};

    use super::*;

    #[tokio::test]
    async fn only_a_body_that_is_left_ends_a_connection_of_http_1() {
        let closes = async |body: Option<Body>, version| {
            let mut response = Response::new(Body::empty());
            finish(body, version, &mut response).await;
            response.headers().contains_key(header::CONNECTION)
        };
        assert!(closes(Some("{}".into()), Version::HTTP_11).await);
        assert!(!closes(Some("{}".into()), Version::HTTP_2).await);
        assert!(!closes(Some(Body::empty()), Version::HTTP_11).await);
        assert!(!closes(None, Version::HTTP_11).await);
    }

    /// Returns the parts of 1 MiB that are read of an endless body.
    async fn parts_read(version: Version) -> usize {
        let count = Arc::new(AtomicUsize::default());
        let counted = count.clone();
        let part = move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            Ok::<_, std::io::Error>(Bytes::from(vec![0; 1 << 20]))
        };
        let body = Body::from_stream(stream::iter(0..).map(part));
        finish(Some(body), version, &mut Response::new(Body::empty())).await;
        count.load(Ordering::Relaxed)
    }

    #[tokio::test]
    async fn a_body_of_http_2_is_read_up_to_a_limit() {
        assert_eq!(parts_read(Version::HTTP_2).await, 17);
        assert_eq!(parts_read(Version::HTTP_11).await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_come_delays_the_response_for_a_limited_time() {
        let body = Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>());
        let began = tokio::time::Instant::now();
        finish(Some(body), Version::HTTP_2, &mut Response::new(Body::empty())).await;
        assert_eq!(began.elapsed(), DRAIN_TIME);
    }
}
