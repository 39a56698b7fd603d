//! Encryption of stored secrets with the newest key of the site, bound to their owner. What an older one encrypted can be opened while
//! that one is accepted.
//!
//! ```text
//! nonce (12) ‖ AES-256-GCM( secret )       associated data: the owner's name
//! ```

use std::sync::{Mutex, PoisonError};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::rand;

use crate::secret::{CryptoError, Secret, SiteKey};
use crate::site_keys::{Derived, SiteKeys};

/// Seals and opens secrets of one kind.
#[derive(Debug)]
pub struct Seal(Derived<KeySeal>);

/// A [`Seal`] with one key.
#[derive(Debug)]
pub(crate) struct KeySeal {
    key: LessSafeKey,
    /// Random nonces that are not used yet. Eight are made at once: to make one takes longer than to seal a token.
    nonces: Mutex<Vec<[u8; NONCE_LEN]>>,
}

/// The sealed secret was made by another site or for another owner, or is damaged.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the sealed secret of {0} cannot be opened with this site's key")]
pub struct UnsealError(String);

impl Seal {
    /// Derives the keys for secrets of this `kind` from those of `site`.
    pub fn new(site: impl Into<SiteKeys>, kind: &'static str) -> Result<Self, CryptoError> {
        Derived::new(site, |site| KeySeal::new(site, kind)).map(Self)
    }

    /// Encrypts `secret` of `owner` with the newest key.
    pub fn seal(&self, owner: &str, secret: &[u8]) -> Result<Vec<u8>, CryptoError> {
        self.0.get().newest.seal(owner, secret)
    }

    /// Decrypts the secret of `owner` in `sealed`.
    pub fn open(&self, owner: &str, sealed: &[u8]) -> Result<Secret<Vec<u8>>, UnsealError> {
        let keys = self.0.get();
        let opened = keys.all().find_map(|key| key.open(owner, sealed).ok());
        opened.ok_or_else(|| UnsealError(owner.to_owned()))
    }

    /// True if the newest key opens `sealed` of `owner`.
    pub fn is_newest(&self, owner: &str, sealed: &[u8]) -> bool {
        self.0.get().newest.open(owner, sealed).is_ok()
    }
}

impl KeySeal {
    pub(crate) fn new(site: &SiteKey, kind: &str) -> Result<Self, CryptoError> {
        let key = site.derive(&format!("seal {kind}"))?;
        let key = UnboundKey::new(&AES_256_GCM, key.expose()).map_err(|_| CryptoError::KEY)?;
        Ok(Self { key: LessSafeKey::new(key), nonces: Mutex::default() })
    }

    pub(crate) fn seal(&self, owner: &str, secret: &[u8]) -> Result<Vec<u8>, CryptoError> {
        let (nonce, owner) = (self.nonce()?, Aad::from(owner.as_bytes()));
        let mut sealed = Vec::with_capacity(NONCE_LEN + secret.len() + AES_256_GCM.tag_len());
        sealed.extend(nonce);
        sealed.extend(secret);
        let (_, text) = sealed.split_at_mut(NONCE_LEN);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = self.key.seal_in_place_separate_tag(nonce, owner, text);
        sealed.extend(tag.map_err(|_| CryptoError::KEY)?.as_ref());
        Ok(sealed)
    }

    fn nonce(&self) -> Result<[u8; NONCE_LEN], CryptoError> {
        let mut unused = self.nonces.lock().unwrap_or_else(PoisonError::into_inner);
        if unused.is_empty() {
            let mut made = [[0; NONCE_LEN]; 8];
            rand::fill(made.as_flattened_mut()).map_err(|_| CryptoError::RANDOM)?;
            unused.extend(made);
        }
        unused.pop().ok_or(CryptoError::RANDOM)
    }

    pub(crate) fn open(&self, owner: &str, sealed: &[u8]) -> Result<Secret<Vec<u8>>, UnsealError> {
        let broken = || UnsealError(owner.to_owned());
        let (nonce, rest) = sealed.split_first_chunk::<NONCE_LEN>().ok_or_else(broken)?;
        let (nonce, mut rest) = (Nonce::from(nonce), rest.to_vec());
        let plain = self.key.open_in_place(nonce, Aad::from(owner.as_bytes()), &mut rest);
        Ok(Secret::new(plain.map_err(|_| broken())?.to_vec()))
    }
}

/// The length of a key's id in bytes.
const KEY_ID_BYTES: usize = 4;

/// Seals with the newest key of the site, and opens what any of them sealed; the key's id is in clear.
///
/// ```text
/// key id (4) ‖ nonce (12) ‖ AES-256-GCM( secret )
/// ```
#[derive(Debug)]
pub struct SealRing(Derived<([u8; KEY_ID_BYTES], KeySeal)>);

impl SealRing {
    /// Derives the keys for secrets of this `kind` from those of `site`.
    pub fn new(site: impl Into<SiteKeys>, kind: &'static str) -> Result<Self, CryptoError> {
        let key = move |site: &SiteKey| {
            let id = site.derive(&format!("seal {kind} key id"))?;
            let id = id.expose().first_chunk().copied().ok_or(CryptoError::KEY)?;
            Ok((id, KeySeal::new(site, kind)?))
        };
        Derived::new(site, key).map(Self)
    }

    /// Encrypts `secret` of `owner` with the newest key.
    pub fn seal(&self, owner: &str, secret: &[u8]) -> Result<Vec<u8>, CryptoError> {
        let keys = self.0.get();
        let (id, seal) = &keys.newest;
        Ok([&id[..], &seal.seal(owner, secret)?].concat())
    }

    /// Decrypts the secret of `owner` in `sealed`.
    pub fn open(&self, owner: &str, sealed: &[u8]) -> Result<Secret<Vec<u8>>, UnsealError> {
        let broken = || UnsealError(owner.to_owned());
        let (id, sealed) = sealed.split_first_chunk().ok_or_else(broken)?;
        let keys = self.0.get();
        let (_, seal) = keys.all().find(|(key, _)| key == id).ok_or_else(broken)?;
        seal.open(owner, sealed)
    }

    /// True if the newest key sealed `sealed`.
    pub fn is_newest(&self, sealed: &[u8]) -> bool {
        sealed.starts_with(&self.0.get().newest.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_opened_for_its_owner_by_its_site_and_kind_alone() {
        let (site, other) = (SiteKey::new([1; 32]), SiteKey::new([2; 32]));
        let seal = Seal::new(&site, "bmc").unwrap();
        let sealed = seal.seal("a", b"hunter2").unwrap();
        assert_eq!(seal.open("a", &sealed).unwrap().expose(), b"hunter2");
        assert!(seal.open("b", &sealed).is_err());
        assert!(Seal::new(&site, "imds").unwrap().open("a", &sealed).is_err());
        assert!(Seal::new(&other, "bmc").unwrap().open("a", &sealed).is_err());
        assert!(seal.open("a", b"short").is_err());
        assert!(!sealed.windows(7).any(|part| part == b"hunter2"));
    }

    #[test]
    fn a_ring_opens_what_its_older_keys_sealed_and_seals_with_the_newest() {
        let (old, new) = (SiteKey::new([1; 32]), SiteKey::new([2; 32]));
        let both = SiteKeys::new(new.clone(), vec![old.clone()]);
        let before = SealRing::new(&old, "record").unwrap();
        let during = SealRing::new(&both, "record").unwrap();
        let after = SealRing::new(&new, "record").unwrap();
        let sealed = before.seal("a", b"hunter2").unwrap();
        assert_eq!(during.open("a", &sealed).unwrap().expose(), b"hunter2");
        assert!(during.open("b", &sealed).is_err() && after.open("a", &sealed).is_err());
        assert!(before.is_newest(&sealed) && !during.is_newest(&sealed));
        let sealed = during.seal("a", b"hunter2").unwrap();
        assert_eq!(after.open("a", &sealed).unwrap().expose(), b"hunter2");
        assert!(during.is_newest(&sealed) && before.open("a", &sealed).is_err());
        assert!(after.open("a", b"abc").is_err());
    }

    #[test]
    fn a_seal_follows_a_rotation() {
        let (old, new) = (SiteKey::new([1; 32]), SiteKey::new([2; 32]));
        let keys = SiteKeys::from(&old);
        let seal = Seal::new(&keys, "bmc").unwrap();
        let sealed = seal.seal("a", b"hunter2").unwrap();
        assert!(seal.is_newest("a", &sealed));
        keys.set(new.clone(), vec![old]);
        assert_eq!(seal.open("a", &sealed).unwrap().expose(), b"hunter2");
        assert!(!seal.is_newest("a", &sealed));
        let again = seal.seal("a", b"hunter2").unwrap();
        keys.set(new, vec![]);
        assert!(seal.open("a", &sealed).is_err() && seal.open("a", &again).is_ok());
    }
}
