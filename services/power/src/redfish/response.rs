//! One response of a BMC.

use std::time::Duration;

use reqwest::header::{ETAG, HeaderMap, LOCATION, RETRY_AFTER};
use reqwest::{StatusCode, Url};
use runtime::secret::Secret;
use serde_json::Value;

use super::Error;
use super::error::RefusedRequest;
use super::messages::{Messages, shorten};

/// A response of a BMC.
#[derive(Debug)]
pub(super) struct Response {
    /// The URL that it came from, after redirects. Its relative links are relative to that.
    pub(super) url: Url,
    pub(super) status: StatusCode,
    /// Null if there is no body, or none that is JSON.
    pub(super) body: Value,
    pub(super) etag: ETag,
    pub(super) location: Option<String>,
    pub(super) token: Option<Secret<String>>,
    pub(super) retry_after: Option<Duration>,
    messages: Messages,
}

/// The version of a resource. A service may give it in either way, or in two ways that differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ETag {
    /// The header ETag (RFC 9110 §8.8.3).
    pub header: Option<String>,
    /// The property `@odata.etag` (DSP0266 §6.5).
    pub property: Option<String>,
}

impl ETag {
    /// True if the resource has no version.
    pub(super) fn is_empty(&self) -> bool {
        self.header.is_none() && self.property.is_none()
    }
}

impl Response {
    pub(super) fn new(url: Url, status: StatusCode, headers: &HeaderMap, bytes: &[u8]) -> Self {
        let body: Value = serde_json::from_slice(bytes).unwrap_or_default();
        let header = |name: &str| headers.get(name)?.to_str().ok().map(str::to_owned);
        // RFC 9110 §10.2.3: seconds, or a date. A date would be by the BMC's clock, which is often
        // wrong.
        let seconds = header(RETRY_AFTER.as_str()).and_then(|text| text.trim().parse().ok());
        let mut messages = Messages::of_answer(&body);
        if messages.text.is_empty() && !status.is_success() && body.is_null() {
            let text = shorten(&String::from_utf8_lossy(bytes));
            // A page of HTML tells people nothing.
            messages.text = if text.starts_with('<') { String::new() } else { text };
        }
        let property = body.get("@odata.etag").and_then(Value::as_str).map(str::to_owned);
        Self {
            url,
            status,
            etag: ETag { header: header(ETAG.as_str()), property },
            location: header(LOCATION.as_str()),
            token: header("x-auth-token").map(Secret::new),
            retry_after: seconds.map(Duration::from_secs),
            messages,
            body,
        }
    }

    /// Returns the response if its status is a success.
    pub(super) fn checked(self) -> Result<Self, Error> {
        if self.status.is_success() {
            return Ok(self);
        }
        let Self { url, status, messages, retry_after, .. } = self;
        Err(Error::Response(Box::new(RefusedRequest { url, status, messages, retry_after })))
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
