//! Responses with content, or with the range of it that a client requests.

use std::ops::Range;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, StatusCode, header};

use crate::blobs::BlobBytes;
use crate::error::Error;

/// Media type of content.
const BYTES: &str = "application/octet-stream";

/// Sends content of `size` bytes, or the range of it that `headers` request. `read` returns a range,
/// or all bytes.
pub(super) async fn send<F>(
    size: u64,
    headers: &HeaderMap,
    read: impl FnOnce(Option<Range<u64>>) -> F,
) -> Result<Response, Error>
where
    F: Future<Output = Result<BlobBytes, Error>>,
{
    let Some(range) = requested(headers, size) else {
        let content = read(None).await?;
        let headers = [
            (header::CONTENT_TYPE, BYTES.to_owned()),
            (header::CONTENT_LENGTH, size.to_string()),
            (header::ACCEPT_RANGES, "bytes".to_owned()),
        ];
        return Ok((headers, Body::from_stream(content)).into_response());
    };
    if range.is_empty() {
        let range = format!("bytes */{size}");
        let status = StatusCode::RANGE_NOT_SATISFIABLE;
        return Ok((status, [(header::CONTENT_RANGE, range)]).into_response());
    }
    let content = read(Some(range.clone())).await?;
    let Range { start, end } = range;
    let headers = [
        (header::CONTENT_TYPE, BYTES.to_owned()),
        (header::CONTENT_LENGTH, (end - start).to_string()),
        (header::CONTENT_RANGE, format!("bytes {start}-{}/{size}", end - 1)),
    ];
    Ok((StatusCode::PARTIAL_CONTENT, headers, Body::from_stream(content)).into_response())
}

/// Returns the requested range of content with `size` bytes, empty if there is none of it (RFC 9110
/// §14.2). None: the whole content is sent, also for several ranges.
fn requested(headers: &HeaderMap, size: u64) -> Option<Range<u64>> {
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
            requested(&headers, 10)
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
