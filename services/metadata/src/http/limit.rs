//! How often one may ask.

use std::net::IpAddr;

use runtime::rate_limit::{Rate, RateLimiter, TooManyRequests};
use tinwright::HardwareId;

use super::refusal::Refusal;

/// The service's limits.
#[derive(Debug)]
pub(super) struct Limits {
    /// A machine's requests: 100 a second, 1000 at once. cloud-init's crawl is 60 to 90.
    pub(super) requests: RateLimiter<HardwareId>,
    /// A machine's calls home: 10 a minute.
    pub(super) calls: RateLimiter<HardwareId>,
    /// An unknown address's requests: 30 a minute.
    pub(super) misses: RateLimiter<IpAddr>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            requests: RateLimiter::new(Rate::per_second(100).with_burst(1000)),
            calls: RateLimiter::new(Rate::per_minute(10)),
            misses: RateLimiter::new(Rate::per_minute(30)),
        }
    }
}

impl Limits {
    /// No limit to what machines ask. There is one to strangers' requests, as always.
    pub(super) fn none() -> Self {
        let requests = RateLimiter::new(Rate::UNLIMITED);
        Self { requests, calls: RateLimiter::new(Rate::UNLIMITED), ..Self::default() }
    }
}

impl From<TooManyRequests> for Refusal {
    fn from(_: TooManyRequests) -> Self {
        Self::TooMany
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn without_limits_machines_may_ask_for_ever_and_strangers_may_not() {
        let (limits, now) = (Limits::none(), Instant::now());
        let (machine, stranger) = (HardwareId::new(), [192, 0, 2, 1].into());
        assert!((0..10_000).all(|_| limits.requests.take(machine, now).is_ok()));
        assert!((0..10_000).any(|_| limits.misses.take(stranger, now).is_err()));
    }
}
