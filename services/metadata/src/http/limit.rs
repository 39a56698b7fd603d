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

impl From<TooMany> for Refusal {
    fn from(_: TooMany) -> Self {
        Self::TooMany
    }
}
