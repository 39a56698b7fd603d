//! Errors: the codes of the platform's list that this door uses, and the error object of the envelope.

use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use strum::{IntoStaticStr, VariantArray};

/// A code of the platform's closed list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
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
    #[strum(serialize = "infrastructure.location")]
    Location,
    /// Unknown model.
    #[strum(serialize = "infrastructure.model")]
    Model,
    /// Unknown server.
    #[strum(serialize = "infrastructure.server")]
    Server,
    /// Unknown address or assignment.
    #[strum(serialize = "infrastructure.ips.pool")]
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
    /// Returns the HTTP status.
    pub const fn status(self) -> u16 {
        match self {
            Self::InvalidSyntax => 400,
            Self::AuthInvalid | Self::AuthExpired => 401,
            Self::Permissions | Self::WrongHub | Self::InvalidState | Self::Mismatch => 403,
            Self::Uri | Self::Location | Self::Model | Self::Server | Self::IpPool => 404,
            Self::DuplicateFound => 409,
            Self::InvalidContentType => 415,
            Self::MissingArgument | Self::InvalidArgument => 422,
            Self::NotCompatible | Self::MaxExceeded => 422,
            Self::RateLimiting => 429,
            Self::Database | Self::Unknown => 500,
            Self::NotReady => 503,
            Self::NotAvailable => 504,
        }
    }

    /// Returns the code as it is written, such as `404.uri`.
    pub fn text(self) -> String {
        format!("{}.{}", self.status(), <&str>::from(self))
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
        let texts: BTreeSet<_> = Code::VARIANTS.iter().map(|code| code.text()).collect();
        assert_eq!(texts.len(), Code::VARIANTS.len());
        for code in Code::VARIANTS {
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
