//! The API description (OpenAPI 2.0) of the objects and operations here, from which clients are generated.

#[cfg(test)]
mod tests;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};

use crate::error::JSON;

const DESCRIPTION: &str = include_str!("description/swagger.json");

/// Returns the response to `GET /swagger.json`, which is at the root of the server, not below the base path.
pub fn description() -> Response<Bytes> {
    let mut response = Response::new(Bytes::from_static(DESCRIPTION.as_bytes()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    response
}
