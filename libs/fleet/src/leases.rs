//! Addresses out of a pool: the interface that has each, and until when.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Instant, SystemTime};

use tinwright::Mac;
use tinwright::netboot::v1::{Lease, lease::State};

/// A lease that has not been given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundLease {
    /// The interface that has the address.
    pub mac: Mac,
    /// The end of the lease: it ends without an event.
    pub until: Instant,
    /// True if it was got through the relay port that the machine's record names.
    pub at_port: bool,
}

/// A change of the leases.
#[derive(Clone, Debug)]
pub enum LeaseUpdate {
    /// All leases there are.
    All(Vec<(IpAddr, BoundLease)>),
    /// The lease of one address; none if it has none any more.
    One(IpAddr, Option<BoundLease>),
}

/// The same time on two clocks: leases end by the wall clock, which may jump; freshness runs by the monotonic one.
#[derive(Clone, Copy, Debug)]
pub struct ClockReading {
    /// The wall clock.
    pub wall: SystemTime,
    /// The monotonic clock.
    pub monotonic: Instant,
}

impl ClockReading {
    /// Reads both clocks.
    pub fn now() -> Self {
        Self { wall: SystemTime::now(), monotonic: Instant::now() }
    }
}

/// Returns the address of `record` and its lease; none if it is not bound at `now`.
pub fn bound(record: &Lease, now: ClockReading) -> Option<(IpAddr, BoundLease)> {
    match record.state() {
        State::Bound => {}
        State::Unspecified | State::Released | State::Declined | State::Expired => return None,
    }
    let ends: SystemTime = record.expire_time?.try_into().ok()?;
    let until = now.monotonic.checked_add(ends.duration_since(now.wall).ok()?)?;
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

    /// Returns the addresses leased to any of `macs`, in order. Looks at all leases.
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
        let (now, left) = (ClockReading::now(), Duration::from_secs(60));
        let record = Lease {
            address: "198.51.100.100".into(),
            mac: "52:54:00:00:00:01".into(),
            state: State::Bound.into(),
            expire_time: Some((now.wall + left).into()),
            ..Lease::default()
        };
        let (address, lease) = bound(&record, now).unwrap();
        assert_eq!(
            (address.to_string().as_str(), lease.until),
            ("198.51.100.100", now.monotonic + left)
        );
        let later = ClockReading { wall: now.wall + left * 2, ..now };
        assert_eq!(bound(&record, later), None);
        for state in [State::Released, State::Declined] {
            assert_eq!(bound(&Lease { state: state.into(), ..record.clone() }, now), None);
        }
    }
}
