//! Serial numbers of certificates.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::rand;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::crypto_error::CryptoError;

/// The most bytes of a serial number (RFC 5280 §4.1.2.2).
const MAX_BYTES: usize = 20;
/// The bytes of a serial number that we issue.
const ISSUED_BYTES: usize = 16;

/// The serial number of a certificate, which no other certificate of the site has. Formatted as lower-case hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Serial(String);

/// A text that is no serial number.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a serial number: at most 40 hexadecimal digits, not all of them zeros")]
pub struct ParseSerialError(String);

impl Serial {
    /// The digits of a serial number that we issue.
    pub const ISSUED_DIGITS: usize = 2 * ISSUED_BYTES;

    /// Draws a new serial number.
    pub fn random() -> Result<Self, CryptoError> {
        let mut bytes = [0; ISSUED_BYTES];
        rand::fill(&mut bytes).map_err(|_| CryptoError::RANDOM)?;
        // Positive, and without a leading zero: DER then has these bytes.
        bytes[0] = bytes[0] & 0x7f | 0x40;
        Ok(Self::from_bytes(&bytes))
    }

    /// Returns the serial number of a certificate (DER).
    pub fn in_certificate(certificate: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
        Some(Self::from_bytes(certificate.raw_serial()))
    }

    /// Returns the name of the certificate among revoked identities.
    pub fn identity(&self) -> String {
        format!("certificate:{self}")
    }

    /// Returns its bytes, the most significant first.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let digit =
            |at: usize| self.0.get(at..at + 2).and_then(|it| u8::from_str_radix(it, 16).ok());
        (0..self.0.len()).step_by(2).filter_map(digit).collect()
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        let first = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len());
        Self(bytes[first..].iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

impl FromStr for Serial {
    type Err = ParseSerialError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.replace(':', "").to_ascii_lowercase();
        let digits = digits.trim_start_matches('0');
        let is_valid = (1..=2 * MAX_BYTES).contains(&digits.len())
            && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let padding = if digits.len() % 2 == 1 { "0" } else { "" };
        match is_valid {
            true => Ok(Self(format!("{padding}{digits}"))),
            false => Err(ParseSerialError(text.chars().take(80).collect())),
        }
    }
}

impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_serial_number_is_read_as_openssl_prints_it() {
        let plain: Serial = "0a1b2c".parse().unwrap();
        for text in ["0A:1B:2C", "A1B2C", "00:0a:1b:2c"] {
            assert_eq!(text.parse().as_ref(), Ok(&plain), "{text}");
        }
        assert_eq!((plain.to_string(), plain.to_bytes()), ("0a1b2c".into(), vec![10, 27, 44]));
        for wrong in ["", "0", "xyz", "12 34", &"1".repeat(41), "ä"] {
            assert!(wrong.parse::<Serial>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_new_serial_number_has_its_bytes_in_der() {
        let serial = Serial::random().unwrap();
        assert_eq!(Serial::from_bytes(&serial.to_bytes()), serial);
        assert_eq!(serial.to_bytes().len(), ISSUED_BYTES);
        assert_eq!(serial.to_string().len(), Serial::ISSUED_DIGITS);
        assert_ne!(serial, Serial::random().unwrap());
    }
}
