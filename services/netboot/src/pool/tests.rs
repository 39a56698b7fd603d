//! Properties of pools: an address has one client, whatever requests arrive in whatever order.
#![allow(clippy::unwrap_used)]

use std::time::UNIX_EPOCH;

use proptest::prelude::*;

use super::*;
use ipnet::Ipv4Net;

const RESERVED: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 12);

fn mac(n: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, n])
}

fn address(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, last)
}

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_800_000_000 + seconds)
}

fn lease(state: State, mac: Mac, ends: SystemTime) -> Lease {
    Lease { state, mac, ends }
}

fn subnet(ranges: &str) -> Subnet {
    let network = Ipv4Net::new_assert(address(0), 24);
    Subnet::new(network, vec![ranges.parse().unwrap()])
}

/// Leases an address to a client as the server does; none if there is no address for it.
fn lease_address(
    table: &mut Table,
    subnet: &Subnet,
    mac: Mac,
    now: SystemTime,
) -> Option<Ipv4Addr> {
    let address = table.choose(subnet, mac, None, |address| address != RESERVED, now)?;
    assert!(table.offer(address, mac, now));
    let bound = Lease::after(table.state(address, now), mac, Event::Bind(now + subnet.lease), now);
    table.record(address, Some(bound.unwrap()));
    Some(address)
}

#[test]
fn a_client_gets_its_last_address_else_the_requested_one_else_one_by_its_mac() {
    let (mut table, subnet) = (Table::default(), subnet("192.0.2.10-192.0.2.200"));
    let first = lease_address(&mut table, &subnet, mac(1), at(0)).unwrap();
    assert_eq!(
        lease_address(&mut Table::default(), &subnet, mac(1), at(9)),
        Some(first),
        "without state"
    );
    let choose = |table: &Table, mac, wanted: u8, now| {
        table.choose(&subnet, mac, Some(address(wanted)), |address| address != RESERVED, now)
    };
    assert_eq!(choose(&table, mac(1), 77, at(1)), Some(first), "its own address comes first");
    assert_eq!(choose(&table, mac(2), 77, at(1)), Some(address(77)));
    assert_ne!(choose(&table, mac(2), first.octets()[3], at(1)), Some(first), "it is taken");
    assert_ne!(choose(&table, mac(2), 12, at(1)), Some(RESERVED));
    assert_ne!(choose(&table, mac(2), 210, at(1)), Some(address(210)), "outside of the pool");
    let hours_later = at(4 * 3600);
    assert_eq!(
        choose(&table, mac(1), 77, hours_later),
        Some(first),
        "its last address comes first"
    );
}

#[test]
fn a_full_pool_leases_nothing_until_a_lease_ends_and_then_the_oldest_one() {
    let (mut table, subnet) = (Table::default(), subnet("192.0.2.10-192.0.2.12"));
    let one = lease_address(&mut table, &subnet, mac(1), at(0)).unwrap();
    let two = lease_address(&mut table, &subnet, mac(2), at(60)).unwrap();
    assert_ne!(one, two);
    assert_eq!(lease_address(&mut table, &subnet, mac(3), at(3599)), None, "the third is reserved");
    assert_eq!(lease_address(&mut table, &subnet, mac(3), at(3600)), Some(one));
    assert_eq!(lease_address(&mut table, &subnet, mac(4), at(3700)), Some(two));
    assert_eq!(lease_address(&mut table, &subnet, mac(1), at(3701)), None);
}

#[test]
fn every_state_ends_in_time() {
    let mac = mac(1);
    let second = Duration::from_secs(1);
    for (lease, most) in [
        (lease(State::Offered, mac, at(0) + OFFER_HOLD), OFFER_HOLD),
        (lease(State::Declined, mac, at(0) + DECLINE_HOLD), DECLINE_HOLD),
        (lease(State::Released, mac, at(0)), LAST_CLIENT_PREFERENCE),
        (lease(State::Expired, mac, at(0)), LAST_CLIENT_PREFERENCE),
    ] {
        assert_eq!(lease.at(at(0) + most - second), Some(lease));
        assert_eq!(lease.at(at(0) + most), None);
    }
    let bound = lease(State::Bound, mac, at(100));
    assert_eq!(bound.at(at(99)), Some(bound));
    assert_eq!(bound.at(at(100)), Some(lease(State::Expired, mac, at(100))));
    assert_eq!(bound.at(at(100) + LAST_CLIENT_PREFERENCE), None);
}

#[test]
fn a_declined_address_is_held_and_a_client_returns_only_its_own() {
    let bound = Some(lease(State::Bound, mac(1), at(100)));
    assert_eq!(Lease::after(bound, mac(2), Event::Release, at(1)), None);
    assert_eq!(Lease::after(bound, mac(2), Event::Decline, at(1)), None);
    assert_eq!(Lease::after(bound, mac(2), Event::Bind(at(200)), at(1)), None);
    let declined = Lease::after(bound, mac(1), Event::Decline, at(1)).unwrap();
    for (mac, event) in
        [(mac(1), Event::Offer), (mac(1), Event::Bind(at(9))), (mac(2), Event::Offer)]
    {
        assert_eq!(Lease::after(Some(declined), mac, event, at(2)), None);
        assert!(Lease::after(Some(declined), mac, event, at(1) + DECLINE_HOLD).is_some());
    }
}

#[test]
fn an_offer_is_withdrawn_if_its_client_chooses_another_server() {
    let (mut table, subnet) = (Table::default(), subnet("192.0.2.10-192.0.2.10"));
    assert!(table.offer(address(10), mac(1), at(0)));
    assert_eq!(table.choose(&subnet, mac(2), None, |_| true, at(1)), None);
    table.withdraw(mac(1));
    assert_eq!(table.choose(&subnet, mac(2), None, |_| true, at(1)), Some(address(10)));
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Discover { mac: u8, wanted: u8 },
    Request { mac: u8, address: u8, seconds: u64 },
    Release { mac: u8, address: u8 },
    Decline { mac: u8, address: u8 },
    Wait(u64),
    RemoveExpired,
}

fn step() -> impl Strategy<Value = Step> {
    let (mac, address) = (0..6_u8, 8..16_u8);
    prop_oneof![
        (mac.clone(), address.clone()).prop_map(|(mac, wanted)| Step::Discover { mac, wanted }),
        (mac.clone(), address.clone(), 1..5000_u64)
            .prop_map(|(mac, address, seconds)| Step::Request { mac, address, seconds }),
        (mac.clone(), address.clone()).prop_map(|(mac, address)| Step::Release { mac, address }),
        (mac, address).prop_map(|(mac, address)| Step::Decline { mac, address }),
        prop_oneof![0..100_u64, 3000..100_000_u64].prop_map(Step::Wait),
        Just(Step::RemoveExpired),
    ]
}

/// The addresses that clients have, and the ends of their leases.
type ClientLeases = HashMap<Mac, HashMap<Ipv4Addr, SystemTime>>;

fn apply(
    table: &mut Table,
    clients: &mut ClientLeases,
    subnet: &Subnet,
    step: Step,
    now: SystemTime,
) {
    let change = |table: &mut Table, n, last, event| {
        let changed = Lease::after(table.state(address(last), now), mac(n), event, now)?;
        table.record(address(last), Some(changed));
        Some(())
    };
    match step {
        Step::Discover { mac: n, wanted } => {
            let usable = |address| address != RESERVED;
            let chosen = table.choose(subnet, mac(n), Some(address(wanted)), usable, now);
            let Some(chosen) = chosen else { return };
            assert!(
                subnet.pool_contains(chosen) && chosen != RESERVED,
                "{chosen} is not in the pool"
            );
            assert!(table.offer(chosen, mac(n), now));
        }
        Step::Request { mac: n, address: last, seconds } => {
            let until = now + Duration::from_secs(seconds);
            if change(table, n, last, Event::Bind(until)).is_some() {
                clients.entry(mac(n)).or_default().insert(address(last), until);
            }
        }
        Step::Release { mac: n, address: last } | Step::Decline { mac: n, address: last } => {
            let release = matches!(step, Step::Release { .. });
            let event = if release { Event::Release } else { Event::Decline };
            if change(table, n, last, event).is_some() {
                clients.entry(mac(n)).or_default().remove(&address(last));
            }
        }
        Step::RemoveExpired => table.remove_expired(now),
        Step::Wait(_) => {}
    }
}

proptest! {
    #[test]
    fn an_address_never_has_two_owners(steps in prop::collection::vec(step(), 1..200)) {
        let (mut table, subnet) = (Table::default(), subnet("192.0.2.10-192.0.2.14"));
        let (mut clients, mut now) = (ClientLeases::new(), at(0));
        for step in steps {
            if let Step::Wait(seconds) = step {
                now += Duration::from_secs(seconds);
            }
            apply(&mut table, &mut clients, &subnet, step, now);
            let mut owners = HashMap::new();
            for (mac, addresses) in &clients {
                for (address, _) in addresses.iter().filter(|(_, until)| now < **until) {
                    prop_assert_eq!(owners.insert(*address, *mac), None, "of {}", address);
                    let state = table.state(*address, now);
                    prop_assert!(
                        matches!(state, Some(Lease { state: State::Bound, mac: own, .. }) if own == *mac),
                        "{} has {address}, which is {state:?}", mac
                    );
                }
            }
        }
    }

    #[test]
    fn an_offered_address_is_no_other_clients(steps in prop::collection::vec(step(), 1..200), n in 0..6_u8) {
        let (mut table, subnet) = (Table::default(), subnet("192.0.2.10-192.0.2.14"));
        let (mut clients, mut now) = (ClientLeases::new(), at(0));
        for step in steps {
            if let Step::Wait(seconds) = step {
                now += Duration::from_secs(seconds);
            }
            apply(&mut table, &mut clients, &subnet, step, now);
        }
        if let Some(chosen) = table.choose(&subnet, mac(n), None, |_| true, now) {
            let state = table.state(chosen, now);
            prop_assert!(
                state.is_none_or(|lease| lease.is_over() || lease.mac == mac(n)),
                "{chosen} is {state:?}"
            );
        } else {
            prop_assert_eq!(table.free(&subnet, now), 0);
        }
    }
}
