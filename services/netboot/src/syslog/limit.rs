//! Rate limit per address: 200 lines a second, bursts of 2000.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Instant;

/// Lines a second.
const RATE: f64 = 200.0;
/// Lines of a burst.
const BURST: f64 = 2000.0;
/// Addresses that are counted at a time.
const MAX_ADDRESSES: usize = 4096;

/// Token bucket of each address.
#[derive(Debug, Default)]
pub struct Limit(HashMap<IpAddr, Bucket>);

#[derive(Debug)]
struct Bucket {
    left: f64,
    at: Instant,
    dropped: u64,
}

/// Result for a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineLimit {
    /// It is stored. The number of lines before it that were dropped, to be reported now.
    Stored(u64),
    /// It is dropped.
    Dropped,
}

impl Limit {
    /// Takes a token for a line of `source`.
    pub fn admit(&mut self, source: IpAddr, now: Instant) -> LineLimit {
        if self.0.len() >= MAX_ADDRESSES && !self.0.contains_key(&source) {
            // An address with its whole burst left needs no bucket.
            self.0.retain(|_, bucket| bucket.now(now) < BURST || bucket.dropped > 0);
            if self.0.len() >= MAX_ADDRESSES {
                return LineLimit::Dropped;
            }
        }
        let fresh = Bucket { left: BURST, at: now, dropped: 0 };
        let bucket = self.0.entry(source).or_insert(fresh);
        (bucket.left, bucket.at) = (bucket.now(now), now);
        if bucket.left < 1.0 {
            bucket.dropped += 1;
            return LineLimit::Dropped;
        }
        bucket.left -= 1.0;
        LineLimit::Stored(std::mem::take(&mut bucket.dropped))
    }
}

impl Bucket {
    fn now(&self, now: Instant) -> f64 {
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        (self.left + since * RATE).min(BURST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_burst_passes_then_a_rate_and_dropped_lines_are_reported_once() {
        let (mut limit, now) = (Limit::default(), Instant::now());
        let one: IpAddr = [192, 0, 2, 1].into();
        let kept = (0..2500).filter(|_| limit.admit(one, now) != LineLimit::Dropped).count();
        assert_eq!(kept, 2000);
        assert_eq!(limit.admit([192, 0, 2, 2].into(), now), LineLimit::Stored(0));
        let later = now + Duration::from_secs(1);
        assert_eq!(limit.admit(one, later), LineLimit::Stored(500));
        assert_eq!(limit.admit(one, later), LineLimit::Stored(0));
        let kept = (0..500).filter(|_| limit.admit(one, later) != LineLimit::Dropped).count();
        assert_eq!(kept, 198);
    }

    #[test]
    fn lines_of_further_addresses_are_dropped_until_some_are_silent() {
        let (mut limit, now) = (Limit::default(), Instant::now());
        let address = |n: usize| IpAddr::from((n as u32).to_be_bytes());
        for n in 0..MAX_ADDRESSES {
            assert_eq!(limit.admit(address(n), now), LineLimit::Stored(0));
        }
        assert_eq!(limit.admit(address(MAX_ADDRESSES), now), LineLimit::Dropped);
        let later = now + Duration::from_secs(1);
        assert_eq!(limit.admit(address(MAX_ADDRESSES), later), LineLimit::Stored(0));
    }
}
