//! A lease as the contract writes it, and as the pool knows it.

use std::net::Ipv4Addr;
use std::time::SystemTime;

use prost_types::Timestamp;
use store::records::{Index, Kind};
use tinwright::netboot::v1 as pb;
use tinwright::netboot::v1::lease::State;

use crate::pool::Lease;

/// The kind of these records: `netboot/lease/<address>`. One record an address, so one owner an address.
#[derive(Debug)]
pub(super) enum Kept {}

impl Kind for Kept {
    type Record = pb::Lease;
    type Id = Ipv4Addr;
    const NOUN: &'static str = "lease";
    const KIND: &'static str = "lease";
    const INDEXES: &'static [&'static str] = &[];

    fn id(lease: &pb::Lease) -> &str {
        &lease.address
    }

    fn revision_mut(lease: &mut pb::Lease) -> &mut i64 {
        &mut lease.revision
    }

    fn indexes(_: &pb::Lease) -> Vec<Index> {
        Vec::new()
    }
}

/// What is stored of `lease`, `old` being what is stored now; nothing of an offer.
pub(super) fn stored(
    address: Ipv4Addr,
    lease: Lease,
    old: Option<&pb::Lease>,
    now: SystemTime,
) -> Option<pb::Lease> {
    let (state, expires) = match lease {
        Lease::Offered { .. } => return None,
        Lease::Bound { until, .. } => (State::Bound, until),
        Lease::Released { at, .. } => (State::Released, at),
        Lease::Expired { at, .. } => (State::Expired, at),
        Lease::Declined { until, .. } => (State::Declined, until),
    };
    let mac = lease.mac().to_string();
    let same = old.filter(|old| old.mac == mac).and_then(|old| old.create_time);
    Some(pb::Lease {
        address: address.to_string(),
        mac,
        revision: old.map_or(0, |old| old.revision),
        create_time: same.or(Some(now.into())),
        update_time: Some(now.into()),
        state: state.into(),
        expire_time: Some(expires.into()),
        hardware_id: String::new(),
        at_port: false,
    })
}

/// What a record says; nothing where it is of a kind that only a newer server knows.
pub(super) fn read(record: &pb::Lease) -> Option<(Ipv4Addr, Lease)> {
    let mac = record.mac.parse().ok()?;
    let at: SystemTime = record.expire_time.and_then(|at: Timestamp| at.try_into().ok())?;
    let lease = match record.state() {
        State::Bound => Lease::Bound { mac, until: at },
        State::Released => Lease::Released { mac, at },
        State::Expired => Lease::Expired { mac, at },
        State::Declined => Lease::Declined { mac, until: at },
        State::Unspecified => return None,
    };
    Some((record.address.parse().ok()?, lease))
}

/// As callers see it at `now`: nobody writes down that time has passed.
pub(super) fn shown(mut record: pb::Lease, now: SystemTime) -> pb::Lease {
    if let Some((_, Lease::Bound { until, .. })) = read(&record)
        && until <= now
    {
        record.set_state(State::Expired);
    }
    record
}
