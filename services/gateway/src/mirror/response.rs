//! The JSON of a response.

use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http::{HeaderValue, header};
use prost_reflect::{DynamicMessage, MessageDescriptor, ReflectMessage as _, Value};
use tonic::Status;

use super::json::JsonObjects;
use crate::errors::Problem;

/// The content type of JSON.
pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const NO_SNIFF: HeaderValue = HeaderValue::from_static("nosniff");

/// Returns the response with the message of the type `output` that is encoded in `bytes`.
pub(super) fn response(
    output: MessageDescriptor,
    bytes: Bytes,
    objects: &JsonObjects,
) -> Result<Response, Problem> {
    let message = decode(output, bytes)?;
    let json = objects.write(&message);
    let json = json.map_err(|error| Status::internal(format!("the response: {error}")))?;
    let headers = [
        (header::CONTENT_TYPE, JSON),
        (header::CACHE_CONTROL, NO_STORE),
        (header::X_CONTENT_TYPE_OPTIONS, NO_SNIFF),
    ];
    let mut response = (headers, json).into_response();
    response.headers_mut().extend(tag(&message).map(|tag| (header::ETAG, tag)));
    Ok(response)
}

/// Decodes a message of a service.
pub(super) fn decode(output: MessageDescriptor, bytes: Bytes) -> Result<DynamicMessage, Status> {
    let message = DynamicMessage::decode(output, bytes);
    message.map_err(|error| Status::internal(format!("the response: {error}")))
}

/// Returns the revision of the object that is the whole `message`.
fn tag(message: &DynamicMessage) -> Option<HeaderValue> {
    let descriptor = message.descriptor();
    let mut fields = descriptor.fields();
    let (field, None) = (fields.next()?, fields.next()) else { return None };
    if field.is_list() || field.is_map() {
        return None;
    }
    let object = message.get_field(&field);
    let revision = object.as_message()?.get_field_by_name("revision")?;
    let Value::I64(revision) = *revision else { return None };
    HeaderValue::from_str(&format!("\"{revision}\"")).ok()
}
