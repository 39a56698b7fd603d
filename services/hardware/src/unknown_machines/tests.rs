//! Unknown machines in the store: bounds, events, and what deletes them.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use store::events::EventLog;
use store::memory::MemoryStore;
use store::mirror::Mirror;
use tinwright::event::v1::EventFilter;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::records::HardwareRecords;

struct Site {
    machines: HardwareRecords,
    unknown: UnknownMachines,
}

fn site() -> Site {
    let machines = HardwareRecords::new(Arc::new(MemoryStore::default()), Clock::system());
    let unknown = UnknownMachines::new(machines.records.store().clone(), Clock::system());
    Site { machines, unknown }
}

fn mac(n: usize) -> String {
    let [.., a, b, c] = n.to_be_bytes();
    Mac([2, 0, 0, a, b, c]).to_string()
}

/// The machine `n`, whose last request was `age` seconds ago.
fn machine(n: usize, age: u64) -> pb::UnknownMachine {
    let time = SystemTime::now() - Duration::from_secs(age);
    let times = Some(time.into());
    let (mac, reason) = (mac(n), Reason::Policy.into());
    let requests = 1;
    pb::UnknownMachine {
        mac,
        reason,
        requests,
        first_seen_time: times,
        last_seen_time: times,
        ..pb::UnknownMachine::default()
    }
}

impl Site {
    /// Stores machines without regard to the limits of calls.
    async fn record(&self, seen: Vec<pb::UnknownMachine>) {
        let change = self.unknown.to_record(&seen).await.unwrap();
        self.unknown.records.commit(change).await.unwrap();
    }

    async fn create_machine(&self, n: usize) {
        let interfaces = vec![pb::Interface { mac: mac(n), ..pb::Interface::default() }];
        let machine = pb::Hardware { interfaces, ..pb::Hardware::default() };
        self.machines.create(machine, None).await.unwrap();
    }

    async fn macs(&self) -> Vec<String> {
        self.unknown.all().await.unwrap().into_iter().map(|it| it.mac).collect()
    }

    async fn events(&self) -> Vec<String> {
        let log = EventLog::new(self.unknown.records.store().clone(), "hardware");
        let noun = UnknownMachineKind::NOUN.to_owned();
        let filter = EventFilter { noun, ..EventFilter::default() };
        let events = log.list(&filter, "", 1000).await.unwrap().records;
        events.into_iter().map(|event| format!("{} {}", event.object_id, event.text)).collect()
    }
}

#[tokio::test]
async fn a_machine_is_stored_once_with_the_sum_of_its_requests_and_one_event() {
    let site = site();
    site.unknown.record(vec![machine(1, 100)]).await.unwrap();
    let later = pb::UnknownMachine { requests: 4, subnet: "192.0.2.0/24".into(), ..machine(1, 10) };
    site.unknown.record(vec![later.clone()]).await.unwrap();
    // Another server reports an earlier request late.
    site.unknown.record(vec![machine(1, 50)]).await.unwrap();
    let stored = site.unknown.records.require(&mac(1)).await.unwrap();
    assert_eq!((stored.requests, stored.subnet.as_str()), (6, "192.0.2.0/24"));
    assert_eq!(stored.last_seen_time, later.last_seen_time);
    assert!(last_seen(&stored).0 - stored.first_seen_time.unwrap().seconds >= 89);
    let text = format!("{} created: its subnet does not enrol machines", mac(1));
    assert_eq!(site.events().await, [text]);
}

#[tokio::test]
async fn for_new_machines_those_with_the_oldest_last_request_are_deleted_without_events() {
    let site = site();
    for first in (0..4096).step_by(10) {
        let batch = (first..4096.min(first + 10)).map(|n| machine(n, 9000 - n as u64));
        site.record(batch.collect()).await;
    }
    assert_eq!(site.macs().await.len(), 4096);
    // The oldest one asks again; the next two are deleted.
    site.record(vec![machine(0, 1), machine(5000, 1), machine(5001, 1)]).await;
    let macs = site.macs().await;
    assert_eq!(macs.len(), 4096);
    let is_stored = |n| macs.contains(&mac(n));
    assert!(is_stored(0) && is_stored(3) && is_stored(5001) && !is_stored(1) && !is_stored(2));
    let events = site.events().await;
    assert_eq!(events.len(), 256, "of a flood, some have an event");
    assert!(events.iter().all(|event| event.contains(" created")));
}

#[tokio::test]
async fn a_flood_of_reports_is_refused_and_a_large_one_is_invalid() {
    let site = site();
    let mut refused = 0;
    for n in 0..40 {
        let result = site.unknown.record(vec![machine(n, 0)]).await;
        refused += usize::from(matches!(result, Err(Error::TooManyReports)));
    }
    assert!((25..=32).contains(&refused), "{refused}");
    for wrong in [
        (0..11).map(|n| machine(n, 0)).collect(),
        vec![machine(1, 0), machine(1, 0)],
        vec![pb::UnknownMachine { mac: "x".into(), ..machine(1, 0) }],
        vec![pb::UnknownMachine { vendor_class: "x".repeat(2000), ..machine(1, 0) }],
    ] {
        let refused = site.unknown.record(wrong).await.unwrap_err();
        assert!(matches!(refused, Error::Invalid(_)), "{refused}");
    }
}

#[tokio::test]
async fn a_time_that_lies_ahead_is_now() {
    let site = site();
    let ahead = Some(Timestamp { seconds: i64::MAX / 2, nanos: 0 });
    let machine = pb::UnknownMachine { last_seen_time: ahead, ..machine(1, 0) };
    site.unknown.record(vec![machine]).await.unwrap();
    let stored = site.unknown.records.require(&mac(1)).await.unwrap();
    let last: SystemTime = stored.last_seen_time.unwrap().try_into().unwrap();
    assert!(last <= SystemTime::now() && last > UNIX_EPOCH);
}

#[tokio::test]
async fn a_machine_with_a_record_is_not_stored_not_even_if_it_gets_it_meanwhile() {
    let site = site();
    let change = site.unknown.to_record(&[machine(1, 0)]).await.unwrap();
    site.create_machine(1).await;
    let late = site.unknown.records.commit(change).await;
    assert!(late.is_err(), "{late:?}");
    site.unknown.record(vec![machine(1, 0), machine(2, 0)]).await.unwrap();
    assert_eq!(site.macs().await, [mac(2)]);
}

#[tokio::test]
async fn a_record_that_is_created_deletes_the_unknown_machine() {
    let site = site();
    site.record(vec![machine(1, 0), machine(2, 0)]).await;
    let (mirror, stop) = (Mirror::new(site.machines.records.clone()), CancellationToken::new());
    let unknown_mirror = Mirror::new(site.unknown.records.clone());
    let (machines, unknown, stopped) = (mirror.clone(), unknown_mirror.clone(), stop.clone());
    tokio::spawn(async move { tokio::join!(machines.run(stopped.clone()), unknown.run(stopped)) });
    tokio::spawn(sweep(site.unknown.clone(), unknown_mirror, mirror.clone(), stop.clone()));
    mirror.ready().await;
    site.create_machine(1).await;
    let gone = async {
        while site.macs().await != [mac(2)] {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), gone).await.unwrap();
    stop.cancel();
}

#[tokio::test]
async fn those_that_are_known_or_too_old_are_deleted_by_the_hour() {
    let site = site();
    let week = MAX_AGE.as_secs();
    site.record(vec![machine(1, week + 60), machine(2, week - 60), machine(3, 0)]).await;
    site.create_machine(3).await;
    site.unknown.forget_old().await.unwrap();
    assert_eq!(site.macs().await, [mac(2)]);
}

#[tokio::test]
async fn the_refusal_of_a_report_is_stored_with_the_machine_until_it_is_deleted() {
    let site = site();
    let own: Mac = mac(1).parse().unwrap();
    site.unknown.record_refusal(own, "nothing is stored".into()).await.unwrap();
    site.record(vec![machine(1, 10)]).await;
    site.unknown.record_refusal(own, "its UUID is another machine's".into()).await.unwrap();
    site.record(vec![machine(1, 0)]).await;
    let stored = site.unknown.records.require(&mac(1)).await.unwrap();
    assert_eq!(stored.refusal, "its UUID is another machine's");
    let stale = site.unknown.delete(own, stored.revision + 1).await.unwrap_err();
    assert!(matches!(stale, records::Error::Changed { .. }));
    site.unknown.delete(own, 0).await.unwrap();
    assert!(matches!(site.unknown.delete(own, 0).await, Err(records::Error::Missing { .. })));
}
