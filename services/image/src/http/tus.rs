//! The headers of tus 1.0 (<https://tus.io/protocols/resumable-upload>), with the extensions
//! creation, checksum and expiration.

use std::time::SystemTime;

use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use tinwright::status::Violations;

use crate::uploads::Checksum;

/// The version of the protocol.
const VERSION: HeaderValue = HeaderValue::from_static("1.0.0");
/// The version of a request and of its response.
const RESUMABLE: HeaderName = HeaderName::from_static("tus-resumable");
/// The versions of the server.
const SUPPORTED: HeaderName = HeaderName::from_static("tus-version");
/// The size of a new upload.
const LENGTH: &str = "upload-length";
/// The durable bytes of an upload.
const OFFSET: HeaderName = HeaderName::from_static("upload-offset");
/// The media type of bytes that continue an upload.
const CONTENT_TYPE: &str = "application/offset+octet-stream";

/// Returns the response to a request with another version of the protocol, or none.
pub(super) fn wrong_version(headers: &HeaderMap) -> Option<Response> {
    match headers.get(RESUMABLE) {
        Some(version) if version == VERSION => None,
        _ => Some((StatusCode::PRECONDITION_FAILED, [(SUPPORTED, VERSION)]).into_response()),
    }
}

/// Returns the description of the server.
pub(super) fn description(max_upload_bytes: u64) -> Response {
    let headers = [
        (SUPPORTED, VERSION),
        (HeaderName::from_static("tus-max-size"), max_upload_bytes.into()),
        (
            HeaderName::from_static("tus-extension"),
            HeaderValue::from_static("creation,checksum,expiration"),
        ),
        (
            HeaderName::from_static("tus-checksum-algorithm"),
            HeaderValue::from_static("sha1,sha256,sha512"),
        ),
    ];
    answer(StatusCode::NO_CONTENT, headers)
}

/// Returns a response with `status` and `headers`.
pub(super) fn answer(
    status: StatusCode,
    headers: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
) -> Response {
    let mut response = status.into_response();
    response.headers_mut().insert(RESUMABLE, VERSION);
    response.headers_mut().extend(headers);
    response
}

/// Returns the headers with the state of an upload.
pub(super) fn state(
    offset: u64,
    length: u64,
    expires: SystemTime,
) -> Vec<(HeaderName, HeaderValue)> {
    let mut headers = vec![(OFFSET, offset.into())];
    if length > 0 {
        headers.push((HeaderName::from_static(LENGTH), length.into()));
    }
    if let Ok(expires) = HeaderValue::try_from(httpdate::fmt_http_date(expires)) {
        headers.push((HeaderName::from_static("upload-expires"), expires));
    }
    headers.push((header::CACHE_CONTROL, HeaderValue::from_static("no-store")));
    headers
}

/// Returns the size of a new upload.
pub(super) fn length(headers: &HeaderMap) -> Result<u64, Violations> {
    let size = number(headers, "Upload-Length")?;
    if size == 0 { Err(Violations::single("Upload-Length", "is 0")) } else { Ok(size) }
}

/// Returns the offset at which the body of a request continues an upload.
pub(super) fn offset(headers: &HeaderMap) -> Result<u64, Violations> {
    let sent = headers.get(header::CONTENT_TYPE).and_then(|it| it.to_str().ok()).unwrap_or("");
    if sent != CONTENT_TYPE {
        let text = format!("{sent:?}, expected {CONTENT_TYPE}");
        return Err(Violations::single("Content-Type", text));
    }
    number(headers, "Upload-Offset")
}

/// Returns the checksum of the body of a request, if it has one.
pub(super) fn checksum(headers: &HeaderMap) -> Result<Option<Checksum>, Violations> {
    let Some(value) = headers.get("upload-checksum") else { return Ok(None) };
    let wrong = || {
        let text = "is not sha1, sha256 or sha512 and a digest in base64";
        Violations::single("Upload-Checksum", text)
    };
    let text = value.to_str().map_err(|_| wrong())?;
    let (algorithm, digest) = text.split_once(' ').ok_or_else(wrong)?;
    let digest = STANDARD.decode(digest.trim()).map_err(|_| wrong())?;
    Checksum::new(algorithm, digest).map(Some).ok_or_else(wrong)
}

fn number(headers: &HeaderMap, name: &str) -> Result<u64, Violations> {
    let value = headers.get(name).ok_or_else(|| Violations::single(name, "is missing"))?;
    let text = value.to_str().unwrap_or_default();
    text.parse().map_err(|_| Violations::single(name, format!("{text:?} is not a number of bytes")))
}
