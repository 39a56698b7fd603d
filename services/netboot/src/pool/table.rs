//! The state of every address, and the choice of one for a client.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::SystemTime;

use super::lease::{Event, Illegal, Lease};
use super::subnet::Subnet;
use crate::Mac;

/// What became of every address: what is kept by whoever keeps it, and the offers that nobody keeps.
#[derive(Clone, Debug, Default)]
pub struct Table {
    kept: HashMap<Ipv4Addr, Lease>,
    offers: HashMap<Ipv4Addr, Lease>,
    /// Where a client is mentioned, or was.
    mentions: HashMap<Mac, Vec<Ipv4Addr>>,
}

impl Table {
    /// How `address` is at `now`; nothing is free. An offer counts for nothing beside what somebody was given meanwhile.
    pub fn state(&self, address: Ipv4Addr, now: SystemTime) -> Option<Lease> {
        let live = |lease: Option<&Lease>| lease.and_then(|lease| lease.at(now));
        let kept = live(self.kept.get(&address));
        match kept.filter(|kept| !kept.leaves_free()) {
            Some(taken) => Some(taken),
            None => live(self.offers.get(&address)).or(kept),
        }
    }

    /// What the client `mac` has in `subnet`, or had last.
    pub fn of(&self, subnet: &Subnet, mac: Mac, now: SystemTime) -> Option<(Ipv4Addr, Lease)> {
        let mentioned = self.mentions.get(&mac)?.iter().copied();
        let own = mentioned.filter_map(|address| Some((address, self.state(address, now)?)));
        own.filter(|(address, lease)| lease.mac() == mac && subnet.lends(*address))
            .max_by_key(|(_, lease)| standing(*lease))
    }

    /// The address for the client `mac` that would like `wanted`: the one it has or had, that one, or the first free one
    /// from a place that depends on nothing but `mac`. None where all are taken. Only addresses that are `usable` count.
    pub fn choose(
        &self,
        subnet: &Subnet,
        mac: Mac,
        wanted: Option<Ipv4Addr>,
        usable: impl Fn(Ipv4Addr) -> bool,
        now: SystemTime,
    ) -> Option<Ipv4Addr> {
        let open = |address: Ipv4Addr| {
            let offer = Lease::after(self.state(address, now), mac, Event::Offer, now);
            offer.is_ok() && usable(address)
        };
        let own = self.of(subnet, mac, now).map(|(address, _)| address).filter(|own| open(*own));
        let wanted = wanted.filter(|wanted| subnet.lends(*wanted) && open(*wanted));
        if let Some(address) = own.or(wanted) {
            return Some(address);
        }
        let mut oldest: Option<(SystemTime, Ipv4Addr)> = None;
        for address in subnet.addresses(place(mac)).filter(|address| open(*address)) {
            // What somebody may come back for is given to another one only when nothing else is left.
            let Some(Lease::Released { at, .. } | Lease::Expired { at, .. }) =
                self.state(address, now)
            else {
                return Some(address);
            };
            if oldest.is_none_or(|(before, _)| at < before) {
                oldest = Some((at, address));
            }
        }
        oldest.map(|(_, address)| address)
    }

    /// Offers `address` to the client `mac`. Whoever has it already needs no offer.
    pub fn offer(&mut self, address: Ipv4Addr, mac: Mac, now: SystemTime) -> Result<(), Illegal> {
        let offered = Lease::after(self.state(address, now), mac, Event::Offer, now)?;
        if let Lease::Offered { .. } = offered {
            self.offers.insert(address, offered);
            self.mention(mac, address);
        }
        Ok(())
    }

    /// Takes back what was offered to the client `mac`: it has chosen another server.
    pub fn withdraw(&mut self, mac: Mac) {
        for address in self.mentions.get(&mac).into_iter().flatten() {
            if self.offers.get(address).is_some_and(|offer| offer.mac() == mac) {
                self.offers.remove(address);
            }
        }
    }

    /// Notes what is kept of `address`. An offer to the same client has served its purpose.
    pub fn keep(&mut self, address: Ipv4Addr, lease: Option<Lease>) {
        let Some(lease) = lease else {
            self.kept.remove(&address);
            return;
        };
        self.kept.insert(address, lease);
        if self.offers.get(&address).is_some_and(|offer| offer.mac() == lease.mac()) {
            self.offers.remove(&address);
        }
        self.mention(lease.mac(), address);
    }

    /// How many addresses of `subnet` somebody new could be given.
    pub fn free(&self, subnet: &Subnet, now: SystemTime) -> usize {
        let free = |address: &Ipv4Addr| self.state(*address, now).is_none_or(Lease::leaves_free);
        subnet.addresses(0).filter(free).count()
    }

    /// Drops offers that nobody took, and mentions of what is over.
    pub fn tidy(&mut self, now: SystemTime) {
        self.offers.retain(|_, offer| offer.at(now).is_some());
        let (kept, offers) = (&self.kept, &self.offers);
        self.mentions.retain(|mac, addresses| {
            let about = |table: &HashMap<Ipv4Addr, Lease>, address: &Ipv4Addr| {
                table.get(address).is_some_and(|lease| lease.mac() == *mac)
            };
            addresses.retain(|address| about(kept, address) || about(offers, address));
            !addresses.is_empty()
        });
    }

    fn mention(&mut self, mac: Mac, address: Ipv4Addr) {
        let addresses = self.mentions.entry(mac).or_default();
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
}

/// What counts more for a client: what it has, what it was told of, what it had last.
fn standing(lease: Lease) -> (u8, SystemTime) {
    match lease {
        Lease::Bound { until, .. } => (3, until),
        Lease::Offered { until, .. } => (2, until),
        Lease::Released { at, .. } | Lease::Expired { at, .. } => (1, at),
        Lease::Declined { until, .. } => (0, until),
    }
}

/// Where the search for a client's address begins: the same in every process and after every start (FNV-1a).
fn place(mac: Mac) -> u64 {
    mac.0.iter().fold(0xcbf2_9ce4_8422_2325, |hash, octet| {
        (hash ^ u64::from(*octet)).wrapping_mul(0x0100_0000_01b3)
    })
}
