//! Signatures by RSA keys (RFC 8017) of sizes that aws-lc refuses, such as the 1024 bits of old
//! BMCs.
//!
//! Verification handles public values only, so its time may depend on them.

use aws_lc_rs::digest::{self, Algorithm, SHA256, SHA384, SHA512};
use rustls::SignatureScheme;
use x509_parser::asn1_rs::{Any, FromBer as _, Tag};
use x509_parser::num_bigint::BigUint;

use crate::certificate::contents;

/// Sizes of accepted keys, in bits.
const KEY_BITS: std::ops::RangeInclusive<u64> = 512..=16_384;
/// Maximum size of the public exponent, in bits. It bounds the time of a verification.
const MAX_EXPONENT_BITS: u64 = 64;
/// The last octet of an encoded message of PSS.
const PSS_TRAILER: u8 = 0xbc;

/// Signature algorithm of a handshake.
#[derive(Clone, Copy)]
enum Padding {
    /// RSASSA-PKCS1-v1_5 with the encoded start of DigestInfo.
    Pkcs1(&'static [u8]),
    /// RSASSA-PSS with MGF1, and a salt as long as the digest.
    Pss,
}

/// The DigestInfo of each hash up to the digest (RFC 8017 §9.2, note 1).
const SHA256_INFO: &[u8] = &[
    0x30, 0x31, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01, 0x05,
    0x00, 0x04, 0x20,
];
const SHA384_INFO: &[u8] = &[
    0x30, 0x41, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x02, 0x05,
    0x00, 0x04, 0x30,
];
const SHA512_INFO: &[u8] = &[
    0x30, 0x51, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x03, 0x05,
    0x00, 0x04, 0x40,
];
/// The schemes of TLS that sign with RSA.
static SCHEMES: [(SignatureScheme, Padding, &Algorithm); 6] = [
    (SignatureScheme::RSA_PKCS1_SHA256, Padding::Pkcs1(SHA256_INFO), &SHA256),
    (SignatureScheme::RSA_PKCS1_SHA384, Padding::Pkcs1(SHA384_INFO), &SHA384),
    (SignatureScheme::RSA_PKCS1_SHA512, Padding::Pkcs1(SHA512_INFO), &SHA512),
    (SignatureScheme::RSA_PSS_SHA256, Padding::Pss, &SHA256),
    (SignatureScheme::RSA_PSS_SHA384, Padding::Pss, &SHA384),
    (SignatureScheme::RSA_PSS_SHA512, Padding::Pss, &SHA512),
];

/// True if `signature` is that of `message` by `scheme` with `key`, an encoded RSAPublicKey.
pub(crate) fn verify(
    key: &[u8],
    scheme: SignatureScheme,
    message: &[u8],
    signature: &[u8],
) -> bool {
    let Some((_, padding, hash)) = SCHEMES.iter().find(|(known, ..)| *known == scheme) else {
        return false;
    };
    let Some((modulus, exponent)) = read_key(key) else { return false };
    let bits = modulus.bits();
    if !KEY_BITS.contains(&bits) || exponent.bits() > MAX_EXPONENT_BITS {
        return false;
    }
    let Some(encoded) = recover(&modulus, &exponent, signature) else { return false };
    let digest = digest::digest(hash, message);
    match padding {
        Padding::Pkcs1(info) => is_pkcs1(&encoded, info, digest.as_ref()),
        Padding::Pss => is_pss(&encoded, bits, hash, digest.as_ref()),
    }
}

/// Returns modulus and exponent (RFC 8017 §A.1.1).
fn read_key(der: &[u8]) -> Option<(BigUint, BigUint)> {
    let fields = contents(der, Tag::Sequence)?;
    let modulus = contents(fields, Tag::Integer)?;
    let (rest, _) = Any::from_ber(fields).ok()?;
    let exponent = contents(rest, Tag::Integer)?;
    let numbers = (BigUint::from_bytes_be(modulus), BigUint::from_bytes_be(exponent));
    let is_odd = |number: &BigUint| number.bit(0);
    (is_odd(&numbers.0) && is_odd(&numbers.1) && numbers.1.bits() > 1).then_some(numbers)
}

/// Returns the encoded message in `signature`, as long as the modulus (RSAVP1, RFC 8017 §5.2.2).
fn recover(modulus: &BigUint, exponent: &BigUint, signature: &[u8]) -> Option<Vec<u8>> {
    let size = usize::try_from(modulus.bits().div_ceil(8)).ok()?;
    let number = BigUint::from_bytes_be(signature);
    if signature.len() != size || number >= *modulus {
        return None;
    }
    let message = number.modpow(exponent, modulus).to_bytes_be();
    let mut encoded = vec![0; size.checked_sub(message.len())?];
    encoded.extend(message);
    Some(encoded)
}

/// Compares `encoded` with the only right encoding of `digest` (RFC 8017 §8.2.2), instead of
/// parsing it.
fn is_pkcs1(encoded: &[u8], info: &[u8], digest: &[u8]) -> bool {
    // Two octets, at least eight of padding, and a zero.
    let Some(padding) = encoded.len().checked_sub(3 + info.len() + digest.len()) else {
        return false;
    };
    let mut expected = vec![0, 1];
    expected.resize(2 + padding, 0xff);
    expected.push(0);
    expected.extend(info);
    expected.extend(digest);
    padding >= 8 && encoded == expected
}

/// EMSA-PSS-VERIFY (RFC 8017 §9.1.2), of a key with `bits`.
fn is_pss(encoded: &[u8], bits: u64, hash: &'static Algorithm, digest: &[u8]) -> bool {
    // The encoded message has one bit less than the key: an octet less if that is the first bit of
    // one.
    let encoded = match bits % 8 {
        1 => match encoded.split_first() {
            Some((0, rest)) => rest,
            Some(_) | None => return false,
        },
        _ => encoded,
    };
    let unused_bits = (8 - (bits - 1) % 8) % 8;
    let first_mask = 0xff_u8 >> unused_bits;
    let Some((PSS_TRAILER, encoded)) = encoded.split_last().map(|(last, rest)| (*last, rest))
    else {
        return false;
    };
    let Some(block) = encoded.len().checked_sub(digest.len()) else { return false };
    let (masked, seed) = encoded.split_at(block);
    let mut data = mask(seed, block, hash);
    for (octet, masked) in data.iter_mut().zip(masked) {
        *octet ^= masked;
    }
    if masked.first().is_none_or(|first| first & !first_mask != 0) {
        return false;
    }
    if let Some(first) = data.first_mut() {
        *first &= first_mask;
    }
    let Some(zeros) = block.checked_sub(1 + digest.len()) else { return false };
    let (start, salt) = data.split_at(zeros + 1);
    let is_padded = start
        .split_last()
        .is_some_and(|(last, zeros)| *last == 1 && zeros.iter().all(|octet| *octet == 0));
    let mut context = digest::Context::new(hash);
    for part in [&[0; 8], digest, salt] {
        context.update(part);
    }
    is_padded && context.finish().as_ref() == seed
}

/// MGF1 (RFC 8017 §B.2.1).
fn mask(seed: &[u8], length: usize, hash: &'static Algorithm) -> Vec<u8> {
    let mut mask = Vec::with_capacity(length + digest::MAX_OUTPUT_LEN);
    for counter in 0_u32.. {
        if mask.len() >= length {
            break;
        }
        let mut context = digest::Context::new(hash);
        context.update(seed);
        context.update(&counter.to_be_bytes());
        mask.extend(context.finish().as_ref());
    }
    mask.truncate(length);
    mask
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::rsa::{KeyPair, KeySize};
    use aws_lc_rs::signature::{
        self, KeyPair as _, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RSA_PSS_SHA256,
        RSA_PSS_SHA384, RSA_PSS_SHA512,
    };

    /// Each scheme, with the library's way to sign by it.
    fn signers() -> [(SignatureScheme, &'static dyn signature::RsaEncoding); 6] {
        [
            (SignatureScheme::RSA_PKCS1_SHA256, &RSA_PKCS1_SHA256),
            (SignatureScheme::RSA_PKCS1_SHA384, &RSA_PKCS1_SHA384),
            (SignatureScheme::RSA_PKCS1_SHA512, &RSA_PKCS1_SHA512),
            (SignatureScheme::RSA_PSS_SHA256, &RSA_PSS_SHA256),
            (SignatureScheme::RSA_PSS_SHA384, &RSA_PSS_SHA384),
            (SignatureScheme::RSA_PSS_SHA512, &RSA_PSS_SHA512),
        ]
    }

    #[test]
    fn what_the_library_signs_is_right_and_every_change_of_it_is_wrong() {
        let pair = KeyPair::generate(KeySize::Rsa2048).unwrap();
        let key = pair.public_key().as_ref();
        for (scheme, signer) in signers() {
            let mut signature = vec![0; pair.public_modulus_len()];
            pair.sign(signer, &SystemRandom::new(), b"hello", &mut signature).unwrap();
            assert!(verify(key, scheme, b"hello", &signature), "{scheme:?}");
            assert!(!verify(key, scheme, b"hallo", &signature), "{scheme:?}");
            for (other, _) in signers().iter().filter(|(other, _)| *other != scheme) {
                assert!(!verify(key, *other, b"hello", &signature), "{scheme:?} as {other:?}");
            }
            for position in [0, 1, 100, 255] {
                let mut changed = signature.clone();
                changed[position] ^= 1;
                assert!(!verify(key, scheme, b"hello", &changed), "{scheme:?}");
            }
            assert!(!verify(key, scheme, b"hello", &signature[1..]), "{scheme:?}");
            assert!(!verify(key, scheme, b"hello", &[]), "{scheme:?}");
        }
    }

    #[test]
    fn a_key_that_makes_every_signature_right_is_refused() {
        let pair = KeyPair::generate(KeySize::Rsa2048).unwrap();
        let mut key = pair.public_key().as_ref().to_vec();
        // The last three octets are the exponent, 65537. With 1 a signature is its own encoding.
        let length = key.len();
        key[length - 3..].copy_from_slice(&[0, 0, 1]);
        assert_eq!(read_key(&key), None);
    }
}
