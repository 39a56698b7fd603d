//! The state of clients on a link: loaders that they were sent to, and declined addresses.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dhcp::chainload::{BootMessage, LoaderGrant};
use dhcp::{BootOffer, ClientClass, Request, Reservation};

use crate::Mac;

/// The time after a DECLINE until the address is offered again.
const DECLINE_HOLD: Duration = Duration::from_secs(60);
/// The number of interfaces that are remembered. Further ones get scripts and no loaders.
const MAX_LOADER_GRANTS: usize = 8192;
/// The interval at which expired grants are removed.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// The last loader of each interface.
#[derive(Debug, Default)]
pub struct LoaderGrants {
    grants: HashMap<Mac, LoaderGrant>,
    swept: Option<Instant>,
}

impl LoaderGrants {
    /// Records a grant, if there is room.
    fn put(&mut self, mac: Mac, grant: LoaderGrant, now: Instant) -> bool {
        let full = |grants: &HashMap<_, _>| grants.len() >= MAX_LOADER_GRANTS;
        if full(&self.grants) && !self.grants.contains_key(&mac) {
            let due =
                self.swept.is_none_or(|at| now.saturating_duration_since(at) >= SWEEP_INTERVAL);
            if due {
                self.swept = Some(now);
                self.grants.retain(|_, grant| grant.is_current(now));
            }
            if full(&self.grants) {
                return false;
            }
        }
        self.grants.insert(mac, grant);
        true
    }

    fn chainload(&mut self, request: &Request, offer: BootOffer, now: Instant) -> BootOffer {
        let Some(message) = BootMessage::of(request) else { return offer };
        let mac = Mac(request.mac);
        match request.class {
            _ if offer != BootOffer::Offered || request.is_site_build => offer,
            ClientClass::Pxe | ClientClass::Http => {
                self.put(mac, LoaderGrant::to_firmware(message, now), now);
                offer
            }
            ClientClass::Ipxe { .. } => {
                let before = self.grants.get(&mac).copied();
                let (grant, loader) = LoaderGrant::to_ipxe(before, message, now);
                if self.put(mac, grant, now) && loader { BootOffer::Chainload } else { offer }
            }
            ClientClass::Ordinary => offer,
        }
    }
}

/// The state of one link.
#[derive(Debug, Default)]
pub struct LinkState {
    /// Present if iPXE in a NIC's ROM gets another loader. Shared by all links: a machine may be on several.
    grants: Option<Arc<Mutex<LoaderGrants>>>,
    /// The time of the last DECLINE of each reserved address. Keyed by address, not by MAC: clients at a machine's switch
    /// port get its record, with any number of MACs.
    declined: Mutex<HashMap<Ipv4Addr, Instant>>,
}

impl LinkState {
    /// With `grants`, iPXE in a NIC's ROM gets another loader.
    pub fn new(grants: Option<Arc<Mutex<LoaderGrants>>>) -> Self {
        Self { grants, declined: Mutex::default() }
    }

    /// True if iPXE in a NIC's ROM gets another loader.
    pub fn chainloads(&self) -> bool {
        self.grants.is_some()
    }

    /// Turns the offer into a chainload if the client is iPXE in a NIC's ROM, and records that it was given a loader.
    pub fn chainload(&self, request: &Request, offer: BootOffer, now: Instant) -> BootOffer {
        self.grants().map_or(offer, |mut grants| grants.chainload(request, offer, now))
    }

    /// The offer that [`chainload`](Self::chainload) would return; records nothing.
    pub fn would_chainload(&self, request: &Request, offer: BootOffer, now: Instant) -> BootOffer {
        let Some(grants) = self.grants() else { return offer };
        let own = grants.grants.get(&Mac(request.mac)).map(|grant| (Mac(request.mac), *grant));
        let mut copy = LoaderGrants { grants: own.into_iter().collect(), swept: None };
        copy.chainload(request, offer, now)
    }

    /// Records that the interface `mac` has fetched a loader completely.
    pub fn fetched(&self, mac: Mac, now: Instant) {
        if let Some(mut grants) = self.grants() {
            grants.put(mac, LoaderGrant::fetched(now), now);
        }
    }

    /// The time since the interface `mac` was sent to a loader, if that prevents another one.
    pub fn loader_age(&self, mac: Mac, now: Instant) -> Option<Duration> {
        let grant = self.grants()?.grants.get(&mac).copied()?;
        grant.is_current(now).then(|| grant.age(now))
    }

    /// Records that a client declined `address`, which a record reserves.
    pub fn declined(&self, address: Ipv4Addr, now: Instant) {
        let mut declined = self.declined.lock().unwrap_or_else(PoisonError::into_inner);
        declined.retain(|_, at| now.saturating_duration_since(*at) < DECLINE_HOLD);
        declined.insert(address, now);
    }

    /// The time since the reserved address was declined, if it is not offered yet because of that.
    pub fn withheld(&self, reservation: &Reservation, now: Instant) -> Option<Duration> {
        let address = reservation.address?.addr();
        let declined = self.declined.lock().unwrap_or_else(PoisonError::into_inner);
        let age = now.saturating_duration_since(*declined.get(&address)?);
        (age < DECLINE_HOLD).then_some(age)
    }

    /// The number of remembered DECLINEs.
    #[cfg(test)]
    pub(super) fn declined_count(&self) -> usize {
        self.declined.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn grants(&self) -> Option<MutexGuard<'_, LoaderGrants>> {
        let grants = self.grants.as_deref()?;
        Some(grants.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use dhcp::chainload::LOADER_INTERVAL;
    use dhcp::options::code;
    use dhcp::{Link, ListenPort, MessageType, Packet, Received};

    fn discover(number: u32) -> Request {
        let [a, b, c, d] = number.to_be_bytes();
        let mut packet = Packet::request(MessageType::Discover, [2, 0, a, b, c, d]);
        packet.options.set(code::USER_CLASS, "iPXE");
        let source = "0.0.0.0:68".parse().unwrap();
        let received = Received { source, broadcast: true, port: ListenPort::Dhcp };
        Request::new(packet, received, &Link::new([192, 0, 2, 1].into(), "")).unwrap()
    }

    #[test]
    fn forged_macs_do_not_fill_the_memory_and_get_scripts() {
        let (grants, now) = (Arc::new(Mutex::default()), Instant::now());
        let state = LinkState::new(Some(Arc::clone(&grants)));
        let loaders = (0..20_000).filter(|number| {
            let offer = state.chainload(&discover(*number), BootOffer::Offered, now);
            offer == BootOffer::Chainload
        });
        assert_eq!(loaders.count(), MAX_LOADER_GRANTS);
        state.fetched(Mac([2; 6]), now);
        assert_eq!(grants.lock().unwrap().grants.len(), MAX_LOADER_GRANTS);
        let later = state.chainload(&discover(1 << 20), BootOffer::Offered, now + LOADER_INTERVAL);
        assert_eq!((later, grants.lock().unwrap().grants.len()), (BootOffer::Chainload, 1));
    }

    #[test]
    fn a_declined_address_is_withheld_for_a_minute_and_then_forgotten() {
        let (state, now) = (LinkState::default(), Instant::now());
        let own = |n: u8| {
            let address = ipnet::Ipv4Net::new_assert([192, 0, 2, n].into(), 24);
            Reservation::new([2; 6], Some(address))
        };
        state.declined([192, 0, 2, 1].into(), now);
        let second = Duration::from_secs(1);
        let held = DECLINE_HOLD - second;
        assert_eq!(state.withheld(&own(1), now + held), Some(held));
        assert_eq!(state.withheld(&own(2), now), None);
        assert_eq!(state.withheld(&own(1), now + DECLINE_HOLD), None);
        state.declined([192, 0, 2, 2].into(), now + DECLINE_HOLD);
        assert_eq!(state.declined_count(), 1);
    }
}
