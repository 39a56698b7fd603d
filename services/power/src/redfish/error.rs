//! Failed requests to a BMC, and the use of repeating them.

use std::time::Duration;
use std::{io, iter};

use reqwest::{StatusCode, Url};
use rustls::InvalidMessage;

use super::{CONNECT_TIMEOUT, REQUEST_TIMEOUT};

/// A failed request to a BMC.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The connection failed.
    #[error("the BMC cannot be reached: {0}")]
    Connection(String),
    /// Nothing accepted the connection, or completed its TLS handshake, in time.
    #[error("the BMC opened no connection in {} seconds", .0.as_secs())]
    NoConnection(Duration),
    /// The connection was accepted, and no response came in time.
    #[error("the BMC did not answer in {} seconds", .0.as_secs())]
    NoResponse(Duration),
    /// The BMC has another certificate than before.
    #[error(
        "the BMC's certificate has changed: expected SHA-256 {expected}, received {received}; `tinwright power bmc update MACHINE --accept-certificate` accepts the new one"
    )]
    CertificateChanged {
        /// SHA-256 of the trusted certificate, in hex.
        expected: String,
        /// SHA-256 of the certificate that the BMC has now.
        received: String,
    },
    /// The user name or the password is not accepted, or not sufficient.
    #[error("the BMC refuses the user name or the password: it answered {status}: {text}")]
    Denied {
        /// The HTTP status.
        status: StatusCode,
        /// The messages in the body.
        text: String,
    },
    /// Another response that is no success.
    #[error("the BMC answered {status}: {text}")]
    Response {
        /// The HTTP status.
        status: StatusCode,
        /// The messages in the body.
        text: String,
        /// The pause that the BMC requests.
        retry_after: Duration,
    },
    /// A task of the BMC failed.
    #[error("the task of the BMC ended: {0}")]
    Task(String),
    /// The BMC's record names no system, and there is not exactly one.
    #[error("the BMC has {0} systems: set system_id")]
    AmbiguousSystem(usize),
    /// No system has the id or name in the BMC's record.
    #[error("the BMC has no system {0:?}")]
    NoSystem(String),
    /// The BMC does not follow the Redfish specification.
    #[error("the BMC does not follow Redfish: {0}")]
    Protocol(String),
    /// The TLS library rejected the configuration.
    #[error("TLS cannot be set up")]
    Tls(#[from] rustls::Error),
}

impl From<reqwest::Error> for Error {
    fn from(error: reqwest::Error) -> Self {
        match (error.is_timeout(), error.is_connect()) {
            (true, true) => Self::NoConnection(CONNECT_TIMEOUT),
            (true, false) => Self::NoResponse(REQUEST_TIMEOUT),
            (false, _) => Self::Connection(cause(&error)),
        }
    }
}

/// Returns the cause of a failed connection, for people. The library's own text has each step of the connection in it.
fn cause(error: &reqwest::Error) -> String {
    let host = error.url().and_then(Url::host_str).unwrap_or("its host");
    let port = error.url().and_then(Url::port_or_known_default).unwrap_or(443);
    let chain = || iter::successors(Some(error as &dyn std::error::Error), |it| it.source());
    let known = chain().find_map(|it| {
        if let Some(rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType)) =
            tls_error(it)
        {
            return Some(format!("{host}:{port} does not speak TLS"));
        }
        let kind = it.downcast_ref::<io::Error>()?.kind();
        let is = |kinds: &[io::ErrorKind]| kinds.contains(&kind);
        if is(&[io::ErrorKind::ConnectionRefused]) {
            Some(format!("nothing listens at {host}:{port}"))
        } else if is(&[io::ErrorKind::HostUnreachable, io::ErrorKind::NetworkUnreachable]) {
            Some(format!("{host} is not reachable: is it connected, and on?"))
        } else if is(&[io::ErrorKind::ConnectionReset, io::ErrorKind::UnexpectedEof]) {
            Some(format!("{host}:{port} closed the connection"))
        } else {
            None
        }
    });
    let is_name = chain().any(|it| it.to_string().contains("failed to lookup address"));
    let unnamed = is_name.then(|| format!("the name {host} could not be resolved"));
    let last = || chain().last().map_or_else(String::new, ToString::to_string);
    known.or(unnamed).unwrap_or_else(last)
}

/// Returns the error of the TLS library in `error`, within any number of errors of input and output.
fn tls_error<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a rustls::Error> {
    error.downcast_ref().or_else(|| tls_error(error.downcast_ref::<io::Error>()?.get_ref()?))
}

impl Error {
    /// The HTTP status of the response; 0 if there was none.
    fn status(&self) -> u16 {
        if let Self::Response { status, .. } | Self::Denied { status, .. } = self {
            status.as_u16()
        } else {
            0
        }
    }

    /// True for status 500: the BMC may succeed in a moment, or may never be able to.
    pub fn is_internal(&self) -> bool {
        self.status() == 500
    }

    /// True if the same request may succeed later. After 412 the resource is read again first: another client changed it.
    pub fn is_transient(&self) -> bool {
        let busy = matches!(self.status(), 408 | 409 | 412 | 423 | 425 | 429 | 500..=599);
        self.is_unanswered() || busy && !matches!(self.status(), 501 | 505)
    }

    /// True if there was no response.
    fn is_unanswered(&self) -> bool {
        matches!(self, Self::Connection(_) | Self::NoConnection(_) | Self::NoResponse(_))
    }

    /// True if the BMC refused this request, and another one may have the same effect.
    pub fn is_refusal(&self) -> bool {
        let response = matches!(self, Self::Response { .. });
        let refused = response && !self.is_transient() && !self.is_denied();
        refused || matches!(self, Self::Task(_))
    }

    /// True if the resource or the method does not exist.
    pub(super) fn is_missing(&self) -> bool {
        matches!(self.status(), 404 | 405 | 501)
    }

    /// True if the session or the password is not accepted, or not sufficient.
    pub(super) fn is_denied(&self) -> bool {
        matches!(self.status(), 401 | 403)
    }

    /// True if the session or the password is not accepted.
    pub(super) fn is_unauthorized(&self) -> bool {
        self.status() == 401
    }

    /// Returns the pause that the BMC requests.
    pub fn retry_after(&self) -> Duration {
        if let Self::Response { retry_after, .. } = self { *retry_after } else { Duration::ZERO }
    }
}
