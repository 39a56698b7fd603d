//! The states of a pool address, and the transitions between them.

use std::time::{Duration, SystemTime};

use crate::Mac;

/// The time for which an offered address is held for its client.
pub const OFFER_HOLD: Duration = Duration::from_secs(60);
/// The time for which a declined address is given to no client.
pub const DECLINE_HOLD: Duration = Duration::from_secs(10 * 60);
/// The time for which an address that is free again is preferred for its last client.
pub const LAST_CLIENT_PREFERENCE: Duration = Duration::from_secs(24 * 60 * 60);

/// The state of an address. An address without a state is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Offered to a client.
    Offered,
    /// Leased by a client.
    Bound,
    /// Released by its client.
    Released,
    /// Not renewed by its client.
    Expired,
    /// In use by a host that does not lease it.
    Declined,
}

/// The state of an address and its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The state.
    pub state: State,
    /// The client; of a declined address the one that declined it.
    pub mac: Mac,
    /// The end of the offer, the lease or the hold; past for a released or expired lease.
    pub ends: SystemTime,
}

/// An event of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It is offered to a client.
    Offer,
    /// A client leases or renews it until this time.
    Bind(SystemTime),
    /// A client releases it.
    Release,
    /// A client found that another host uses it.
    Decline,
}

/// The address is leased by another client, or the client has not leased it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the address is not this client's")]
pub struct Illegal;

impl Lease {
    /// Returns the lease as of `now`; none once the address is free and has no preferred client.
    pub fn at(self, now: SystemTime) -> Option<Self> {
        let expires = self.state == State::Bound && self.ends <= now;
        let state = if expires { State::Expired } else { self.state };
        let lease = Self { state, ..self };
        let rest = if lease.is_over() { LAST_CLIENT_PREFERENCE } else { Duration::ZERO };
        (now < self.ends + rest).then_some(lease)
    }

    /// True if another client may get the address.
    pub fn is_over(self) -> bool {
        matches!(self.state, State::Released | State::Expired)
    }

    /// Returns the lease after `event` of the client `mac`, if the lease was `before`.
    pub fn after(
        before: Option<Self>,
        mac: Mac,
        event: Event,
        now: SystemTime,
    ) -> Result<Self, Illegal> {
        let before = before.and_then(|lease| lease.at(now));
        let own = before.filter(|lease| lease.mac == mac);
        let is_available = own.is_some() || before.is_none_or(Self::is_over);
        let lease = |state, ends| Ok(Self { state, mac, ends });
        match (event, before.map(|lease| lease.state)) {
            (_, Some(State::Declined)) => Err(Illegal),
            // The lease of a client that has the address is more than an offer.
            (Event::Offer, Some(State::Bound)) => own.ok_or(Illegal),
            (Event::Offer, _) if is_available => lease(State::Offered, now + OFFER_HOLD),
            (Event::Bind(until), _) if is_available => lease(State::Bound, until),
            (Event::Release, Some(State::Bound)) if own.is_some() => lease(State::Released, now),
            (Event::Decline, Some(State::Offered | State::Bound)) if own.is_some() => {
                lease(State::Declined, now + DECLINE_HOLD)
            }
            (Event::Offer | Event::Bind(_) | Event::Release | Event::Decline, _) => Err(Illegal),
        }
    }
}
