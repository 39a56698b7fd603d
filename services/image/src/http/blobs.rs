//! `/blobs/<digest>`: content by its SHA-256.

use std::ops::Range;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, StatusCode, header};

use super::response;
use super::uploads::Doors;
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
    let Some(range) = range(headers, size) else {
        return whole(blobs, digest, size).await;
    };
    if range.is_empty() {
        let range = format!("bytes */{size}");
        let status = StatusCode::RANGE_NOT_SATISFIABLE;
        return Ok((status, [(header::CONTENT_RANGE, range)]).into_response());
    }
    let found = blobs.read(digest, Some(range.clone())).await?;
    let Range { start, end } = range;
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_LENGTH, (end - start).to_string()),
        (header::CONTENT_RANGE, format!("bytes {start}-{}/{size}", end - 1)),
        (header::ETAG, format!("\"{digest}\"")),
    ];
    Ok((StatusCode::PARTIAL_CONTENT, headers, Body::from_stream(found)).into_response())
}

async fn whole(blobs: &Blobs, digest: &str, size: u64) -> Result<Response, Error> {
    let found = blobs.read(digest, None).await?;
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_LENGTH, size.to_string()),
        (header::ACCEPT_RANGES, "bytes".to_owned()),
        (header::ETAG, format!("\"{digest}\"")),
    ];
    Ok((headers, Body::from_stream(found)).into_response())
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
            true => doors.content.blobs.write(&digest, body.take(), MAX_BLOB_BYTES).await,
            false => Err(Error::BlobMissing(digest)),
        };
        body.answer(outcome.map(|()| StatusCode::NO_CONTENT)).await
    })
    .await
}

/// Returns the requested range of content with `size` bytes, empty if there is none of it (RFC 9110
/// §14.2). None: the whole content is sent, also for several ranges.
fn range(headers: &HeaderMap, size: u64) -> Option<Range<u64>> {
    let text = headers.get(header::RANGE)?.to_str().ok()?.strip_prefix("bytes=")?;
    let (first, last) = text.split_once('-').filter(|_| !text.contains(','))?;
    let (first, last) = (first.trim(), last.trim());
    if first.is_empty() {
        let length: u64 = last.parse().ok()?;
        return Some(size.saturating_sub(length)..size);
    }
    let first: u64 = first.parse().ok()?;
    let end = match last {
        "" => size,
        last => last.parse::<u64>().ok()?.saturating_add(1).min(size),
    };
    Some(first..end.max(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_within_the_content() {
        let range = |text: &str| {
            let headers = HeaderMap::from_iter([(header::RANGE, text.parse().unwrap())]);
            range(&headers, 10)
        };
        for (text, expected) in [
            ("bytes=0-3", Some(0..4)),
            ("bytes=4-", Some(4..10)),
            ("bytes=4-99", Some(4..10)),
            ("bytes=-3", Some(7..10)),
            ("bytes=-30", Some(0..10)),
            ("bytes=10-", Some(10..10)),
            ("bytes=12-15", Some(12..12)),
            ("bytes=5-3", Some(5..5)),
            ("bytes=0-1,3-4", None),
            ("bytes=x-", None),
            ("items=0-1", None),
        ] {
            assert_eq!(range(text), expected, "{text}");
        }
    }
}
