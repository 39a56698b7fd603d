//! Requests and responses as the tests write them.
#![allow(clippy::wildcard_enum_match_arm, dead_code, unreachable_pub)]

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response};
use imageapi::{ApiError, Call, DecodeOptions, Operation, Request, Secrets, decode, encode};
use serde_json::Value;
use tinwright::node::v1::ImageResult;
use tinwright::node::v1::image_call::Call as Message;
use tinwright::node::v1::image_result::Result as Object;

/// The headers of a generated client.
pub const ACCEPT_JSON: (&str, &str) = ("accept", "application/json");
/// The headers of a generated client's body.
pub const JSON_BODY: (&str, &str) = ("content-type", "application/json");

/// Decodes a request whose `target` is a path below the base path, and a query.
pub fn request(
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Result<Call, ApiError> {
    let (path, query) = target.split_once('?').map_or((target, None), |(p, q)| (p, Some(q)));
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let name: HeaderName = name.parse().unwrap();
        map.append(name, HeaderValue::from_str(value).unwrap());
    }
    let method: Method = method.parse().unwrap();
    decode(&Request { method: &method, path, query, headers: &map }, body, DecodeOptions::default())
}

/// Decodes a request without a body.
pub fn call(method: &str, target: &str) -> Result<Message, ApiError> {
    request(method, target, &[ACCEPT_JSON], b"").map(message)
}

/// Decodes a POST of `body`.
pub fn post(path: &str, body: &[u8]) -> Result<Message, ApiError> {
    request("POST", path, &[ACCEPT_JSON, JSON_BODY], body).map(message)
}

fn message(call: Call) -> Message {
    call.message.call.unwrap()
}

/// Returns status, code and message of an error response.
pub fn error(error: ApiError) -> (u16, u64, String) {
    let (status, body) = answer(&error.into());
    (status, body["code"].as_u64().unwrap(), body["message"].as_str().unwrap().to_owned())
}

/// Returns the error of a POST.
pub fn post_error(path: &str, body: &str) -> (u16, u64, String) {
    error(post(path, body.as_bytes()).expect_err(body))
}

/// Returns the error of a request without a body.
pub fn call_error(method: &str, target: &str) -> (u16, u64, String) {
    error(call(method, target).expect_err(target))
}

/// Returns status and body of a response, whose form is checked.
pub fn answer(response: &Response<Bytes>) -> (u16, Value) {
    assert_eq!(response.headers()["content-type"], "application/json");
    let text = std::str::from_utf8(response.body()).unwrap();
    let compact = text.strip_suffix('\n').expect("a newline at the end");
    assert!(!compact.contains('\n'), "{text}");
    (response.status().as_u16(), serde_json::from_str(compact).unwrap())
}

/// Returns the response of a POST whose object is created as it is in the request.
pub fn echo(path: &str, body: &str, secrets: Secrets) -> Response<Bytes> {
    let (operation, object) = match post(path, body.as_bytes()).expect(body) {
        Message::CreateAttachment(it) => (Operation::CreateAttachment, Object::Attachment(it)),
        Message::CreateMount(it) => (Operation::CreateMount, Object::Mount(it)),
        Message::CreateContainer(it) => (Operation::CreateContainer, Object::Container(it)),
        other => panic!("{other:?}"),
    };
    encode(operation, ImageResult { result: Some(object) }, secrets)
}

/// As [`echo`], with the body only, and with secrets.
pub fn echo_body(path: &str, body: &str) -> Value {
    let (status, body) = answer(&echo(path, body, Secrets::Shown));
    assert_eq!(status, 201);
    body
}
