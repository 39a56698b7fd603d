//! Edges: processes that serve machines in a less trusted place. They have no site key, but a key that is derived from it.
//!
//! ```text
//! site key ─HKDF, name of the edge─▶ key of the edge ─HKDF, use─▶ its keys for boot tokens, session tokens, caches, …
//! ```
//!
//! The name is the serial number and the end of the edge's certificate. It is in what the edge makes for others, so that a process with
//! the site's key derives the same key. What an edge made is refused once its certificate has ended or is revoked.
//!
//! ```text
//! 4a0b…-1800000000                   the name: serial number, end in seconds since 1970
//! 4a0b…-1800000000.<base64url>       the file `edge.key`: name and key
//! ```

use std::fmt;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::serial::Serial;

/// The name of an edge.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EdgeName {
    certificate: Serial,
    /// In seconds since 1970.
    ends: u64,
}

/// A text that is no name of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "it is not the name of an edge: SERIAL-END, the serial number of its certificate and its end in seconds"
)]
pub struct ParseEdgeNameError;

impl EdgeName {
    /// Returns the name of the edge whose certificate has this serial number, and ends then.
    pub fn new(certificate: Serial, ends: SystemTime) -> Self {
        let ends = ends.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Self { certificate, ends }
    }

    /// Returns the serial number of its certificate.
    pub fn certificate(&self) -> &Serial {
        &self.certificate
    }

    /// True if its certificate has ended at `now`.
    pub fn has_ended(&self, now: SystemTime) -> bool {
        now.duration_since(UNIX_EPOCH).is_ok_and(|now| now.as_secs() >= self.ends)
    }
}

impl fmt::Display for EdgeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.certificate, self.ends)
    }
}

impl FromStr for EdgeName {
    type Err = ParseEdgeNameError;

    /// Reads the one spelling that is formatted: another one would name another key.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (certificate, ends) = text.split_once('-').ok_or(ParseEdgeNameError)?;
        let certificate = certificate.parse().map_err(|_| ParseEdgeNameError)?;
        let ends = ends.parse().map_err(|_| ParseEdgeNameError)?;
        let name = Self { certificate, ends };
        if name.to_string() == text { Ok(name) } else { Err(ParseEdgeNameError) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::secret::{KEY_BYTES, SiteKey};

    fn edge(serial: &str, ends: u64) -> EdgeName {
        EdgeName::new(serial.parse().unwrap(), UNIX_EPOCH + Duration::from_secs(ends))
    }

    #[test]
    fn a_name_has_one_spelling() {
        let name = edge("4a0b", 1_800_000_000);
        assert_eq!("4a0b-1800000000".parse().as_ref(), Ok(&name));
        for wrong in ["", "4a0b", "4a0b-", "4A0B-1", "4a0b-01", "04a0b-1", "4a0b-1-2", "4a0b--1"] {
            assert_eq!(wrong.parse::<EdgeName>(), Err(ParseEdgeNameError), "{wrong}");
        }
    }

    #[test]
    fn each_edge_has_a_key_of_its_own_that_its_file_contains() {
        let site = SiteKey::new([1; KEY_BYTES]);
        let (ours, theirs) = (edge("4a0b", 1_800_000_000), edge("4a0c", 1_800_000_000));
        let key = site.for_edge(&ours).unwrap();
        assert_eq!(key.edge(), Some(&ours));
        for other in [site.for_edge(&theirs), site.for_edge(&edge("4a0b", 1_800_000_001))] {
            assert_ne!(key.expose(), other.unwrap().expose());
        }
        assert_ne!(key.derive("seal feeds").unwrap(), site.derive("seal feeds").unwrap());
        let file = site.edge_file(&ours).unwrap();
        assert_eq!(SiteKey::from_edge_file(file.expose()), Some(key));
        let id = |byte| SiteKey::new([byte; KEY_BYTES]).id_for_edges().unwrap();
        assert!(id(1) != id(2) && id(1).len() == 16);
        for wrong in ["", "4a0b-1800000000", "4a0b-1800000000.AA", ".AA"] {
            assert_eq!(SiteKey::from_edge_file(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn an_edge_ends_with_its_certificate() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        assert!(!edge("4a0b", 100).has_ended(at(99)) && edge("4a0b", 100).has_ended(at(100)));
    }
}
