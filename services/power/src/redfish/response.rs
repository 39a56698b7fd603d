//! One response of a BMC.

use std::time::Duration;

use reqwest::header::{ETAG, LOCATION, RETRY_AFTER};
use reqwest::{Method, StatusCode};
use runtime::secret::Secret;
use serde_json::Value;

use super::Error;

/// The longest body that is read. A system with all its parts has some tens of KiB.
const MAX_BODY_BYTES: usize = 1024 * 1024;
/// The longest text of a BMC in an error.
const MAX_TEXT_CHARS: usize = 300;

/// A response of a BMC.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) status: StatusCode,
    /// Null if there is no body, or none that is JSON.
    pub(super) body: Value,
    pub(super) etag: Option<String>,
    pub(super) location: Option<String>,
    pub(super) token: Option<Secret<String>>,
    pub(super) retry_after: Option<Duration>,
    text: String,
}

impl Response {
    pub(super) async fn read(mut response: reqwest::Response) -> Result<Self, Error> {
        let (status, headers) = (response.status(), response.headers().clone());
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            if bytes.len() + chunk.len() > MAX_BODY_BYTES {
                return Err(Error::Protocol("response body over 1 MiB".into()));
            }
            bytes.extend_from_slice(&chunk);
        }
        let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let header = |name: &str| headers.get(name)?.to_str().ok().map(str::to_owned);
        // An etag may be a property instead (DSP0266 §6.5).
        let property = || Some(body.get("@odata.etag")?.as_str()?.to_owned());
        // RFC 9110 §10.2.3: seconds, or a date. A date would be by the BMC's clock, which is often wrong.
        let seconds = header(RETRY_AFTER.as_str()).and_then(|text| text.trim().parse().ok());
        Ok(Self {
            status,
            etag: header(ETAG.as_str()).or_else(property),
            location: header(LOCATION.as_str()),
            token: header("x-auth-token").map(Secret::new),
            retry_after: seconds.map(Duration::from_secs),
            text: error_text(&body).unwrap_or_else(|| plain_text(&bytes, status)),
            body,
        })
    }

    /// Returns the location to repeat a request by `method` at. 301 and 302 are followed only for GET: clients may turn
    /// another method into a GET there (RFC 9110 §15.4).
    pub(super) fn redirect(&self, method: &Method) -> Option<&str> {
        match self.status.as_u16() {
            307 | 308 => self.location.as_deref(),
            301 | 302 if *method == Method::GET => self.location.as_deref(),
            _ => None,
        }
    }

    /// Returns the response if its status is a success.
    pub(super) fn checked(self) -> Result<Self, Error> {
        let Self { status, retry_after, .. } = self;
        match status.is_success() {
            true => Ok(self),
            false if matches!(status.as_u16(), 401 | 403) => {
                Err(Error::Denied { status, text: self.text })
            }
            false => Err(Error::Response {
                status,
                text: self.text,
                retry_after: retry_after.unwrap_or_default(),
            }),
        }
    }
}

/// Returns the messages of a Redfish error (DSP0266 §8.6).
fn error_text(body: &Value) -> Option<String> {
    let error = body.get("error")?;
    match messages(error, "@Message.ExtendedInfo") {
        text if text.is_empty() => Some(shorten(error.get("message")?.as_str()?)),
        text => Some(text),
    }
}

fn shorten(text: &str) -> String {
    text.chars().take(MAX_TEXT_CHARS).collect()
}

/// Returns the texts of the messages in the list `name` of `object`.
pub(super) fn messages(object: &Value, name: &str) -> String {
    let messages = object.get(name).and_then(Value::as_array).into_iter().flatten();
    let texts: Vec<_> = messages.filter_map(|entry| entry.get("Message")?.as_str()).collect();
    shorten(&texts.join(" "))
}

fn plain_text(bytes: &[u8], status: StatusCode) -> String {
    match shorten(&String::from_utf8_lossy(bytes)).trim() {
        "" => status.canonical_reason().unwrap_or("no text").to_owned(),
        text => text.replace(['\n', '\r'], " "),
    }
}

/// Returns the address in the link `name` of `body`.
pub(super) fn link(body: &Value, name: &str) -> Option<String> {
    id(body.get(name)?)
}

/// Returns the address of a resource.
pub(super) fn id(resource: &Value) -> Option<String> {
    resource.get("@odata.id")?.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_text_of_an_error_is_its_messages_else_its_general_message() {
        let info =
            json!([{"Message": "Power is locked."}, {"MessageId": "x"}, {"Message": "Try later."}]);
        let body = json!({"error": {"message": "general", "@Message.ExtendedInfo": info}});
        assert_eq!(error_text(&body).as_deref(), Some("Power is locked. Try later."));
        let general = error_text(&json!({"error": {"message": "general"}}));
        assert_eq!(general.as_deref(), Some("general"));
        assert_eq!(error_text(&json!({"error": "text"})), None);
    }
}
