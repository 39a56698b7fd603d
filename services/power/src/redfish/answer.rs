//! One answer of a BMC, and what its status means.

use std::time::Duration;

use reqwest::header::{ETAG, HeaderMap, HeaderName, LOCATION, RETRY_AFTER};
use reqwest::{Method, Response, StatusCode};
use runtime::secret::Secret;
use serde_json::Value;

use super::Error;

/// The largest body that is read, in bytes. A system with all its parts has some tens of KiB.
const BODY: usize = 1024 * 1024;
/// How much of a text that is no JSON is told on, in characters.
const TEXT: usize = 300;

/// What a BMC answered.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    /// Null where there is none, or none that is JSON.
    pub(super) body: Value,
    pub(super) etag: Option<String>,
    pub(super) location: Option<String>,
    pub(super) token: Option<Secret<String>>,
    pub(super) after: Option<Duration>,
    text: String,
}

impl Answer {
    pub(super) async fn read(mut response: Response) -> Result<Self, Error> {
        let (status, headers) = (response.status(), response.headers().clone());
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            if bytes.len() + chunk.len() > BODY {
                return Err(Error::Odd("its answer is too long".into()));
            }
            bytes.extend_from_slice(&chunk);
        }
        let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let text = extended(&body).unwrap_or_else(|| plain(&bytes, status));
        let header = |name: HeaderName| text_of(&headers, &name);
        // An etag may be a property instead (DSP0266 §6.5).
        let inside = || Some(body.get("@odata.etag")?.as_str()?.to_owned());
        Ok(Self {
            status,
            etag: header(ETAG).or_else(inside),
            location: header(LOCATION),
            token: header(HeaderName::from_static("x-auth-token")).map(Secret::new),
            after: header(RETRY_AFTER).and_then(|text| retry_after(&text)),
            body,
            text,
        })
    }

    /// Where else a request by `method` has to go. 301 and 302 only for what changes nothing: they may turn a POST into a GET
    /// (RFC 9110 §15.4).
    pub(super) fn redirect(&self, method: &Method) -> Option<&str> {
        match self.status.as_u16() {
            307 | 308 => self.location.as_deref(),
            301 | 302 if *method == Method::GET => self.location.as_deref(),
            _ => None,
        }
    }

    /// The answer, or what is wrong with it. 412 is a change of somebody else's meanwhile: read again, then ask again.
    pub(super) fn checked(self) -> Result<Self, Error> {
        let Self { status, ref text, after, .. } = self;
        let text = text.clone();
        match status.as_u16() {
            200..=299 => Ok(self),
            401 | 403 => Err(Error::Denied { status, text }),
            501 | 505 => Err(Error::Refused { status, text }),
            408 | 409 | 412 | 423 | 425 | 429 | 500..=599 => {
                Err(Error::Busy { status, text, after: after.unwrap_or_default() })
            }
            _ => Err(Error::Refused { status, text }),
        }
    }
}

fn text_of(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

/// Seconds (RFC 9110 §10.2.3). A date would have to be read by the BMC's clock, which is wrong: then our own pause does.
fn retry_after(text: &str) -> Option<Duration> {
    text.trim().parse().ok().map(Duration::from_secs)
}

/// The messages of a Redfish error (DSP0266 §8.6).
fn extended(body: &Value) -> Option<String> {
    let error = body.get("error")?;
    let messages = error.get("@Message.ExtendedInfo").and_then(Value::as_array);
    let texts: Vec<_> =
        messages.into_iter().flatten().filter_map(|entry| entry.get("Message")?.as_str()).collect();
    let whole = error.get("message").and_then(Value::as_str);
    let text = if texts.is_empty() { whole?.to_owned() } else { texts.join(" ") };
    Some(text.chars().take(TEXT).collect())
}

fn plain(bytes: &[u8], status: StatusCode) -> String {
    let text: String = String::from_utf8_lossy(bytes).chars().take(TEXT).collect();
    match text.trim() {
        "" => status.canonical_reason().unwrap_or("nothing more").to_owned(),
        text => text.replace(['\n', '\r'], " "),
    }
}

/// The place that the property `name` of `body` links to.
pub(super) fn link(body: &Value, name: &str) -> Option<String> {
    id(body.get(name)?)
}

/// The place of a resource.
pub(super) fn id(resource: &Value) -> Option<String> {
    resource.get("@odata.id")?.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_error_says_what_its_messages_say() {
        let info =
            json!([{"Message": "Power is locked."}, {"MessageId": "x"}, {"Message": "Try later."}]);
        let body = json!({"error": {"message": "general", "@Message.ExtendedInfo": info}});
        assert_eq!(extended(&body).as_deref(), Some("Power is locked. Try later."));
        assert_eq!(extended(&json!({"error": {"message": "general"}})).as_deref(), Some("general"));
        assert_eq!(extended(&json!({"error": "text"})), None);
    }
}
