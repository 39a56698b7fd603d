//! Checksums in templates: `sha256:<hex>` or `sha512:<hex>`.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256, Sha512};

/// The bytes do not have the expected checksum.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("checksum mismatch: the {bytes} have {actual}, expected {expected}")]
pub(crate) struct Mismatch {
    /// Describes the bytes that were summed.
    pub(crate) bytes: &'static str,
    actual: Checksum,
    expected: Checksum,
}

/// The text is not a checksum of a known algorithm.
#[derive(Debug)]
pub(crate) struct InvalidChecksum;

/// A checksum in hexadecimal digits, whose number determines the algorithm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Checksum(String);

/// The digits of SHA-256. The other checksums are those of SHA-512.
const SHA256_DIGITS: usize = 64;

/// Sums bytes incrementally.
#[derive(Clone, Debug)]
pub(crate) enum Sum {
    Sha256(Sha256),
    Sha512(Box<Sha512>),
}

impl Checksum {
    /// Starts a sum with the same algorithm.
    pub(crate) fn sum(&self) -> Sum {
        match self.0.len() {
            SHA256_DIGITS => Sum::Sha256(Sha256::new()),
            _ => Sum::Sha512(Box::default()),
        }
    }

    /// Returns the checksum with the SHA-256 `digest`.
    pub(crate) fn sha256(digest: [u8; 32]) -> Self {
        Self(hex(&digest))
    }

    /// Returns the digits.
    pub(crate) fn hex(&self) -> &str {
        &self.0
    }

    /// Returns the digits, if this is a SHA-256.
    pub(crate) fn as_sha256(&self) -> Option<&str> {
        (self.0.len() == SHA256_DIGITS).then_some(&self.0)
    }

    /// Compares this checksum with `sum`, taken over `bytes`.
    pub(crate) fn check(&self, sum: Sum, bytes: &'static str) -> Result<(), Mismatch> {
        self.require(sum.finish(), bytes)
    }

    /// Compares this checksum with the `actual` one of `bytes`.
    pub(crate) fn require(&self, actual: Self, bytes: &'static str) -> Result<(), Mismatch> {
        let expected = self.clone();
        if actual == expected { Ok(()) } else { Err(Mismatch { bytes, actual, expected }) }
    }
}

impl Sum {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(sum) => sum.update(bytes),
            Self::Sha512(sum) => sum.update(bytes),
        }
    }

    /// Returns the checksum of all bytes.
    pub(crate) fn finish(self) -> Checksum {
        match self {
            Self::Sha256(sum) => Checksum(hex(&sum.finalize())),
            Self::Sha512(sum) => Checksum(hex(&sum.finalize())),
        }
    }
}

fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let algorithm = if self.0.len() == SHA256_DIGITS { "sha256" } else { "sha512" };
        write!(f, "{algorithm}:{}", self.0)
    }
}

impl FromStr for Checksum {
    type Err = InvalidChecksum;

    /// Parses `sha256:<hex>`, `sha512:<hex>`, or plain hexadecimal, whose length determines the algorithm.
    fn from_str(text: &str) -> Result<Self, InvalidChecksum> {
        let (name, hex) = text.split_once(':').unwrap_or(("", text));
        let has_length =
            matches!((name, hex.len()), ("sha256" | "", SHA256_DIGITS) | ("sha512" | "", 128));
        let valid = has_length && hex.bytes().all(|digit| digit.is_ascii_hexdigit());
        valid.then(|| Self(hex.to_ascii_lowercase())).ok_or(InvalidChecksum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // FIPS 180-4's example message `abc`.
    const ABC_256: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    const ABC_512: &str = "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a\
                           2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f";

    #[test]
    fn the_example_of_fips_180_4_is_accepted_with_both_algorithms() {
        for text in [
            ABC_256.to_owned(),
            format!("sha256:{ABC_256}"),
            format!("sha512:{ABC_512}"),
            ABC_256.to_uppercase(),
        ] {
            let expected: Checksum = text.parse().unwrap();
            let mut sum = expected.sum();
            sum.update(b"ab");
            sum.update(b"c");
            assert_eq!(expected.check(sum, "bytes downloaded"), Ok(()), "{text}");
        }
    }

    #[test]
    fn a_mismatch_names_both_sums_and_the_bytes() {
        let expected: Checksum = "0".repeat(64).parse().unwrap();
        let mut sum = expected.sum();
        sum.update(b"abc");
        let mismatch = expected.check(sum, "bytes downloaded").unwrap_err().to_string();
        assert_eq!(
            mismatch,
            format!(
                "checksum mismatch: the bytes downloaded have sha256:{ABC_256}, expected sha256:{}",
                "0".repeat(64)
            )
        );
    }

    #[test]
    fn texts_that_are_no_checksum_are_refused() {
        let long = "a".repeat(63);
        for text in [
            "",
            "sha256:",
            "md5:d41d8cd98f00b204e9800998ecf8427e",
            long.as_str(),
            &format!("sha256:{}g", long),
        ] {
            assert!(text.parse::<Checksum>().is_err(), "{text}");
        }
    }
}
