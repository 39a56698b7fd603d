//! The bodies of requests, and requests that are answered before theirs was read.

use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody as _};
use axum::response::Response;
use http::{HeaderValue, Version, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

/// Maximum number of bytes that are read of a body only to drop them.
const MAX_DRAINED_BYTES: usize = 16 << 20;
/// Timeout of reading them.
const DRAIN_TIME: Duration = Duration::from_secs(5);

/// Reads a `body` of at most `max` bytes, chunked or not, and leaves the rest of one that is larger. Its client may break it off.
pub async fn read<E>(
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
/// the client would send its next request there. [`drain`] reads the rest of the body.
pub async fn finish(body: Option<Body>, version: Version, response: &mut Response) {
    if let Some(body) = body.filter(|body| !body.is_end_stream()) {
        close(version, response);
        drain(body, version).await;
    }
}

/// Reads and drops the `body` of a request, within limits.
///
/// HTTP/2 resets the stream after the response (RFC 9113 §8.1), and a client that is still sending,
/// such as curl 7.88, reports the reset in place of the response. So the body is read first.
///
/// An HTTP/1 connection that is closed while octets arrive is reset, and the reset may destroy a
/// response that the client has not read (RFC 9112 §9.6). Most clients read it after they have sent
/// their whole body. So the body is read on after the response. hyper keeps the connection open for
/// as long as the body is being read. It asks for no body that `Expect: 100-continue` holds back,
/// because the response begins before this task can run.
pub async fn drain(body: Body, version: Version) {
    if version < Version::HTTP_2 {
        // Ends by itself: both its bytes and its time are limited.
        tokio::spawn(discard(body));
    } else if body.size_hint().lower() <= MAX_DRAINED_BYTES as u64 {
        discard(body).await;
    }
}

/// Reads `body` to its end or to a limit, whichever comes first.
async fn discard(mut body: Body) {
    let read = async {
        let mut left = MAX_DRAINED_BYTES;
        while let Some(Ok(frame)) = body.frame().await {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            let Some(rest) = left.checked_sub(bytes) else { return };
            left = rest;
        }
    };
    // At the timeout the stream is reset, or the connection closed.
    let _is_read = tokio::time::timeout(DRAIN_TIME, read).await;
}

/// Announces in `response` that the connection ends, if it is one of HTTP/1.
pub fn close(version: Version, response: &mut Response) {
    if version < Version::HTTP_2 {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use futures_util::stream;
    use tokio::sync::mpsc;

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

    type Parts = mpsc::Sender<Result<Bytes, io::Error>>;

    /// Returns a body, and the sender of its parts. The sender is closed once the body is dropped.
    fn sent_body() -> (Parts, Body) {
        let (sender, receiver) = mpsc::channel(1);
        let next = |mut receiver: mpsc::Receiver<_>| async move {
            Some((receiver.recv().await?, receiver))
        };
        (sender, Body::from_stream(stream::unfold(receiver, next)))
    }

    /// Sends 1 MiB after the other until nobody reads, and returns their number.
    async fn parts_read(sender: Parts) -> usize {
        let mut count = 0;
        while sender.send(Ok(Bytes::from(vec![0; 1 << 20]))).await.is_ok() {
            count += 1;
        }
        count
    }

    #[tokio::test]
    async fn a_body_is_read_up_to_a_limit() {
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let (sender, body) = sent_body();
            let mut response = Response::new(Body::empty());
            let (count, ()) =
                tokio::join!(parts_read(sender), finish(Some(body), version, &mut response));
            // One more may wait in the channel.
            assert!((17..=18).contains(&count), "{version:?}: {count} MiB");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_http_2_waits_for_the_body_and_both_for_a_limited_time() {
        for (version, delay) in [(Version::HTTP_11, Duration::ZERO), (Version::HTTP_2, DRAIN_TIME)]
        {
            let (sender, body) = sent_body();
            let began = tokio::time::Instant::now();
            finish(Some(body), version, &mut Response::new(Body::empty())).await;
            assert_eq!(began.elapsed(), delay, "{version:?}: the response");
            sender.closed().await;
            assert_eq!(began.elapsed(), DRAIN_TIME, "{version:?}: the body");
        }
    }
}
