//! Files and images for virtual media over HTTP: whole or a part, always with a length (firmware and iPXE need one). The router removes the body of a
//! response to HEAD.

use std::fs::File;
use std::io;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use file_stream::FileStream;
use futures_util::TryStreamExt as _;
use runtime::neighbour::NeighbourCheck;
use tftp::ErrorCode;

use super::scripts::no_store;
use super::{HttpState, Source};
use crate::Mac;
use crate::iso::Image;
use crate::tftp::{Directories, DiskFile, FileError, OpenFile};

/// Content type of binary files.
pub(super) const BYTES: &str = "application/octet-stream";

/// Responds with the file at `path`; there is none without directories.
pub(super) async fn respond(
    directories: Option<&Directories>,
    path: &str,
    kind: &'static str,
    headers: &HeaderMap,
) -> Response {
    let Some(directories) = directories else { return StatusCode::NOT_FOUND.into_response() };
    found(directories.find_file(path.to_owned()).await, kind, headers)
}

/// Responds with the file that was `found`.
pub(super) fn found(
    found: Result<DiskFile, FileError>,
    kind: &'static str,
    headers: &HeaderMap,
) -> Response {
    match found {
        Ok(file) => opened(OpenFile::Disk(file), kind, headers),
        Err(error) if error.code() == ErrorCode::UNDEFINED => {
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
        Err(_) => StatusCode::NOT_FOUND.into_response(),
    }
}

/// Responds with an open file. A text made for this client must not be cached.
pub(super) fn opened(file: OpenFile, kind: &'static str, headers: &HeaderMap) -> Response {
    match file {
        OpenFile::Memory(bytes) => {
            no_store(([(header::CONTENT_TYPE, kind)], bytes).into_response())
        }
        OpenFile::Disk(DiskFile { file, size, tag }) => {
            let body = |from, length| Ok(Body::from_stream(stream(file, from, length)));
            part_of(size, &tag, kind, headers, body)
        }
    }
}

/// Responds with an image for virtual media.
pub(super) async fn image(
    http: HttpState,
    source: Source,
    Extension(neighbour): Extension<NeighbourCheck>,
    Path((mac, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    let (Some(images), true) = (&http.images, name.ends_with(".iso")) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let Ok(mac) = mac.parse::<Mac>() else { return StatusCode::BAD_REQUEST.into_response() };
    if let Err(refusal) = http.boots.check_image_access(mac, *source, neighbour) {
        return http.refuse(&refusal, &name, *source, Some(mac));
    }
    match images.image(&name, mac, &http.boots).await {
        Ok(image) => {
            let (size, tag) = (image.source.size, image.tag.clone());
            let body = |from, length| image_body(image, from, length);
            no_store(part_of(size, &tag, BYTES, &headers, body))
        }
        Err(refusal) => http.refuse(&refusal, &name, *source, Some(mac)),
    }
}

/// Returns `length` octets from `from` on, with the machine's arguments.
fn image_body(image: Image, from: u64, length: u64) -> io::Result<Body> {
    let Image { file, source, arguments, tag: _ } = image;
    let mut offset = from;
    Ok(Body::from_stream(stream(file, from, length).map_ok(move |part| {
        let start = offset;
        offset += part.len() as u64;
        let mut patched = Vec::from(part);
        source.overlay(&mut patched, start, &arguments);
        Bytes::from(patched)
    })))
}

/// Responds with the requested part of `size` octets, whose version is `tag`; `body` reads a length from an offset.
pub(super) fn part_of(
    size: u64,
    tag: &str,
    kind: &'static str,
    headers: &HeaderMap,
    body: impl FnOnce(u64, u64) -> io::Result<Body>,
) -> Response {
    let is_same = |known: &HeaderValue| known.as_bytes() == tag.as_bytes();
    if headers.get(header::IF_NONE_MATCH).is_some_and(is_same) {
        return (StatusCode::NOT_MODIFIED, [(header::ETAG, tag)]).into_response();
    }
    let Ok(part) = range(headers, tag, size) else {
        let all = [(header::CONTENT_RANGE, format!("bytes */{size}"))];
        return (StatusCode::RANGE_NOT_SATISFIABLE, all).into_response();
    };
    let (from, length) = part.unwrap_or((0, size));
    let Ok(body) = body(from, length) else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let about = [
        (header::CONTENT_TYPE, kind.to_owned()),
        (header::CONTENT_LENGTH, length.to_string()),
        (header::ACCEPT_RANGES, "bytes".into()),
        (header::ETAG, tag.to_owned()),
    ];
    if part.is_none() {
        return (about, body).into_response();
    }
    let last = from + length - 1; // a part is never empty
    let place = [(header::CONTENT_RANGE, format!("bytes {from}-{last}/{size}"))];
    (StatusCode::PARTIAL_CONTENT, about, place, body).into_response()
}

/// Reads `length` octets from the offset `from`.
fn stream(file: File, from: u64, length: u64) -> FileStream {
    FileStream::new(file, from..from.saturating_add(length))
}

/// The range begins after the end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NoSuchPart;

/// Returns the requested part (RFC 9110 §14) as offset and length. None for the whole: also if several parts are requested,
/// or a part of another version of the file.
pub(super) fn range(
    headers: &HeaderMap,
    tag: &str,
    size: u64,
) -> Result<Option<(u64, u64)>, NoSuchPart> {
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
    fn a_part_is_served_as_requested_and_no_longer_than_the_file() {
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
    fn a_part_of_another_version_is_not_served() {
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
