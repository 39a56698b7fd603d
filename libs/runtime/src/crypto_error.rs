//! The failure of the cryptographic library.

/// No randomness, or no such derivation: the process cannot go on safely.
#[derive(Debug, thiserror::Error)]
#[error("the cryptographic library refused: {0}")]
pub struct CryptoError(&'static str);

impl CryptoError {
    pub(crate) const RANDOM: Self = Self("random bytes");
    pub(crate) const KEY: Self = Self("a key or its use");
}
