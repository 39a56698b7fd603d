//! The state of clients on a link: loaders that they were sent to, and declined addresses.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dhcp::chainload::{BootMessage, LOADER_INTERVAL, LoaderGrant};
use dhcp::{ClientClass, Request, Reservation};
use runtime::bounded_map::ExpiringMap;

use crate::Mac;

/// The time after a DECLINE until the address is offered again.
const DECLINE_HOLD: Duration = Duration::from_secs(60);
/// The number of interfaces whose loader is remembered. Further ones get scripts and no loaders.
const MAX_LOADER_GRANTS: usize = 8192;
/// The number of declined addresses that are remembered.
const MAX_DECLINED: usize = 65_536;

/// The last loader of each interface. Shared by all links, since a machine may be on several.
#[derive(Debug)]
pub struct LoaderGrants(Mutex<ExpiringMap<Mac, LoaderGrant>>);

/// The grant was changed by another request: evaluate the request again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaleGrant;

impl Default for LoaderGrants {
    fn default() -> Self {
        Self(Mutex::new(ExpiringMap::new(MAX_LOADER_GRANTS, LOADER_INTERVAL)))
    }
}

impl LoaderGrants {
    /// Decides whether `request` is answered with a loader because it is from iPXE in a NIC's ROM. Records nothing. None if
    /// the request does not matter for loaders.
    pub fn decide(&self, request: &Request, now: Instant) -> Option<bool> {
        let (mac, mut all) = (Mac(request.mac), self.all());
        let before = all.get(&mac, now).copied();
        let (_, loader) = grant_after(before, request, now)?;
        all.remove_expired(now);
        let has_room = before.is_some() || all.len() < MAX_LOADER_GRANTS;
        Some(loader && has_room)
    }

    /// Records what [`decide`](Self::decide) decided; fails if it would decide otherwise now.
    pub fn apply(&self, request: &Request, loader: bool, now: Instant) -> Result<(), StaleGrant> {
        let (mac, mut all) = (Mac(request.mac), self.all());
        let before = all.get(&mac, now).copied();
        let Some((grant, current)) = grant_after(before, request, now) else { return Ok(()) };
        let recorded = if grant.age(now).is_zero() {
            all.try_insert(mac, grant, now).is_ok()
        } else {
            all.get_mut(&mac, now).map(|own| *own = grant).is_some()
        };
        if (current && recorded) == loader { Ok(()) } else { Err(StaleGrant) }
    }

    fn all(&self) -> MutexGuard<'_, ExpiringMap<Mac, LoaderGrant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The grant after `request`, and true if it is answered with a loader although it is from iPXE.
fn grant_after(
    before: Option<LoaderGrant>,
    request: &Request,
    now: Instant,
) -> Option<(LoaderGrant, bool)> {
    let message = BootMessage::of(request)?;
    match request.class {
        ClientClass::Pxe | ClientClass::Http => {
            Some((LoaderGrant::to_firmware(message, now), false))
        }
        ClientClass::Ipxe { .. } => Some(LoaderGrant::to_ipxe(before, message, now)),
        ClientClass::Ordinary => None,
    }
}

/// The state of one link.
#[derive(Debug)]
pub struct LinkState {
    /// Present if iPXE in a NIC's ROM gets another loader.
    grants: Option<Arc<LoaderGrants>>,
    /// The reserved addresses that were declined lately. Keyed by address, not by MAC: clients at a machine's switch port
    /// get its record, with any number of MACs.
    declined: Mutex<ExpiringMap<Ipv4Addr, ()>>,
}

impl Default for LinkState {
    fn default() -> Self {
        Self::new(None)
    }
}

impl LinkState {
    /// With `grants`, iPXE in a NIC's ROM gets another loader.
    pub fn new(grants: Option<Arc<LoaderGrants>>) -> Self {
        Self { grants, declined: Mutex::new(ExpiringMap::new(MAX_DECLINED, DECLINE_HOLD)) }
    }

    /// The loaders that interfaces were sent to, if iPXE in a NIC's ROM gets another one.
    pub fn grants(&self) -> Option<&LoaderGrants> {
        self.grants.as_deref()
    }

    /// Records that the interface `mac` has fetched a loader completely.
    pub fn record_fetched(&self, mac: Mac, now: Instant) {
        if let Some(grants) = self.grants() {
            // Without room the interface gets the script in any case.
            let _full = grants.all().try_insert(mac, LoaderGrant::fetched(now), now);
        }
    }

    /// The time since the interface `mac` was sent to a loader, if that prevents another one.
    pub fn loader_age(&self, mac: Mac, now: Instant) -> Option<Duration> {
        let grant = self.grants()?.all().get(&mac, now).copied()?;
        grant.is_current(now).then(|| grant.age(now))
    }

    /// Records that a client declined `address`, which a record reserves.
    pub fn record_declined(&self, address: Ipv4Addr, now: Instant) {
        self.declined().insert(address, (), now);
    }

    /// The time since the reserved address was declined, if it is not offered yet because of that.
    pub fn declined_age(&self, reservation: &Reservation, now: Instant) -> Option<Duration> {
        self.declined().age(&reservation.address?.addr(), now)
    }

    fn declined(&self) -> MutexGuard<'_, ExpiringMap<Ipv4Addr, ()>> {
        self.declined.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of remembered DECLINEs.
    #[cfg(test)]
    pub(super) fn declined_count(&self) -> usize {
        self.declined().len()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
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
        let (grants, now) = (LoaderGrants::default(), Instant::now());
        let loaders = (0..20_000).filter(|number| {
            let loader = grants.decide(&discover(*number), now).unwrap();
            assert_eq!(grants.apply(&discover(*number), loader, now), Ok(()));
            loader
        });
        assert_eq!(loaders.count(), MAX_LOADER_GRANTS);
        assert_eq!(grants.all().len(), MAX_LOADER_GRANTS);
        let later = now + LOADER_INTERVAL;
        assert_eq!(grants.decide(&discover(1 << 20), later), Some(true));
        assert_eq!(grants.apply(&discover(1 << 20), true, later), Ok(()));
        assert_eq!(grants.all().len(), 1);
    }

    #[test]
    fn of_two_exchanges_that_are_evaluated_together_one_gets_a_loader() {
        let (grants, now) = (LoaderGrants::default(), Instant::now());
        let (one, mut other) = (discover(1), discover(1));
        other.packet.xid = 7;
        assert_eq!([&one, &other].map(|it| grants.decide(it, now)), [Some(true); 2]);
        assert_eq!(grants.apply(&one, true, now), Ok(()));
        assert_eq!(grants.apply(&other, true, now), Err(StaleGrant));
        assert_eq!(grants.decide(&other, now), Some(false));
    }

    #[test]
    fn a_declined_address_is_withheld_for_a_minute() {
        let (state, now) = (LinkState::default(), Instant::now());
        let own = |n: u8| {
            let address = ipnet::Ipv4Net::new_assert([192, 0, 2, n].into(), 24);
            Reservation::new([2; 6], Some(address))
        };
        state.record_declined([192, 0, 2, 1].into(), now);
        let held = DECLINE_HOLD - Duration::from_secs(1);
        assert_eq!(state.declined_age(&own(1), now + held), Some(held));
        assert_eq!(state.declined_age(&own(2), now), None);
        assert_eq!(state.declined_age(&own(1), now + DECLINE_HOLD), None);
    }
}
