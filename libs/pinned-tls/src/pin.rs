//! The digest of the only certificate that a client trusts.

use std::sync::{Mutex, OnceLock, PoisonError};

use aws_lc_rs::digest;

/// SHA-256 of the only certificate that a client trusts: a known one, else that of the first
/// certificate that it receives.
#[derive(Debug, Default)]
pub struct CertificatePin {
    /// Empty before the first connection, if no digest is known.
    expected: OnceLock<[u8; 32]>,
    /// The digest of another certificate that was received and refused.
    refused: Mutex<Option<[u8; 32]>>,
}

impl CertificatePin {
    /// Trusts the certificate with the digest `expected`, else the first one.
    pub fn new(expected: Option<[u8; 32]>) -> Self {
        let pin = Self::default();
        if let Some(expected) = expected {
            let _first = pin.expected.set(expected);
        }
        pin
    }

    /// Returns the digest of the trusted certificate, once there is one.
    pub fn digest(&self) -> Option<[u8; 32]> {
        self.expected.get().copied()
    }

    /// Returns the trusted and the refused digest, if another certificate was refused.
    pub fn refusal(&self) -> Option<([u8; 32], [u8; 32])> {
        let refused = *self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        self.digest().zip(refused)
    }

    /// True if `received` is the digest of the trusted certificate, which it becomes if there is
    /// none.
    pub fn accepts(&self, received: [u8; 32]) -> bool {
        let is_expected = *self.expected.get_or_init(|| received) == received;
        if !is_expected {
            *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(received);
        }
        is_expected
    }
}

/// Returns the SHA-256 of a certificate.
pub(crate) fn sha256(certificate: &[u8]) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest::digest(&digest::SHA256, certificate).as_ref());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_certificate_is_trusted_and_then_no_other_one() {
        let pin = CertificatePin::new(None);
        assert_eq!((pin.digest(), pin.refusal()), (None, None));
        assert!(pin.accepts([1; 32]) && pin.accepts([1; 32]));
        assert!(!pin.accepts([2; 32]));
        assert_eq!((pin.digest(), pin.refusal()), (Some([1; 32]), Some(([1; 32], [2; 32]))));
    }
}
