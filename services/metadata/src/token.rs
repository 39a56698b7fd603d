//! IMDSv2 session tokens. Nothing is stored: whoever holds the site key can make and check one, so every replica can.
//!
//! ```text
//! version (1) | made, unix milliseconds (8) | expiry, unix seconds (8) | nonce (16) | HMAC-SHA-256 of all that and the instance id (32)
//! ```
//!
//! as base64url. The instance id is only in what is signed: a token says nothing to whoever finds it, and is worth
//! nothing for the machine's next instance. The key is that of the day the token was made on, derived from the site key:
//! today's or yesterday's, since no token lives longer than six hours; or tomorrow's, where the clock of the replica that
//! made it is a little ahead of ours.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::{hkdf, hmac, rand};
use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};

/// How long a token may be asked to live, in seconds.
pub const LONGEST: u32 = 21_600;

/// How far ahead the clock of whoever made a token may be, in seconds.
const AHEAD: u64 = 5 * 60;
const DAY: u64 = 86_400;
const LABEL: &[u8] = b"tinwright metadata session token";
const VERSION: u8 = 2;

/// Makes and checks tokens.
#[derive(Debug)]
pub struct Tokens {
    site: hkdf::Prk,
}

/// No token can be made: the system gave no randomness, or the key could not be derived.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("no session token can be made")]
pub struct Unavailable;

/// Why a token is not good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It is none of ours, or another instance's, or older than yesterday's key, or not made yet.
    #[error("the session token is not this instance's")]
    Foreign,
    /// It was good once.
    #[error("the session token has expired")]
    Expired,
    /// It was made before the machine's tokens were revoked.
    #[error("the session token is revoked")]
    Revoked,
}

impl Refused {
    /// Its name in metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Foreign => "foreign",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
        }
    }
}

/// The part of a token in front of its signature.
struct Claims {
    made: u64,
    expiry: u64,
    nonce: [u8; 16],
}

impl Claims {
    /// With the instance id behind them, as they are signed.
    fn signed(&self, instance_id: &str) -> Vec<u8> {
        [&self.encoded(), instance_id.as_bytes()].concat()
    }

    fn encoded(&self) -> Vec<u8> {
        let (made, expiry) = (self.made.to_be_bytes(), self.expiry.to_be_bytes());
        [&[VERSION][..], &made, &expiry, &self.nonce].concat()
    }

    /// The day whose key it is signed with, if that key counts at `now`.
    fn day(&self, now: u64) -> Option<u64> {
        let (made, yesterday) = (self.made / 1000, (now / DAY).saturating_sub(1));
        let day = made / DAY;
        (day >= yesterday && made <= now.saturating_add(AHEAD)).then_some(day)
    }

    fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let bytes = bytes.strip_prefix(&[VERSION])?;
        let (made, bytes) = bytes.split_first_chunk()?;
        let (expiry, bytes) = bytes.split_first_chunk()?;
        let (nonce, signature) = bytes.split_first_chunk()?;
        let (made, expiry) = (u64::from_be_bytes(*made), u64::from_be_bytes(*expiry));
        Some((Self { made, expiry, nonce: *nonce }, signature))
    }
}

impl Tokens {
    /// Tokens under the site's key, of which 32 bytes are enough.
    pub fn new(site_key: &[u8]) -> Self {
        Self { site: hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(site_key) }
    }

    /// A token for this instance that is good for `ttl` seconds.
    pub fn mint(
        &self,
        instance_id: &str,
        ttl: u32,
        now: SystemTime,
    ) -> Result<String, Unavailable> {
        let (made, now) = (milliseconds(now), seconds(now));
        let mut claims = Claims { made, expiry: now + u64::from(ttl.min(LONGEST)), nonce: [0; 16] };
        rand::fill(&mut claims.nonce).map_err(|_| Unavailable)?;
        let key = self.key(now / DAY).ok_or(Unavailable)?;
        let signature = hmac::sign(&key, &claims.signed(instance_id));
        Ok(BASE64_URL_SAFE_NO_PAD.encode([&claims.encoded(), signature.as_ref()].concat()))
    }

    /// Whether `token` was made for this instance, not before `revoked`, and still lives. Takes as long whichever byte is
    /// wrong.
    pub fn check(
        &self,
        token: &str,
        instance_id: &str,
        revoked: Option<SystemTime>,
        now: SystemTime,
    ) -> Result<(), Refused> {
        let now = seconds(now);
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(token).map_err(|_| Refused::Foreign)?;
        let (claims, signature) = Claims::decode(&bytes).ok_or(Refused::Foreign)?;
        let key = claims.day(now).and_then(|day| self.key(day)).ok_or(Refused::Foreign)?;
        hmac::verify(&key, &claims.signed(instance_id), signature).map_err(|_| Refused::Foreign)?;
        if now >= claims.expiry {
            return Err(Refused::Expired);
        }
        let revoked = revoked.is_some_and(|revoked| claims.made < milliseconds(revoked));
        if revoked { Err(Refused::Revoked) } else { Ok(()) }
    }

    fn key(&self, day: u64) -> Option<hmac::Key> {
        let info = [LABEL, &day.to_be_bytes()];
        Some(self.site.expand(&info, hmac::HMAC_SHA256).ok()?.into())
    }
}

/// Unix time; a clock before 1970 stands still.
fn seconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}

fn milliseconds(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn tokens() -> Tokens {
        Tokens::new(&[7; 32])
    }

    #[test]
    fn a_token_is_good_until_it_expires() {
        let token = tokens().mint("i-1", 60, at(1000)).unwrap();
        assert_eq!(tokens().check(&token, "i-1", None, at(1059)), Ok(()));
        assert_eq!(tokens().check(&token, "i-1", None, at(1060)), Err(Refused::Expired));
    }

    #[test]
    fn a_token_of_another_instance_or_site_is_foreign() {
        let token = tokens().mint("i-1", 60, at(1000)).unwrap();
        assert_eq!(tokens().check(&token, "i-2", None, at(1001)), Err(Refused::Foreign));
        assert_eq!(
            Tokens::new(&[8; 32]).check(&token, "i-1", None, at(1001)),
            Err(Refused::Foreign)
        );
    }

    #[test]
    fn a_token_made_before_the_revocation_is_refused_and_a_new_one_is_not() {
        let (old, new) = (tokens().mint("i-1", 60, at(1000)), tokens().mint("i-1", 60, at(1010)));
        let check =
            |token: &str, revoked| tokens().check(token, "i-1", Some(at(revoked)), at(1011)).err();
        assert_eq!(check(&old.unwrap(), 1001), Some(Refused::Revoked));
        assert_eq!(check(&new.unwrap(), 1001), None);
    }

    #[test]
    fn a_token_outlives_midnight_but_not_the_key_of_yesterday() {
        let token = tokens().mint("i-1", LONGEST, at(DAY - 1)).unwrap();
        assert_eq!(tokens().check(&token, "i-1", None, at(DAY + 3600)), Ok(()));
        assert_eq!(tokens().check(&token, "i-1", None, at(2 * DAY - 1)), Err(Refused::Expired));
        assert_eq!(tokens().check(&token, "i-1", None, at(2 * DAY)), Err(Refused::Foreign));
    }

    #[test]
    fn a_token_of_a_replica_whose_clock_is_a_little_ahead_is_good_at_midnight_too() {
        let check = |made, now| {
            let token = tokens().mint("i-1", 60, at(made)).unwrap();
            tokens().check(&token, "i-1", None, at(now)).err()
        };
        for (made, now) in [(DAY + 1, DAY - 1), (DAY, DAY - AHEAD), (1000, 1000 - AHEAD)] {
            assert_eq!(check(made, now), None, "{made} at {now}");
        }
        for (made, now) in [(DAY, DAY - AHEAD - 1), (2 * DAY, DAY - 1), (1000, 999 - AHEAD)] {
            assert_eq!(check(made, now), Some(Refused::Foreign), "{made} at {now}");
        }
    }

    #[test]
    fn a_token_that_has_expired_is_refused_by_a_clock_of_yesterday_too() {
        let mut claims = Claims { made: DAY * 1000, expiry: DAY - 10, nonce: [0; 16] };
        let refused = |claims: &Claims| {
            let signature = hmac::sign(&tokens().key(1).unwrap(), &claims.signed("i-1"));
            let token =
                BASE64_URL_SAFE_NO_PAD.encode([&claims.encoded(), signature.as_ref()].concat());
            tokens().check(&token, "i-1", None, at(DAY - 5)).err()
        };
        assert_eq!(refused(&claims), Some(Refused::Expired));
        claims.expiry = DAY;
        assert_eq!(refused(&claims), None);
    }

    #[test]
    fn a_token_is_short_and_goes_into_a_header() {
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
        fn no_bit_of_a_token_may_change(byte in 0usize..65, bit in 0u8..8) {
            let token = tokens().mint("i-1", 60, at(1000)).unwrap();
            let mut bytes = BASE64_URL_SAFE_NO_PAD.decode(token).unwrap();
            bytes[byte] ^= 1 << bit;
            let forged = BASE64_URL_SAFE_NO_PAD.encode(bytes);
            prop_assert_eq!(tokens().check(&forged, "i-1", None, at(1001)), Err(Refused::Foreign));
        }

        #[test]
        fn no_text_is_too_odd(text: String, bytes: Vec<u8>) {
            let bytes = BASE64_URL_SAFE_NO_PAD.encode(bytes);
            prop_assert_eq!(tokens().check(&text, "i-1", None, at(1)), Err(Refused::Foreign));
            prop_assert_eq!(tokens().check(&bytes, "i-1", None, at(1)), Err(Refused::Foreign));
        }
    }
}
