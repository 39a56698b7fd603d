//! Pools: addresses that are leased and not reserved, the selection of one for a client, and their states.
//!
//! ```text
//!          ┌──────────── 60 s ────────────┐
//!          │                              ▼
//! Free ─offer─▶ Offered ─bind─▶ Bound ─time─▶ Expired ─a day─▶ Free
//!                  │         ▲    │ └──release─▶ Released ─a day─▶ Free
//!                  │         └bind┘ (renewal)
//!                  └──decline──────▶ Declined ─10 min─▶ Free
//!
//! Free, Offered, Expired, Released, Declined ─claimed by another object─▶ Withheld ─10 min─▶ Free
//! ```
//!
//! [`subnet`]: a network with pools, as configured. Everything here is pure: `now` is an argument, and the module `leases`
//! stores what has to be durable.

pub mod subnet;

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::{Duration, SystemTime};

pub use self::subnet::{Range, Subnet, Unknown};
use crate::Mac;

/// An offered address is held for its client for this time.
pub const OFFER_HOLD: Duration = Duration::from_secs(60);
/// A declined address is given to no client for this time.
pub const DECLINE_HOLD: Duration = Duration::from_secs(10 * 60);
/// A claimed address is given to no client for this time. By then a feed names the object that has it.
pub const WITHHOLD_TIME: Duration = Duration::from_secs(10 * 60);
/// An address that is free again is preferred for its last client for this time.
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
    /// Claimed by an object that is not a client.
    Withheld,
}

/// The state of an address and its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The state.
    pub state: State,
    /// The client; of a declined address the one that declined it; zero of one that is withheld.
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

    /// Returns the lease after an object claims the address, if the lease was `before`. Fails with the lease of a client.
    pub fn withheld(before: Option<Self>, now: SystemTime) -> Result<Self, Self> {
        match before.and_then(|lease| lease.at(now)) {
            Some(lease) if lease.state == State::Bound => Err(lease),
            Some(_) | None => {
                let (state, mac) = (State::Withheld, Mac([0; 6]));
                Ok(Self { state, mac, ends: now + WITHHOLD_TIME })
            }
        }
    }

    /// Returns the lease after `event` of the client `mac`, if the lease was `before`. None if the address is
    /// leased by another client, or the client has not leased it.
    pub fn after(before: Option<Self>, mac: Mac, event: Event, now: SystemTime) -> Option<Self> {
        let before = before.and_then(|lease| lease.at(now));
        let own = before.filter(|lease| lease.mac == mac);
        let is_available = own.is_some() || before.is_none_or(Self::is_over);
        let lease = |state, ends| Some(Self { state, mac, ends });
        match (event, before.map(|lease| lease.state)) {
            (_, Some(State::Declined | State::Withheld)) => None,
            // The lease of a client that has the address is more than an offer.
            (Event::Offer, Some(State::Bound)) => own,
            (Event::Offer, _) if is_available => lease(State::Offered, now + OFFER_HOLD),
            (Event::Bind(until), _) if is_available => lease(State::Bound, until),
            (Event::Release, Some(State::Bound)) if own.is_some() => lease(State::Released, now),
            (Event::Decline, Some(State::Offered | State::Bound)) if own.is_some() => {
                lease(State::Declined, now + DECLINE_HOLD)
            }
            (Event::Offer | Event::Bind(_) | Event::Release | Event::Decline, _) => None,
        }
    }
}

/// The states of all addresses: stored leases, and offers, which are in memory only.
#[derive(Clone, Debug, Default)]
pub struct Table {
    stored: HashMap<Ipv4Addr, Lease>,
    offers: HashMap<Ipv4Addr, Lease>,
    /// The addresses that a client has or had.
    by_client: HashMap<Mac, Vec<Ipv4Addr>>,
}

impl Table {
    /// Returns the state of `address` at `now`; none if it is free. A lease that is not over takes precedence over an offer.
    pub fn state(&self, address: Ipv4Addr, now: SystemTime) -> Option<Lease> {
        let current = |lease: Option<&Lease>| lease.and_then(|lease| lease.at(now));
        let stored = current(self.stored.get(&address));
        let taken = stored.filter(|stored| !stored.is_over());
        taken.or_else(|| current(self.offers.get(&address))).or(stored)
    }

    /// Returns the address that the client `mac` has in `subnet`, or had last.
    pub fn of(&self, subnet: &Subnet, mac: Mac, now: SystemTime) -> Option<(Ipv4Addr, Lease)> {
        let addresses = self.by_client.get(&mac)?.iter().copied();
        let own = addresses.filter_map(|address| Some((address, self.state(address, now)?)));
        own.filter(|(address, lease)| lease.mac == mac && subnet.pool_contains(*address))
            .max_by_key(|(_, lease)| preference(*lease))
    }

    /// Selects an address for the client `mac` that requests `wanted`: the one that it has or had, else `wanted`, else the first
    /// free one from a position that depends on `mac` only. Addresses that are not `usable` are left out. None if all are taken.
    pub fn choose(
        &self,
        subnet: &Subnet,
        mac: Mac,
        wanted: Option<Ipv4Addr>,
        usable: impl Fn(Ipv4Addr) -> bool,
        now: SystemTime,
    ) -> Option<Ipv4Addr> {
        let open = |address: &Ipv4Addr| {
            let offer = Lease::after(self.state(*address, now), mac, Event::Offer, now);
            offer.is_some() && usable(*address)
        };
        let own = self.of(subnet, mac, now).map(|(address, _)| address).filter(open);
        let wanted = || wanted.filter(|wanted| subnet.pool_contains(*wanted) && open(wanted));
        if let Some(address) = own.or_else(wanted) {
            return Some(address);
        }
        let mut oldest: Option<(SystemTime, Ipv4Addr)> = None;
        for address in subnet.addresses(first_position(mac)).filter(open) {
            // An address that its last client may return for is given to another one only if no other is left.
            let last = self.state(address, now).filter(|last| last.is_over());
            let Some(last) = last else { return Some(address) };
            if oldest.is_none_or(|(before, _)| last.ends < before) {
                oldest = Some((last.ends, address));
            }
        }
        oldest.map(|(_, address)| address)
    }

    /// Offers `address` to the client `mac`; a client that leases it already needs no offer. Returns false if another client has
    /// it.
    pub fn offer(&mut self, address: Ipv4Addr, mac: Mac, now: SystemTime) -> bool {
        let offered = Lease::after(self.state(address, now), mac, Event::Offer, now);
        if let Some(offered) = offered.filter(|offered| offered.state == State::Offered) {
            self.offers.insert(address, offered);
            self.record_client(mac, address);
        }
        offered.is_some()
    }

    /// Withdraws the offers to the client `mac`, which has chosen another server.
    pub fn withdraw(&mut self, mac: Mac) {
        for address in self.by_client.get(&mac).into_iter().flatten() {
            remove_offer(&mut self.offers, *address, mac);
        }
    }

    /// Records the stored lease of `address`, or that there is none. It replaces an offer to the same client.
    pub fn record(&mut self, address: Ipv4Addr, lease: Option<Lease>) {
        let Some(lease) = lease else {
            self.stored.remove(&address);
            return;
        };
        self.stored.insert(address, lease);
        remove_offer(&mut self.offers, address, lease.mac);
        self.record_client(lease.mac, address);
    }

    /// Returns the number of addresses of `subnet` that a new client could get.
    pub fn free(&self, subnet: &Subnet, now: SystemTime) -> usize {
        let free = |address: &Ipv4Addr| self.state(*address, now).is_none_or(Lease::is_over);
        subnet.addresses(0).filter(free).count()
    }

    /// Removes expired offers, and clients without addresses.
    pub fn remove_expired(&mut self, now: SystemTime) {
        self.offers.retain(|_, offer| offer.at(now).is_some());
        let maps = [&self.stored, &self.offers];
        self.by_client.retain(|mac, addresses| {
            let has = |address: &Ipv4Addr| {
                maps.iter().filter_map(|map| map.get(address)).any(|lease| lease.mac == *mac)
            };
            addresses.retain(has);
            !addresses.is_empty()
        });
    }

    fn record_client(&mut self, mac: Mac, address: Ipv4Addr) {
        let addresses = self.by_client.entry(mac).or_default();
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
}

fn remove_offer(offers: &mut HashMap<Ipv4Addr, Lease>, address: Ipv4Addr, mac: Mac) {
    if offers.get(&address).is_some_and(|offer| offer.mac == mac) {
        offers.remove(&address);
    }
}

/// Orders the addresses of a client: leased, then offered, then had last, then declined.
fn preference(lease: Lease) -> (u8, SystemTime) {
    let rank = match lease.state {
        State::Bound => 3,
        State::Offered => 2,
        State::Released | State::Expired => 1,
        State::Declined | State::Withheld => 0,
    };
    (rank, lease.ends)
}

/// Returns the position where the search for a client's address begins: the same in every process and after every start
/// (FNV-1a).
fn first_position(mac: Mac) -> u64 {
    mac.0.iter().fold(0xcbf2_9ce4_8422_2325, |hash, octet| {
        (hash ^ u64::from(*octet)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests;
