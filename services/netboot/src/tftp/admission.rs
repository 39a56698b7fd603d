//! Limits of requests and transfers: for one client, and for all together.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::Instant;

use runtime::rate_limit::{Rate, RateLimiter};

/// Limits of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Transfers at a time.
    pub transfers: usize,
    /// Transfers at a time by one client.
    pub transfers_per_client: usize,
    /// Requests by one client.
    pub requests: Rate,
}

impl Default for Limits {
    fn default() -> Self {
        // A thousand machines that start at once have up to two each: one that only requested the size counts until its error
        // has been received.
        Self { transfers: 4096, transfers_per_client: 8, requests: Rate::per_second(64) }
    }
}

impl Limits {
    /// No limits, for benchmarks.
    pub const NONE: Self =
        Self { transfers: usize::MAX, transfers_per_client: usize::MAX, requests: Rate::UNLIMITED };
}

/// Clients whose requests are counted at a time. Forged addresses must not fill the memory.
const MAX_CLIENTS: usize = 4096;

/// A limit is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("busy")]
pub struct Busy;

/// Counts requests and transfers.
#[derive(Debug)]
pub struct Admission {
    limits: Limits,
    requests: RateLimiter<Ipv4Addr>,
    transfers: usize,
    /// Running transfers of each client that has any.
    transfers_by_client: HashMap<Ipv4Addr, usize>,
}

impl Admission {
    /// Creates the counters, all zero.
    pub fn new(limits: Limits) -> Self {
        let requests = RateLimiter::new(limits.requests).with_max_keys(MAX_CLIENTS);
        Self { limits, requests, transfers: 0, transfers_by_client: HashMap::new() }
    }

    /// Counts a packet of `client` outside a transfer.
    pub fn request(&mut self, client: Ipv4Addr, now: Instant) -> Result<(), Busy> {
        self.requests.take_mut(client, now).map_err(|_| Busy)
    }

    /// Counts a transfer that starts.
    pub fn start_transfer(&mut self, client: Ipv4Addr) -> Result<(), Busy> {
        let running = self.transfers_by_client.get(&client).copied().unwrap_or_default();
        if self.transfers >= self.limits.transfers || running >= self.limits.transfers_per_client {
            return Err(Busy);
        }
        self.transfers_by_client.insert(client, running + 1);
        self.transfers += 1;
        Ok(())
    }

    /// Counts a transfer that has ended.
    pub fn end_transfer(&mut self, client: Ipv4Addr) {
        let Some(running) = self.transfers_by_client.get_mut(&client) else { return };
        *running -= 1;
        if *running == 0 {
            self.transfers_by_client.remove(&client);
        }
        self.transfers -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const ONE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
    const TWO: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
    const SECOND: Duration = Duration::from_secs(1);

    fn admission() -> Admission {
        let requests = Rate::per_second(4);
        Admission::new(Limits { transfers: 3, transfers_per_client: 2, requests })
    }

    #[test]
    fn transfers_are_limited_for_one_client_and_for_all() {
        let mut admission = admission();
        let admitted =
            [ONE, ONE, ONE, TWO, TWO].map(|client| admission.start_transfer(client).is_ok());
        assert_eq!(admitted, [true, true, false, true, false]);
    }

    #[test]
    fn a_transfer_that_ends_makes_room() {
        let mut admission = admission();
        let results = [(); 3].map(|()| admission.start_transfer(ONE));
        assert_eq!(results, [Ok(()), Ok(()), Err(Busy)]);
        admission.end_transfer(ONE);
        assert_eq!(admission.start_transfer(ONE), Ok(()));
        (0..2).for_each(|_| admission.end_transfer(ONE));
        assert!(admission.transfers == 0 && admission.transfers_by_client.is_empty());
    }

    #[test]
    fn requests_of_a_client_are_limited_by_the_second() {
        let (mut admission, now) = (admission(), Instant::now());
        let first = [(); 5].map(|()| admission.request(ONE, now).is_ok());
        assert_eq!(first, [true, true, true, true, false]);
        assert_eq!(admission.request(ONE, now + SECOND), Ok(()));
    }

    #[test]
    fn forged_addresses_do_not_fill_the_memory() {
        let (mut admission, now) = (admission(), Instant::now());
        let mut forged = 0..10_000_u32;
        let admitted = forged.by_ref().filter(|n| admission.request((*n).into(), now).is_ok());
        assert_eq!(admitted.count(), MAX_CLIENTS);
        assert_eq!(admission.request(ONE, now + SECOND), Ok(()));
        assert_eq!(admission.requests.remembered_keys(), 1);
    }
}
