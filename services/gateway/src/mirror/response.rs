//! The JSON of a response.

use axum::response::{IntoResponse as _, Response};
use http::{HeaderValue, header};
use prost_reflect::MessageDescriptor;
use tonic::Status;

use super::transcode::Transcoder;
use crate::errors::Problem;

/// The content type of JSON.
pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const NO_SNIFF: HeaderValue = HeaderValue::from_static("nosniff");

/// Returns the response with the message of the type `output` that is encoded in `bytes`.
pub(super) fn response(
    output: &MessageDescriptor,
    bytes: &[u8],
    transcoder: &Transcoder,
) -> Result<Response, Problem> {
    let json = transcoder.json(output, bytes).map_err(Status::from)?;
    let headers = [
        (header::CONTENT_TYPE, JSON),
        (header::CACHE_CONTROL, NO_STORE),
        (header::X_CONTENT_TYPE_OPTIONS, NO_SNIFF),
    ];
    let mut response = (headers, json).into_response();
    let revision = transcoder.revision(output, bytes);
    let tag = revision.and_then(|it| HeaderValue::from_str(&format!("\"{it}\"")).ok());
    response.headers_mut().extend(tag.map(|tag| (header::ETAG, tag)));
    Ok(response)
}
