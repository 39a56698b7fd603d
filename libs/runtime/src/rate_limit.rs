//! Token buckets: one of a [`Rate`] ([`TokenBucket`]), or one for each key ([`RateLimiter`]).
//!
//! A bucket is stored as one instant: when it will be full again. A key whose bucket is full needs no memory, so a limiter
//! remembers the keys that took tokens lately. No token is ever added by a timer.
//!
//! ```
//! use std::time::Instant;
//! use runtime::rate_limit::{Rate, RateLimiter};
//!
//! let scripts = RateLimiter::new(Rate::per_second(10).with_burst(20)).with_max_keys(4096);
//! assert!(scripts.take("192.0.2.7", Instant::now()).is_ok());
//! ```
//!
//! `take` locks a mutex of the limiter's own. Where the limiter is already behind a lock or owned by one task, `take_mut`
//! does the same without locking.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use foldhash::quality::RandomState;

/// Keys that a limiter remembers unless it is made for another number. A site has fewer machines, and a scan is no machine.
const DEFAULT_MAX_KEYS: usize = 65_536;
/// The shortest time between two searches for keys that can be forgotten: a flood of keys must not make each of them costly.
const MIN_SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// The bucket of this key is empty, or there are too many keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many requests")]
pub struct TooManyRequests;

/// The speed at which a bucket fills, and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    interval: Duration,
    burst: u32,
}

impl Rate {
    /// No limit: every request is admitted, and nothing is remembered.
    pub const UNLIMITED: Self = Self { interval: Duration::ZERO, burst: 1 };

    /// One token every `interval`, and at most `burst` of them at once.
    pub const fn new(interval: Duration, burst: u32) -> Self {
        Self { interval, burst }
    }

    /// `tokens` a second, and as many at once.
    pub const fn per_second(tokens: u32) -> Self {
        Self::within(Duration::from_secs(1), tokens)
    }

    /// `tokens` a minute, and as many at once.
    pub const fn per_minute(tokens: u32) -> Self {
        Self::within(Duration::from_secs(60), tokens)
    }

    const fn within(time: Duration, tokens: u32) -> Self {
        // Rounded up to a nanosecond: zero would be no limit.
        let nanos = time.as_nanos().div_ceil(if tokens == 0 { 1 } else { tokens as u128 });
        Self { interval: Duration::from_nanos(nanos as u64), burst: tokens }
    }

    /// The same speed with another bucket size.
    #[must_use]
    pub const fn with_burst(self, burst: u32) -> Self {
        Self { burst, ..self }
    }

    /// Returns when a bucket that will be full at `full_at` will be full after one more token is taken at `now`.
    fn after_take(
        self,
        full_at: Option<Instant>,
        now: Instant,
    ) -> Result<Instant, TooManyRequests> {
        let after = full_at.map_or(now, |at| at.max(now)) + self.interval;
        let debt = after.saturating_duration_since(now);
        if debt > self.interval * self.burst { Err(TooManyRequests) } else { Ok(after) }
    }
}

/// One bucket, full at first.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    rate: Rate,
    full_at: Option<Instant>,
}

impl TokenBucket {
    /// A full bucket.
    pub const fn new(rate: Rate) -> Self {
        Self { rate, full_at: None }
    }

    /// Takes one token.
    pub fn take(&mut self, now: Instant) -> Result<(), TooManyRequests> {
        self.full_at = Some(self.rate.after_take(self.full_at, now)?);
        Ok(())
    }
}

/// A bucket of the same rate for each key. Keys are bounded: while `max_keys` of them have buckets that are not full, a new
/// one is refused.
#[derive(Debug)]
pub struct RateLimiter<K> {
    rate: Rate,
    max_keys: usize,
    buckets: Mutex<Buckets<K>>,
}

#[derive(Debug)]
struct Buckets<K> {
    full_at: HashMap<K, Instant, RandomState>,
    swept: Option<Instant>,
}

impl<K: Eq + Hash> RateLimiter<K> {
    /// Full buckets for up to 65,536 keys.
    pub fn new(rate: Rate) -> Self {
        let buckets = Mutex::new(Buckets { full_at: HashMap::default(), swept: None });
        Self { rate, max_keys: DEFAULT_MAX_KEYS, buckets }
    }

    /// Bounds the number of keys by `max_keys`.
    #[must_use]
    pub fn with_max_keys(self, max_keys: usize) -> Self {
        Self { max_keys, ..self }
    }

    /// Takes one token of `key`.
    pub fn take(&self, key: K, now: Instant) -> Result<(), TooManyRequests> {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        buckets.take(key, now, self.rate, self.max_keys)
    }

    /// Takes one token of `key`, without locking.
    pub fn take_mut(&mut self, key: K, now: Instant) -> Result<(), TooManyRequests> {
        let buckets = self.buckets.get_mut().unwrap_or_else(PoisonError::into_inner);
        buckets.take(key, now, self.rate, self.max_keys)
    }

    /// True if no token of `key` is left. Takes none.
    pub fn is_exhausted(&self, key: &K, now: Instant) -> bool {
        let buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let full_at = buckets.full_at.get(key).copied();
        full_at.is_some() && self.rate.after_take(full_at, now).is_err()
    }

    /// The number of keys that are remembered.
    pub fn remembered_keys(&self) -> usize {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner).full_at.len()
    }
}

impl<K: Eq + Hash> Buckets<K> {
    fn take(
        &mut self,
        key: K,
        now: Instant,
        rate: Rate,
        max: usize,
    ) -> Result<(), TooManyRequests> {
        if rate.interval.is_zero() {
            return Ok(());
        }
        if let Some(full_at) = self.full_at.get_mut(&key) {
            *full_at = rate.after_take(Some(*full_at), now)?;
            return Ok(());
        }
        let full_at = rate.after_take(None, now)?;
        if self.full_at.len() >= max {
            self.sweep(now);
            if self.full_at.len() >= max {
                return Err(TooManyRequests);
            }
        }
        self.full_at.insert(key, full_at);
        Ok(())
    }

    /// Forgets the keys whose buckets are full.
    fn sweep(&mut self, now: Instant) {
        let since = self.swept.map(|at| now.saturating_duration_since(at));
        if since.is_none_or(|since| since >= MIN_SWEEP_INTERVAL) {
            self.full_at.retain(|_, at| *at > now);
            self.swept = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: u32 = 1000;

    fn three_at_once() -> RateLimiter<u32> {
        RateLimiter::new(Rate::new(Duration::from_secs(10), 3)).with_max_keys(KEYS as usize)
    }

    fn taken(limiter: &RateLimiter<u32>, key: u32, now: Instant) -> usize {
        (0..9).filter(|_| limiter.take(key, now).is_ok()).count()
    }

    #[test]
    fn each_key_has_a_burst_of_its_own() {
        let (mut limiter, now) = (three_at_once(), Instant::now());
        assert_eq!(taken(&limiter, 1, now), 3);
        assert_eq!((0..9).filter(|_| limiter.take_mut(2, now).is_ok()).count(), 3);
    }

    #[test]
    fn asking_if_a_key_is_exhausted_takes_no_token() {
        let (limiter, now) = (three_at_once(), Instant::now());
        assert!(!limiter.is_exhausted(&1, now));
        assert_eq!(taken(&limiter, 1, now), 3);
        assert!(limiter.is_exhausted(&1, now) && !limiter.is_exhausted(&2, now));
        assert!(!limiter.is_exhausted(&1, now + Duration::from_secs(10)));
    }

    #[test]
    fn each_interval_adds_one_token_up_to_the_burst() {
        let (limiter, now) = (three_at_once(), Instant::now());
        assert_eq!(taken(&limiter, 1, now), 3);
        assert_eq!(taken(&limiter, 1, now + Duration::from_secs(9)), 0);
        assert_eq!(taken(&limiter, 1, now + Duration::from_secs(10)), 1);
        assert_eq!(taken(&limiter, 1, now + Duration::from_secs(600)), 3);
    }

    #[test]
    fn a_flood_of_keys_takes_bounded_memory_and_passes() {
        let (limiter, now) = (three_at_once(), Instant::now());
        assert!((0..KEYS).all(|key| limiter.take(key, now).is_ok()));
        assert_eq!(limiter.take(KEYS, now), Err(TooManyRequests));
        assert_eq!(limiter.take(0, now), Ok(()));
        assert_eq!(limiter.take(KEYS, now + Duration::from_secs(11)), Ok(()));
        assert_eq!(limiter.remembered_keys(), 2);
    }

    #[test]
    fn an_unlimited_rate_admits_everything_and_remembers_nothing() {
        let (limiter, now) = (RateLimiter::new(Rate::UNLIMITED), Instant::now());
        assert!((0..100_000_u32).all(|key| limiter.take(key % 7, now).is_ok()));
        assert_eq!((limiter.remembered_keys(), limiter.is_exhausted(&1, now)), (0, false));
    }

    #[test]
    fn a_rate_of_some_tokens_a_second_admits_as_many_of_them() {
        let (mut bucket, now) = (TokenBucket::new(Rate::per_second(100)), Instant::now());
        let mut take = |at| (0..1000).filter(|_| bucket.take(at).is_ok()).count();
        let second = Duration::from_secs(1);
        assert_eq!(
            [take(now), take(now), take(now + second), take(now + 9 * second)],
            [100, 0, 100, 100]
        );
        let (mut none, zero) = (TokenBucket::new(Rate::per_minute(0)), Err(TooManyRequests));
        assert_eq!(none.take(now), zero);
    }
}
