//! How often one may ask.
//!
//! A leaky bucket as one instant a key: when the bucket would be empty again. A key whose instant has passed needs no
//! memory, so what is remembered is who asked lately.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tinwright::HardwareId;

use super::refusal::Refusal;

/// How many keys are remembered; more at once are refused. A site has fewer machines, and a scan is no machine.
const KEYS: usize = 65_536;

/// The service's limits.
#[derive(Debug)]
pub(super) struct Limits {
    /// A machine's requests: 100 a second, 1000 at once. cloud-init's crawl is 60 to 90.
    pub(super) requests: Limit<HardwareId>,
    /// A machine's calls home: 10 a minute.
    pub(super) calls: Limit<HardwareId>,
    /// An unknown address's requests: 30 a minute.
    pub(super) misses: Limit<IpAddr>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            requests: Limit::new(Duration::from_millis(10), 1000),
            calls: Limit::new(Duration::from_secs(6), 10),
            misses: Limit::new(Duration::from_secs(2), 30),
        }
    }
}

impl Limits {
    /// No limit to what machines ask. There is one to strangers' requests, as always.
    pub(super) fn none() -> Self {
        let free = || Limit::new(Duration::ZERO, 1);
        Self { requests: free(), calls: free(), ..Self::default() }
    }
}

/// One request an `interval` for each key, and `burst` of them at once.
#[derive(Debug)]
pub(super) struct Limit<K> {
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
    fn new(interval: Duration, burst: u32) -> Self {
        let keys = Mutex::new(Keys { empty_at: HashMap::new(), swept: None });
        Self { interval, burst, keys }
    }

    /// Counts a request of `key`, unless it is one too many.
    pub(super) fn take(&self, key: K, now: Instant) -> Result<(), Refusal> {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let empty_at = keys.empty_at.get(&key).map_or(now, |at| *at.max(&now)) + self.interval;
        let over = empty_at.saturating_duration_since(now) > self.interval * self.burst;
        if over || !keys.has_room_for(&key, now) {
            return Err(Refusal::TooMany);
        }
        keys.empty_at.insert(key, empty_at);
        Ok(())
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
    fn without_limits_machines_may_ask_for_ever_and_strangers_may_not() {
        let (limits, now) = (Limits::none(), Instant::now());
        let (machine, stranger) = (HardwareId::new(), [192, 0, 2, 1].into());
        assert!((0..10_000).all(|_| limits.requests.take(machine, now).is_ok()));
        assert!((0..10_000).any(|_| limits.misses.take(stranger, now).is_err()));
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
        assert_eq!(limit.take(keys, now), Err(Refusal::TooMany));
        assert_eq!(limit.take(0, now), Ok(()));
        assert_eq!(limit.take(keys, now + Duration::from_secs(11)), Ok(()));
        assert!(limit.keys.lock().unwrap().empty_at.len() < 3);
    }
}
