//! HTTP requests as text.

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue};

/// Maximum size of a request head that the listeners accept, in octets.
const MAX_HEAD_OCTETS: usize = 16 * 1024;

/// Splits a request into head and body. None if it has no end of its head, or one that comes too late.
pub(crate) fn split(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let is_end = |four: &[u8]| four == b"\r\n\r\n";
    let end = text.windows(4).position(is_end).filter(|end| *end <= MAX_HEAD_OCTETS)?;
    Some((text.get(..end)?, text.get(end + 4..)?))
}

/// Returns a request with this head and body. None if an HTTP server would refuse it before the service.
pub(crate) fn request(head: &[u8], body: Vec<u8>) -> Option<Request> {
    let mut lines = head.split(|octet| *octet == b'\n').map(<[u8]>::trim_ascii);
    let mut first = lines.next()?.split(|octet| *octet == b' ');
    let (method, target) = (first.next()?, first.next()?);
    let mut request = Request::builder().method(method).uri(target);
    for line in lines {
        let colon = line.iter().position(|octet| *octet == b':')?;
        let name = HeaderName::from_bytes(line.get(..colon)?).ok()?;
        let value = HeaderValue::from_bytes(line.get(colon + 1..)?.trim_ascii()).ok()?;
        request = request.header(name, value);
    }
    request.body(Body::from(body)).ok()
}
