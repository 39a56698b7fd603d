//! Instances that stay in a state for too long.

use store::events::EventLog;
use store::mirror::Mirror;
use store::overdue;
use tinwright::event::v1::{EventFilter, EventKind};
use tokio_util::sync::CancellationToken;

use super::*;

/// The page that shows the limits to users.
const PAGE: &str = include_str!("../../../../../docs/reference/events.md");

/// Looks for overdue records until `stop`.
fn follow(records: &Records<InstanceKind>, clock: &Clock, stop: &CancellationToken) {
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
async fn overdue(records: &Records<InstanceKind>, id: &str) -> <InstanceKind as Kind>::Record {
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

async fn alarms(records: &Records<InstanceKind>, id: &str) -> Vec<String> {
    let kind = EventKind::Alarm.into();
    let filter = EventFilter { kind, object_id: id.into(), ..EventFilter::default() };
    let log = EventLog::new(records.store().clone(), "");
    let events = log.list(&filter, "", 100).await.unwrap().records;
    events.into_iter().map(|event| event.text).collect()
}

#[tokio::test]
async fn each_bounded_state_is_an_alarm_after_its_limit_until_it_is_left() {
    let clock = Clock::manual(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000));
    let instances = Instances::new(Arc::new(MemoryStore::default()), clock.clone());
    let stop = CancellationToken::new();
    follow(instances.records(), &clock, &stop);
    for (state, last, next) in [
        (State::Queued, "1 h", State::Provisioning),
        (State::Provisioning, "3 h", State::Active),
        (State::Deprovisioning, "24 h", State::DeprovisionFailed),
    ] {
        let row = format!("| instance | {state} | {last} |");
        assert!(PAGE.contains(&row), "the page needs {row}");
        let hardware_id = HardwareId::new().to_string();
        let requested = pb::Instance { hardware_id, ..pb::Instance::default() };
        let mut begun = instances.create(requested, None).await;
        if state != State::Queued {
            let old = begun.unwrap();
            let mut new = old.clone();
            state.write(&mut new);
            begun = instances.put(&old, new).await;
        }
        let begun = begun.unwrap();
        assert_eq!(begun.state_time, Some(clock.wall().into()));
        let allowed = InstanceKind::allowed(&begun).unwrap();
        assert_eq!(overdue::describe(allowed), last);
        clock.advance(allowed - Duration::from_secs(1));
        assert!(!instances.records().require(&begun.id).await.unwrap().overdue);
        clock.advance(Duration::from_secs(1));
        let late = overdue(instances.records(), &begun.id).await;
        let reason = format!("{state} for more than {last}");
        assert_eq!(late.state_reason, reason);
        assert_eq!(alarms(instances.records(), &begun.id).await, [reason]);
        let mut moved = late.clone();
        next.write(&mut moved);
        let moved = instances.put(&late, moved).await.unwrap();
        assert!(!moved.overdue && moved.state_time == Some(clock.wall().into()), "{moved:?}");
        // Nothing else becomes due meanwhile.
        instances.records().commit(instances.records().to_delete(&moved)).await.unwrap();
    }
    stop.cancel();
}
