//! Leases of pool addresses: the interface that has each address, and the end of its lease.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Instant, SystemTime};

use tinwright::Mac;
use tinwright::netboot::v1::{Lease, lease::State};

/// A lease that was not released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundLease {
    /// The interface that has the address.
    pub mac: Mac,
    /// The end of the lease. No event reports it.
    pub until: Instant,
    /// True if it was leased through the relay port in the machine's record.
    pub at_port: bool,
}

/// A change of the leases.
#[derive(Clone, Debug)]
pub enum LeaseUpdate {
    /// All leases.
    All(Vec<(IpAddr, BoundLease)>),
    /// The lease of one address; none if it has ended.
    One(IpAddr, Option<BoundLease>),
}

/// Returns the address and lease of `record`; none if it is not bound at `wall`, when the monotonic clock reads `now`.
///
/// Records give the end of a lease on the wall clock, which may jump. From here on the monotonic clock counts.
pub fn bound(record: &Lease, wall: SystemTime, now: Instant) -> Option<(IpAddr, BoundLease)> {
    match record.state() {
        State::Bound => {}
        State::Unspecified
        | State::Released
        | State::Declined
        | State::Expired
        | State::Withheld => return None,
    }
    let ends: SystemTime = record.expire_time?.try_into().ok()?;
    let until = now.checked_add(ends.duration_since(wall).ok()?)?;
    let (mac, at_port) = (record.mac.parse().ok()?, record.at_port);
    Some((record.address.parse().ok()?, BoundLease { mac, until, at_port }))
}

/// The leases by address.
#[derive(Clone, Debug, Default)]
pub struct LeaseTable(HashMap<IpAddr, BoundLease>);

impl LeaseTable {
    /// Applies `update`.
    pub fn apply(&mut self, update: &LeaseUpdate) {
        match update {
            LeaseUpdate::All(leases) => self.0 = leases.iter().copied().collect(),
            LeaseUpdate::One(address, Some(lease)) => drop(self.0.insert(*address, *lease)),
            LeaseUpdate::One(address, None) => drop(self.0.remove(address)),
        }
    }

    /// Returns the lease of `address`, if it has not ended at `now`.
    pub fn get(&self, address: IpAddr, now: Instant) -> Option<BoundLease> {
        self.0.get(&address).copied().filter(|lease| now < lease.until)
    }

    /// Returns the addresses leased to any of `macs`, sorted. Scans all leases.
    pub fn addresses_of(&self, macs: &[Mac], now: Instant) -> Vec<IpAddr> {
        let own = |lease: &BoundLease| now < lease.until && macs.contains(&lease.mac);
        let mut all: Vec<_> =
            self.0.iter().filter(|(_, lease)| own(lease)).map(|(address, _)| *address).collect();
        all.sort();
        all
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_address_is_leased_while_the_lease_is_bound_and_has_not_ended() {
        let (wall, now, left) = (SystemTime::now(), Instant::now(), Duration::from_secs(60));
        let record = Lease {
            address: "198.51.100.100".into(),
            mac: "52:54:00:00:00:01".into(),
            state: State::Bound.into(),
            expire_time: Some((wall + left).into()),
            ..Lease::default()
        };
        let (address, lease) = bound(&record, wall, now).unwrap();
        assert_eq!((address.to_string().as_str(), lease.until), ("198.51.100.100", now + left));
        assert_eq!(bound(&record, wall + left * 2, now), None);
        for state in [State::Released, State::Declined] {
            assert_eq!(bound(&Lease { state: state.into(), ..record.clone() }, wall, now), None);
        }
    }
}
