//! How much one address may say: 200 lines a second, 2000 in one go.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Instant;

/// Lines a second.
const RATE: f64 = 200.0;
/// Lines in one go.
const BURST: f64 = 2000.0;
/// How many addresses are counted at a time.
const ADDRESSES: usize = 4096;

/// What each address has said lately.
#[derive(Debug, Default)]
pub struct Limit(HashMap<IpAddr, Bucket>);

#[derive(Debug)]
struct Bucket {
    left: f64,
    at: Instant,
    dropped: u64,
}

/// What becomes of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is kept; so many before it were dropped, which has to be said now.
    Kept(u64),
    /// It is dropped.
    Dropped,
}

impl Limit {
    /// Whether a line of `source` is kept at `now`.
    pub fn judge(&mut self, source: IpAddr, now: Instant) -> Verdict {
        if self.0.len() >= ADDRESSES && !self.0.contains_key(&source) {
            // Whoever has its whole burst left is like one who never spoke.
            self.0.retain(|_, bucket| bucket.now(now) < BURST || bucket.dropped > 0);
            if self.0.len() >= ADDRESSES {
                return Verdict::Dropped;
            }
        }
        let fresh = Bucket { left: BURST, at: now, dropped: 0 };
        let bucket = self.0.entry(source).or_insert(fresh);
        (bucket.left, bucket.at) = (bucket.now(now), now);
        if bucket.left < 1.0 {
            bucket.dropped += 1;
            return Verdict::Dropped;
        }
        bucket.left -= 1.0;
        Verdict::Kept(std::mem::take(&mut bucket.dropped))
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
    fn a_burst_passes_then_a_rate_and_what_was_dropped_is_said_once() {
        let (mut limit, now) = (Limit::default(), Instant::now());
        let one: IpAddr = [192, 0, 2, 1].into();
        let kept = (0..2500).filter(|_| limit.judge(one, now) != Verdict::Dropped).count();
        assert_eq!(kept, 2000);
        assert_eq!(limit.judge([192, 0, 2, 2].into(), now), Verdict::Kept(0));
        let later = now + Duration::from_secs(1);
        assert_eq!(limit.judge(one, later), Verdict::Kept(500));
        assert_eq!(limit.judge(one, later), Verdict::Kept(0));
        let kept = (0..500).filter(|_| limit.judge(one, later) != Verdict::Dropped).count();
        assert_eq!(kept, 198);
    }

    #[test]
    fn addresses_beyond_those_counted_are_dropped_until_some_fall_silent() {
        let (mut limit, now) = (Limit::default(), Instant::now());
        let address = |n: usize| IpAddr::from((n as u32).to_be_bytes());
        for n in 0..ADDRESSES {
            assert_eq!(limit.judge(address(n), now), Verdict::Kept(0));
        }
        assert_eq!(limit.judge(address(ADDRESSES), now), Verdict::Dropped);
        let later = now + Duration::from_secs(1);
        assert_eq!(limit.judge(address(ADDRESSES), later), Verdict::Kept(0));
    }
}
