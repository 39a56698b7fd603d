//! Errors over HTTP, and the bodies of requests.

use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use http::{StatusCode, Version, header};
use http_body_util::BodyExt as _;
use runtime::unread_body;
use store::{records, serving};
use tonic::Status;

use crate::error::Error;
use crate::objects;

/// Maximum time between two parts of a body.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// The status of tus 1.0 for bytes with another checksum.
const CHECKSUM_MISMATCH: u16 = 460;

/// Returns the HTTP status of `error`.
pub(super) fn http_status(error: &Error) -> StatusCode {
    match error {
        Error::Invalid(_) | Error::Digest { .. } | Error::Interrupted(_) => StatusCode::BAD_REQUEST,
        Error::Checksum => {
            StatusCode::from_u16(CHECKSUM_MISMATCH).unwrap_or(StatusCode::BAD_REQUEST)
        }
        Error::NotOwned(_) => StatusCode::FORBIDDEN,
        Error::BlobMissing(_) | Error::Records(records::Error::Missing { .. }) => {
            StatusCode::NOT_FOUND
        }
        Error::TooLong { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        Error::Records(records::Error::Quota { .. }) => StatusCode::PAYLOAD_TOO_LARGE,
        Error::UploadBusy(_) => StatusCode::LOCKED,
        Error::Precondition { .. } | Error::Offset { .. } | Error::Busy => StatusCode::CONFLICT,
        Error::Objects(objects::Error::Full) => StatusCode::INSUFFICIENT_STORAGE,
        Error::NoObjectStore
        | Error::Tenant(_)
        | Error::Unanswered { .. }
        | Error::Objects(_)
        | Error::Records(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let http = http_status(&self);
        let status = Status::from(self);
        let text = format!("{}\n", status.message());
        let mut response = (http, [(header::CONTENT_TYPE, "text/plain")], text).into_response();
        // For the metrics of calls, which have the codes of gRPC.
        let status = Status::new(status.code(), status.message());
        if let Err(error) = status.add_header(response.headers_mut()) {
            tracing::debug!(error = runtime::cause(&error), "status not sent");
        }
        response
    }
}

/// Runs the work of a request to its end. A client that goes away ends the body early, which the
/// work sees: so what arrived becomes durable, or is removed, before another request may write.
pub(super) async fn to_the_end(work: impl Future<Output = Response> + Send + 'static) -> Response {
    let work = Box::pin(async { Ok(work.await) });
    serving::to_the_end(work).await.unwrap_or_else(|status| {
        let text = format!("{}\n", status.message());
        (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
    })
}

/// The body of a request.
pub(super) struct RequestBody {
    body: Body,
    version: Version,
}

impl RequestBody {
    pub(super) fn new(body: Body, version: Version) -> Self {
        Self { body, version }
    }

    /// Reads the parts of the body. A client that sends nothing for a minute is given up. What is not
    /// read is left for [`Self::answer`].
    pub(super) fn parts(&mut self) -> BoxStream<'_, Result<Bytes, Error>> {
        let parts = stream::unfold(&mut self.body, |body| async move {
            let next = tokio::time::timeout(IDLE_TIMEOUT, body.frame()).await;
            let late = || Err(axum::Error::new("nothing arrived for a minute"));
            let next = next.unwrap_or_else(|_| Some(late()))?;
            Some((next.map(|frame| frame.into_data().unwrap_or_default()), body))
        });
        parts.map_err(Error::Interrupted).boxed()
    }

    /// Answers the request with `outcome`, after a body that was not read to its end.
    pub(super) async fn answer<T: IntoResponse>(self, outcome: Result<T, Error>) -> Response {
        let mut response = outcome.into_response();
        unread_body::finish(Some(self.body), self.version, &mut response).await;
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_object_store_is_told_apart_from_one_that_cannot_be_reached() {
        for (error, expected) in [
            (objects::Error::Full, StatusCode::INSUFFICIENT_STORAGE),
            (objects::Error::Missing("x".into()), StatusCode::SERVICE_UNAVAILABLE),
        ] {
            assert_eq!(Error::from(error).into_response().status(), expected);
        }
    }
}
