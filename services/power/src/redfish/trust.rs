//! TLS that trusts one certificate: the one in the BMC's record, else the first one that is received.
//!
//! Most BMCs sign their own certificates, with names and times that cannot be verified. The digest identifies the certificate,
//! and the signature in the handshake proves that the peer has its key.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use sha2::{Digest as _, Sha256};

/// The SHA-256 of the only certificate that a client trusts.
#[derive(Debug, Default)]
pub(super) struct CertificatePin {
    /// The digest; empty before the first connection, if none is known.
    expected: OnceLock<[u8; 32]>,
    /// The digest of another certificate that was received and refused.
    refused: Mutex<Option<[u8; 32]>>,
}

impl CertificatePin {
    /// Trusts the certificate with the digest `expected`, else the first one.
    pub(super) fn new(expected: Option<[u8; 32]>) -> Self {
        let pin = Self::default();
        if let Some(expected) = expected {
            let _first = pin.expected.set(expected);
        }
        pin
    }

    /// Returns the digest of the trusted certificate, once there is one.
    pub(super) fn digest(&self) -> Option<[u8; 32]> {
        self.expected.get().copied()
    }

    /// Returns the trusted and the refused digest, if another certificate was refused.
    pub(super) fn refusal(&self) -> Option<([u8; 32], [u8; 32])> {
        let refused = *self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        self.digest().zip(refused)
    }

    fn accepts(&self, received: [u8; 32]) -> bool {
        let is_expected = *self.expected.get_or_init(|| received) == received;
        if !is_expected {
            *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(received);
        }
        is_expected
    }
}

/// Returns a TLS configuration that accepts only the certificate of `pin`.
pub(super) fn pin_certificate(pin: Arc<CertificatePin>) -> Result<ClientConfig, Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = Arc::new(Pinned { pin, provider: provider.clone() });
    let versions =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(versions.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())
}

#[derive(Debug)]
struct Pinned {
    pin: Arc<CertificatePin>,
    provider: Arc<CryptoProvider>,
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
        match self.pin.accepts(Sha256::digest(end_entity).into()) {
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
        let known = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
