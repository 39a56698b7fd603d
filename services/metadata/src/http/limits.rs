//! Rate limits.

use std::net::IpAddr;

use runtime::rate_limit::{Rate, RateLimiter};
use tinwright::HardwareId;

/// The rate limits of the service.
#[derive(Debug)]
pub(super) struct Limits {
    /// Requests of a machine: 100 per second, in bursts of up to 1000. cloud-init sends 60 to 90 requests to read the whole
    /// tree.
    pub(super) requests: RateLimiter<HardwareId>,
    /// Phone-home calls of a machine: 10 per minute.
    pub(super) phone_home: RateLimiter<HardwareId>,
    /// Requests from an address that no machine has: 30 per minute.
    pub(super) unknown_callers: RateLimiter<IpAddr>,
}

impl Limits {
    /// Creates the limits. If `for_machines` is false, only unknown callers are limited.
    pub(super) fn new(for_machines: bool) -> Self {
        let rate = |rate| if for_machines { rate } else { Rate::UNLIMITED };
        Self {
            requests: RateLimiter::new(rate(Rate::per_second(100).with_burst(1000))),
            phone_home: RateLimiter::new(rate(Rate::per_minute(10))),
            unknown_callers: RateLimiter::new(Rate::per_minute(30)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn unknown_callers_are_limited_even_without_limits_for_machines() {
        let (limits, now) = (Limits::new(false), Instant::now());
        let (machine, unknown) = (HardwareId::new(), [192, 0, 2, 1].into());
        assert!((0..10_000).all(|_| limits.requests.take(machine, now).is_ok()));
        assert!((0..10_000).any(|_| limits.unknown_callers.take(unknown, now).is_err()));
    }
}
