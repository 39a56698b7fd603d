//! A verifier for rustls that judges the digest of a certificate, and the signature of the
//! handshake by its key.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, PeerMisbehaved, SignatureScheme,
};

use crate::certificate::PublicKey;
use crate::pin::{CertificatePin, sha256};
use crate::rsa;

/// Returns a TLS configuration that accepts only the certificate of `pin`.
pub fn client_config(pin: Arc<CertificatePin>) -> Result<ClientConfig, Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let algorithms = provider.signature_verification_algorithms;
    let verifier = Arc::new(Pinned { pin, algorithms });
    let versions =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(versions.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())
}

#[derive(Debug)]
struct Pinned {
    pin: Arc<CertificatePin>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Pinned {
    /// Verifies the signature without rustls' own functions, which read the whole certificate and
    /// refuse those of version 1, with unknown critical extensions, or with short keys.
    fn verify_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = self.algorithms.mapping.iter().find(|(scheme, _)| *scheme == signed.scheme);
        let (_, algorithms) =
            known.ok_or(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme)?;
        let key = PublicKey::of(certificate).ok_or(CertificateError::BadEncoding)?;
        let mut of_key =
            algorithms.iter().filter(|it| it.public_key_alg_id().as_ref() == key.algorithm);
        let is_right = |signature: &[u8]| {
            of_key.any(|it| it.verify_signature(key.bytes, message, signature).is_ok())
                || key.is_rsa() && rsa::verify(key.bytes, signed.scheme, message, signature)
        };
        match Some(signed.signature()).is_some_and(is_right) {
            true => Ok(HandshakeSignatureValid::assertion()),
            false => Err(CertificateError::BadSignature.into()),
        }
    }
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.pin.accepts(sha256(end_entity)) {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        // RFC 8446 §4.2.3: signatures with PKCS #1 v1.5 are for certificates only.
        let is_pkcs1 = matches!(
            signed.scheme,
            SignatureScheme::RSA_PKCS1_SHA1
                | SignatureScheme::RSA_PKCS1_SHA256
                | SignatureScheme::RSA_PKCS1_SHA384
                | SignatureScheme::RSA_PKCS1_SHA512
        );
        match is_pkcs1 {
            true => Err(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into()),
            false => self.verify_signature(message, certificate, signed),
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
