//! The cache of the kernel's answers. Pure.
//!
//! ```text
//! read all notifications ─┬─▶ get: a cached answer is what the kernel would say
//!                         └─▶ begin_query ─▶ insert: its answer, unless there was a notification meanwhile
//! ```
//!
//! The kernel notifies of neighbours after the change, so a query that begins after the notification gets the new state. It
//! notifies of links and routes shortly before: it says that a route goes, then removes it. So answers to queries of the
//! second after such a notification are cached for 20 ms only. A few changes have no notification (an ICMP redirect, a
//! setting): so nothing is cached for more than a second.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::source_check::NeighbourCheck;
use crate::bounded_map::ExpiringMap;
use crate::netlink::notifications::Change;

/// Enough for a site of ten thousand machines, in about 1 MB.
const MAX_ADDRESSES: usize = 16_384;
/// The lifetime of an answer, and the longest time that a change of links and routes takes.
const LIFETIME: Duration = Duration::from_secs(1);
/// Lifetime of an answer while a change of links or routes may be under way.
const UNSETTLED_LIFETIME: Duration = Duration::from_millis(20);

/// The owners of addresses.
#[derive(Debug)]
pub(super) struct NeighbourCache {
    owners: ExpiringMap<IpAddr, NeighbourCheck>,
    /// The number of notifications.
    changes: u64,
    /// When the last change of links and routes is certainly made.
    settled: Option<Instant>,
}

/// The beginning of a query.
#[derive(Clone, Copy, Debug)]
pub(super) struct Query {
    at: Instant,
    changes: u64,
}

impl Default for NeighbourCache {
    fn default() -> Self {
        Self { owners: ExpiringMap::new(MAX_ADDRESSES, LIFETIME), changes: 0, settled: None }
    }
}

impl NeighbourCache {
    /// Removes what `change` may have changed.
    pub(super) fn invalidate(&mut self, change: Change, now: Instant) {
        self.changes += 1;
        match change {
            Change::Neighbour(address) => drop(self.owners.remove(&address)),
            Change::Other => {
                self.owners.clear();
                self.settled = Some(now + LIFETIME);
            }
        }
    }

    /// Returns the owner of `address`, if it is cached.
    pub(super) fn get(&self, address: IpAddr, now: Instant) -> Option<NeighbourCheck> {
        self.owners.get(&address, now).copied()
    }

    /// Begins a query to the kernel.
    pub(super) fn begin_query(&self, now: Instant) -> Query {
        Query { at: now, changes: self.changes }
    }

    /// Stores the kernel's answer to `query`, unless it may be outdated already.
    pub(super) fn insert(&mut self, query: Query, address: IpAddr, owner: NeighbourCheck) {
        use NeighbourCheck::{OwnHost, Owner, Routed};
        let is_definite = matches!(owner, OwnHost | Routed | Owner(_));
        if !is_definite || self.changes != query.changes {
            return;
        }
        let is_settled = self.settled.is_none_or(|settled| settled <= query.at);
        let age = if is_settled { Duration::ZERO } else { LIFETIME - UNSETTLED_LIFETIME };
        if let Some(since) = query.at.checked_sub(age) {
            self.owners.insert(address, owner, since);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use tinwright::Mac;

    const NODE1: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 50));
    const NODE2: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 60));
    const OWNER: NeighbourCheck = NeighbourCheck::Owner(Mac([0x52, 0x54, 0, 0, 0, 1]));

    /// A cache of both nodes, and the time of the queries.
    fn both() -> (NeighbourCache, Instant) {
        let (mut cache, now) = (NeighbourCache::default(), Instant::now());
        cache.insert(cache.begin_query(now), NODE1, OWNER);
        cache.insert(cache.begin_query(now), NODE2, NeighbourCheck::Routed);
        (cache, now)
    }

    fn cached(cache: &NeighbourCache, now: Instant) -> [Option<NeighbourCheck>; 2] {
        [NODE1, NODE2].map(|address| cache.get(address, now))
    }

    #[test]
    fn answers_are_cached_for_a_second() {
        let (cache, now) = both();
        let last = now + LIFETIME - Duration::from_nanos(1);
        assert_eq!(cached(&cache, last), [Some(OWNER), Some(NeighbourCheck::Routed)]);
        assert_eq!(cached(&cache, now + LIFETIME), [None; 2]);
    }

    #[test]
    fn a_change_of_a_neighbour_removes_only_its_address() {
        let (mut cache, now) = both();
        cache.invalidate(Change::Neighbour(NODE1), now);
        assert_eq!(cached(&cache, now), [None, Some(NeighbourCheck::Routed)]);
        cache.insert(cache.begin_query(now), NODE1, OWNER);
        assert_eq!(cached(&cache, now), [Some(OWNER), Some(NeighbourCheck::Routed)]);
    }

    #[test]
    fn an_answer_is_not_cached_after_a_change_during_the_query() {
        let (mut cache, now) = both();
        let query = cache.begin_query(now);
        cache.invalidate(Change::Neighbour(NODE1), now);
        cache.insert(query, NODE1, OWNER);
        assert_eq!(cache.get(NODE1, now), None);
    }

    #[test]
    fn answers_are_cached_for_20_ms_in_the_second_after_a_change_of_links_or_routes() {
        let (mut cache, now) = both();
        // The start of the clock may be now.
        let now = now + LIFETIME;
        cache.invalidate(Change::Other, now);
        assert_eq!(cached(&cache, now), [None; 2]);
        for (at, lifetime) in [(now, UNSETTLED_LIFETIME), (now + LIFETIME, LIFETIME)] {
            cache.insert(cache.begin_query(at), NODE1, OWNER);
            let last = at + lifetime - Duration::from_nanos(1);
            assert_eq!(cache.get(NODE1, last), Some(OWNER));
            assert_eq!(cache.get(NODE1, at + lifetime), None);
        }
    }

    #[test]
    fn a_missing_owner_is_not_cached() {
        let (mut cache, now) = both();
        cache.invalidate(Change::Neighbour(NODE1), now);
        cache.insert(cache.begin_query(now), NODE1, NeighbourCheck::NoOwner);
        assert_eq!(cache.get(NODE1, now), None);
    }

    #[test]
    fn the_number_of_cached_addresses_is_limited() {
        let (mut cache, now) = both();
        for host in 0..u32::try_from(MAX_ADDRESSES).unwrap() {
            cache.insert(
                cache.begin_query(now),
                Ipv4Addr::from(host).into(),
                NeighbourCheck::Routed,
            );
        }
        assert_eq!(cache.owners.len(), MAX_ADDRESSES);
    }
}
