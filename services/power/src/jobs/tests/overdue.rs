//! Power jobs that stay in a state for too long.

use std::time::Duration;

use store::events::EventLog;
use store::mirror::Mirror;
use store::overdue::{self, Bounded as _};
use store::records::Kind;
use tinwright::event::v1::{EventFilter, EventKind};
use tokio_util::sync::CancellationToken;

use super::*;

/// The page that shows the limits to users.
const PAGE: &str = include_str!("../../../../../docs/reference/events.md");

/// Looks for overdue records until `stop`.
fn follow(records: &Records<Job>, clock: &Clock, stop: &CancellationToken) {
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
async fn overdue(records: &Records<Job>, id: &str) -> <Job as Kind>::Record {
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

async fn alarms(records: &Records<Job>, id: &str) -> Vec<String> {
    let kind = EventKind::Alarm.into();
    let filter = EventFilter { kind, object_id: id.into(), ..EventFilter::default() };
    let log = EventLog::new(records.store().clone(), "");
    let events = log.list(&filter, "", 100).await.unwrap().records;
    events.into_iter().map(|event| event.text).collect()
}

#[tokio::test]
async fn each_bounded_state_is_an_alarm_after_its_limit_until_it_is_left() {
    let clock = Clock::manual(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000));
    let store = Arc::new(FlakyStore::default());
    let jobs = jobs_with("a", &store, clock.clone());
    let hardware = HardwareId::new();
    let bmc = pb::Bmc {
        hardware_id: hardware.to_string(),
        protocol: Some(redfish("https://192.0.2.1")),
        ..pb::Bmc::default()
    };
    jobs.bmcs().create(bmc, Login::Skip, None).await.unwrap();
    let stop = CancellationToken::new();
    follow(&jobs.records, &clock, &stop);
    let job = jobs.create(new_job(hardware), None).await.unwrap();
    let events = [Event::Begin, Event::Fail("no".into())];
    let reasons = ["pending for more than 2 h: waiting in the queue", "running for more than 1 h"];
    for ((last, reason), event) in ["2 h", "1 h"].into_iter().zip(reasons).zip(events) {
        let begun = jobs.records.require(&job.id).await.unwrap();
        let row = format!("| power job | {} | {last} |", begun.state().word());
        assert!(PAGE.contains(&row), "the page needs {row}");
        let allowed = Job::allowed(&begun).unwrap();
        assert_eq!(overdue::describe(allowed), last);
        clock.advance(allowed - Duration::from_secs(1));
        assert!(!jobs.records.require(&job.id).await.unwrap().overdue);
        clock.advance(Duration::from_secs(1));
        assert_eq!(overdue(&jobs.records, &job.id).await.state_reason, reason);
        assert_eq!(alarms(&jobs.records, &job.id).await.last().unwrap(), reason);
        let head = head_of(&jobs, hardware).await.unwrap();
        let moved = jobs.record(&head, event, None).await.unwrap().job;
        assert!(!moved.overdue, "{moved:?}");
    }
    stop.cancel();
}
