//! The states of all addresses, and the selection of one for a client.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::SystemTime;

use super::lease::{Event, Illegal, Lease, State};
use super::subnet::Subnet;
use crate::Mac;

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
            offer.is_ok() && usable(*address)
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

    /// Offers `address` to the client `mac`; a client that leases it already needs no offer.
    pub fn offer(&mut self, address: Ipv4Addr, mac: Mac, now: SystemTime) -> Result<(), Illegal> {
        let offered = Lease::after(self.state(address, now), mac, Event::Offer, now)?;
        if offered.state == State::Offered {
            self.offers.insert(address, offered);
            self.record_client(mac, address);
        }
        Ok(())
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
        State::Declined => 0,
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
