//! Clients without a record: which are remembered, and which are reported.

use std::time::UNIX_EPOCH;

use tinwright::hardware::v1::unknown_machine::Reason;

use super::*;

fn mac(n: u32) -> Mac {
    let [_, a, b, c] = n.to_be_bytes();
    Mac([2, 0, 0, a, b, c])
}

fn client() -> UnknownMachine {
    let vendor_class = "PXEClient".into();
    UnknownMachine { architectures: vec![7], vendor_class, ..UnknownMachine::default() }
}

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

/// The MACs of a report and their numbers of requests.
fn numbers(report: &[UnknownMachine]) -> Vec<(String, i64)> {
    report.iter().map(|it| (it.mac.clone(), it.requests)).collect()
}

#[test]
fn the_client_with_the_oldest_last_request_is_forgotten_for_a_new_one() {
    let all = UnknownClients::default();
    for n in 0..4096 {
        all.record(mac(n), client(), at(n.into()));
    }
    all.record(mac(0), client(), at(5000));
    all.record(mac(9999), client(), at(5001));
    assert_eq!(all.count(), 4096);
    let report = all.take_due(5000, at(5002));
    let macs: Vec<_> = report.iter().map(|it| it.mac.as_str()).collect();
    assert_eq!(macs[0], mac(0).to_string(), "it asked twice");
    assert_eq!(macs[1], mac(2).to_string(), "the one after the first had the oldest request");
    assert_eq!(macs[4095], mac(9999).to_string());
    let times = (report[0].first_seen_time, report[0].last_seen_time);
    assert_eq!(times, (Some(at(0).into()), Some(at(5000).into())));
}

#[test]
fn a_forged_address_is_not_reported_and_a_second_relay_makes_no_second_report() {
    let all = UnknownClients::default();
    assert!(!all.record(Mac([1, 0, 0, 0, 0, 1]), client(), at(0)));
    all.record(mac(1), UnknownMachine { relay: "192.0.2.1".into(), ..client() }, at(0));
    assert_eq!(numbers(&all.take_due(9, at(1))), [(mac(1).to_string(), 1)]);
    all.record(mac(1), UnknownMachine { relay: "192.0.2.2".into(), ..client() }, at(2));
    assert_eq!(numbers(&all.take_due(9, at(3))), []);
}

#[test]
fn a_client_is_reported_again_after_ten_minutes_or_when_it_asks_elsewhere() {
    let all = UnknownClients::default();
    all.record(mac(1), client(), at(0));
    assert_eq!(numbers(&all.take_due(9, at(1))), [(mac(1).to_string(), 1)]);
    for seconds in [2, 3, 600] {
        all.record(mac(1), client(), at(seconds));
        assert_eq!(all.take_due(9, at(seconds)), [], "{seconds}");
    }
    assert_eq!(numbers(&all.take_due(9, at(601))), [(mac(1).to_string(), 3)]);
    assert_eq!(all.take_due(9, at(9999)), [], "it asked no more");
    let reason = Reason::PoolExhausted.into();
    all.record(mac(1), UnknownMachine { reason, ..client() }, at(610));
    assert_eq!(numbers(&all.take_due(9, at(611))), [(mac(1).to_string(), 1)]);
}

#[test]
fn of_a_flood_those_that_asked_twice_are_reported_first() {
    let all = UnknownClients::default();
    for n in 0..1000 {
        all.record(mac(n), client(), at(n.into()));
    }
    for _ in 0..2 {
        all.record(mac(5000), client(), at(1001));
    }
    let report = all.take_due(32, at(1002));
    assert_eq!(report.len(), 32);
    assert_eq!(numbers(&report[..2]), [(mac(5000).to_string(), 2), (mac(0).to_string(), 1)]);
}

#[test]
fn a_report_that_failed_is_due_again_with_all_requests() {
    let all = UnknownClients::default();
    all.record(mac(1), client(), at(0));
    let report = all.take_due(9, at(1));
    all.record(mac(1), client(), at(2));
    all.put_back(&report);
    assert_eq!(numbers(&all.take_due(9, at(3))), [(mac(1).to_string(), 2)]);
}

#[test]
fn clients_that_got_a_record_or_went_away_are_forgotten() {
    let all = UnknownClients::default();
    let week = 7 * 24 * 60 * 60;
    for (n, seconds) in [(1, 0), (2, 10), (3, 10)] {
        all.record(mac(n), client(), at(seconds));
    }
    all.forget(|known| known == mac(3), at(week + 5));
    assert_eq!(numbers(&all.take_due(9, at(week + 5))), [(mac(2).to_string(), 1)]);
}

#[test]
fn long_texts_and_lists_are_cut() {
    let all = UnknownClients::default();
    let circuit_id = vec![7; 4000];
    let (architectures, vendor_class) = (vec![7; 2000], "x".repeat(4000));
    let long = UnknownMachine { circuit_id, architectures, vendor_class, ..client() };
    all.record(mac(1), long, at(1));
    let UnknownMachine { circuit_id, architectures, vendor_class, .. } = &all.take_due(1, at(2))[0];
    assert_eq!((circuit_id.len(), architectures.len(), vendor_class.len()), (255, 16, 255));
}

#[test]
fn a_client_is_logged_once_a_minute() {
    let all = UnknownClients::default();
    let logged: Vec<_> = [0, 1, 59, 60, 61, 119, 120]
        .into_iter()
        .filter(|seconds| all.record(mac(1), client(), at(*seconds)))
        .collect();
    assert_eq!(logged, [0, 60, 120]);
}
