//! How often one may ask.
//!
//! A leaky bucket as one instant a key: when the bucket would be empty again. A key whose instant has passed needs no
//! memory, so what is remembered is who asked lately.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How many keys are remembered; more at once are refused. A site has fewer machines, and a scan is no machine.
const KEYS: usize = 65_536;

/// One request too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many requests")]
pub struct TooMany;

/// One request an `interval` for each key, and `burst` of them at once.
#[derive(Debug)]
pub struct Limit<K> {
    interval: Duration,
    burst: u32,
    keys: Mutex<Keys<K>>,
}

#[derive(Debug)]
struct Keys<K> {
    empty_at: HashMap<K, Instant>,
    swept: Option<Instant>,
}

impl<K: Eq + Hash> Limit<K> {
    /// Nothing counted yet.
    pub fn new(interval: Duration, burst: u32) -> Self {
        let keys = Mutex::new(Keys { empty_at: HashMap::new(), swept: None });
        Self { interval, burst, keys }
    }

    /// Counts a request of `key`, unless it is one too many.
    pub fn take(&self, key: K, now: Instant) -> Result<(), TooMany> {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let empty_at = keys.empty_at.get(&key).map_or(now, |at| *at.max(&now)) + self.interval;
        let over = empty_at.saturating_duration_since(now) > self.interval * self.burst;
        if over || !keys.has_room_for(&key, now) {
            return Err(TooMany);
        }
        keys.empty_at.insert(key, empty_at);
        Ok(())
    }
}

impl<K: Eq + Hash> Limit<K> {
    /// Whether another request of `key` would be one too many. Counts nothing.
    pub fn is_full(&self, key: &K, now: Instant) -> bool {
        let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let left = keys.empty_at.get(key).map(|at| at.saturating_duration_since(now));
        left.is_some_and(|left| left + self.interval > self.interval * self.burst)
    }
}

impl<K: Eq + Hash> Keys<K> {
    /// Forgets those who have been quiet, at most once a second: a flood of keys must not make each of them costly.
    fn has_room_for(&mut self, key: &K, now: Instant) -> bool {
        let full = self.empty_at.len() >= KEYS && !self.empty_at.contains_key(key);
        let due = self.swept.is_none_or(|at| now.saturating_duration_since(at).as_secs() >= 1);
        if full && due {
            self.empty_at.retain(|_, at| *at > now);
            self.swept = Some(now);
        }
        !full || self.empty_at.len() < KEYS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three_at_once() -> Limit<u32> {
        Limit::new(Duration::from_secs(10), 3)
    }

    fn taken(limit: &Limit<u32>, key: u32, now: Instant) -> usize {
        (0..9).filter(|_| limit.take(key, now).is_ok()).count()
    }

    #[test]
    fn a_burst_is_let_through_and_no_more() {
        let (limit, now) = (three_at_once(), Instant::now());
        assert_eq!(taken(&limit, 1, now), 3);
        assert_eq!(taken(&limit, 2, now), 3);
    }

    #[test]
    fn one_may_look_before_one_asks() {
        let (limit, now) = (three_at_once(), Instant::now());
        assert!(!limit.is_full(&1, now));
        assert_eq!(taken(&limit, 1, now), 3);
        assert!(limit.is_full(&1, now) && !limit.is_full(&2, now));
        assert!(!limit.is_full(&1, now + Duration::from_secs(10)));
    }

    #[test]
    fn an_interval_makes_room_for_one() {
        let (limit, now) = (three_at_once(), Instant::now());
        assert_eq!(taken(&limit, 1, now), 3);
        assert_eq!(taken(&limit, 1, now + Duration::from_secs(9)), 0);
        assert_eq!(taken(&limit, 1, now + Duration::from_secs(10)), 1);
        assert_eq!(taken(&limit, 1, now + Duration::from_secs(600)), 3);
    }

    #[test]
    fn a_flood_of_keys_takes_a_bounded_memory_and_passes() {
        let (limit, now) = (three_at_once(), Instant::now());
        let keys = u32::try_from(KEYS).unwrap();
        assert!((0..keys).all(|key| limit.take(key, now).is_ok()));
        assert_eq!(limit.take(keys, now), Err(TooMany));
        assert_eq!(limit.take(0, now), Ok(()));
        assert_eq!(limit.take(keys, now + Duration::from_secs(11)), Ok(()));
        assert!(limit.keys.lock().unwrap().empty_at.len() < 3);
    }
}
