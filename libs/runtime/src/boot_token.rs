//! Tokens in boot scripts, which prove for which machine a script was rendered.
//!
//! A token is a nonce sealed with the site's key over purpose, hardware, source address and expiry, so that nothing has to be
//! stored to serve one, and any process with the key can open it. It is written in URL-safe letters:
//!
//! ```text
//! base64url( nonce (12) ‖ AES-256-GCM( expiry, u64 ‖ hardware id (16) ‖ address (4 or 16) ) )   purpose: associated data
//! ```
//!
//! The nonce identifies the token: a service that accepts a token once stores its nonce.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, MAX_TAG_LEN, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::rand;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tinwright::HardwareId;

use crate::secret::{CryptoError, SiteKey};

/// The use of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Downloading the files of one boot.
    Files,
    /// Getting a certificate for the machine's worker, once.
    Identity,
}

/// Nonces drawn at a time: one call of the generator takes as long as the octets of many.
const NONCES_PER_DRAW: usize = 64;

/// The size of the longest token before it is encoded.
const MAX_TOKEN_BYTES: usize = NONCE_LEN + 8 + 16 + 16 + MAX_TAG_LEN;

/// The validity of a token.
pub const LIFETIME: Duration = Duration::from_secs(15 * 60);

/// The content of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claims {
    /// The machine it was given to.
    pub hardware: HardwareId,
    /// The address it was given to.
    pub address: IpAddr,
    /// The end of its validity, in seconds since 1970.
    pub expiry: u64,
}

/// A valid token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifiedToken {
    /// Its content.
    pub claims: Claims,
    /// Its nonce, which no other token has.
    pub nonce: [u8; NONCE_LEN],
}

/// The token is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidToken {
    /// It was not made by this site, or for another purpose.
    #[error("it is no token of this site for this purpose")]
    Foreign,
    /// Its validity has ended.
    #[error("it has expired")]
    Expired,
}

/// Makes and verifies tokens.
#[derive(Debug)]
pub struct BootTokens {
    key: LessSafeKey,
    /// Random numbers for the next tokens. They are no secrets: every token begins with one.
    unused_nonces: Mutex<Vec<[u8; NONCE_LEN]>>,
}

impl BootTokens {
    /// Derives the key for tokens from the key of `site`.
    pub fn new(site: &SiteKey) -> Result<Self, CryptoError> {
        let key = site.derive("boot token")?;
        let key = UnboundKey::new(&AES_256_GCM, key.expose()).map_err(|_| CryptoError::KEY)?;
        Ok(Self { key: LessSafeKey::new(key), unused_nonces: Mutex::default() })
    }

    /// Makes a token for `hardware` at `address`, valid for [`LIFETIME`] from `now`.
    pub fn mint(
        &self,
        purpose: Purpose,
        hardware: HardwareId,
        address: IpAddr,
        now: SystemTime,
    ) -> Result<String, CryptoError> {
        let expiry = seconds(now).saturating_add(LIFETIME.as_secs());
        let (claims, nonce) = (Claims { hardware, address, expiry }, self.nonce()?);
        let mut raw = Vec::with_capacity(MAX_TOKEN_BYTES);
        raw.extend_from_slice(&nonce);
        claims.encode(&mut raw);
        let unique = Nonce::assume_unique_for_key(nonce);
        let (_nonce, plain) = raw.split_at_mut(NONCE_LEN);
        let tag = self.key.seal_in_place_separate_tag(unique, purpose.data(), plain);
        raw.extend_from_slice(tag.map_err(|_| CryptoError::KEY)?.as_ref());
        Ok(URL_SAFE_NO_PAD.encode(raw))
    }

    /// Returns a nonce that no other token has.
    fn nonce(&self) -> Result<[u8; NONCE_LEN], CryptoError> {
        let mut unused_nonces = self.unused_nonces.lock().unwrap_or_else(PoisonError::into_inner);
        if unused_nonces.is_empty() {
            let mut fresh = [[0; NONCE_LEN]; NONCES_PER_DRAW];
            rand::fill(fresh.as_flattened_mut()).map_err(|_| CryptoError::RANDOM)?;
            unused_nonces.extend(fresh);
        }
        unused_nonces.pop().ok_or(CryptoError::RANDOM)
    }

    /// Returns the content of `token` if it is valid for `purpose` at `now`.
    pub fn open(
        &self,
        purpose: Purpose,
        token: &str,
        now: SystemTime,
    ) -> Result<VerifiedToken, InvalidToken> {
        let raw = URL_SAFE_NO_PAD.decode(token).map_err(|_| InvalidToken::Foreign)?;
        let (nonce, sealed) = raw.split_first_chunk::<NONCE_LEN>().ok_or(InvalidToken::Foreign)?;
        let (unique, mut sealed) = (Nonce::assume_unique_for_key(*nonce), sealed.to_vec());
        let plain = self.key.open_in_place(unique, purpose.data(), &mut sealed);
        let claims = Claims::decode(plain.map_err(|_| InvalidToken::Foreign)?)
            .ok_or(InvalidToken::Foreign)?;
        match claims.expiry > seconds(now) {
            true => Ok(VerifiedToken { claims, nonce: *nonce }),
            false => Err(InvalidToken::Expired),
        }
    }
}

impl Purpose {
    fn data(self) -> Aad<&'static [u8]> {
        Aad::from(match self {
            Self::Files => b"files",
            Self::Identity => b"identity",
        })
    }
}

impl Claims {
    fn encode(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.expiry.to_be_bytes());
        to.extend_from_slice(&self.hardware.to_bytes());
        match self.address {
            IpAddr::V4(address) => to.extend_from_slice(&address.octets()),
            IpAddr::V6(address) => to.extend_from_slice(&address.octets()),
        }
    }

    fn decode(plain: &[u8]) -> Option<Self> {
        let (expiry, rest) = plain.split_first_chunk()?;
        let (hardware, address) = rest.split_first_chunk()?;
        let v4 = || <[u8; 4]>::try_from(address).ok().map(IpAddr::from);
        let v6 = || <[u8; 16]>::try_from(address).ok().map(IpAddr::from);
        Some(Self {
            hardware: HardwareId::from_bytes(*hardware),
            address: v4().or_else(v6)?,
            expiry: u64::from_be_bytes(*expiry),
        })
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn tokens(site: u8) -> BootTokens {
        BootTokens::new(&SiteKey::new([site; 32])).unwrap()
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_800_000_000 + seconds)
    }

    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));

    #[test]
    fn a_token_names_its_machine_and_address_until_it_expires() {
        let (tokens, hardware) = (tokens(1), HardwareId::new());
        let token = tokens.mint(Purpose::Identity, hardware, ADDRESS, at(0)).unwrap();
        let opened = tokens.open(Purpose::Identity, &token, at(899)).unwrap();
        assert_eq!((opened.claims.hardware, opened.claims.address), (hardware, ADDRESS));
        assert_eq!(tokens.open(Purpose::Identity, &token, at(900)), Err(InvalidToken::Expired));
        let there = "2001:db8::7".parse().unwrap();
        let token = tokens.mint(Purpose::Files, hardware, there, at(0)).unwrap();
        assert_eq!(tokens.open(Purpose::Files, &token, at(0)).unwrap().claims.address, there);
        assert!(token.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_')));
    }

    #[test]
    fn a_token_of_another_purpose_or_site_or_with_a_changed_letter_is_invalid() {
        let token = tokens(1).mint(Purpose::Files, HardwareId::new(), ADDRESS, at(0)).unwrap();
        assert_eq!(tokens(1).open(Purpose::Identity, &token, at(1)), Err(InvalidToken::Foreign));
        assert_eq!(tokens(2).open(Purpose::Files, &token, at(1)), Err(InvalidToken::Foreign));
        for n in 0..token.len() {
            let mut changed = token.clone().into_bytes();
            changed[n] = if changed[n] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(
                tokens(1).open(Purpose::Files, &changed, at(1)),
                Err(InvalidToken::Foreign),
                "{n}"
            );
        }
        assert_eq!(tokens(1).open(Purpose::Files, "", at(1)), Err(InvalidToken::Foreign));
    }

    #[test]
    fn no_two_tokens_are_alike() {
        let (tokens, hardware) = (tokens(1), HardwareId::new());
        let mint = || tokens.mint(Purpose::Files, hardware, ADDRESS, at(0)).unwrap();
        assert_ne!(mint(), mint());
        let nonce = |token: String| tokens.open(Purpose::Files, &token, at(0)).unwrap().nonce;
        let many: HashSet<_> = (0..3 * NONCES_PER_DRAW).map(|_| nonce(mint())).collect();
        assert_eq!(many.len(), 3 * NONCES_PER_DRAW);
    }
}
