//! Limits of requests and transfers: for one client, and for all together.

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

/// Counts requests, and limits transfers.
#[derive(Debug)]
pub struct Admission {
    limits: Limits,
    requests: RateLimiter<Ipv4Addr>,
}

impl Admission {
    /// Creates the counters, all zero.
    pub fn new(limits: Limits) -> Self {
        let requests = RateLimiter::new(limits.requests).with_max_keys(MAX_CLIENTS);
        Self { limits, requests }
    }

    /// Counts a packet of `client` outside a transfer. False if it is over the limit.
    pub fn request(&mut self, client: Ipv4Addr, now: Instant) -> bool {
        self.requests.take_mut(client, now).is_ok()
    }

    /// True if `client` may start a transfer while those of the clients `running` run.
    pub fn admits_transfer(
        &self,
        client: Ipv4Addr,
        running: impl Iterator<Item = Ipv4Addr>,
    ) -> bool {
        let count = |(all, own), one| (all + 1, own + usize::from(one == client));
        let (all, own) = running.fold((0, 0), count);
        all < self.limits.transfers && own < self.limits.transfers_per_client
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

    /// Starts a transfer of `client`, if it is admitted.
    fn start(admission: &Admission, running: &mut Vec<Ipv4Addr>, client: Ipv4Addr) -> bool {
        let admitted = admission.admits_transfer(client, running.iter().copied());
        running.extend(admitted.then_some(client));
        admitted
    }

    #[test]
    fn transfers_are_limited_for_one_client_and_for_all() {
        let (admission, mut running) = (admission(), Vec::new());
        let admitted = [ONE, ONE, ONE, TWO, TWO].map(|it| start(&admission, &mut running, it));
        assert_eq!(admitted, [true, true, false, true, false]);
    }

    #[test]
    fn a_transfer_that_ends_makes_room() {
        let (admission, mut running) = (admission(), Vec::new());
        let results = [(); 3].map(|()| start(&admission, &mut running, ONE));
        assert_eq!(results, [true, true, false]);
        running.pop();
        assert!(start(&admission, &mut running, ONE));
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
