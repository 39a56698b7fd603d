//! What a boot script carries to show for which machine it was given.
//!
//! A token is a nonce sealed with the site's key over purpose, hardware, source address and expiry, so that nothing has to be
//! stored to serve one, and any process with the key can open it. It is written in URL-safe letters:
//!
//! ```text
//! base64url( nonce (12) ‖ AES-256-GCM( expiry, u64 ‖ hardware id (16) ‖ address ) )     purpose: associated data
//! ```
//!
//! The nonce names the token: who has to see that one is used once keeps it.

use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::rand;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tinwright::HardwareId;

use crate::secret::{Refused, SiteKey};

/// What a token opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The files of one boot.
    Files,
    /// A certificate for the machine's worker, once.
    Identity,
}

/// How long a token is good.
pub const LIFETIME: Duration = Duration::from_secs(15 * 60);

/// What a token says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claims {
    /// The machine it was given to.
    pub hardware: HardwareId,
    /// The address it was given to.
    pub address: IpAddr,
    /// When it ends, in seconds since 1970.
    pub expiry: u64,
}

/// What a token said that is good, and its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// What it says.
    pub claims: Claims,
    /// Unlike any other token's.
    pub nonce: [u8; NONCE_LEN],
}

/// The token opens nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Bad {
    /// Not one of this site's, or for another purpose.
    #[error("it is no token of this site for this purpose")]
    Foreign,
    /// Its time is over.
    #[error("it has expired")]
    Expired,
}

/// Makes and opens tokens.
#[derive(Debug)]
pub struct Tokens {
    key: LessSafeKey,
}

impl Tokens {
    /// With the key that `site` has for them.
    pub fn new(site: &SiteKey) -> Result<Self, Refused> {
        let key = site.derive("boot token")?;
        let key = UnboundKey::new(&AES_256_GCM, key.expose()).map_err(|_| Refused::KEY)?;
        Ok(Self { key: LessSafeKey::new(key) })
    }

    /// A fresh token for `hardware` at `address`, good for [`LIFETIME`] from `now`.
    pub fn mint(
        &self,
        purpose: Purpose,
        hardware: HardwareId,
        address: IpAddr,
        now: SystemTime,
    ) -> Result<String, Refused> {
        let [token] = self.mint_each([purpose], hardware, address, now)?;
        Ok(token)
    }

    /// One for each of `purposes`. Their nonces are drawn at once: a call of the generator costs more than its octets.
    pub fn mint_each<const N: usize>(
        &self,
        purposes: [Purpose; N],
        hardware: HardwareId,
        address: IpAddr,
        now: SystemTime,
    ) -> Result<[String; N], Refused> {
        let mut nonces = [[0; NONCE_LEN]; N];
        rand::fill(nonces.as_flattened_mut()).map_err(|_| Refused::RANDOM)?;
        let expiry = seconds(now).saturating_add(LIFETIME.as_secs());
        let claims = Claims { hardware, address, expiry }.encode();
        let mut tokens = [const { String::new() }; N];
        for ((token, purpose), nonce) in tokens.iter_mut().zip(purposes).zip(nonces) {
            *token = self.sealed(purpose, nonce, &claims)?;
        }
        Ok(tokens)
    }

    fn sealed(
        &self,
        purpose: Purpose,
        nonce: [u8; NONCE_LEN],
        claims: &[u8],
    ) -> Result<String, Refused> {
        let mut raw = Vec::with_capacity(NONCE_LEN + claims.len() + AES_256_GCM.tag_len());
        raw.extend_from_slice(&nonce);
        raw.extend_from_slice(claims);
        let unique = Nonce::assume_unique_for_key(nonce);
        let (_nonce, plain) = raw.split_at_mut(NONCE_LEN);
        let tag = self.key.seal_in_place_separate_tag(unique, purpose.data(), plain);
        raw.extend_from_slice(tag.map_err(|_| Refused::KEY)?.as_ref());
        Ok(URL_SAFE_NO_PAD.encode(raw))
    }

    /// What `token` says, if it is good for `purpose` at `now`.
    pub fn open(&self, purpose: Purpose, token: &str, now: SystemTime) -> Result<Opened, Bad> {
        let raw = URL_SAFE_NO_PAD.decode(token).map_err(|_| Bad::Foreign)?;
        let (nonce, sealed) = raw.split_first_chunk::<NONCE_LEN>().ok_or(Bad::Foreign)?;
        let (unique, mut sealed) = (Nonce::assume_unique_for_key(*nonce), sealed.to_vec());
        let plain = self.key.open_in_place(unique, purpose.data(), &mut sealed);
        let claims = Claims::decode(plain.map_err(|_| Bad::Foreign)?).ok_or(Bad::Foreign)?;
        match claims.expiry > seconds(now) {
            true => Ok(Opened { claims, nonce: *nonce }),
            false => Err(Bad::Expired),
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
    fn encode(&self) -> Vec<u8> {
        let address = self.address.to_string();
        [&self.expiry.to_be_bytes()[..], &self.hardware.to_bytes(), address.as_bytes()].concat()
    }

    fn decode(plain: &[u8]) -> Option<Self> {
        let (expiry, rest) = plain.split_first_chunk()?;
        let (hardware, address) = rest.split_first_chunk()?;
        Some(Self {
            hardware: HardwareId::from_bytes(*hardware),
            address: str::from_utf8(address).ok()?.parse().ok()?,
            expiry: u64::from_be_bytes(*expiry),
        })
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(site: u8) -> Tokens {
        Tokens::new(&SiteKey::new([site; 32])).unwrap()
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_800_000_000 + seconds)
    }

    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));

    #[test]
    fn a_token_says_to_whom_it_was_given_until_it_expires() {
        let (tokens, hardware) = (tokens(1), HardwareId::new());
        let token = tokens.mint(Purpose::Identity, hardware, ADDRESS, at(0)).unwrap();
        let opened = tokens.open(Purpose::Identity, &token, at(899)).unwrap();
        assert_eq!((opened.claims.hardware, opened.claims.address), (hardware, ADDRESS));
        assert_eq!(tokens.open(Purpose::Identity, &token, at(900)), Err(Bad::Expired));
        assert!(token.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_')));
    }

    #[test]
    fn a_token_of_another_purpose_or_site_or_with_a_changed_letter_opens_nothing() {
        let token = tokens(1).mint(Purpose::Files, HardwareId::new(), ADDRESS, at(0)).unwrap();
        assert_eq!(tokens(1).open(Purpose::Identity, &token, at(1)), Err(Bad::Foreign));
        assert_eq!(tokens(2).open(Purpose::Files, &token, at(1)), Err(Bad::Foreign));
        for n in 0..token.len() {
            let mut changed = token.clone().into_bytes();
            changed[n] = if changed[n] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(tokens(1).open(Purpose::Files, &changed, at(1)), Err(Bad::Foreign), "{n}");
        }
        assert_eq!(tokens(1).open(Purpose::Files, "", at(1)), Err(Bad::Foreign));
    }

    #[test]
    fn no_two_tokens_are_alike() {
        let (tokens, hardware) = (tokens(1), HardwareId::new());
        let mint = || tokens.mint(Purpose::Files, hardware, ADDRESS, at(0)).unwrap();
        assert_ne!(mint(), mint());
        let both = [Purpose::Files, Purpose::Identity];
        let both = tokens.mint_each(both, hardware, ADDRESS, at(0)).unwrap();
        let opened = |purpose, token| tokens.open(purpose, token, at(0)).unwrap();
        let files = opened(Purpose::Files, &both[0]);
        let identity = opened(Purpose::Identity, &both[1]);
        assert_eq!(files.claims, identity.claims);
        assert_ne!(files.nonce, identity.nonce);
    }
}
