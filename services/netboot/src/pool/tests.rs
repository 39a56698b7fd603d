//! Whatever clients do, and in whatever order: an address has one owner.
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use proptest::prelude::*;

use super::lease::{DECLINED, OFFERED, PREFERRED};
use super::*;
use crate::Mac;
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

fn subnet(ranges: &str) -> Subnet {
    let network = Ipv4Net::new_assert(address(0), 24);
    Subnet::new(network, vec![ranges.parse().unwrap()])
}

/// A client's way to a lease, as a server goes it with it; nothing where there is no address for it.
fn lent(table: &mut Table, subnet: &Subnet, mac: Mac, now: SystemTime) -> Option<Ipv4Addr> {
    let address = table.choose(subnet, mac, None, |address| address != RESERVED, now)?;
    table.offer(address, mac, now).unwrap();
    let bound = Lease::after(table.state(address, now), mac, Event::Bind(now + subnet.lease), now);
    table.keep(address, Some(bound.unwrap()));
    Some(address)
}

#[test]
fn a_client_gets_what_it_had_then_what_it_asks_for_then_where_its_mac_leads() {
    let (mut table, subnet) = (Table::default(), subnet("192.0.2.10-192.0.2.200"));
    let first = lent(&mut table, &subnet, mac(1), at(0)).unwrap();
    assert_eq!(lent(&mut Table::default(), &subnet, mac(1), at(9)), Some(first), "without state");
    let choose = |table: &Table, mac, wanted: u8, now| {
        table.choose(&subnet, mac, Some(address(wanted)), |address| address != RESERVED, now)
    };
    assert_eq!(choose(&table, mac(1), 77, at(1)), Some(first), "what it has goes first");
    assert_eq!(choose(&table, mac(2), 77, at(1)), Some(address(77)));
    assert_ne!(choose(&table, mac(2), first.octets()[3], at(1)), Some(first), "it is taken");
    assert_ne!(choose(&table, mac(2), 12, at(1)), Some(RESERVED));
    assert_ne!(choose(&table, mac(2), 210, at(1)), Some(address(210)), "not lent at all");
    let hours_later = at(4 * 3600);
    assert_eq!(choose(&table, mac(1), 77, hours_later), Some(first), "what it had goes first");
}

#[test]
fn a_full_pool_gives_nothing_until_a_lease_ends_and_then_the_one_that_ended_first() {
    let (mut table, subnet) = (Table::default(), subnet("192.0.2.10-192.0.2.12"));
    let one = lent(&mut table, &subnet, mac(1), at(0)).unwrap();
    let two = lent(&mut table, &subnet, mac(2), at(60)).unwrap();
    assert_ne!(one, two);
    assert_eq!(lent(&mut table, &subnet, mac(3), at(3599)), None, "the third is reserved");
    assert_eq!(lent(&mut table, &subnet, mac(3), at(3600)), Some(one));
    assert_eq!(lent(&mut table, &subnet, mac(4), at(3700)), Some(two));
    assert_eq!(lent(&mut table, &subnet, mac(1), at(3701)), None);
}

#[test]
fn every_state_ends_when_it_should() {
    let mac = mac(1);
    let second = Duration::from_secs(1);
    for (lease, most) in [
        (Lease::Offered { mac, until: at(0) + OFFERED }, OFFERED),
        (Lease::Declined { mac, until: at(0) + DECLINED }, DECLINED),
        (Lease::Released { mac, at: at(0) }, PREFERRED),
        (Lease::Expired { mac, at: at(0) }, PREFERRED),
    ] {
        assert_eq!(lease.at(at(0) + most - second), Some(lease));
        assert_eq!(lease.at(at(0) + most), None);
    }
    let bound = Lease::Bound { mac, until: at(100) };
    assert_eq!(bound.at(at(99)), Some(bound));
    assert_eq!(bound.at(at(100)), Some(Lease::Expired { mac, at: at(100) }));
    assert_eq!(bound.at(at(100) + PREFERRED), None);
}

#[test]
fn nobody_gets_a_declined_address_and_nobody_gives_back_what_is_not_theirs() {
    let bound = Some(Lease::Bound { mac: mac(1), until: at(100) });
    assert_eq!(Lease::after(bound, mac(2), Event::Release, at(1)), Err(Illegal));
    assert_eq!(Lease::after(bound, mac(2), Event::Decline, at(1)), Err(Illegal));
    assert_eq!(Lease::after(bound, mac(2), Event::Bind(at(200)), at(1)), Err(Illegal));
    let declined = Lease::after(bound, mac(1), Event::Decline, at(1)).unwrap();
    for (mac, event) in
        [(mac(1), Event::Offer), (mac(1), Event::Bind(at(9))), (mac(2), Event::Offer)]
    {
        assert_eq!(Lease::after(Some(declined), mac, event, at(2)), Err(Illegal));
        assert!(Lease::after(Some(declined), mac, event, at(1) + DECLINED).is_ok());
    }
}

#[test]
fn an_offer_is_withdrawn_when_its_client_chooses_another_server() {
    let (mut table, subnet) = (Table::default(), subnet("192.0.2.10-192.0.2.10"));
    table.offer(address(10), mac(1), at(0)).unwrap();
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
    Tidy,
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
        Just(Step::Tidy),
    ]
}

/// What clients believe: the address they were given, and until when.
type Beliefs = HashMap<Mac, HashMap<Ipv4Addr, SystemTime>>;

fn take(table: &mut Table, beliefs: &mut Beliefs, subnet: &Subnet, step: Step, now: SystemTime) {
    let change = |table: &mut Table, n, last, event| {
        let changed = Lease::after(table.state(address(last), now), mac(n), event, now).ok()?;
        table.keep(address(last), Some(changed));
        Some(())
    };
    match step {
        Step::Discover { mac: n, wanted } => {
            let usable = |address| address != RESERVED;
            let chosen = table.choose(subnet, mac(n), Some(address(wanted)), usable, now);
            let Some(chosen) = chosen else { return };
            assert!(subnet.lends(chosen) && chosen != RESERVED, "{chosen} is not to be lent");
            table.offer(chosen, mac(n), now).unwrap();
        }
        Step::Request { mac: n, address: last, seconds } => {
            let until = now + Duration::from_secs(seconds);
            if change(table, n, last, Event::Bind(until)).is_some() {
                beliefs.entry(mac(n)).or_default().insert(address(last), until);
            }
        }
        Step::Release { mac: n, address: last } | Step::Decline { mac: n, address: last } => {
            let release = matches!(step, Step::Release { .. });
            let event = if release { Event::Release } else { Event::Decline };
            if change(table, n, last, event).is_some() {
                beliefs.entry(mac(n)).or_default().remove(&address(last));
            }
        }
        Step::Tidy => table.tidy(now),
        Step::Wait(_) => {}
    }
}

proptest! {
    #[test]
    fn an_address_never_has_two_owners(steps in prop::collection::vec(step(), 1..200)) {
        let (mut table, subnet) = (Table::default(), subnet("192.0.2.10-192.0.2.14"));
        let (mut beliefs, mut now) = (Beliefs::new(), at(0));
        for step in steps {
            if let Step::Wait(seconds) = step {
                now += Duration::from_secs(seconds);
            }
            take(&mut table, &mut beliefs, &subnet, step, now);
            let mut owners = HashMap::new();
            for (mac, addresses) in &beliefs {
                for (address, _) in addresses.iter().filter(|(_, until)| now < **until) {
                    prop_assert_eq!(owners.insert(*address, *mac), None, "of {}", address);
                    let state = table.state(*address, now);
                    prop_assert!(
                        matches!(state, Some(Lease::Bound { mac: own, .. }) if own == *mac),
                        "{} has {address}, which is {state:?}", mac
                    );
                }
            }
        }
    }

    #[test]
    fn an_offer_is_an_address_nobody_else_has(steps in prop::collection::vec(step(), 1..200), n in 0..6_u8) {
        let (mut table, subnet) = (Table::default(), subnet("192.0.2.10-192.0.2.14"));
        let (mut beliefs, mut now) = (Beliefs::new(), at(0));
        for step in steps {
            if let Step::Wait(seconds) = step {
                now += Duration::from_secs(seconds);
            }
            take(&mut table, &mut beliefs, &subnet, step, now);
        }
        if let Some(chosen) = table.choose(&subnet, mac(n), None, |_| true, now) {
            let state = table.state(chosen, now);
            prop_assert!(
                state.is_none_or(|lease| lease.leaves_free() || lease.mac() == mac(n)),
                "{chosen} is {state:?}"
            );
        } else {
            prop_assert_eq!(table.free(&subnet, now), 0);
        }
    }
}
