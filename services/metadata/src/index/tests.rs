//! Machines that come, go, move and borrow.

use super::*;
use crate::fixture::{Feed as _, address, node1, node2};
use fleet::leases::LeaseUpdate;
use runtime::feed::FeedEvent;

fn index(machines: impl IntoIterator<Item = Machine>) -> Index {
    let index = Index::default();
    index.replace(machines);
    index
}

fn who(index: &Index, address: &str) -> Option<HardwareId> {
    match index.lookup(address.parse().unwrap(), Instant::now()) {
        Lookup::Found { machine, .. } => Some(machine.id),
        Lookup::Unknown | Lookup::NotReady => None,
    }
}

fn tells_secrets(index: &Index, now: Instant) -> bool {
    match index.lookup("198.51.100.50".parse().unwrap(), now) {
        Lookup::Found { secrets, .. } => secrets,
        Lookup::Unknown | Lookup::NotReady => panic!("node1 is there"),
    }
}

/// `machine` on `ip` alone.
fn moved(machine: Machine, ip: &str) -> Machine {
    let mut machine = machine;
    machine.instance = None;
    machine.nics[0].addresses = vec![address(ip, 24, false)];
    machine
}

#[test]
fn nobody_is_known_before_the_feed_has_caught_up() {
    let index = Index::default();
    index.put(node1());
    let lookup = index.lookup("198.51.100.50".parse().unwrap(), Instant::now());
    assert!(matches!(lookup, Lookup::NotReady));
}

#[test]
fn a_machine_answers_for_every_address_it_has() {
    let index = index([node1()]);
    for address in ["198.51.100.50", "192.0.2.9", "2001:db8::50", "::ffff:198.51.100.50"] {
        assert_eq!(who(&index, address), Some(node1().id), "{address}");
    }
    assert_eq!(who(&index, "198.51.100.77"), None);
}

#[test]
fn an_address_given_up_answers_for_nobody() {
    let index = index([node1()]);
    index.put(moved(node1(), "198.51.100.70"));
    assert_eq!(who(&index, "198.51.100.50"), None);
    assert_eq!(who(&index, "198.51.100.70"), Some(node1().id));
    index.remove(node1().id);
    assert_eq!(who(&index, "198.51.100.70"), None);
}

#[test]
fn a_secret_name_is_a_machines_for_as_long_as_its_instance() {
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
fn what_a_new_listing_does_not_name_is_gone() {
    let index = index([node1(), node2()]);
    index.replace([node2()]);
    assert_eq!(who(&index, "198.51.100.50"), None);
    assert_eq!(who(&index, "198.51.100.60"), Some(node2().id));
}

#[test]
fn secrets_are_told_for_fifteen_minutes_of_silence() {
    let (index, cut) = (index([node1()]), Instant::now());
    assert!(tells_secrets(&index, cut));
    index.disconnect(cut);
    index.disconnect(cut + SECRETS_AFTER_DISCONNECT);
    assert!(tells_secrets(&index, cut + SECRETS_AFTER_DISCONNECT));
    assert!(!tells_secrets(&index, cut + SECRETS_AFTER_DISCONNECT + Duration::from_secs(1)));
    index.replace([node1()]);
    assert!(tells_secrets(&index, cut + 2 * SECRETS_AFTER_DISCONNECT));
}

/// node1 without an address of its own.
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

const LENT: &str = "198.51.100.100";

/// Those, and [`LENT`] as `lease` has it.
fn lending(machines: impl IntoIterator<Item = Machine>, lease: BoundLease) -> Index {
    let index = index(machines);
    index.replace_leases([(LENT.parse().unwrap(), lease)]);
    index
}

#[test]
fn a_lent_address_is_its_machines_for_as_long_as_the_lease_lasts() {
    let now = Instant::now();
    let index = lending([unaddressed()], lease(&unaddressed(), now));
    let at = |seconds| match index.lookup(LENT.parse().unwrap(), now + Duration::from_secs(seconds))
    {
        Lookup::Found { machine, .. } => Some(machine.id),
        Lookup::Unknown | Lookup::NotReady => None,
    };
    assert_eq!((at(0), at(3599), at(3600)), (Some(node1().id), Some(node1().id), None));
    assert_eq!(index.leased_by(node1().id, now), [LENT.parse::<IpAddr>().unwrap()]);
    index.replace([unaddressed()]);
    assert_eq!(at(0), Some(node1().id), "what is lent stays so when machines are told anew");
    index.replace([]);
    assert_eq!(at(0), None, "nobody knows who has it");
}

#[test]
fn a_lent_address_passes_to_the_next_and_to_nobody_at_once() {
    let now = Instant::now();
    let index = lending([unaddressed(), node2()], lease(&unaddressed(), now));
    for (lease, holder) in [
        (Some(lease(&node2(), now)), Some(node2().id)),
        (Some(BoundLease { mac: Mac([2; 6]), ..lease(&node2(), now) }), None),
        (Some(lease(&unaddressed(), now)), Some(node1().id)),
        (None, None),
    ] {
        let update = LeaseUpdate::One(LENT.parse().unwrap(), lease);
        index.views.update(|snapshot| snapshot.leases.apply(&update));
        assert_eq!(who(&index, LENT), holder);
    }
}

#[test]
fn a_record_has_an_address_before_a_lease() {
    let index =
        lending([unaddressed(), moved(node2(), LENT)], lease(&unaddressed(), Instant::now()));
    assert_eq!(who(&index, LENT), Some(node2().id));
    index.remove(node2().id);
    assert_eq!(who(&index, LENT), Some(node1().id));
}

#[test]
fn an_interface_that_moved_takes_its_lease_along() {
    let taken = Machine { nics: unaddressed().nics, instance: None, ..node2() };
    let index = lending([unaddressed()], lease(&unaddressed(), Instant::now()));
    index.put(taken);
    index.put(Machine { nics: vec![], ..unaddressed() });
    assert_eq!(who(&index, LENT), Some(node2().id));
}

#[test]
fn an_address_without_a_record_may_be_anybodys_until_the_leases_are_told() {
    let (index, now) = (index([node1()]), Instant::now());
    let lookup = |address: &str| index.lookup(address.parse().unwrap(), now);
    assert!(matches!(lookup(LENT), Lookup::Unknown), "nobody lends addresses");
    let never = Freshness::NeverSynced;
    index.views.update(|snapshot| snapshot.feeds.set(FeedKind::Lease, never));
    assert!(matches!(lookup(LENT), Lookup::NotReady));
    assert_eq!(who(&index, "198.51.100.50"), Some(node1().id));
    index.replace_leases([]);
    assert!(matches!(lookup(LENT), Lookup::Unknown));
}

#[test]
fn under_a_lent_address_no_secret_is_told_that_either_feed_is_too_old_for() {
    let now = Instant::now();
    let until = now + SECRETS_AFTER_DISCONNECT * 3;
    let index = lending([unaddressed()], BoundLease { until, ..lease(&unaddressed(), now) });
    let late = now + SECRETS_AFTER_DISCONNECT + Duration::from_secs(1);
    let tells = || match index.lookup(LENT.parse().unwrap(), late) {
        Lookup::Found { secrets, .. } => secrets,
        Lookup::Unknown | Lookup::NotReady => panic!("it is lent"),
    };
    assert!(tells());
    index.views.update(|snapshot| snapshot.feeds.set(FeedKind::Lease, Freshness::StaleSince(now)));
    assert!(!tells());
    index.replace_leases([(
        LENT.parse().unwrap(),
        BoundLease { until, ..lease(&unaddressed(), now) },
    )]);
    index.disconnect(now);
    assert!(!tells());
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
    assert_eq!(super::tells_secrets(freshness, Instant::now()), Some(true));
    assert_eq!(super::tells_secrets(freshness, later), Some(false));
}
