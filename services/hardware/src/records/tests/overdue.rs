//! Machines that stay in a state for too long.

use store::events::EventLog;
use store::mirror::Mirror;
use store::overdue;
use tinwright::event::v1::{EventFilter, EventKind};
use tokio_util::sync::CancellationToken;

use super::*;

/// The page that shows the limits to users.
const PAGE: &str = include_str!("../../../../../docs/reference/events.md");

/// Looks for overdue records until `stop`.
fn follow(records: &Records<HardwareKind>, clock: &Clock, stop: &CancellationToken) {
    let mirror = Mirror::new(records.clone());
    let (followed, stopped) = (mirror.clone(), stop.clone());
    tokio::spawn(async move { followed.run(stopped).await });
    let (clock, stop) = (clock.clone(), stop.clone());
    tokio::spawn(async move {
        let sleep_until = |time| {
            let clock = clock.clone();
            async move { clock.sleep_until(time).await }
        };
        overdue::run(mirror, || clock.wall(), sleep_until, |_| {}, stop).await;
    });
}

/// Waits until the record `id` is overdue.
async fn overdue(records: &Records<HardwareKind>, id: &str) -> <HardwareKind as Kind>::Record {
    let is_overdue = async {
        loop {
            let record = records.require(id).await.unwrap();
            if record.overdue {
                return record;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), is_overdue).await.expect("overdue within 20 s")
}

async fn alarms(records: &Records<HardwareKind>, id: &str) -> Vec<String> {
    let kind = EventKind::Alarm.into();
    let filter = EventFilter { kind, object_id: id.into(), ..EventFilter::default() };
    let log = EventLog::new(records.store().clone(), "");
    let events = log.list(&filter, "", 100).await.unwrap().records;
    events.into_iter().map(|event| event.text).collect()
}

#[tokio::test]
async fn a_delete_that_takes_too_long_is_an_alarm_until_the_state_changes() {
    let clock = Clock::manual(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000));
    let machines = HardwareRecords::new(Arc::new(MemoryStore::default()), clock.clone());
    let stop = CancellationToken::new();
    follow(machines.records(), &clock, &stop);
    let row = "| hardware | deleting | 10 min |";
    assert!(PAGE.contains(row), "the page needs {row}");
    let made = machines.create(machine(1), None).await.unwrap();
    assert_eq!(made.state_time, Some(clock.wall().into()));
    clock.advance(Duration::from_secs(60 * 60));
    let marked = pb::Hardware { state: State::Deleting.into(), ..made.clone() };
    let marked = machines.updated(&made, marked);
    let marked = machines.records().replace(&made, marked).await.unwrap();
    assert_eq!(HardwareKind::allowed(&marked), Some(Duration::from_secs(600)));
    clock.advance(Duration::from_secs(599));
    assert!(!machines.records().require(&made.id).await.unwrap().overdue);
    clock.advance(Duration::from_secs(1));
    let late = overdue(machines.records(), &made.id).await;
    assert_eq!(late.state_reason, "deleting for more than 10 min");
    let alarm = alarms(machines.records(), &made.id).await;
    assert_eq!(alarm, ["deleting for more than 10 min"]);
    machines.remove_mark(&made.id, State::Maintenance, "in use").await.unwrap();
    let back = machines.records().require(&made.id).await.unwrap();
    assert!(!back.overdue && back.state_time == Some(clock.wall().into()), "{back:?}");
    stop.cancel();
}
