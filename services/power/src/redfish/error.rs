//! Failed requests to a BMC, and the use of repeating them.

use std::fmt;
use std::time::Duration;

use reqwest::{StatusCode, Url};

use super::messages::Messages;

/// Maximum time until a connection is open.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time until a response has been received.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The option that allows old TLS, with a command that has it. The client replaces MACHINE by the
/// machine's name.
const ALLOW_OLD_TLS: &str =
    "--legacy-tls allows old ones: `tinwright power bmc update MACHINE --legacy-tls`";

/// A failed request to a BMC.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The connection failed.
    #[error("the BMC cannot be reached: {0}")]
    Connection(String),
    /// The BMC offers only ciphers or versions of TLS that rustls does not have.
    #[error("the BMC cannot be reached: {0}; {ALLOW_OLD_TLS}")]
    OldTls(&'static str),
    /// The certificate, or the handshake by it, is not accepted.
    #[error("the BMC cannot be trusted: {0}")]
    Untrusted(String),
    /// Nothing accepted the connection, or completed its TLS handshake, in time.
    #[error("the BMC opened no connection in {} seconds", CONNECT_TIMEOUT.as_secs())]
    NoConnection,
    /// The connection was accepted, and no response came in time.
    #[error("the BMC did not answer in {} seconds", REQUEST_TIMEOUT.as_secs())]
    NoResponse,
    /// The BMC has another certificate than before.
    #[error(
        "the BMC's certificate has changed: expected SHA-256 {expected}, received {received}; `tinwright power bmc update MACHINE --accept-certificate` accepts the new one"
    )]
    CertificateChanged {
        /// SHA-256 of the trusted certificate, in hex.
        expected: String,
        /// SHA-256 of the certificate that the BMC has now, in hex.
        received: String,
    },
    /// The BMC judged the user name and the password, and refuses them.
    #[error("the BMC refuses the user name or the password: it answered {0}")]
    Denied(Box<RefusedRequest>),
    /// Any other response that is no success.
    #[error("the BMC answered {0}")]
    Response(Box<RefusedRequest>),
    /// A task of the BMC failed.
    #[error("the task of the BMC ended: {text}")]
    Task {
        /// The task's state and messages.
        text: String,
        /// The messages.
        messages: Box<Messages>,
    },
    /// The BMC's record names no system, and there is not exactly one.
    #[error("the BMC has {0}: choose one with --system")]
    AmbiguousSystem(Names),
    /// The BMC lists no system at all, as some do while they start.
    #[error("the BMC lists no system")]
    NoSystems,
    /// No system has the id or name in the BMC's record.
    #[error("the BMC has no system {name:?}{}", .unreadable.text())]
    NoSystem {
        /// The id or name.
        name: String,
        /// Systems that could not be read, each with the reason.
        unreadable: Unreadable,
    },
    /// The BMC does not follow the Redfish specification.
    #[error("the BMC does not follow Redfish: {0}")]
    Protocol(String),
    /// The TLS library rejected the configuration.
    #[error("TLS cannot be set up")]
    Tls(#[from] rustls::Error),
    /// The program for old TLS is not usable.
    #[error(transparent)]
    LegacyTls(pinned_tls::legacy::Error),
}

/// A response that is no success.
#[derive(Clone, Debug)]
pub struct RefusedRequest {
    /// The URL that answered, after redirects.
    pub url: Url,
    /// The HTTP status.
    pub status: StatusCode,
    /// Messages in the body.
    pub messages: Messages,
    /// The pause that the BMC requests.
    pub retry_after: Option<Duration>,
}

/// The names of systems.
#[derive(Debug)]
pub struct Names(pub Vec<String>);

/// Systems that could not be read while one was searched for by its name.
#[derive(Debug, Default)]
pub struct Unreadable {
    /// Each with its reason.
    pub systems: Vec<String>,
    /// True if one of them may be readable later.
    pub is_transient: bool,
}

/// The use of a refused request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// The same request may succeed later.
    Later,
    /// It may succeed later, or never.
    Unclear,
    /// It never succeeds; another one may.
    Never,
}

/// The use of an answer for a person who looks for the reason of a failure: the greatest is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Relevance {
    /// There is no such method or resource: the request was a guess.
    Guess,
    /// A status alone.
    Status,
    /// A text of the BMC.
    Text,
    /// The names of properties or parameters that are not accepted.
    Unwanted,
    /// The names of properties or parameters that are missing.
    Missing,
}

impl RefusedRequest {
    /// True if the resource or the method does not exist.
    pub(super) fn is_missing(&self) -> bool {
        matches!(self.status.as_u16(), 404 | 405 | 410 | 501)
    }

    /// True if the condition of the request is refused, or missing.
    pub(super) fn is_precondition(&self) -> bool {
        matches!(self.status.as_u16(), 412 | 428) || self.messages.is_precondition
    }

    /// True if the session, or the user name or the password, is refused.
    pub(super) fn is_unauthorized(&self) -> bool {
        self.status == StatusCode::UNAUTHORIZED || self.messages.is_unauthorized
    }

    fn verdict(&self) -> Verdict {
        match self.status.as_u16() {
            _ if self.messages.is_temporary => Verdict::Later,
            _ if self.messages.names_a_mistake() || self.is_precondition() => Verdict::Never,
            408 | 423 | 425 | 429 | 502..=504 => Verdict::Later,
            409 | 500 if self.retry_after.is_some() => Verdict::Later,
            409 | 500 => Verdict::Unclear,
            501 | 505 => Verdict::Never,
            506..=599 => Verdict::Later,
            _ => Verdict::Never,
        }
    }

    /// Returns the use of the answer for people.
    pub(super) fn relevance(&self) -> Relevance {
        match &self.messages {
            _ if self.is_missing() => Relevance::Guess,
            messages if !messages.missing.is_empty() => Relevance::Missing,
            messages if !messages.unwanted.is_empty() => Relevance::Unwanted,
            messages if messages.text.is_empty() => Relevance::Status,
            _ => Relevance::Text,
        }
    }
}

impl fmt::Display for RefusedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { status, messages, .. } = self;
        match messages.text.as_str() {
            "" => write!(f, "{status}"),
            text => write!(f, "{status}: {text}"),
        }
    }
}

impl fmt::Display for Names {
    /// Writes the number of systems, and the first names.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        let Self(names) = self;
        let shown: Vec<_> = names.iter().take(SHOWN).map(String::as_str).collect();
        let more = if names.len() > SHOWN { ", …" } else { "" };
        write!(f, "{} systems ({}{more})", names.len(), shown.join(", "))
    }
}

impl Unreadable {
    /// Returns a clause on the systems, if there are any.
    fn text(&self) -> String {
        match self.systems.as_slice() {
            [] => String::new(),
            [first] => format!("; one was not read: {first}"),
            [first, rest @ ..] => format!("; {} were not read: {first}", rest.len() + 1),
        }
    }
}

impl Error {
    /// The refusal of a response that is no success.
    pub(super) fn refusal(&self) -> Option<&RefusedRequest> {
        match self {
            Self::Denied(refusal) | Self::Response(refusal) => Some(refusal),
            Self::Connection(_)
            | Self::OldTls(_)
            | Self::Untrusted(_)
            | Self::NoConnection
            | Self::NoResponse
            | Self::CertificateChanged { .. }
            | Self::Task { .. }
            | Self::AmbiguousSystem(_)
            | Self::NoSystems
            | Self::NoSystem { .. }
            | Self::Protocol(_)
            | Self::Tls(_)
            | Self::LegacyTls(_) => None,
        }
    }

    /// Returns the messages of the BMC, if it sent any.
    pub fn messages(&self) -> Option<&Messages> {
        if let Self::Task { messages, .. } = self {
            return Some(messages);
        }
        self.refusal().map(|refusal| &refusal.messages)
    }

    fn verdict(&self) -> Option<Verdict> {
        match self {
            Self::Response(refusal) if refusal.is_unauthorized() => None,
            Self::Response(refusal) => Some(refusal.verdict()),
            Self::Task { .. } => Some(Verdict::Never),
            Self::Connection(_) | Self::NoConnection | Self::NoResponse | Self::NoSystems => {
                Some(Verdict::Later)
            }
            Self::NoSystem { unreadable, .. } => unreadable.is_transient.then_some(Verdict::Later),
            Self::Denied(_)
            | Self::OldTls(_)
            | Self::Untrusted(_)
            | Self::CertificateChanged { .. }
            | Self::AmbiguousSystem(_)
            | Self::Protocol(_)
            | Self::Tls(_)
            | Self::LegacyTls(_) => None,
        }
    }

    /// True if the BMC may succeed in a moment, or may never be able to.
    pub fn is_internal(&self) -> bool {
        self.verdict() == Some(Verdict::Unclear)
    }

    /// True if the same request may succeed later.
    pub fn is_transient(&self) -> bool {
        matches!(self.verdict(), Some(Verdict::Later | Verdict::Unclear))
    }

    /// True if the BMC refused this request for good, and another one may have the same effect.
    pub fn is_refusal(&self) -> bool {
        self.verdict() == Some(Verdict::Never)
    }

    /// True if it concerns the whole BMC, not only the requested resource: its address, its
    /// certificate, or the login.
    pub(super) fn is_of_bmc(&self) -> bool {
        match self {
            Self::NoConnection
            | Self::OldTls(_)
            | Self::Untrusted(_)
            | Self::CertificateChanged { .. }
            | Self::Denied(_)
            | Self::Tls(_)
            | Self::LegacyTls(_) => true,
            Self::Connection(_)
            | Self::NoResponse
            | Self::Response(_)
            | Self::Task { .. }
            | Self::AmbiguousSystem(_)
            | Self::NoSystems
            | Self::NoSystem { .. }
            | Self::Protocol(_) => false,
        }
    }

    /// True if the BMC answered, however it did.
    pub(super) fn is_answer(&self) -> bool {
        self.refusal().is_some()
    }

    /// True if the resource or the method does not exist.
    pub(super) fn is_missing(&self) -> bool {
        self.refusal().is_some_and(RefusedRequest::is_missing)
    }

    /// True if the account may not do it.
    pub(super) fn is_forbidden(&self) -> bool {
        self.refusal().is_some_and(|refusal| refusal.status == StatusCode::FORBIDDEN)
    }

    /// True if the request was redirected, and not followed.
    pub(super) fn is_redirect(&self) -> bool {
        self.refusal().is_some_and(|refusal| refusal.status.is_redirection())
    }

    /// True if the session, or the user name or the password, is refused.
    pub(super) fn is_unauthorized(&self) -> bool {
        self.refusal().is_some_and(RefusedRequest::is_unauthorized)
    }

    /// True if the condition of the request is refused, or missing.
    pub(super) fn is_precondition(&self) -> bool {
        self.refusal().is_some_and(RefusedRequest::is_precondition)
    }

    /// Returns the use of the answer for people.
    pub fn relevance(&self) -> Relevance {
        match (self.refusal(), self) {
            (Some(refusal), _) => refusal.relevance(),
            (None, Self::Task { messages, .. }) if !messages.missing.is_empty() => {
                Relevance::Missing
            }
            (None, _) => Relevance::Text,
        }
    }

    /// Returns the pause that the BMC requests.
    pub fn retry_after(&self) -> Duration {
        let requested = self.refusal().and_then(|refusal| refusal.retry_after);
        requested.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn refusal(status: u16, message_id: &str) -> Error {
        let message = json!({"MessageId": message_id, "Message": "x", "MessageArgs": ["a", "b"]});
        let body = json!({"error": {"@Message.ExtendedInfo": [message]}});
        Error::Response(Box::new(RefusedRequest {
            url: "http://192.0.2.1/".parse().unwrap(),
            status: StatusCode::from_u16(status).unwrap(),
            messages: Messages::of_answer(&body),
            retry_after: None,
        }))
    }

    #[test]
    fn the_message_decides_before_the_status_whether_a_request_is_repeated() {
        for (status, id, is_transient) in [
            (400, "Base.1.8.ResourceInUse", true),
            (403, "Base.1.8.ResourceInStandby", true),
            (400, "Base.1.8.PropertyMissing", false),
            (500, "Base.1.8.ActionParameterMissing", false),
            (503, "Base.1.8.PropertyNotWritable", false),
            (503, "Base.1.8.GeneralError", true),
            (500, "Base.1.8.InternalError", true),
            (501, "Base.1.8.ActionNotSupported", false),
            (412, "Base.1.8.PreconditionFailed", false),
            (409, "Oem.Busy", true),
            (403, "Base.1.8.InsufficientPrivilege", false),
        ] {
            let error = refusal(status, id);
            assert_eq!(error.is_transient(), is_transient, "{status} {id}");
            assert_eq!(error.is_refusal(), !is_transient, "{status} {id}");
        }
    }

    #[test]
    fn an_answer_that_names_what_is_missing_tells_more_than_one_to_a_guess() {
        let missing = refusal(400, "Base.1.8.PropertyMissing").relevance();
        let unwanted = refusal(400, "Base.1.8.PropertyUnknown").relevance();
        let text = refusal(400, "Oem.X").relevance();
        assert!(missing > unwanted && unwanted > text);
        assert!(text > refusal(405, "Base.1.8.ActionNotSupported").relevance());
    }

    #[test]
    fn several_systems_are_named_with_the_option_that_chooses_one() {
        let names = ["DGX", "HGX_Baseboard_0"].map(str::to_owned).to_vec();
        let text = Error::AmbiguousSystem(Names(names)).to_string();
        let wanted = "the BMC has 2 systems (DGX, HGX_Baseboard_0): choose one with --system";
        assert_eq!(text, wanted);
    }
}
