//! Values that no log shows, and the key from which the site's other keys are derived.

use std::fmt;

use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};
use aws_lc_rs::rand;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

pub use crate::crypto_error::CryptoError;
use crate::edge::EdgeName;

/// A value whose `Debug` shows nothing. There is no `Display`: the value is read by [`expose`](Self::expose) alone.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret<T>(T);

impl<T> Secret<T> {
    /// Wraps `value`.
    pub fn new(value: T) -> Self {
        Self(value)
    }

    /// The value, to be used and not shown.
    pub fn expose(&self) -> &T {
        &self.0
    }
}

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// The length of every key in bytes.
pub const KEY_BYTES: usize = 32;

/// The site's one symmetric key, or that of an edge in its place. Every other key of the process is derived from it by a label, so
/// replicas have the same keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteKey {
    bytes: Secret<[u8; KEY_BYTES]>,
    /// The edge that has this key; none if it is the site's.
    edge: Option<EdgeName>,
}

impl SiteKey {
    /// The key with these bytes.
    pub fn new(bytes: [u8; KEY_BYTES]) -> Self {
        Self { bytes: Secret::new(bytes), edge: None }
    }

    /// The key of `edge` with these bytes.
    pub(crate) fn with_edge(edge: EdgeName, bytes: [u8; KEY_BYTES]) -> Self {
        Self { edge: Some(edge), ..Self::new(bytes) }
    }

    /// Derives the key of `edge`. From it neither this key nor that of another edge can be computed.
    pub(crate) fn for_edge(&self, edge: &EdgeName) -> Result<Self, CryptoError> {
        let bytes = self.derive(&format!("edge {edge}"))?;
        Ok(Self::with_edge(edge.clone(), *bytes.expose()))
    }

    /// Returns the edge that has this key; none if it is the site's.
    pub fn edge(&self) -> Option<&EdgeName> {
        self.edge.as_ref()
    }

    /// Draws a new key.
    pub fn random() -> Result<Self, CryptoError> {
        let mut bytes = [0; KEY_BYTES];
        rand::fill(&mut bytes).map_err(|_| CryptoError::RANDOM)?;
        Ok(Self::new(bytes))
    }

    /// Its bytes, for the file in which it is stored.
    pub fn expose(&self) -> &[u8; KEY_BYTES] {
        self.bytes.expose()
    }

    /// Derives the key for `label` (HKDF-SHA-256, RFC 5869, without salt). Keys of different labels are independent.
    pub fn derive(&self, label: &str) -> Result<Secret<[u8; KEY_BYTES]>, CryptoError> {
        let extracted = Salt::new(HKDF_SHA256, &[]).extract(self.expose());
        let mut bytes = [0; KEY_BYTES];
        let info = [label.as_bytes()];
        let expanded = extracted.expand(&info, Length);
        expanded.and_then(|expanded| expanded.fill(&mut bytes)).map_err(|_| CryptoError::KEY)?;
        Ok(Secret::new(bytes))
    }

    /// Returns the content of the file `edge.key` for `edge`, whose key is derived from this one.
    pub fn edge_file(&self, edge: &EdgeName) -> Result<Secret<String>, CryptoError> {
        let key = URL_SAFE_NO_PAD.encode(self.for_edge(edge)?.expose());
        Ok(Secret::new(format!("{edge}.{key}\n")))
    }

    /// Returns an id of this key, which nothing else is derived with: it shows of which site key the keys of edges are.
    pub fn id_for_edges(&self) -> Result<String, CryptoError> {
        let id = self.derive("id of the key of edges")?;
        Ok(id.expose().iter().take(8).map(|byte| format!("{byte:02x}")).collect())
    }

    /// Reads the content of the file `edge.key`; none if it is damaged.
    pub(crate) fn from_edge_file(text: &str) -> Option<Self> {
        let (edge, key) = text.trim_end().split_once('.')?;
        let key: [u8; KEY_BYTES] = URL_SAFE_NO_PAD.decode(key).ok()?.try_into().ok()?;
        Some(Self::with_edge(edge.parse().ok()?, key))
    }
}

/// The length of a derived key.
struct Length;

impl KeyType for Length {
    fn len(&self) -> usize {
        KEY_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_derived_key_depends_on_label_and_site() {
        let (site, other) = (SiteKey::new([1; KEY_BYTES]), SiteKey::new([2; KEY_BYTES]));
        let key = site.derive("boot").unwrap();
        assert_eq!(key, SiteKey::new([1; KEY_BYTES]).derive("boot").unwrap());
        assert_ne!(key, site.derive("imds").unwrap());
        assert_ne!(key, other.derive("boot").unwrap());
        assert_ne!(key.expose(), site.expose());
    }

    #[test]
    fn debug_shows_no_secret() {
        let shown = format!("{:?} {:?}", Secret::new("hunter2"), SiteKey::new([7; KEY_BYTES]));
        assert!(!shown.contains("hunter2") && !shown.contains('7'), "{shown}");
    }
}
