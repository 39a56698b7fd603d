//! Storing of content as blobs, each named by its SHA-256.

use std::path::{Path, PathBuf};

use futures_util::TryStreamExt as _;
use http::header::CONTENT_LENGTH;
use http::{Request, StatusCode};
use http_body::Frame;
use http_body_util::StreamBody;
use runtime::Channel;
use runtime::retry::Backoff;
use tokio::fs::File;
use tokio_util::io::ReaderStream;
use tonic::body::Body;

use crate::failure::Failure;
use crate::http::{may_repeat, send};
use crate::progress::Progress;
use crate::settings::Timing;

/// Number of bytes that are read and sent at once.
const CHUNK_BYTES: usize = 256 << 10;

/// A file to store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Blob {
    pub(crate) path: PathBuf,
    /// SHA-256 of the file in hexadecimal digits.
    pub(crate) sha256: String,
    pub(crate) bytes: u64,
}

/// Stores `blob`. Repeats the request until the server answers: the server compares the digest, so
/// that a repetition changes nothing.
pub(crate) async fn put(
    channel: &Channel,
    blob: &Blob,
    progress: &Progress,
    timing: &Timing,
) -> Result<(), Failure> {
    let (first, max) = timing.retry_delays;
    let mut backoff = Backoff::new(first, max);
    loop {
        let problem = match send(channel, request(blob, progress).await?).await {
            Ok(response) if is_stored(response.status()) => return Ok(()),
            Ok(response) if may_repeat(&response) => response.status().to_string(),
            Ok(response) => return Err(refused(response.status())),
            Err(status) => status.message().to_owned(),
        };
        tracing::warn!(blob = blob.sha256, problem, "content not stored");
        backoff.wait().await;
    }
}

async fn request(blob: &Blob, progress: &Progress) -> Result<Request<Body>, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::host("storing the content", error);
    let request =
        Request::put(format!("/blobs/{}", blob.sha256)).header(CONTENT_LENGTH, blob.bytes);
    let body = body(&blob.path, progress.clone()).await.map_err(|error| failed(&error))?;
    request.body(body).map_err(|error| failed(&error))
}

/// Returns a body with the content of the file at `path`.
async fn body(path: &Path, progress: Progress) -> std::io::Result<Body> {
    let mut sent = 0;
    let chunks = ReaderStream::with_capacity(File::open(path).await?, CHUNK_BYTES);
    let frames = chunks.map_ok(move |chunk| {
        sent += chunk.len() as u64;
        progress.set(sent);
        Frame::data(chunk)
    });
    Ok(Body::new(StreamBody::new(frames)))
}

fn is_stored(status: StatusCode) -> bool {
    matches!(status, StatusCode::OK | StatusCode::CREATED | StatusCode::NO_CONTENT)
}

/// The failure of a store that does not take the content, such as a full one (507).
fn refused(status: StatusCode) -> Failure {
    Failure::temporary(format_args!("storing the content: the image service answered {status}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use axum::Router;
    use axum::response::IntoResponse as _;
    use runtime::LocalServices;
    use tonic::Status;

    use super::*;

    /// Stores a blob at a server that answers with `first` once. Returns the number of requests.
    async fn put_after(first: http::Response<axum::body::Body>) -> (Result<(), Failure>, usize) {
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = requests.clone();
        let (parts, _) = first.into_parts();
        let router =
            Router::new().fallback(async move || match counted.fetch_add(1, Ordering::SeqCst) {
                0 => (parts.status, parts.headers).into_response(),
                _ => StatusCode::NO_CONTENT.into_response(),
            });
        let channel = LocalServices::of(router).channel(runtime::Role::Builder.into());
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_owned();
        let blob = Blob { path, sha256: "0".repeat(64), bytes: 0 };
        let retry_delays = (Duration::from_millis(1), Duration::from_millis(1));
        let timing = Timing { retry_delays, ..Timing::default() };
        let stored = put(&channel, &blob, &Progress::new(), &timing).await;
        (stored, requests.load(Ordering::SeqCst))
    }

    /// Returns an HTTP answer that has a code of gRPC, too.
    fn answer(status: u16, code: Status) -> http::Response<axum::body::Body> {
        let mut response = StatusCode::from_u16(status).unwrap().into_response();
        code.add_header(response.headers_mut()).unwrap();
        response
    }

    #[tokio::test]
    async fn content_is_sent_again_when_the_server_is_busy_or_stops() {
        for first in [
            StatusCode::SERVICE_UNAVAILABLE.into_response(),
            answer(503, Status::unavailable("the object store is away")),
            answer(409, Status::aborted("other requests came first")),
            answer(200, Status::unavailable("the server stops")),
        ] {
            assert_eq!(put_after(first).await, (Ok(()), 2));
        }
    }

    #[tokio::test]
    async fn a_full_store_and_a_wrong_digest_are_failures() {
        for (first, answered) in [
            (answer(507, Status::resource_exhausted("full")), "507 Insufficient Storage"),
            (answer(400, Status::invalid_argument("sha256")), "400 Bad Request"),
        ] {
            let reason = format!("storing the content: the image service answered {answered}");
            assert_eq!(put_after(first).await, (Err(Failure::temporary(reason)), 1));
        }
    }
}
