//! Machines that come, go, move and borrow.

use super::*;
use crate::fixture::{address, any_machine, node1, node2};
use proptest::prelude::*;

fn index(machines: impl IntoIterator<Item = Machine>) -> Index {
    let index = Index::new();
    index.replace(machines.into_iter().map(Arc::new));
    index
}

fn who(index: &Index, address: &str) -> Option<HardwareId> {
    match index.lookup(address.parse().unwrap(), Instant::now()) {
        Lookup::Known { machine, .. } => Some(machine.id),
        Lookup::Unknown | Lookup::NotReady => None,
    }
}

fn tells_secrets(index: &Index, now: Instant) -> bool {
    match index.lookup("198.51.100.50".parse().unwrap(), now) {
        Lookup::Known { secrets, .. } => secrets,
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
    let index = Index::new();
    index.apply([Change::Put(Arc::new(node1()))]);
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
    index.apply([Change::Put(Arc::new(moved(node1(), "198.51.100.70")))]);
    assert_eq!(who(&index, "198.51.100.50"), None);
    assert_eq!(who(&index, "198.51.100.70"), Some(node1().id));
    index.apply([Change::Remove(node1().id)]);
    assert_eq!(who(&index, "198.51.100.70"), None);
}

#[test]
fn a_secret_name_is_a_machines_for_as_long_as_its_instance() {
    let (index, name) = (index([node1(), node2()]), crate::fixture::LOOKUP);
    let named = || match index.lookup_named(name, Instant::now()) {
        Lookup::Known { machine, .. } => Some(machine.id),
        Lookup::Unknown | Lookup::NotReady => None,
    };
    assert_eq!(named(), Some(node1().id));
    index.apply([Change::Put(Arc::new(Machine { instance: None, ..node1() }))]);
    assert_eq!(named(), None);
}

#[test]
fn a_contested_address_is_the_older_records_until_it_lets_go() {
    let young = moved(node2(), "198.51.100.50");
    let young = Machine { created: node1().created + Duration::from_secs(1), ..young };
    let index = index([young.clone(), node1()]);
    assert_eq!(who(&index, "198.51.100.50"), Some(node1().id));
    index.apply([Change::Put(Arc::new(moved(node1(), "198.51.100.70")))]);
    assert_eq!(who(&index, "198.51.100.50"), Some(young.id));
}

#[test]
fn what_a_new_listing_does_not_name_is_gone() {
    let index = index([node1(), node2()]);
    index.replace([Arc::new(node2())]);
    assert_eq!(who(&index, "198.51.100.50"), None);
    assert_eq!(who(&index, "198.51.100.60"), Some(node2().id));
}

#[test]
fn secrets_are_told_for_fifteen_minutes_of_silence() {
    let (index, cut) = (index([node1()]), Instant::now());
    assert!(tells_secrets(&index, cut));
    index.cut(cut);
    index.cut(cut + SECRETS_LAST);
    assert!(tells_secrets(&index, cut + SECRETS_LAST));
    assert!(!tells_secrets(&index, cut + SECRETS_LAST + Duration::from_secs(1)));
    index.replace([Arc::new(node1())]);
    assert!(tells_secrets(&index, cut + 2 * SECRETS_LAST));
}

/// node1 without an address of its own.
fn unaddressed() -> Machine {
    let mut machine = Machine { instance: None, ..node1() };
    machine.nics[0].addresses.clear();
    machine
}

/// A lease of the first interface of `machine`, for an hour from `now`.
fn lease(machine: &Machine, now: Instant) -> Lease {
    let until = now + Duration::from_secs(3600);
    Lease { mac: machine.nics[0].mac, until, at_port: false }
}

const LENT: &str = "198.51.100.100";

/// Those, and [`LENT`] as `lease` has it.
fn lending(machines: impl IntoIterator<Item = Machine>, lease: Lease) -> Index {
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
        Lookup::Known { machine, .. } => Some(machine.id),
        Lookup::Unknown | Lookup::NotReady => None,
    };
    assert_eq!((at(0), at(3599), at(3600)), (Some(node1().id), Some(node1().id), None));
    assert_eq!(index.lent_to(node1().id, now), [LENT.parse::<IpAddr>().unwrap()]);
    index.replace([Arc::new(unaddressed())]);
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
        (Some(Lease { mac: Mac([2; 6]), ..lease(&node2(), now) }), None),
        (Some(lease(&unaddressed(), now)), Some(node1().id)),
        (None, None),
    ] {
        index.apply([Change::Lend(LENT.parse().unwrap(), lease)]);
        assert_eq!(who(&index, LENT), holder);
    }
}

#[test]
fn a_record_has_an_address_before_a_lease() {
    let index =
        lending([unaddressed(), moved(node2(), LENT)], lease(&unaddressed(), Instant::now()));
    assert_eq!(who(&index, LENT), Some(node2().id));
    index.apply([Change::Remove(node2().id)]);
    assert_eq!(who(&index, LENT), Some(node1().id));
}

#[test]
fn an_interface_that_moved_takes_its_lease_along() {
    let taken = Machine { nics: unaddressed().nics, instance: None, ..node2() };
    let index = lending([unaddressed()], lease(&unaddressed(), Instant::now()));
    index.apply([Change::Put(Arc::new(taken))]);
    index.apply([Change::Put(Arc::new(Machine { nics: vec![], ..unaddressed() }))]);
    assert_eq!(who(&index, LENT), Some(node2().id));
}

#[test]
fn an_address_without_a_record_may_be_anybodys_until_the_leases_are_told() {
    let (index, now) = (index([node1()]), Instant::now());
    let lookup = |address: &str| index.lookup(address.parse().unwrap(), now);
    assert!(matches!(lookup(LENT), Lookup::Unknown), "nobody lends addresses");
    index.expect_leases();
    assert!(matches!(lookup(LENT), Lookup::NotReady));
    assert_eq!(who(&index, "198.51.100.50"), Some(node1().id));
    index.replace_leases([]);
    assert!(matches!(lookup(LENT), Lookup::Unknown));
}

#[test]
fn under_a_lent_address_no_secret_is_told_that_either_feed_is_too_old_for() {
    let now = Instant::now();
    let until = now + SECRETS_LAST * 3;
    let index = lending([unaddressed()], Lease { until, ..lease(&unaddressed(), now) });
    let late = now + SECRETS_LAST + Duration::from_secs(1);
    let tells = || match index.lookup(LENT.parse().unwrap(), late) {
        Lookup::Known { secrets, .. } => secrets,
        Lookup::Unknown | Lookup::NotReady => panic!("it is lent"),
    };
    assert!(tells());
    index.cut_leases(now);
    assert!(!tells());
    index.replace_leases([(LENT.parse().unwrap(), Lease { until, ..lease(&unaddressed(), now) })]);
    index.cut(now);
    assert!(!tells());
}

fn any_change() -> impl Strategy<Value = Change> {
    let ids = [node1().id, node2().id];
    let machine = (any_machine(), prop::sample::select(ids.to_vec()), 0u64..2);
    prop_oneof![
        3 => machine.prop_map(|(mut machine, id, age)| {
            // Few addresses, so that they are contested.
            let ip = format!("192.0.2.{}", machine.nics.len());
            machine.nics.iter_mut().for_each(|nic| nic.addresses = vec![address(&ip, 24, false)]);
            let created = SystemTime::UNIX_EPOCH + Duration::from_secs(age);
            Change::Put(Arc::new(Machine { id, created, ..machine }))
        }),
        1 => prop::sample::select(ids.to_vec()).prop_map(Change::Remove),
    ]
}

proptest! {
    #[test]
    fn changes_one_by_one_end_where_a_listing_does(changes in prop::collection::vec(any_change(), 0..12)) {
        let (changed, mut there) = (index([]), HashMap::new());
        for change in changes {
            match &change {
                Change::Put(machine) => drop(there.insert(machine.id, machine.clone())),
                Change::Remove(id) => drop(there.remove(id)),
                Change::Lend(..) => {}
            }
            changed.apply([change]);
        }
        let listed = Index::new();
        listed.replace(there.into_values());
        for last in 0..4 {
            let address = format!("192.0.2.{last}");
            prop_assert_eq!(who(&changed, &address), who(&listed, &address));
        }
        prop_assert_eq!(changed.machines.borrow().by_address.len(), listed.machines.borrow().by_address.len());
    }
}
