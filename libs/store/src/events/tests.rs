//! The stored events of a service, and the feed of new ones.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tinwright::event::v1::{EventFilter, EventKind};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::memory::MemoryStore;
use crate::record_error::Error;
use crate::{Commit, ScopedStore, Store as _};

fn empty_log() -> EventLog {
    EventLog::new(ScopedStore::new(Arc::new(MemoryStore::default()), "house"), "house")
}

#[tokio::test]
async fn a_list_has_pages_and_begins_at_a_time() {
    let log = empty_log();
    for n in 0..5 {
        let event = Event { text: n.to_string(), ..Event::default() };
        log.append(event).await.unwrap();
    }
    let (mut after, mut found) = (String::new(), Vec::new());
    loop {
        let part = log.list(&EventFilter::default(), &after, 2).await.unwrap();
        found.extend(part.records.into_iter().map(|event| event.text));
        let Some(next) = part.next else { break };
        after = next;
    }
    assert_eq!(found, ["0", "1", "2", "3", "4"]);
    let at =
        |time: SystemTime| EventFilter { start_time: Some(time.into()), ..EventFilter::default() };
    let now = crate::wall_time();
    let count = async |filter| log.list(&filter, "", 100).await.unwrap().records.len();
    assert_eq!(count(at(now - Duration::from_secs(60))).await, 5);
    assert_eq!(count(at(now + Duration::from_secs(60))).await, 0);
    let invalid = log.list(&EventFilter::default(), "x", 1).await;
    assert!(matches!(invalid, Err(Error::PageToken(_))), "{invalid:?}");
}

#[tokio::test]
async fn a_filter_selects_by_each_of_its_fields() {
    let log = empty_log();
    let event = Event {
        kind: EventKind::Refusal.into(),
        noun: "door".into(),
        object_id: "front".into(),
        subject: "person:anna".into(),
        tenant: "acme".into(),
        ..Event::default()
    };
    log.append(event).await.unwrap();
    let no = EventFilter::default;
    let past = Some(SystemTime::UNIX_EPOCH.into());
    for (filter, found) in [
        (EventFilter { kind: EventKind::Refusal.into(), ..no() }, 1),
        (EventFilter { kind: EventKind::Call.into(), ..no() }, 0),
        (EventFilter { noun: "door".into(), object_id: "front".into(), ..no() }, 1),
        (EventFilter { noun: "window".into(), ..no() }, 0),
        (EventFilter { object_id: "back".into(), ..no() }, 0),
        (EventFilter { subject: "person:anna".into(), tenant: "acme".into(), ..no() }, 1),
        (EventFilter { subject: "person:bob".into(), ..no() }, 0),
        (EventFilter { tenant: "other".into(), ..no() }, 0),
        (EventFilter { end_time: past, ..no() }, 0),
    ] {
        let listed = log.list(&filter, "", 100).await.unwrap();
        assert_eq!((listed.records.len(), listed.next), (found, None), "{filter:?}");
    }
}

#[tokio::test]
async fn events_are_deleted_after_ninety_days_and_not_before() {
    let log = empty_log();
    log.append(Event::default()).await.unwrap();
    let (now, day) = (crate::wall_time(), Duration::from_secs(24 * 60 * 60));
    assert_eq!(log.delete_expired(now + 89 * day).await.unwrap(), 0);
    assert_eq!(log.delete_expired(now + 91 * day).await.unwrap(), 1);
    let left = log.list(&EventFilter::default(), "", 100).await.unwrap();
    assert_eq!(left.records.len(), 0, "the expiry leaves no event");
}

#[tokio::test]
async fn a_watcher_that_is_too_slow_gets_an_error() {
    let log = empty_log();
    let feed = EventFeed::new(log.clone());
    let stop = CancellationToken::new();
    let run = tokio::spawn(feed.clone().run(stop.clone()));
    let mut slow = feed.watch(EventFilter::default()).await;
    let mut other = feed.watch(EventFilter::default()).await;
    for _ in 0..15 {
        let writes = (0..100).map(|_| to_write(Event::default())).collect();
        let commit = Commit { writes, ..Commit::default() };
        log.store().commit(commit).await.unwrap();
        for _ in 0..100 {
            other.next().await.unwrap().unwrap();
        }
    }
    assert_eq!(slow.next().await, Some(Err(MissedEvents)));
    stop.cancel();
    run.await.unwrap().unwrap();
}
