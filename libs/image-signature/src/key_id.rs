//! Ids of keys.

use std::fmt;

/// Bytes of the algorithm, before the id.
const ALGORITHM_BYTES: usize = 2;

/// The id of a key, in the spelling of minisign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(u64);

impl KeyId {
    /// Reads the id behind the algorithm of a key or signature.
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        let id = bytes.get(ALGORITHM_BYTES..)?.first_chunk()?;
        Some(Self(u64::from_le_bytes(*id)))
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016X}", self.0)
    }
}
