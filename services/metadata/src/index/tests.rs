//! Machines that are added, removed, moved and leased to.

use super::*;
use crate::fixture::{Feed as _, address, node1, node2};
use fleet::leases::LeaseUpdate;
use runtime::feed::FeedEvent;

fn index(machines: impl IntoIterator<Item = Machine>) -> Index {
    let index = Index::default();
    index.replace(machines);
    index
}

fn machine_at(index: &Index, address: &str) -> Option<HardwareId> {
    match index.lookup(address.parse().unwrap(), Instant::now()) {
        Lookup::Found { machine, .. } => Some(machine.id),
        Lookup::Unknown | Lookup::NotReady => None,
    }
}

fn serves_secrets(index: &Index, now: Instant) -> bool {
    match index.lookup("198.51.100.50".parse().unwrap(), now) {
        Lookup::Found { secrets, .. } => secrets,
        Lookup::Unknown | Lookup::NotReady => panic!("node1 is there"),
    }
}

/// `machine` with `ip` as its only address.
fn moved(machine: Machine, ip: &str) -> Machine {
    let mut machine = machine;
    machine.instance = None;
    machine.nics[0].addresses = vec![address(ip, 24, false)];
    machine
}

#[test]
fn no_machine_is_found_before_the_feed_is_synced() {
    let index = Index::default();
    index.put(node1());
    let lookup = index.lookup("198.51.100.50".parse().unwrap(), Instant::now());
    assert!(matches!(lookup, Lookup::NotReady));
}

#[test]
fn a_machine_is_found_by_all_its_addresses() {
    let index = index([node1()]);
    for address in ["198.51.100.50", "192.0.2.9", "2001:db8::50", "::ffff:198.51.100.50"] {
        assert_eq!(machine_at(&index, address), Some(node1().id), "{address}");
    }
    assert_eq!(machine_at(&index, "198.51.100.77"), None);
}

#[test]
fn a_removed_address_finds_no_machine() {
    let index = index([node1()]);
    index.put(moved(node1(), "198.51.100.70"));
    assert_eq!(machine_at(&index, "198.51.100.50"), None);
    assert_eq!(machine_at(&index, "198.51.100.70"), Some(node1().id));
    index.remove(node1().id);
    assert_eq!(machine_at(&index, "198.51.100.70"), None);
}

#[test]
fn a_lookup_id_is_valid_as_long_as_the_instance() {
    let (index, name) = (index([node1(), node2()]), crate::fixture::LOOKUP);
    let named = || match index.lookup_named(name, Instant::now()) {
        Lookup::Found { machine, .. } => Some(machine.id),
        Lookup::Unknown | Lookup::NotReady => None,
    };
    assert_eq!(named(), Some(node1().id));
    index.put(Machine { instance: None, ..node1() });
    assert_eq!(named(), None);
}

#[test]
fn a_machine_missing_from_a_snapshot_is_removed() {
    let index = index([node1(), node2()]);
    index.replace([node2()]);
    assert_eq!(machine_at(&index, "198.51.100.50"), None);
    assert_eq!(machine_at(&index, "198.51.100.60"), Some(node2().id));
}

#[test]
fn secrets_are_served_for_fifteen_minutes_after_a_disconnect() {
    let (index, cut) = (index([node1()]), Instant::now());
    assert!(serves_secrets(&index, cut));
    index.disconnect(cut);
    index.disconnect(cut + SECRETS_AFTER_DISCONNECT);
    assert!(serves_secrets(&index, cut + SECRETS_AFTER_DISCONNECT));
    assert!(!serves_secrets(&index, cut + SECRETS_AFTER_DISCONNECT + Duration::from_secs(1)));
    index.replace([node1()]);
    assert!(serves_secrets(&index, cut + 2 * SECRETS_AFTER_DISCONNECT));
}

/// node1 without an address.
fn unaddressed() -> Machine {
    let mut machine = Machine { instance: None, ..node1() };
    machine.nics[0].addresses.clear();
    machine
}

/// A lease of the first interface of `machine`, for an hour from `now`.
fn lease(machine: &Machine, now: Instant) -> BoundLease {
    let until = now + Duration::from_secs(3600);
    BoundLease { mac: machine.nics[0].mac, until, at_port: false }
}

const LEASED: &str = "198.51.100.100";

/// An index of `machines`, and a lease of [`LEASED`].
fn with_lease(machines: impl IntoIterator<Item = Machine>, lease: BoundLease) -> Index {
    let index = index(machines);
    index.replace_leases([(LEASED.parse().unwrap(), lease)]);
    index
}

#[test]
fn a_leased_address_finds_its_machine_until_the_lease_ends() {
    let now = Instant::now();
    let index = with_lease([unaddressed()], lease(&unaddressed(), now));
    let at =
        |seconds| match index.lookup(LEASED.parse().unwrap(), now + Duration::from_secs(seconds)) {
            Lookup::Found { machine, .. } => Some(machine.id),
            Lookup::Unknown | Lookup::NotReady => None,
        };
    assert_eq!((at(0), at(3599), at(3600)), (Some(node1().id), Some(node1().id), None));
    assert_eq!(index.leased_by(node1().id, now), [LEASED.parse::<IpAddr>().unwrap()]);
    index.replace([unaddressed()]);
    assert_eq!(at(0), Some(node1().id), "a lease survives a new snapshot of machines");
    index.replace([]);
    assert_eq!(at(0), None, "no machine has the MAC");
}

#[test]
fn a_change_of_a_lease_takes_effect_at_once() {
    let now = Instant::now();
    let index = with_lease([unaddressed(), node2()], lease(&unaddressed(), now));
    for (lease, holder) in [
        (Some(lease(&node2(), now)), Some(node2().id)),
        (Some(BoundLease { mac: Mac([2; 6]), ..lease(&node2(), now) }), None),
        (Some(lease(&unaddressed(), now)), Some(node1().id)),
        (None, None),
    ] {
        let update = LeaseUpdate::One(LEASED.parse().unwrap(), lease);
        index.views.update(|snapshot| snapshot.leases.apply(&update));
        assert_eq!(machine_at(&index, LEASED), holder);
    }
}

#[test]
fn a_record_of_an_address_has_precedence_over_a_lease() {
    let index =
        with_lease([unaddressed(), moved(node2(), LEASED)], lease(&unaddressed(), Instant::now()));
    assert_eq!(machine_at(&index, LEASED), Some(node2().id));
    index.remove(node2().id);
    assert_eq!(machine_at(&index, LEASED), Some(node1().id));
}

#[test]
fn a_lease_follows_its_interface_to_another_machine() {
    let taken = Machine { nics: unaddressed().nics, instance: None, ..node2() };
    let index = with_lease([unaddressed()], lease(&unaddressed(), Instant::now()));
    index.put(taken);
    index.put(Machine { nics: vec![], ..unaddressed() });
    assert_eq!(machine_at(&index, LEASED), Some(node2().id));
}

#[test]
fn an_address_without_a_record_is_not_ready_until_the_leases_are_synced() {
    let (index, now) = (index([node1()]), Instant::now());
    let lookup = |address: &str| index.lookup(address.parse().unwrap(), now);
    assert!(matches!(lookup(LEASED), Lookup::Unknown), "there is no lease feed");
    let never = Freshness::NeverSynced;
    index.views.update(|snapshot| snapshot.feeds.set(FeedKind::Lease, never));
    assert!(matches!(lookup(LEASED), Lookup::NotReady));
    assert_eq!(machine_at(&index, "198.51.100.50"), Some(node1().id));
    index.replace_leases([]);
    assert!(matches!(lookup(LEASED), Lookup::Unknown));
}

#[test]
fn secrets_at_a_leased_address_require_fresh_leases_and_fresh_records() {
    let now = Instant::now();
    let until = now + SECRETS_AFTER_DISCONNECT * 3;
    let index = with_lease([unaddressed()], BoundLease { until, ..lease(&unaddressed(), now) });
    let late = now + SECRETS_AFTER_DISCONNECT + Duration::from_secs(1);
    let serves = || match index.lookup(LEASED.parse().unwrap(), late) {
        Lookup::Found { secrets, .. } => secrets,
        Lookup::Unknown | Lookup::NotReady => panic!("it is leased"),
    };
    assert!(serves());
    index.views.update(|snapshot| snapshot.feeds.set(FeedKind::Lease, Freshness::StaleSince(now)));
    assert!(!serves());
    index.replace_leases([(
        LEASED.parse().unwrap(),
        BoundLease { until, ..lease(&unaddressed(), now) },
    )]);
    index.disconnect(now);
    assert!(!serves());
}

#[test]
fn hardware_and_instances_must_both_be_known_and_fresh() {
    let index = Arc::new(Index::default());
    let fleet = fleet::Fleet::new(vec![index.clone()]);
    let lookup = |now| index.lookup("198.51.100.50".parse().unwrap(), now);
    fleet.hardware(FeedEvent::Snapshot(vec![]));
    assert!(matches!(lookup(Instant::now()), Lookup::NotReady));
    fleet.instance(FeedEvent::Snapshot(vec![]));
    assert!(matches!(lookup(Instant::now()), Lookup::Unknown));
    fleet.instance(FeedEvent::Disconnected);
    let freshness = index.views.freshness(&FEEDS);
    let later = Instant::now() + SECRETS_AFTER_DISCONNECT + Duration::from_secs(1);
    assert_eq!(
        age(freshness, Instant::now()).map(|age| age <= SECRETS_AFTER_DISCONNECT),
        Some(true)
    );
    assert_eq!(age(freshness, later).map(|age| age <= SECRETS_AFTER_DISCONNECT), Some(false));
}
