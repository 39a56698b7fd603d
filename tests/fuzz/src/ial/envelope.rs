//! The envelope, which every answer has: `data`, or an error whose status is that of HTTP.

use axum::http::{HeaderMap, Method, StatusCode, header};
use gateway::ial::fault::Code;
use serde_json::{Map, Value};
use strum::VariantArray as _;

/// The keys of an error object. The first three are always there.
const ERROR_KEYS: [&str; 6] = ["status", "code", "title", "detail", "source", "extra"];

/// The longest part of an answer that is shown, in characters.
const MAX_SHOWN_CHARACTERS: usize = 1000;

/// Fails if an answer to a request with this method has no envelope, or says that something went wrong here.
pub(super) fn check(
    method: &Method,
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
) -> anyhow::Result<()> {
    let text = String::from_utf8_lossy(body);
    let text: String = text.chars().take(MAX_SHOWN_CHARACTERS).collect();
    anyhow::ensure!(!status.is_server_error(), "{status}: {text}");
    let media_type = headers.get(header::CONTENT_TYPE);
    let is_json = media_type.is_some_and(|sent| sent == "application/json");
    anyhow::ensure!(is_json, "media type {media_type:?}: {text}");
    if method == Method::HEAD && body.is_empty() {
        return Ok(());
    }
    let envelope: Map<String, Value> = serde_json::from_slice(body)
        .map_err(|error| anyhow::anyhow!("no JSON object: {error}: {text}"))?;
    let keys: Vec<_> = envelope.keys().collect();
    anyhow::ensure!(keys == ["data", "error"], "keys {keys:?}: {text}");
    let (data, error) = (&envelope["data"], &envelope["error"]);
    if status == StatusCode::OK {
        let has_data = data.is_object() || *data == Value::Bool(true);
        anyhow::ensure!(error.is_null() && has_data, "no data: {text}");
        return Ok(());
    }
    anyhow::ensure!(data.is_null(), "data beside an error: {text}");
    let error = error.as_object().ok_or_else(|| anyhow::anyhow!("no error object: {text}"))?;
    check_error(status, error).map_err(|problem| problem.context(text))
}

fn check_error(status: StatusCode, error: &Map<String, Value>) -> anyhow::Result<()> {
    let unknown: Vec<_> = error.keys().filter(|key| !ERROR_KEYS.contains(&&***key)).collect();
    anyhow::ensure!(unknown.is_empty(), "keys {unknown:?}");
    let text = |key: &str| error.get(key).and_then(Value::as_str);
    anyhow::ensure!(error["status"] == status.as_u16(), "not the status of HTTP, {status}");
    let code = text("code").unwrap_or_default();
    let is_listed = Code::VARIANTS.iter().any(|listed| listed.text() == code);
    anyhow::ensure!(is_listed, "{code:?} is not in the list of codes");
    anyhow::ensure!(code.starts_with(&format!("{}.", status.as_u16())), "{code} with {status}");
    anyhow::ensure!(text("title").is_some_and(|title| !title.is_empty()), "no title");
    for key in ["detail", "source"] {
        anyhow::ensure!(error.get(key).is_none_or(Value::is_string), "{key} is not a text");
    }
    anyhow::ensure!(error.get("extra").is_none_or(Value::is_object), "extra is not an object");
    anyhow::ensure!(text("source").is_none_or(is_pointer), "source is not a JSON pointer");
    Ok(())
}

/// True if `text` is a JSON pointer to a part of a document (RFC 6901 §3).
fn is_pointer(text: &str) -> bool {
    let mut escapes = text.split('~').skip(1);
    text.starts_with('/') && escapes.all(|rest| rest.starts_with(['0', '1']))
}
