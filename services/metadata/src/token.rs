//! IMDSv2 session tokens. Nothing is stored: whoever has the site key can create and check them, so every replica can.
//!
//! ```text
//! version (1) | created, unix milliseconds (8) | expiry, unix seconds (8) | nonce (16) | HMAC-SHA-256 of all that and the instance id (32)
//! ```
//!
//! as base64url. The instance id is signed, but not contained: a token reveals nothing, and is worthless for the machine's
//! next instance. The key is derived from the site key for the day on which the token was created: today or yesterday, since no token
//! lives longer than six hours; or tomorrow, if the clock of the replica that created it is a little ahead. While a site key replaces
//! another one, tokens of both are valid.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::{hkdf, hmac, rand};
use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use runtime::secret::CryptoError;
use runtime::site_keys::{Derived, SiteKeys};

/// The longest time to live of a token.
pub const MAX_TTL_SECONDS: u32 = 21_600;

/// The most that the clock of another replica may be ahead.
const MAX_SKEW_SECONDS: u64 = 5 * 60;
const DAY: u64 = 86_400;
const LABEL: &[u8] = b"tinwright metadata session token";
const VERSION: u8 = 2;

/// Creates and checks tokens.
#[derive(Debug)]
pub struct Tokens(Derived<hkdf::Prk>);

/// No token can be created: the system has no randomness, or the key could not be derived.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("no session token can be created")]
pub struct MintError;

/// The reason why a token is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It is not the site's or the instance's, is older than yesterday's key, or was created in the future.
    #[error("the session token is not this instance's")]
    Foreign,
    /// Its time to live is over.
    #[error("the session token has expired")]
    Expired,
    /// It was created before the machine's tokens were revoked.
    #[error("the session token is revoked")]
    Revoked,
}

impl TokenError {
    /// Returns its label in metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Foreign => "foreign",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
        }
    }
}

/// The part of a token before its signature.
struct Claims {
    created_millis: u64,
    expiry: u64,
    nonce: [u8; 16],
}

impl Claims {
    /// Returns the bytes that are signed: the encoded claims and the instance id.
    fn signed(&self, instance_id: &str) -> Vec<u8> {
        [&self.encoded(), instance_id.as_bytes()].concat()
    }

    fn encoded(&self) -> Vec<u8> {
        let (created, expiry) = (self.created_millis.to_be_bytes(), self.expiry.to_be_bytes());
        [&[VERSION][..], &created, &expiry, &self.nonce].concat()
    }

    /// Returns the day whose key signs it, if that key is valid at `now`.
    fn day(&self, now: u64) -> Option<u64> {
        let (created, yesterday) = (self.created_millis / 1000, (now / DAY).saturating_sub(1));
        let day = created / DAY;
        let is_valid = day >= yesterday && created <= now.saturating_add(MAX_SKEW_SECONDS);
        is_valid.then_some(day)
    }

    fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let bytes = bytes.strip_prefix(&[VERSION])?;
        let (created, bytes) = bytes.split_first_chunk()?;
        let (expiry, bytes) = bytes.split_first_chunk()?;
        let (nonce, signature) = bytes.split_first_chunk()?;
        let (created_millis, expiry) = (u64::from_be_bytes(*created), u64::from_be_bytes(*expiry));
        Some((Self { created_millis, expiry, nonce: *nonce }, signature))
    }
}

impl Tokens {
    /// Tokens under the keys of `site`.
    pub fn new(site: impl Into<SiteKeys>) -> Result<Self, CryptoError> {
        let salt = || hkdf::Salt::new(hkdf::HKDF_SHA256, &[]);
        Derived::new(site, move |key| Ok(salt().extract(key.expose()))).map(Self)
    }

    /// Returns a token for this instance that is valid for `ttl` seconds.
    pub fn mint(&self, instance_id: &str, ttl: u32, now: SystemTime) -> Result<String, MintError> {
        let (created_millis, now) = (milliseconds(now), milliseconds(now) / 1000);
        let expiry = now + u64::from(ttl.min(MAX_TTL_SECONDS));
        let mut claims = Claims { created_millis, expiry, nonce: [0; 16] };
        rand::fill(&mut claims.nonce).map_err(|_| MintError)?;
        let key = day_key(&self.0.get().newest, now / DAY).ok_or(MintError)?;
        let signature = hmac::sign(&key, &claims.signed(instance_id));
        Ok(BASE64_URL_SAFE_NO_PAD.encode([&claims.encoded(), signature.as_ref()].concat()))
    }

    /// Checks that `token` was created for this instance, not before `revoked`, and has not expired. Takes the same time
    /// whichever byte is wrong.
    pub fn check(
        &self,
        token: &str,
        instance_id: &str,
        revoked: Option<SystemTime>,
        now: SystemTime,
    ) -> Result<(), TokenError> {
        let now = milliseconds(now) / 1000;
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(token).map_err(|_| TokenError::Foreign)?;
        let (claims, signature) = Claims::decode(&bytes).ok_or(TokenError::Foreign)?;
        let day = claims.day(now).ok_or(TokenError::Foreign)?;
        let (sites, signed) = (self.0.get(), claims.signed(instance_id));
        let mut keys = sites.all().filter_map(|site| day_key(site, day));
        if !keys.any(|key| hmac::verify(&key, &signed, signature).is_ok()) {
            return Err(TokenError::Foreign);
        }
        if now >= claims.expiry {
            return Err(TokenError::Expired);
        }
        match revoked.is_some_and(|revoked| claims.created_millis < milliseconds(revoked)) {
            true => Err(TokenError::Revoked),
            false => Ok(()),
        }
    }
}

/// Returns the key for tokens that were created on `day`.
fn day_key(site: &hkdf::Prk, day: u64) -> Option<hmac::Key> {
    let info = [LABEL, &day.to_be_bytes()];
    Some(site.expand(&info, hmac::HMAC_SHA256).ok()?.into())
}

/// Returns the time since 1970; 0 before that.
fn milliseconds(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use runtime::SiteKey;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn tokens() -> Tokens {
        Tokens::new(&SiteKey::new([7; 32])).unwrap()
    }

    #[test]
    fn a_token_is_valid_until_it_expires() {
        let token = tokens().mint("i-1", 60, at(1000)).unwrap();
        assert_eq!(tokens().check(&token, "i-1", None, at(1059)), Ok(()));
        assert_eq!(tokens().check(&token, "i-1", None, at(1060)), Err(TokenError::Expired));
    }

    #[test]
    fn a_token_of_another_instance_or_site_is_foreign() {
        let token = tokens().mint("i-1", 60, at(1000)).unwrap();
        assert_eq!(tokens().check(&token, "i-2", None, at(1001)), Err(TokenError::Foreign));
        assert_eq!(
            Tokens::new(&SiteKey::new([8; 32])).unwrap().check(&token, "i-1", None, at(1001)),
            Err(TokenError::Foreign)
        );
    }

    #[test]
    fn a_token_of_the_older_key_is_valid_until_the_rotation_is_finished() {
        let (old, new) = (SiteKey::new([7; 32]), SiteKey::new([8; 32]));
        let keys = SiteKeys::from(&old);
        let tokens = Tokens::new(&keys).unwrap();
        let token = tokens.mint("i-1", 60, at(1000)).unwrap();
        keys.set(new.clone(), vec![old]);
        assert_eq!(tokens.check(&token, "i-1", None, at(1001)), Ok(()));
        let later = tokens.mint("i-1", 60, at(1000)).unwrap();
        keys.set(new, vec![]);
        assert_eq!(tokens.check(&token, "i-1", None, at(1001)), Err(TokenError::Foreign));
        assert_eq!(tokens.check(&later, "i-1", None, at(1001)), Ok(()));
    }

    #[test]
    fn only_a_token_from_before_the_revocation_is_refused() {
        let (old, new) = (tokens().mint("i-1", 60, at(1000)), tokens().mint("i-1", 60, at(1010)));
        let check =
            |token: &str, revoked| tokens().check(token, "i-1", Some(at(revoked)), at(1011)).err();
        assert_eq!(check(&old.unwrap(), 1001), Some(TokenError::Revoked));
        assert_eq!(check(&new.unwrap(), 1001), None);
    }

    #[test]
    fn a_token_is_valid_after_midnight_but_not_after_yesterdays_key() {
        let token = tokens().mint("i-1", MAX_TTL_SECONDS, at(DAY - 1)).unwrap();
        assert_eq!(tokens().check(&token, "i-1", None, at(DAY + 3600)), Ok(()));
        assert_eq!(tokens().check(&token, "i-1", None, at(2 * DAY - 1)), Err(TokenError::Expired));
        assert_eq!(tokens().check(&token, "i-1", None, at(2 * DAY)), Err(TokenError::Foreign));
    }

    #[test]
    fn a_token_of_a_replica_whose_clock_is_a_little_ahead_is_valid_at_midnight_too() {
        let check = |made, now| {
            let token = tokens().mint("i-1", 60, at(made)).unwrap();
            tokens().check(&token, "i-1", None, at(now)).err()
        };
        for (made, now) in
            [(DAY + 1, DAY - 1), (DAY, DAY - MAX_SKEW_SECONDS), (1000, 1000 - MAX_SKEW_SECONDS)]
        {
            assert_eq!(check(made, now), None, "{made} at {now}");
        }
        for (made, now) in
            [(DAY, DAY - MAX_SKEW_SECONDS - 1), (2 * DAY, DAY - 1), (1000, 999 - MAX_SKEW_SECONDS)]
        {
            assert_eq!(check(made, now), Some(TokenError::Foreign), "{made} at {now}");
        }
    }

    #[test]
    fn an_expired_token_is_refused_by_a_clock_of_yesterday_too() {
        let mut claims = Claims { created_millis: DAY * 1000, expiry: DAY - 10, nonce: [0; 16] };
        let refused = |claims: &Claims| {
            let signature =
                hmac::sign(&day_key(&tokens().0.get().newest, 1).unwrap(), &claims.signed("i-1"));
            let token =
                BASE64_URL_SAFE_NO_PAD.encode([&claims.encoded(), signature.as_ref()].concat());
            tokens().check(&token, "i-1", None, at(DAY - 5)).err()
        };
        assert_eq!(refused(&claims), Some(TokenError::Expired));
        claims.expiry = DAY;
        assert_eq!(refused(&claims), None);
    }

    #[test]
    fn a_token_is_short_and_fits_into_a_header() {
        let token = tokens().mint("i-1", 60, at(1_800_000_000)).unwrap();
        assert!(token.len() <= 128, "{token}");
        assert!(token.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-=".contains(&b)), "{token}");
    }

    #[test]
    fn two_tokens_of_one_second_differ() {
        assert_ne!(tokens().mint("i-1", 60, at(1)), tokens().mint("i-1", 60, at(1)));
    }

    proptest! {
        #[test]
        fn a_token_with_any_changed_bit_is_foreign(byte in 0usize..65, bit in 0u8..8) {
            let token = tokens().mint("i-1", 60, at(1000)).unwrap();
            let mut bytes = BASE64_URL_SAFE_NO_PAD.decode(token).unwrap();
            bytes[byte] ^= 1 << bit;
            let forged = BASE64_URL_SAFE_NO_PAD.encode(bytes);
            prop_assert_eq!(tokens().check(&forged, "i-1", None, at(1001)), Err(TokenError::Foreign));
        }

        #[test]
        fn any_other_text_is_foreign(text: String, bytes: Vec<u8>) {
            let bytes = BASE64_URL_SAFE_NO_PAD.encode(bytes);
            prop_assert_eq!(tokens().check(&text, "i-1", None, at(1)), Err(TokenError::Foreign));
            prop_assert_eq!(tokens().check(&bytes, "i-1", None, at(1)), Err(TokenError::Foreign));
        }
    }
}
