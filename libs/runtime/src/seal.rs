//! Encryption of stored secrets with a key of the site, bound to their owner.
//!
//! ```text
//! nonce (12) ‖ AES-256-GCM( secret )       associated data: the owner's name
//! ```

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};

use crate::secret::{CryptoError, Secret, SiteKey};

/// Seals and opens secrets of one kind.
#[derive(Debug)]
pub struct Seal {
    key: RandomizedNonceKey,
}

/// The sealed secret was made by another site or for another owner, or is damaged.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the sealed secret of {0} cannot be opened with this site's key")]
pub struct UnsealError(String);

impl Seal {
    /// Derives the key for secrets of this `kind` from the key of `site`.
    pub fn new(site: &SiteKey, kind: &str) -> Result<Self, CryptoError> {
        let key = site.derive(&format!("seal {kind}"))?;
        let key =
            RandomizedNonceKey::new(&AES_256_GCM, key.expose()).map_err(|_| CryptoError::KEY)?;
        Ok(Self { key })
    }

    /// Encrypts `secret` of `owner`.
    pub fn seal(&self, owner: &str, secret: &[u8]) -> Result<Vec<u8>, CryptoError> {
        let mut sealed = secret.to_vec();
        let nonce = self.key.seal_in_place_append_tag(Aad::from(owner.as_bytes()), &mut sealed);
        let nonce = nonce.map_err(|_| CryptoError::KEY)?;
        Ok([&nonce.as_ref()[..], &sealed].concat())
    }

    /// Decrypts the secret of `owner` in `sealed`.
    pub fn open(&self, owner: &str, sealed: &[u8]) -> Result<Secret<Vec<u8>>, UnsealError> {
        let broken = || UnsealError(owner.to_owned());
        let (nonce, rest) = sealed.split_first_chunk::<NONCE_LEN>().ok_or_else(broken)?;
        let (nonce, mut rest) = (Nonce::from(nonce), rest.to_vec());
        let plain = self.key.open_in_place(nonce, Aad::from(owner.as_bytes()), &mut rest);
        Ok(Secret::new(plain.map_err(|_| broken())?.to_vec()))
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
}
