//! The state of clients on a link: loaders that they were sent to, declined addresses, iPXE that is
//! booting, and exchanges.

use std::hash::Hash;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dhcp::chainload::{GrantChange, LOADER_INTERVAL, LoaderGrant};
use dhcp::{DropReason, Exchange, Link, MessageType, Request, Reservation};
use runtime::bounded_map::ExpiringMap;

use crate::Mac;

/// The time after a DECLINE until the address is offered again.
const DECLINE_HOLD: Duration = Duration::from_secs(60);
/// After a DHCP reply, iPXE counts as booting for this time.
const BOOTING_TIME: Duration = Duration::from_secs(60);
/// Maximum time from a DISCOVER to the last REQUEST of its exchange. Firmware waits for offers for
/// up to a minute.
const MAX_EXCHANGE_TIME: Duration = Duration::from_secs(2 * 60);
/// Maximum number of remembered exchanges, each of about a kilobyte. Of a forgotten one, each
/// packet is judged alone.
const MAX_EXCHANGES: usize = 8192;
/// Maximum number of interfaces with a remembered loader. Further ones get scripts and no loaders.
const MAX_LOADER_GRANTS: usize = 8192;
/// The number of declined addresses, and of booting machines, that are remembered.
const MAX_ENTRIES: usize = 65_536;

/// The last loader of each interface. Shared by all links, since a machine may be on several.
#[derive(Debug)]
pub struct LoaderGrants(Mutex<ExpiringMap<Mac, LoaderGrant>>);

impl Default for LoaderGrants {
    fn default() -> Self {
        Self(Mutex::new(ExpiringMap::new(MAX_LOADER_GRANTS, LOADER_INTERVAL)))
    }
}

impl LoaderGrants {
    /// Decides whether `request` is answered with a loader because it is from iPXE in a NIC's ROM. Records nothing. None if
    /// the request does not matter for loaders.
    pub fn decide(&self, request: &Request, now: Instant) -> Option<bool> {
        let (mac, mut all) = (Mac(request.mac), lock(&self.0));
        let before = all.get(&mac, now).copied();
        let change = LoaderGrant::after(before, request)?;
        all.remove_expired(now);
        Some(change.loader && (before.is_some() || all.len() < MAX_LOADER_GRANTS))
    }

    /// Records what [`decide`](Self::decide) decided. Returns false if it would decide otherwise now, since another request
    /// changed the grant: evaluate the request again.
    pub fn apply(&self, request: &Request, loader: bool, now: Instant) -> bool {
        let (mac, mut all) = (Mac(request.mac), lock(&self.0));
        let before = all.get(&mac, now).copied();
        let Some(change) = LoaderGrant::after(before, request) else { return true };
        let GrantChange { grant, is_new, loader: current } = change;
        let recorded = if is_new {
            all.try_insert(mac, grant, now).is_ok()
        } else {
            all.get_mut(&mac, now).map(|own| *own = grant).is_some()
        };
        (current && recorded) == loader
    }
}

/// The state of one link.
#[derive(Debug)]
pub struct LinkState {
    /// The loaders that interfaces were sent to. Present if iPXE in a NIC's ROM gets another one.
    pub grants: Option<Arc<LoaderGrants>>,
    /// The reserved addresses that were declined lately. Keyed by address, not by MAC: clients at a machine's switch port
    /// get its record, with any number of MACs.
    declined: Mutex<ExpiringMap<Ipv4Addr, ()>>,
    booting: Mutex<ExpiringMap<Mac, ()>>,
    /// The last answered exchange of each interface.
    exchanges: Mutex<ExpiringMap<Mac, Exchange>>,
}

impl Default for LinkState {
    fn default() -> Self {
        Self::new(None)
    }
}

impl LinkState {
    /// With `grants`, iPXE in a NIC's ROM gets another loader.
    pub fn new(grants: Option<Arc<LoaderGrants>>) -> Self {
        let declined = Mutex::new(ExpiringMap::new(MAX_ENTRIES, DECLINE_HOLD));
        let booting = Mutex::new(ExpiringMap::new(MAX_ENTRIES, BOOTING_TIME));
        let exchanges = Mutex::new(ExpiringMap::new(MAX_EXCHANGES, MAX_EXCHANGE_TIME));
        Self { grants, declined, booting, exchanges }
    }

    /// Returns `request` with the options that an earlier packet of its exchange had, and that it
    /// lacks.
    pub fn complete(&self, request: Request, link: &Link, now: Instant) -> Request {
        match lock(&self.exchanges).get(&Mac(request.mac), now) {
            Some(exchange) => exchange.complete(request, link),
            None => request,
        }
    }

    /// Records that `request` was answered, or `dropped` for that reason. Only answered clients are
    /// remembered: forged MACs must not evict them.
    pub fn record_response(&self, request: &Request, dropped: Option<DropReason>, now: Instant) {
        let (mac, mut exchanges) = (Mac(request.mac), lock(&self.exchanges));
        if request.packet.kind() == Some(MessageType::Discover) && dropped.is_none() {
            exchanges.insert(mac, Exchange::begun_by(request), now);
        } else if let Some(exchange) = exchanges.get_mut(&mac, now) {
            exchange.record(request, dropped);
        }
    }

    /// Records that the interface `mac` has fetched a loader completely.
    pub fn record_fetched(&self, mac: Mac, now: Instant) {
        if let Some(grants) = &self.grants {
            // Without room the interface gets the script in any case.
            let _full = lock(&grants.0).try_insert(mac, LoaderGrant::FETCHED, now);
        }
    }

    /// Returns the time since the interface `mac` was sent to a loader, if that prevents another one.
    pub fn loader_age(&self, mac: Mac, now: Instant) -> Option<Duration> {
        lock(&self.grants.as_ref()?.0).age(&mac, now)
    }

    /// Records that a client declined `address`, which a record reserves.
    pub fn record_declined(&self, address: Ipv4Addr, now: Instant) {
        lock(&self.declined).insert(address, (), now);
    }

    /// Returns the time since the reserved address was declined, if it is not offered yet because of that.
    pub fn declined_age(&self, own: Option<&Reservation>, now: Instant) -> Option<Duration> {
        lock(&self.declined).age(&own?.address?.addr(), now)
    }

    /// Records that DHCP answered iPXE at `mac`.
    pub fn record_booting(&self, mac: Mac, now: Instant) {
        lock(&self.booting).insert(mac, (), now);
    }

    /// True if iPXE at `mac` was answered less than a minute ago.
    pub fn is_booting(&self, mac: Mac, now: Instant) -> bool {
        lock(&self.booting).get(&mac, now).is_some()
    }

    /// Returns the number of remembered DECLINEs.
    #[cfg(test)]
    pub(super) fn declined_count(&self) -> usize {
        lock(&self.declined).len()
    }
}

fn lock<K: Eq + Hash + Clone, V>(
    map: &Mutex<ExpiringMap<K, V>>,
) -> MutexGuard<'_, ExpiringMap<K, V>> {
    map.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use dhcp::chainload::MAX_LOADER_REPLIES;
    use dhcp::options::code;
    use dhcp::{Link, ListenPort, MessageType, Packet, Received};
    use proptest::prelude::*;

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
            assert!(grants.apply(&discover(*number), loader, now));
            loader
        });
        assert_eq!(loaders.count(), MAX_LOADER_GRANTS);
        assert_eq!(lock(&grants.0).len(), MAX_LOADER_GRANTS);
        let later = now + LOADER_INTERVAL;
        assert_eq!(grants.decide(&discover(1 << 20), later), Some(true));
        assert!(grants.apply(&discover(1 << 20), true, later));
        assert_eq!(lock(&grants.0).len(), 1);
    }

    #[test]
    fn of_two_exchanges_that_are_evaluated_together_one_gets_a_loader() {
        let (grants, now) = (LoaderGrants::default(), Instant::now());
        let (one, mut other) = (discover(1), discover(1));
        other.packet.xid = 7;
        assert_eq!([&one, &other].map(|it| grants.decide(it, now)), [Some(true); 2]);
        assert!(grants.apply(&one, true, now));
        assert!(!grants.apply(&other, true, now));
        assert_eq!(grants.decide(&other, now), Some(false));
    }

    #[test]
    fn an_interface_gets_another_loader_after_the_interval() {
        let state = LinkState::new(Some(Arc::default()));
        let (grants, now) = (state.grants.as_ref().unwrap(), Instant::now());
        let request = discover(1);
        state.record_fetched(Mac(request.mac), now);
        assert_eq!(grants.decide(&request, now), Some(false));
        let before = now + LOADER_INTERVAL - Duration::from_secs(1);
        assert_eq!(grants.decide(&request, before), Some(false));
        let later = now + LOADER_INTERVAL;
        assert_eq!(grants.decide(&request, later), Some(true));
        assert!(grants.apply(&request, true, later));
        assert_eq!(state.loader_age(Mac(request.mac), later), Some(Duration::ZERO));
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
        assert_eq!(state.declined_age(Some(&own(1)), now + held), Some(held));
        assert_eq!(state.declined_age(Some(&own(2)), now), None);
        assert_eq!(state.declined_age(Some(&own(1)), now + DECLINE_HOLD), None);
    }

    /// The REQUEST of `discover(number)`, which says nothing of its program.
    fn bare_request(number: u32) -> Request {
        let mut request = discover(number);
        let kind = MessageType::Request;
        request.packet = Packet { xid: request.packet.xid, ..Packet::request(kind, request.mac) };
        let link = Link::new([192, 0, 2, 1].into(), "");
        Request::new(request.packet, request.received, &link).unwrap()
    }

    #[test]
    fn a_request_is_completed_by_its_answered_discover_for_two_minutes() {
        let (state, now) = (LinkState::default(), Instant::now());
        let link = Link::new([192, 0, 2, 1].into(), "");
        let boots = |number, at| state.complete(bare_request(number), &link, at).class.boots();
        assert!(!boots(1, now));
        state.record_response(&discover(1), None, now);
        let last = now + MAX_EXCHANGE_TIME - Duration::from_secs(1);
        assert_eq!([boots(1, now), boots(1, last), boots(2, now)], [true, true, false]);
        assert!(!boots(1, now + MAX_EXCHANGE_TIME));
    }

    #[test]
    fn the_number_of_exchanges_is_bounded() {
        let (state, now) = (LinkState::default(), Instant::now());
        (0..20_000).for_each(|number| state.record_response(&discover(number), None, now));
        assert_eq!(lock(&state.exchanges).len(), MAX_EXCHANGES);
    }

    #[test]
    fn ipxe_boots_for_a_minute_after_its_reply() {
        let (state, now) = (LinkState::default(), Instant::now());
        let mac = |n: u16| Mac([2, 0, 0, 0, n.to_be_bytes()[0], n.to_be_bytes()[1]]);
        (0..2000).for_each(|n| state.record_booting(mac(n), now));
        assert!(state.is_booting(mac(7), now + BOOTING_TIME - Duration::from_secs(1)));
        assert!(!state.is_booting(mac(7), now + BOOTING_TIME));
        state.record_booting(mac(7), now + BOOTING_TIME);
        assert_eq!(lock(&state.booting).len(), 1);
    }

    /// Steps of a client: seconds of waiting, then a message.
    fn steps() -> impl Strategy<Value = Vec<(u64, MessageType, u32)>> {
        let kind = prop_oneof![Just(MessageType::Discover), Just(MessageType::Request)];
        prop::collection::vec((0..100_u64, kind, 0..3_u32), 1..200)
    }

    proptest! {
        #[test]
        fn there_are_never_two_loaders_in_a_row(steps in steps()) {
            let (grants, mut now) = (LoaderGrants::default(), Instant::now());
            // The exchange that got the last loader, its beginning, and whether it has been requested.
            let mut last: Option<(Instant, u32, bool)> = None;
            let mut replies = 0;
            for (wait, kind, xid) in steps {
                now += Duration::from_secs(wait);
                let mut request = discover(1);
                request.packet.options.set(code::MESSAGE_TYPE, [kind as u8]);
                request.packet.xid = xid;
                let loader = grants.decide(&request, now).unwrap();
                prop_assert!(grants.apply(&request, loader, now));
                if !loader {
                    continue;
                }
                match &mut last {
                    Some((began, of, requested))
                        if now.saturating_duration_since(*began) < LOADER_INTERVAL =>
                    {
                        prop_assert_eq!(*of, xid, "another exchange");
                        prop_assert!(!*requested || kind == MessageType::Request, "another boot");
                        *requested |= kind == MessageType::Request;
                        replies += 1;
                        prop_assert!(replies <= MAX_LOADER_REPLIES);
                    }
                    _ => (last, replies) = (Some((now, xid, kind == MessageType::Request)), 1),
                }
            }
        }
    }
}
