//! Answers to requests for a source, and the failures of requests.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use http_body::Body;
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use tower::BoxError;

use crate::failure::Failure;

/// An answer: its head, and the body to come.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    body: UnsyncBoxBody<Bytes, BoxError>,
}

/// Failure of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Temporary: another request may succeed.
    Again(Failure),
    /// Permanent: another request fails in the same way.
    End(Failure),
}

impl Answer {
    /// Takes the parts of `response`.
    pub(crate) fn new<B>(response: Response<B>) -> Self
    where
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let (head, body) = response.into_parts();
        let body = body.map_err(Into::into).boxed_unsync();
        Self { status: head.status, headers: head.headers, body }
    }

    /// Returns the number of bytes of the body, if the server says it.
    pub(crate) fn length(&self) -> Option<u64> {
        self.headers.get(http::header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
    }

    /// Returns the next bytes of the body; none at its end. Fails after `stall` without any.
    pub(crate) async fn next(&mut self, stall: Duration) -> Result<Option<Bytes>, String> {
        loop {
            let next = tokio::time::timeout(stall, self.body.frame()).await;
            let frame = next.map_err(|_| stalled(stall))?.transpose();
            match frame.map_err(|error| cause(&*error))?.map(http_body::Frame::into_data) {
                None => return Ok(None),
                Some(Ok(bytes)) => return Ok(Some(bytes)),
                Some(Err(_trailers)) => {}
            }
        }
    }
}

impl From<Failure> for Cut {
    fn from(failure: Failure) -> Self {
        Self::End(failure)
    }
}

/// Returns the text for a server that is silent.
pub(crate) fn stalled(stall: Duration) -> String {
    format!("no data for {} s", stall.as_secs_f64())
}

/// Returns the innermost cause of an error: the outer ones repeat the URL.
pub(crate) fn cause(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.last().map(ToString::to_string).unwrap_or_default()
}
