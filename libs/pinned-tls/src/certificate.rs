//! The public key of a certificate (RFC 5280 §4.1), read without judging anything else in it.

use x509_parser::asn1_rs::{Any, Class, FromBer as _, Tag};

/// Values between the version of a certificate and its key: serial number, signature, issuer,
/// validity, subject.
const VALUES_BEFORE_KEY: usize = 5;
/// The object identifier rsaEncryption (RFC 8017 §A.1), encoded.
const RSA_ENCRYPTION: [u8; 11] = [0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];

/// A public key, as it is in a SubjectPublicKeyInfo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PublicKey<'a> {
    /// The contents of its AlgorithmIdentifier.
    pub(crate) algorithm: &'a [u8],
    /// The contents of its bit string.
    pub(crate) bytes: &'a [u8],
}

impl<'a> PublicKey<'a> {
    /// Returns the key of the certificate in `der`. None if it has none.
    pub(crate) fn of(der: &'a [u8]) -> Option<Self> {
        let mut fields = contents(contents(der, Tag::Sequence)?, Tag::Sequence)?;
        let (rest, first) = Any::from_ber(fields).ok()?;
        // The version is absent from certificates of version 1.
        if first.class() == Class::ContextSpecific {
            fields = rest;
        }
        for _ in 0..VALUES_BEFORE_KEY {
            fields = Any::from_ber(fields).ok()?.0;
        }
        let info = contents(fields, Tag::Sequence)?;
        let (rest, algorithm) = Any::from_ber(info).ok()?;
        let (unused_bits, bytes) = contents(rest, Tag::BitString)?.split_first()?;
        (*unused_bits == 0).then_some(Self { algorithm: algorithm.data, bytes })
    }

    /// True for an RSA key, also if the parameters of its algorithm are absent instead of null.
    pub(crate) fn is_rsa(self) -> bool {
        self.algorithm.starts_with(&RSA_ENCRYPTION)
    }
}

/// Returns the contents of the first value in `ber`, if it has this tag.
pub(crate) fn contents(ber: &[u8], tag: Tag) -> Option<&[u8]> {
    let (_, value) = Any::from_ber(ber).ok()?;
    (value.tag() == tag).then_some(value.data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_key_is_that_of_the_certificate() {
        let made = rcgen::generate_simple_self_signed(vec!["bmc.invalid".into()]).unwrap();
        let key = PublicKey::of(made.cert.der()).unwrap();
        assert!(!key.is_rsa());
        assert_eq!(key.bytes, rcgen::PublicKeyData::der_bytes(&made.signing_key));
        assert_eq!(PublicKey::of(&made.cert.der()[..40]), None);
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_read(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = PublicKey::of(&bytes);
        }
    }
}
