//! `/blobs/<digest>`: content by its SHA-256.

use axum::extract::{Path, Request, State};
use axum::response::Response;
use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::uploads::Doors;
use super::{ranges, response};
use crate::blobs::{Blobs, is_digest};
use crate::error::Error;

/// Maximum size of content in bytes. Builders are ours, and have limits of their own.
const MAX_BLOB_BYTES: u64 = 16 << 40;

/// Sends content, or a range of it.
pub(super) async fn read(
    State(doors): State<Doors>,
    Path(digest): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Error> {
    send(&doors.content.blobs, &digest, &headers).await
}

/// Sends the content `digest`, or the range of it that `headers` request.
pub(super) async fn send(
    blobs: &Blobs,
    digest: &str,
    headers: &HeaderMap,
) -> Result<Response, Error> {
    let size = blobs.size(digest).await?;
    let mut response = ranges::send(size, headers, |range| blobs.read(digest, range)).await?;
    if let Ok(tag) = HeaderValue::try_from(format!("\"{digest}\"")) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    Ok(response)
}

/// Stores content.
pub(super) async fn write(
    State(doors): State<Doors>,
    Path(digest): Path<String>,
    request: Request,
) -> Response {
    let version = request.version();
    response::to_the_end(async move {
        let mut body = response::RequestBody::new(request.into_body(), version);
        let outcome = match is_digest(&digest) {
            true => doors.content.blobs.write(&digest, body.parts(), MAX_BLOB_BYTES).await,
            false => Err(Error::BlobMissing(digest)),
        };
        body.answer(outcome.map(|()| StatusCode::NO_CONTENT)).await
    })
    .await
}
