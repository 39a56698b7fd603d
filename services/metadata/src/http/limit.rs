//! How often one may ask.

use std::net::IpAddr;
use std::time::Duration;

use runtime::limit::{Limit, TooMany};
use tinwright::HardwareId;

use super::refusal::Refusal;

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

impl From<TooMany> for Refusal {
    fn from(_: TooMany) -> Self {
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
