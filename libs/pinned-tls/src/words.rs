//! Errors of TLS for people: the library's own texts name its types.

use std::fmt::Debug;

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage, PeerIncompatible};

/// A failed handshake, by what a person can do about it. Texts are clauses on the peer, "it".
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The peer has no cipher or version of TLS in common with rustls. [`legacy`](crate::legacy)
    /// has others.
    OldTls(&'static str),
    /// The port does not speak TLS.
    NotTls,
    /// The certificate is refused, or the peer does not have its key.
    Certificate(String),
    /// Any other failure.
    Other(String),
}

impl Failure {
    /// Returns the failure that `error` of rustls means.
    pub fn of(error: &Error) -> Self {
        const CIPHERS: &str = "it offers no TLS cipher that this server allows";
        const VERSIONS: &str = "it offers only versions of TLS before 1.2";
        if let Error::AlertReceived(alert) = error {
            return if *alert == AlertDescription::ProtocolVersion {
                Self::OldTls(VERSIONS)
            } else if [AlertDescription::HandshakeFailure, AlertDescription::InsufficientSecurity]
                .contains(alert)
            {
                Self::OldTls(CIPHERS)
            } else {
                Self::Other(format!("it ended the TLS handshake: {}", first_name(alert)))
            };
        }
        if let Error::PeerIncompatible(reason) = error {
            let versions = [
                PeerIncompatible::ServerDoesNotSupportTls12Or13,
                PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig,
            ];
            return Self::OldTls(if versions.contains(reason) { VERSIONS } else { CIPHERS });
        }
        if let Error::InvalidMessage(InvalidMessage::InvalidContentType) = error {
            return Self::NotTls;
        }
        if let Error::InvalidCertificate(error) = error {
            return Self::Certificate(certificate(error));
        }
        Self::Other(if let Error::PeerMisbehaved(reason) = error {
            format!("it does not follow TLS: {}", first_name(reason))
        } else if let Error::InvalidMessage(reason) = error {
            format!("it sent a damaged TLS message: {}", first_name(reason))
        } else {
            format!("TLS failed: {error}")
        })
    }
}

/// Returns the problem of a certificate.
fn certificate(error: &CertificateError) -> String {
    let name = if let CertificateError::Other(other) = error {
        last_name(other)
    } else {
        first_name(error)
    };
    let known = [
        (
            "bad signature",
            "it does not have the key of its certificate: the handshake has a wrong signature",
        ),
        ("expired", "its certificate has expired"),
        ("not valid yet", "its certificate is not valid yet"),
        ("unknown issuer", "its certificate is signed by no root that this server trusts"),
        ("not valid for name", "its certificate is for other names"),
    ];
    let known = known.iter().find(|(start, _)| name.starts_with(start));
    known.map_or_else(|| format!("its certificate is refused: {name}"), |(_, text)| (*text).into())
}

/// Returns the outermost name of a value in words: `BadRecordMac` as "bad record mac".
fn first_name(value: &impl Debug) -> String {
    names(value).into_iter().next().unwrap_or_default()
}

/// Returns the innermost name of a value in words: `Other(UnknownCa)` as "unknown ca".
fn last_name(value: &impl Debug) -> String {
    names(value).pop().unwrap_or_default()
}

/// Returns the names in the debug text of a value, each in words.
fn names(value: &impl Debug) -> Vec<String> {
    let text = format!("{value:?}");
    let names = text.split(|letter: char| !letter.is_ascii_alphanumeric());
    names.filter(|name| !name.is_empty()).map(separate).collect()
}

/// Returns a name in camel case as words in lower case.
fn separate(name: &str) -> String {
    let mut words = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.push(letter.to_ascii_lowercase());
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_tls_is_told_from_other_failures() {
        let is_old = |error: Error| matches!(Failure::of(&error), Failure::OldTls(_));
        assert!(is_old(Error::AlertReceived(AlertDescription::HandshakeFailure)));
        assert!(is_old(Error::AlertReceived(AlertDescription::ProtocolVersion)));
        assert!(is_old(Error::PeerIncompatible(PeerIncompatible::ServerDoesNotSupportTls12Or13)));
        assert!(!is_old(Error::AlertReceived(AlertDescription::UnrecognisedName)));
        assert!(!is_old(Error::InvalidCertificate(CertificateError::BadSignature)));
    }

    #[test]
    fn no_text_has_the_name_of_a_type() {
        for error in [
            Error::AlertReceived(AlertDescription::UnrecognisedName),
            Error::InvalidCertificate(CertificateError::UnknownIssuer),
            Error::InvalidCertificate(CertificateError::UnhandledCriticalExtension),
            Error::InvalidMessage(InvalidMessage::MessageTooShort),
            Error::NoCertificatesPresented,
        ] {
            let (Failure::Other(text) | Failure::Certificate(text)) = Failure::of(&error) else {
                panic!("{error:?}")
            };
            let text = text.replace("TLS", "");
            assert!(!text.contains(|letter: char| letter.is_ascii_uppercase()), "{text}");
        }
    }
}
