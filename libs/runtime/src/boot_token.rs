//! Tokens in boot scripts, which prove for which machine a script was rendered.
//!
//! A token is a nonce sealed with the site's key over purpose, hardware, boot epoch, source address and expiry, so that nothing has to be
//! stored to serve one, and any process with the key can open it. It is written in URL-safe letters:
//!
//! ```text
//! base64url( nonce (12) ‖ AES-256-GCM( expiry, u64 ‖ boot epoch, u64 ‖ hardware id (16) ‖ address (4 or 16) ) )
//!
//! purpose: associated data
//! ```
//!
//! The nonce identifies the token: a service that accepts a token once stores its nonce.

use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::aead::NONCE_LEN;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tinwright::HardwareId;

use crate::seal::Seal;
use crate::secret::CryptoError;
use crate::site_keys::SiteKeys;

/// The use of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Downloading the files of one boot.
    Files,
    /// Getting a certificate for the machine's worker, once.
    Identity,
}

/// The validity of a token.
pub const LIFETIME: Duration = Duration::from_secs(15 * 60);

/// The content of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claims {
    /// The machine it was given to.
    pub hardware: HardwareId,
    /// The boot epoch of the machine, as far as the boot server knew it; 0 if it did not.
    pub boot_epoch: u64,
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
pub struct BootTokens(Seal);

impl BootTokens {
    /// Derives the keys for tokens from those of `site`.
    pub fn new(site: impl Into<SiteKeys>) -> Result<Self, CryptoError> {
        Seal::new(site, "boot token").map(Self)
    }

    /// Makes a token for `hardware` at `address` in the boot epoch `boot_epoch`, valid for [`LIFETIME`] from `now`.
    pub fn mint(
        &self,
        purpose: Purpose,
        hardware: HardwareId,
        boot_epoch: u64,
        address: IpAddr,
        now: SystemTime,
    ) -> Result<String, CryptoError> {
        let expiry = seconds(now).saturating_add(LIFETIME.as_secs());
        let claims = Claims { hardware, boot_epoch, address, expiry };
        Ok(URL_SAFE_NO_PAD.encode(self.0.seal(purpose.name(), &claims.encode())?))
    }

    /// Returns the content of `token` if it is valid for `purpose` at `now`.
    pub fn open(
        &self,
        purpose: Purpose,
        token: &str,
        now: SystemTime,
    ) -> Result<VerifiedToken, InvalidToken> {
        let raw = URL_SAFE_NO_PAD.decode(token).map_err(|_| InvalidToken::Foreign)?;
        let nonce = *raw.first_chunk().ok_or(InvalidToken::Foreign)?;
        let plain = self.0.open(purpose.name(), &raw).map_err(|_| InvalidToken::Foreign)?;
        let claims = Claims::decode(plain.expose()).ok_or(InvalidToken::Foreign)?;
        match claims.expiry > seconds(now) {
            true => Ok(VerifiedToken { claims, nonce }),
            false => Err(InvalidToken::Expired),
        }
    }
}

impl Purpose {
    /// The name that is sealed into the token as its owner.
    fn name(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Identity => "identity",
        }
    }
}

impl Claims {
    fn encode(&self) -> Vec<u8> {
        let (expiry, epoch) = (self.expiry.to_be_bytes(), self.boot_epoch.to_be_bytes());
        let hardware = self.hardware.to_bytes();
        match self.address {
            IpAddr::V4(address) => [&expiry[..], &epoch, &hardware, &address.octets()].concat(),
            IpAddr::V6(address) => [&expiry[..], &epoch, &hardware, &address.octets()].concat(),
        }
    }

    fn decode(plain: &[u8]) -> Option<Self> {
        let (expiry, rest) = plain.split_first_chunk()?;
        let (boot_epoch, rest) = rest.split_first_chunk()?;
        let (hardware, address) = rest.split_first_chunk()?;
        let v4 = || <[u8; 4]>::try_from(address).ok().map(IpAddr::from);
        let v6 = || <[u8; 16]>::try_from(address).ok().map(IpAddr::from);
        Some(Self {
            hardware: HardwareId::from_bytes(*hardware),
            boot_epoch: u64::from_be_bytes(*boot_epoch),
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
    use crate::secret::SiteKey;

    fn tokens(site: u8) -> BootTokens {
        BootTokens::new(&SiteKey::new([site; 32])).unwrap()
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_800_000_000 + seconds)
    }

    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));

    #[test]
    fn a_token_names_its_machine_boot_epoch_and_address_until_it_expires() {
        let (tokens, hardware) = (tokens(1), HardwareId::new());
        let token = tokens.mint(Purpose::Identity, hardware, 7, ADDRESS, at(0)).unwrap();
        let opened = tokens.open(Purpose::Identity, &token, at(899)).unwrap();
        let Claims { boot_epoch, address, .. } = opened.claims;
        assert_eq!((opened.claims.hardware, boot_epoch, address), (hardware, 7, ADDRESS));
        assert_eq!(tokens.open(Purpose::Identity, &token, at(900)), Err(InvalidToken::Expired));
        let there = "2001:db8::7".parse().unwrap();
        let token = tokens.mint(Purpose::Files, hardware, 0, there, at(0)).unwrap();
        assert_eq!(tokens.open(Purpose::Files, &token, at(0)).unwrap().claims.address, there);
        assert!(token.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_')));
    }

    #[test]
    fn a_token_of_another_purpose_or_site_or_with_a_changed_letter_is_invalid() {
        let token = tokens(1).mint(Purpose::Files, HardwareId::new(), 0, ADDRESS, at(0)).unwrap();
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
        let mint = || tokens.mint(Purpose::Files, hardware, 0, ADDRESS, at(0)).unwrap();
        assert_ne!(mint(), mint());
        let nonce = |token: String| tokens.open(Purpose::Files, &token, at(0)).unwrap().nonce;
        let many: HashSet<_> = (0..200).map(|_| nonce(mint())).collect();
        assert_eq!(many.len(), 200);
    }
}
