//! Workflows that stay in a state for too long.

use store::events::EventLog;
use store::mirror::Mirror;
use store::overdue;
use tinwright::event::v1::{EventFilter, EventKind};
use tokio_util::sync::CancellationToken;

use super::*;

/// The page that shows the limits to users.
const PAGE: &str = include_str!("../../../../../docs/reference/events.md");

/// Looks for overdue records until `stop`.
fn follow(records: &Records<WorkflowKind>, clock: &Clock, stop: &CancellationToken) {
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
async fn overdue(records: &Records<WorkflowKind>, id: &str) -> <WorkflowKind as Kind>::Record {
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

async fn alarms(records: &Records<WorkflowKind>, id: &str) -> Vec<String> {
    let kind = EventKind::Alarm.into();
    let filter = EventFilter { kind, object_id: id.into(), ..EventFilter::default() };
    let log = EventLog::new(records.store().clone(), "");
    let events = log.list(&filter, "", 100).await.unwrap().records;
    events.into_iter().map(|event| event.text).collect()
}

#[tokio::test]
async fn each_bounded_state_is_an_alarm_after_its_limit_until_it_is_left() {
    use pb::WorkflowState::{Pending, Post, Preparing, Running, Success};
    let clock = Clock::manual(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000));
    let store = ScopedStore::new(Arc::new(MemoryStore::default()), "workflow");
    let workflows = Workflows::new(store, clock.clone());
    let stop = CancellationToken::new();
    follow(workflows.records(), &clock, &stop);
    let limits = [(Preparing, "1 h"), (Pending, "24 h"), (Running, "24 h"), (Post, "1 h")];
    for (letter, (state, last)) in ('a'..).zip(limits) {
        let row = format!("| workflow | {} | {last} |", state.word());
        assert!(PAGE.contains(&row), "the page needs {row}");
        let created = record(letter, HardwareId::new());
        let create_time = Some(clock.wall().into());
        let created = pb::Workflow { create_time, state: Running.into(), ..created };
        let created = workflows.create(&created, None).await.unwrap();
        clock.advance(Duration::from_secs(60));
        let begun = workflows.edit(id(letter), |it| it.set_state(state)).await.unwrap();
        assert_eq!(begun.state_time.is_some(), state != Running);
        let since = WorkflowKind::state_time(&begun).unwrap();
        let allowed = WorkflowKind::allowed(&begun).unwrap();
        assert_eq!(overdue::describe(allowed), last);
        let rest = (since + allowed).duration_since(clock.wall()).unwrap();
        clock.advance(rest - Duration::from_secs(1));
        assert!(!workflows.get(id(letter)).await.unwrap().overdue);
        clock.advance(Duration::from_secs(1));
        let late = overdue(workflows.records(), &created.id).await;
        let reason = format!("{} for more than {last}", state.word());
        assert_eq!(late.state_reason, reason);
        assert_eq!(alarms(workflows.records(), &created.id).await, [reason]);
        let moved = workflows.edit(id(letter), |it| it.set_state(Success)).await.unwrap();
        assert!(!moved.overdue && moved.state_time == Some(clock.wall().into()), "{moved:?}");
    }
    stop.cancel();
}
