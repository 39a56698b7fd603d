//! Failed connections to a BMC, in words: the libraries' own texts have each step of the connection
//! in them.

use std::{io, iter};

use data_encoding::HEXLOWER;
use pinned_tls::CertificatePin;
use pinned_tls::legacy::{self, Peer};
use pinned_tls::words::Failure;
use reqwest::Url;

use super::Error;

/// A failure of a request by reqwest, or a body that is too long.
#[derive(Debug)]
pub(super) enum CurrentError {
    Request(reqwest::Error),
    TooLong,
}

/// Returns the error of a client that cannot be made.
pub(super) fn of_client(error: &reqwest::Error) -> Error {
    let last = chain(error).last();
    Error::Connection(last.map_or_else(String::new, ToString::to_string))
}

/// Returns the error of a request by reqwest. A changed certificate is an error of its own.
pub(super) fn of_current(error: CurrentError, pin: Option<&CertificatePin>) -> Error {
    let error = match error {
        CurrentError::Request(error) => error,
        CurrentError::TooLong => return too_long(),
    };
    if let Some((expected, received)) = pin.and_then(CertificatePin::refusal) {
        return changed(expected, received);
    }
    match (error.is_timeout(), error.is_connect()) {
        (true, true) => Error::NoConnection,
        (true, false) => Error::NoResponse,
        (false, _) => of_chain(&error),
    }
}

/// Returns the error of a connection over legacy TLS.
pub(super) fn of_legacy(error: legacy::Error, peer: &Peer, pin: Option<&CertificatePin>) -> Error {
    let Peer { host, port } = peer;
    match error {
        legacy::Error::OtherCertificate(Some(received)) => {
            changed(pin.and_then(CertificatePin::digest).unwrap_or_default(), received)
        }
        legacy::Error::OtherCertificate(None) => {
            Error::Untrusted("it has another certificate than before".into())
        }
        legacy::Error::Connect(kind) => {
            let text = of_kind(kind, host, *port);
            Error::Connection(text.unwrap_or_else(|| kind.to_string()))
        }
        legacy::Error::NotTls => Error::Connection(format!("{host}:{port} does not speak TLS")),
        legacy::Error::Handshake(text) => Error::Connection(format!("TLS failed: {text}")),
        error @ legacy::Error::Certificate(_) => Error::Untrusted(error.to_string()),
        error @ (legacy::Error::NotInstalled | legacy::Error::NotStarted(_)) => {
            Error::LegacyTls(error)
        }
    }
}

/// Returns the error of a body that is not read.
pub(super) fn too_long() -> Error {
    Error::Protocol("response body over 1 MiB".into())
}

fn changed(expected: [u8; 32], received: [u8; 32]) -> Error {
    let (expected, received) = (HEXLOWER.encode(&expected), HEXLOWER.encode(&received));
    Error::CertificateChanged { expected, received }
}

/// Returns the error whose cause is in the sources of `error`.
fn of_chain(error: &reqwest::Error) -> Error {
    let host = error.url().and_then(Url::host_str).unwrap_or("its host");
    let port = error.url().and_then(Url::port_or_known_default).unwrap_or(443);
    let chain = || chain(error);
    if let Some(error) = chain().find_map(tls_error) {
        return match Failure::of(error) {
            Failure::OldTls(text) => Error::OldTls(text),
            Failure::NotTls => Error::Connection(format!("{host}:{port} does not speak TLS")),
            Failure::Certificate(text) => Error::Untrusted(text),
            Failure::Other(text) => Error::Connection(text),
        };
    }
    let kind =
        |it: &(dyn std::error::Error + 'static)| Some(it.downcast_ref::<io::Error>()?.kind());
    let known = chain().filter_map(kind).find_map(|kind| of_kind(kind, host, port));
    let is_name = chain().any(|it| it.to_string().contains("failed to lookup address"));
    let unnamed = is_name.then(|| no_name(host));
    let last = || chain().last().map_or_else(String::new, ToString::to_string);
    Error::Connection(known.or(unnamed).unwrap_or_else(last))
}

/// Returns `error` and its sources.
fn chain(error: &reqwest::Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    let first: &(dyn std::error::Error + 'static) = error;
    iter::successors(Some(first), |it| it.source())
}

/// Returns the text of a failed connection to `host`, if its kind has one.
fn of_kind(kind: io::ErrorKind, host: &str, port: u16) -> Option<String> {
    use io::ErrorKind as Kind;
    let is = |kinds: &[Kind]| kinds.contains(&kind);
    if is(&[Kind::ConnectionRefused]) {
        Some(format!("nothing listens at {host}:{port}"))
    } else if is(&[Kind::HostUnreachable, Kind::NetworkUnreachable]) {
        Some(format!("{host} is not reachable: is it connected, and on?"))
    } else if is(&[Kind::ConnectionReset, Kind::UnexpectedEof]) {
        Some(format!("{host}:{port} closed the connection"))
    } else if is(&[Kind::NotFound]) {
        Some(no_name(host))
    } else {
        None
    }
}

fn no_name(host: &str) -> String {
    format!("the name {host} could not be resolved")
}

/// Returns the error of the TLS library in `error`, within any number of errors of input and
/// output.
fn tls_error<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a rustls::Error> {
    error.downcast_ref().or_else(|| tls_error(error.downcast_ref::<io::Error>()?.get_ref()?))
}
