//! Files over HTTP: whole or a part, by GET or HEAD, always with a length (firmware and iPXE need one).

use std::io;
use std::os::unix::fs::MetadataExt as _;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _, SeekFrom};
use tokio_util::io::ReaderStream;

use crate::tftp::files::FileContent;
use crate::tftp::{Directories, FileError, OpenFile};

/// Content type of binary files.
pub(super) const BYTES: &str = "application/octet-stream";
/// Bytes read at a time.
const CHUNK_BYTES: usize = 256 * 1024;

/// Answers a request for the file at `path`.
pub(super) async fn answer(
    directories: &Directories,
    path: &str,
    kind: &'static str,
    method: &Method,
    headers: &HeaderMap,
) -> Response {
    match directories.find_file(path.to_owned()).await {
        Ok((file, size)) => {
            let tag = tag(&file, size);
            let body = |from, length| body(tokio::fs::File::from_std(file), from, length);
            part_of(size, &tag, kind, method, headers, body).await
        }
        Err(FileError::NotFound | FileError::NotAllowed) => StatusCode::NOT_FOUND.into_response(),
        Err(FileError::TryLater | FileError::Unreadable(_)) => {
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// Answers with an open file. A text made for this client must not be cached.
pub(super) async fn opened(
    file: OpenFile,
    kind: &'static str,
    method: &Method,
    headers: &HeaderMap,
) -> Response {
    match file.content {
        FileContent::Shared(bytes) => {
            let whole = [(header::CONTENT_TYPE, HeaderValue::from_static(kind))];
            super::scripts::no_store((whole, Body::from(bytes)).into_response())
        }
        FileContent::Open(file) => {
            let size = file.metadata().map_or(0, |about| about.len());
            let tag = tag(&file, size);
            let body = |from, length| body(tokio::fs::File::from_std(file), from, length);
            part_of(size, &tag, kind, method, headers, body).await
        }
    }
}

/// Answers with the requested part of `size` octets, whose version is `tag`; `body` reads a length from an offset.
pub(super) async fn part_of<B: Future<Output = io::Result<Body>>>(
    size: u64,
    tag: &str,
    kind: &'static str,
    method: &Method,
    headers: &HeaderMap,
    body: impl FnOnce(u64, u64) -> B,
) -> Response {
    let is_same = |known: &HeaderValue| known.as_bytes() == tag.as_bytes();
    if headers.get(header::IF_NONE_MATCH).is_some_and(is_same) {
        return (StatusCode::NOT_MODIFIED, [(header::ETAG, tag)]).into_response();
    }
    let part = match range(headers, tag, size) {
        Ok(part) => part,
        Err(NoSuchPart) => {
            let all = [(header::CONTENT_RANGE, format!("bytes */{size}"))];
            return (StatusCode::RANGE_NOT_SATISFIABLE, all).into_response();
        }
    };
    let (from, length) = part.unwrap_or((0, size));
    let body = match method == Method::HEAD {
        true => Body::empty(),
        false => match body(from, length).await {
            Ok(body) => body,
            Err(_) => return StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        },
    };
    let status = if part.is_some() { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
    let mut answer = (status, body).into_response();
    let mut set = |name: HeaderName, value: String| {
        if let Ok(value) = HeaderValue::from_str(&value) {
            answer.headers_mut().insert(name, value);
        }
    };
    set(header::CONTENT_TYPE, kind.to_owned());
    set(header::CONTENT_LENGTH, length.to_string());
    set(header::ACCEPT_RANGES, "bytes".into());
    set(header::ETAG, tag.to_owned());
    if part.is_some() {
        let last = from + length - 1; // a part is never empty
        set(header::CONTENT_RANGE, format!("bytes {from}-{last}/{size}"));
    }
    answer
}

async fn body(mut file: tokio::fs::File, from: u64, length: u64) -> io::Result<Body> {
    if from > 0 {
        file.seek(SeekFrom::Start(from)).await?;
    }
    Ok(Body::from_stream(ReaderStream::with_capacity(file.take(length), CHUNK_BYTES)))
}

/// Returns an ETag that differs if the file's bytes may differ.
fn tag(file: &std::fs::File, size: u64) -> String {
    match file.metadata() {
        Ok(about) => {
            let (inode, seconds, nanos) = (about.ino(), about.mtime(), about.mtime_nsec());
            format!("\"{inode:x}-{size:x}-{seconds:x}.{nanos:x}\"")
        }
        Err(_) => format!("\"{size:x}\""),
    }
}

/// The range begins after the end.
#[derive(Debug, PartialEq, Eq)]
struct NoSuchPart;

/// Returns the requested part (RFC 9110 §14) as offset and length. None for the whole: also if several parts are requested,
/// or a part of another version of the file.
fn range(headers: &HeaderMap, tag: &str, size: u64) -> Result<Option<(u64, u64)>, NoSuchPart> {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    if text(header::IF_RANGE).is_some_and(|version| version != tag) {
        return Ok(None);
    }
    let Some(range) = text(header::RANGE).and_then(|range| range.strip_prefix("bytes=")) else {
        return Ok(None);
    };
    let Some((first, last)) = range.trim().split_once('-') else { return Ok(None) };
    let (from, to) = match (first.parse::<u64>(), last.parse::<u64>()) {
        (Ok(from), Ok(to)) if from <= to => (from, to.min(size.saturating_sub(1))),
        (Ok(from), Err(_)) if last.is_empty() => (from, size.saturating_sub(1)),
        (Err(_), Ok(0)) if first.is_empty() => return Err(NoSuchPart),
        (Err(_), Ok(last)) if first.is_empty() => {
            (size.saturating_sub(last), size.saturating_sub(1))
        }
        _ => return Ok(None),
    };
    if from < size { Ok(Some((from, to - from + 1))) } else { Err(NoSuchPart) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn headers(range: &str, version: Option<&str>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::RANGE, range.parse().unwrap());
        version.map(|version| headers.insert(header::IF_RANGE, version.parse().unwrap()));
        headers
    }

    #[test]
    fn a_part_is_given_as_asked_and_no_longer_than_the_file() {
        let part = |text: &str| range(&headers(text, None), "\"t\"", 100);
        assert_eq!(part("bytes=0-9"), Ok(Some((0, 10))));
        assert_eq!(part("bytes=90-"), Ok(Some((90, 10))));
        assert_eq!(part("bytes=90-200"), Ok(Some((90, 10))));
        assert_eq!(part("bytes=-30"), Ok(Some((70, 30))));
        assert_eq!(part("bytes=-300"), Ok(Some((0, 100))));
        for beyond in ["bytes=100-", "bytes=100-200", "bytes=-0"] {
            assert_eq!(part(beyond), Err(NoSuchPart), "{beyond}");
        }
        for whole in ["bytes=5-4", "bytes=0-1,5-6", "lines=0-1", "bytes=x-"] {
            assert_eq!(part(whole), Ok(None), "{whole}");
        }
    }

    #[test]
    fn a_part_of_another_version_is_not_given() {
        let of = |version: &str| range(&headers("bytes=5-", Some(version)), "\"t\"", 100);
        assert_eq!(of("\"t\""), Ok(Some((5, 95))));
        assert_eq!(of("\"old\""), Ok(None));
    }

    proptest! {
        #[test]
        fn no_range_leads_outside_the_file(text in "bytes=[0-9]{0,20}-[0-9]{0,20}", size in 0..1000_u64) {
            if let Ok(Some((from, length))) = range(&headers(&text, None), "t", size) {
                prop_assert!(length > 0 && from + length <= size);
            }
        }
    }
}
