//! How often an interface is answered (netboot specification, section 13.1).
//!
//! There is no limit on all together: a rack that is powered on at once is not an attack.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::Mac;

/// Requests of one interface a second, and how many it may save up.
const OWN: Rate = Rate { per_second: 10, burst: 20 };
/// Requests a second of all interfaces without a record.
const UNKNOWN: Rate = Rate { per_second: 100, burst: 100 };
/// From how many interfaces on those are forgotten that have been quiet.
const MANY: usize = 4096;
/// How often that is looked for.
const SWEEP: Duration = Duration::from_secs(1);

/// So many a second.
#[derive(Clone, Copy, Debug)]
struct Rate {
    per_second: u32,
    burst: u32,
}

/// What is left of a rate.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    left: f64,
    at: Instant,
}

impl Bucket {
    fn full(rate: Rate, now: Instant) -> Self {
        Self { left: rate.burst.into(), at: now }
    }

    fn fill(&mut self, rate: Rate, now: Instant) {
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        self.left = (self.left + since * f64::from(rate.per_second)).min(rate.burst.into());
        self.at = now;
    }

    fn take(&mut self, rate: Rate, now: Instant) -> bool {
        self.fill(rate, now);
        let some = self.left >= 1.0;
        if some {
            self.left -= 1.0;
        }
        some
    }
}

/// Counts requests by interface.
#[derive(Debug)]
pub struct Limits {
    own: HashMap<Mac, Bucket>,
    unknown: Bucket,
    swept: Instant,
}

impl Limits {
    /// Nothing counted yet.
    pub fn new(now: Instant) -> Self {
        Self { own: HashMap::new(), unknown: Bucket::full(UNKNOWN, now), swept: now }
    }

    /// Whether a request of `mac` may be looked at, which has a record if it is `known`. As many interfaces are remembered
    /// as there are records, and those without one that got through within a few seconds.
    pub fn admits(&mut self, mac: Mac, known: bool, now: Instant) -> bool {
        if !known && !self.unknown.take(UNKNOWN, now) {
            return false;
        }
        if self.own.len() >= MANY && now.saturating_duration_since(self.swept) >= SWEEP {
            self.swept = now;
            self.own.retain(|_, bucket| {
                bucket.fill(OWN, now);
                bucket.left < OWN.burst.into()
            });
        }
        self.own.entry(mac).or_insert_with(|| Bucket::full(OWN, now)).take(OWN, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mac(number: u32) -> Mac {
        let [a, b, c, d] = number.to_be_bytes();
        Mac([2, 0, a, b, c, d])
    }

    #[test]
    fn an_interface_may_ask_twenty_times_at_once_and_ten_times_a_second() {
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let mut limits = Limits::new(now);
        let mut asked = |at| (0..50).filter(|_| limits.admits(mac(1), true, at)).count();
        assert_eq!([asked(now), asked(now + second), asked(now + 10 * second)], [20, 10, 20]);
    }

    #[test]
    fn interfaces_without_a_record_share_a_hundred_a_second_and_the_others_do_not() {
        let now = Instant::now();
        let mut limits = Limits::new(now);
        let mut asked = |known, at| (0..1000).filter(|n| limits.admits(mac(*n), known, at)).count();
        assert_eq!([asked(false, now), asked(false, now + Duration::from_secs(1))], [100, 100]);
        assert_eq!(asked(true, now), 1000);
    }

    #[test]
    fn those_that_have_been_quiet_are_forgotten() {
        let now = Instant::now();
        let mut limits = Limits::new(now);
        assert!((0..10_000).all(|number| limits.admits(mac(number), true, now)));
        assert!(limits.admits(mac(1), true, now + 2 * SWEEP));
        assert_eq!(limits.own.len(), 1);
    }
}
