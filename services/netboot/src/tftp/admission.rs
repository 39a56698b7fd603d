//! Limits of requests and transfers: for one client, and for all together.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
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

/// Maximum number of clients with counted requests. Forged addresses must not fill the memory.
const MAX_CLIENTS: usize = 4096;

/// Counts requests and running transfers.
#[derive(Debug)]
pub struct Admission {
    limits: Limits,
    requests: RateLimiter<Ipv4Addr>,
    /// The number of running transfers.
    running: usize,
    /// The number of running transfers of each client that has any.
    transfers: HashMap<Ipv4Addr, usize>,
}

impl Admission {
    /// Creates the counters, all zero.
    pub fn new(limits: Limits) -> Self {
        let requests = RateLimiter::new(limits.requests).with_max_keys(MAX_CLIENTS);
        Self { limits, requests, running: 0, transfers: HashMap::new() }
    }

    /// Counts a packet of `client` outside a transfer. False if it is over the limit.
    pub fn request(&mut self, client: Ipv4Addr, now: Instant) -> bool {
        self.requests.take_mut(client, now).is_ok()
    }

    /// Counts a transfer of `client` that starts. False if it is over a limit.
    pub fn start_transfer(&mut self, client: Ipv4Addr) -> bool {
        let own = self.transfers.get(&client).copied().unwrap_or_default();
        if self.running >= self.limits.transfers || own >= self.limits.transfers_per_client {
            return false;
        }
        self.running += 1;
        self.transfers.insert(client, own + 1);
        true
    }

    /// Counts a transfer of `client` that has ended.
    pub fn end_transfer(&mut self, client: Ipv4Addr) {
        let Entry::Occupied(mut own) = self.transfers.entry(client) else { return };
        self.running -= 1;
        *own.get_mut() -= 1;
        if *own.get() == 0 {
            own.remove();
        }
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
        let admitted = [ONE, ONE, ONE, TWO, TWO].map(|it| admission.start_transfer(it));
        assert_eq!(admitted, [true, true, false, true, false]);
    }

    #[test]
    fn a_transfer_that_ends_makes_room_for_one() {
        let mut admission = admission();
        assert_eq!([ONE, ONE, TWO].map(|it| admission.start_transfer(it)), [true; 3]);
        admission.end_transfer(ONE);
        assert_eq!([ONE, TWO].map(|it| admission.start_transfer(it)), [true, false]);
        [ONE, ONE, TWO].iter().for_each(|it| admission.end_transfer(*it));
        assert!(admission.transfers.is_empty() && admission.running == 0);
    }

    #[test]
    fn requests_of_a_client_are_limited_by_the_second() {
        let (mut admission, now) = (admission(), Instant::now());
        let first = [(); 5].map(|()| admission.request(ONE, now));
        assert_eq!(first, [true, true, true, true, false]);
        assert!(admission.request(ONE, now + SECOND));
    }

    #[test]
    fn forged_addresses_do_not_fill_the_memory() {
        let (mut admission, now) = (admission(), Instant::now());
        let mut forged = 0..10_000_u32;
        let admitted = forged.by_ref().filter(|n| admission.request((*n).into(), now));
        assert_eq!(admitted.count(), MAX_CLIENTS);
        assert!(admission.request(ONE, now + SECOND));
        assert_eq!(admission.requests.remembered_keys(), 1);
    }
}
