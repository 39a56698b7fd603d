//! SHA-256 digests.

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::zeros;

/// A SHA-256 digest. It is displayed as hexadecimal digits in lower case.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// Computes the digest of `content`.
    pub fn of(content: &[u8]) -> Self {
        Self(Sha256::digest(content).into())
    }

    /// Returns the bytes for a message.
    pub(crate) fn to_vec(self) -> Vec<u8> {
        self.0.to_vec()
    }

    /// Computes the digest of `bytes` zeros.
    pub(crate) fn of_zeros(bytes: u64) -> Self {
        let mut sum = Sum::default();
        sum.update_zeros(bytes);
        sum.finish()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

/// A digest that is being computed.
#[derive(Clone, Default)]
pub(crate) struct Sum(Sha256);

impl Sum {
    /// Appends `content`.
    pub(crate) fn update(&mut self, content: &[u8]) {
        self.0.update(content);
    }

    /// Appends `bytes` zeros.
    pub(crate) fn update_zeros(&mut self, bytes: u64) {
        zeros::chunks(bytes).for_each(|chunk| self.0.update(chunk));
    }

    /// Returns the digest of all that was appended.
    pub(crate) fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_displayed_in_hexadecimal() {
        let of_abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"; // FIPS 180-2 B.1
        assert_eq!(Digest::of(b"abc").to_string(), of_abc);
    }

    #[test]
    fn zeros_are_hashed_like_their_bytes() {
        for bytes in [0, 1, 65_535, 65_536, 200_000] {
            assert_eq!(Digest::of_zeros(bytes as u64), Digest::of(&vec![0; bytes]), "{bytes}");
        }
    }
}
