//! Conversion of leases to and from their records.

use std::net::Ipv4Addr;
use std::time::SystemTime;

use prost_types::Timestamp;
use store::records::Kind;
use tinwright::netboot::v1 as pb;
use tinwright::netboot::v1::lease::State as StoredState;

use crate::Mac;
use crate::pool::{Lease, State};

/// The kind of these records: `netboot/lease/<address>`. One record for each address, so one client.
#[derive(Debug)]
pub(super) enum LeaseKind {}

impl Kind for LeaseKind {
    type Record = pb::Lease;
    type Id = Ipv4Addr;
    const KIND: &'static str = "lease";

    /// Returns no state: only calls are recorded, not what DHCP clients do.
    fn state(_: &pb::Lease) -> String {
        String::new()
    }
}

/// The states of stored leases. An offer is not stored.
const STATES: [(State, StoredState); 5] = [
    (State::Bound, StoredState::Bound),
    (State::Released, StoredState::Released),
    (State::Expired, StoredState::Expired),
    (State::Declined, StoredState::Declined),
    (State::Withheld, StoredState::Withheld),
];

/// Returns the record of `lease` that replaces `old`; none for an offer, which is not stored.
pub(super) fn write(
    address: Ipv4Addr,
    lease: Lease,
    old: Option<&pb::Lease>,
    now: SystemTime,
) -> Option<pb::Lease> {
    let (_, state) = *STATES.iter().find(|(state, _)| *state == lease.state)?;
    let is_client = lease.state != State::Withheld;
    let mac = if is_client { lease.mac.to_string() } else { String::new() };
    let created = old.filter(|old| old.mac == mac).and_then(|old| old.create_time);
    Some(pb::Lease {
        address: address.to_string(),
        mac,
        revision: old.map_or(0, |old| old.revision),
        create_time: created.or(Some(now.into())),
        update_time: Some(now.into()),
        state: state.into(),
        expire_time: Some(lease.ends.into()),
        ..pb::Lease::default()
    })
}

/// Reads a record; none if only a newer server knows its state.
pub(super) fn read(record: &pb::Lease) -> Option<(Ipv4Addr, Lease)> {
    let (state, _) = *STATES.iter().find(|(_, stored)| *stored == record.state())?;
    let mac = if state == State::Withheld { Mac([0; 6]) } else { record.mac.parse().ok()? };
    let ends = record.expire_time.and_then(|at: Timestamp| at.try_into().ok())?;
    Some((record.address.parse().ok()?, Lease { state, mac, ends }))
}
