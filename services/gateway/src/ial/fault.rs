//! Errors: the codes of the platform's list that this door uses, and the error object of the envelope.

use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

/// A code of the platform's closed list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Code {
    /// Not JSON, not an object, or a value of the wrong JSON type.
    InvalidSyntax,
    /// Credentials are missing, or match none.
    AuthInvalid,
    /// The credential has expired.
    AuthExpired,
    /// The credential is not for this location or operation.
    Permissions,
    /// The object belongs to another hub.
    WrongHub,
    /// The state of the object forbids the operation.
    InvalidState,
    /// The request contradicts the stored object.
    Mismatch,
    /// Unknown path or method.
    Uri,
    /// Unknown location or zone.
    Location,
    /// Unknown model.
    Model,
    /// Unknown server.
    Server,
    /// Unknown address or assignment.
    IpPool,
    /// The host name is in use.
    DuplicateFound,
    /// Wrong media type.
    InvalidContentType,
    /// A required key is absent, null or empty.
    MissingArgument,
    /// A value of the right type that cannot be used.
    InvalidArgument,
    /// The model, location or feature does not go together with the rest.
    NotCompatible,
    /// A limit or a pool is exhausted.
    MaxExceeded,
    /// Too many calls.
    RateLimiting,
    /// The store failed.
    Database,
    /// Anything unexpected.
    Unknown,
    /// Temporarily not possible.
    NotReady,
    /// A service did not answer in time.
    NotAvailable,
}

impl Code {
    /// All codes.
    pub const ALL: [Self; 23] = [
        Self::InvalidSyntax,
        Self::AuthInvalid,
        Self::AuthExpired,
        Self::Permissions,
        Self::WrongHub,
        Self::InvalidState,
        Self::Mismatch,
        Self::Uri,
        Self::Location,
        Self::Model,
        Self::Server,
        Self::IpPool,
        Self::DuplicateFound,
        Self::InvalidContentType,
        Self::MissingArgument,
        Self::InvalidArgument,
        Self::NotCompatible,
        Self::MaxExceeded,
        Self::RateLimiting,
        Self::Database,
        Self::Unknown,
        Self::NotReady,
        Self::NotAvailable,
    ];

    /// Returns the HTTP status, and the code's name without it.
    const fn row(self) -> (u16, &'static str) {
        match self {
            Self::InvalidSyntax => (400, "invalid-syntax"),
            Self::AuthInvalid => (401, "auth-invalid"),
            Self::AuthExpired => (401, "auth-expired"),
            Self::Permissions => (403, "permissions"),
            Self::WrongHub => (403, "wrong-hub"),
            Self::InvalidState => (403, "invalid-state"),
            Self::Mismatch => (403, "mismatch"),
            Self::Uri => (404, "uri"),
            Self::Location => (404, "infrastructure.location"),
            Self::Model => (404, "infrastructure.model"),
            Self::Server => (404, "infrastructure.server"),
            Self::IpPool => (404, "infrastructure.ips.pool"),
            Self::DuplicateFound => (409, "duplicate-found"),
            Self::InvalidContentType => (415, "invalid-content-type"),
            Self::MissingArgument => (422, "missing-argument"),
            Self::InvalidArgument => (422, "invalid-argument"),
            Self::NotCompatible => (422, "not-compatible"),
            Self::MaxExceeded => (422, "max-exceeded"),
            Self::RateLimiting => (429, "rate-limiting"),
            Self::Database => (500, "database"),
            Self::Unknown => (500, "unknown"),
            Self::NotReady => (503, "not-ready"),
            Self::NotAvailable => (504, "not-available"),
        }
    }

    /// Returns the HTTP status.
    pub const fn status(self) -> u16 {
        self.row().0
    }

    /// Returns the code as it is written, such as `404.uri`.
    pub fn text(self) -> String {
        let (status, name) = self.row();
        format!("{status}.{name}")
    }
}

/// A request that is refused, or that failed.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// The code.
    pub code: Code,
    /// One sentence, the same for all occurrences of a cause.
    pub title: &'static str,
    /// The specifics of this occurrence, without secrets.
    pub detail: Option<String>,
    /// JSON pointer to the part of the request that is at fault.
    pub source: Option<String>,
    /// Further values for programs.
    pub extra: Option<Box<Value>>,
    /// The time after which the call may be repeated.
    pub retry_after: Option<Duration>,
    /// The methods of the path, if another one was used.
    pub allow: Option<&'static str>,
    /// True if the connection is closed after the answer.
    pub close: bool,
}

/// The error object of the envelope.
#[derive(Debug, Serialize)]
pub(super) struct ErrorObject<'a> {
    status: u16,
    code: String,
    title: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra: Option<&'a Value>,
}

impl Fault {
    /// A fault with a code and a title only.
    pub const fn new(code: Code, title: &'static str) -> Self {
        Self {
            code,
            title,
            detail: None,
            source: None,
            extra: None,
            retry_after: None,
            allow: None,
            close: false,
        }
    }

    /// The same with the specifics of this occurrence.
    #[must_use]
    pub fn with_detail(self, detail: impl Into<String>) -> Self {
        Self { detail: Some(detail.into()), ..self }
    }

    /// The same with a pointer to the part of the request.
    #[must_use]
    pub fn at(self, source: impl Into<String>) -> Self {
        Self { source: Some(source.into()), ..self }
    }

    /// The same with further values.
    #[must_use]
    pub fn with_extra(self, extra: Value) -> Self {
        Self { extra: Some(Box::new(extra)), ..self }
    }

    /// The same with the time after which the call may be repeated.
    #[must_use]
    pub fn retry_after(self, delay: Duration) -> Self {
        Self { retry_after: Some(delay), ..self }
    }

    /// Returns the object for the envelope.
    pub(super) fn object(&self) -> ErrorObject<'_> {
        ErrorObject {
            status: self.code.status(),
            code: self.code.text(),
            title: self.title,
            detail: self.detail.as_deref(),
            source: self.source.as_deref(),
            extra: self.extra.as_deref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_code_begins_with_its_status_and_is_there_once() {
        let texts: BTreeSet<_> = Code::ALL.map(Code::text).into();
        assert_eq!(texts.len(), Code::ALL.len());
        for code in Code::ALL {
            assert!(code.text().starts_with(&format!("{}.", code.status())), "{code:?}");
        }
        assert!(texts.contains("404.infrastructure.ips.pool") && texts.contains("404.uri"));
    }

    #[test]
    fn the_object_leaves_out_what_is_not_known() {
        let fault = Fault::new(Code::Location, "unknown location").at("/request/location_id");
        let object = serde_json::to_value(fault.object()).unwrap();
        let expected = serde_json::json!({
            "status": 404, "code": "404.infrastructure.location", "title": "unknown location",
            "source": "/request/location_id"
        });
        assert_eq!(object, expected);
    }
}
