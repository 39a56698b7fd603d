use std::sync::Arc;
use std::time::UNIX_EPOCH;

use tinwright::event::v1::{EventFilter, EventKind};
use tinwright::secret::Sealable;
use tinwright::{Bounded, Stored};
use tokio::sync::watch;

use super::*;
use crate::events::EventLog;
use crate::memory::MemoryStore;
use crate::records::Records;
use crate::{ScopedStore, Store};

const HOUR: Duration = Duration::from_secs(60 * 60);

/// A record whose state `open` is limited to an hour.
#[derive(Clone, PartialEq, prost::Message)]
struct Door {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(int64, tag = "2")]
    revision: i64,
    #[prost(string, tag = "3")]
    state: String,
    #[prost(string, tag = "4")]
    reason: String,
    #[prost(uint64, tag = "5")]
    since: u64,
    #[prost(bool, tag = "6")]
    overdue: bool,
}

impl Sealable for Door {}

#[derive(Debug)]
enum Doors {}

impl Stored for Door {
    const SINGULAR: &'static str = "door";
    const HAS_EVENTS: bool = true;

    fn id(&self) -> &str {
        &self.id
    }

    fn revision_mut(&mut self) -> &mut i64 {
        &mut self.revision
    }
}

impl Kind for Doors {
    type Record = Door;
    type Id = String;
    const KIND: &'static str = "door";

    fn state(door: &Door) -> String {
        door.state.clone()
    }

    fn state_reason(door: &Door) -> &str {
        &door.reason
    }

    fn is_overdue(door: &Door) -> bool {
        door.overdue
    }
}

impl Bounded for Door {
    fn max_stay(&self) -> Option<Duration> {
        (self.state == "open").then_some(HOUR)
    }

    fn state_time(&self) -> Option<SystemTime> {
        Some(UNIX_EPOCH + Duration::from_secs(self.since))
    }

    fn set_overdue(&mut self, reason: String) {
        (self.overdue, self.reason) = (true, reason);
    }
}

/// A house whose time stands until it is moved, and whose doors are followed.
struct House {
    doors: Records<Doors>,
    log: EventLog,
    time: watch::Sender<SystemTime>,
    counts: watch::Receiver<BTreeMap<String, usize>>,
    stop: CancellationToken,
}

impl House {
    fn new(store: Arc<dyn Store>, time: SystemTime) -> Self {
        let store = ScopedStore::new(store, "house");
        let doors = Records::<Doors>::new(store.clone());
        let (time, stop) = (watch::Sender::new(time), CancellationToken::new());
        let (reported, counts) = watch::channel(BTreeMap::new());
        let mirror = Mirror::new(doors.clone());
        let (now, until, stopped) = (time.subscribe(), time.subscribe(), stop.clone());
        let sleep_until = move |due| {
            let mut until = until.clone();
            async move {
                let _reached = until.wait_for(|now| *now >= due).await;
            }
        };
        let report = move |counts: &BTreeMap<String, usize>| {
            reported.send_replace(counts.clone());
        };
        let follow = mirror.clone();
        tokio::spawn(async move { follow.run(stopped).await });
        let stopped = stop.clone();
        tokio::spawn(run(mirror, move || *now.borrow(), sleep_until, report, stopped));
        Self { doors, log: EventLog::new(store, "house"), time, counts, stop }
    }

    async fn put(&self, id: &str, state: &str, since: SystemTime) {
        let since = since.duration_since(UNIX_EPOCH).unwrap().as_secs();
        let new = Door { id: id.into(), state: state.into(), since, ..Door::default() };
        match self.doors.get(id).await.unwrap() {
            Some(old) => drop(self.doors.replace(&old, new).await.unwrap()),
            None => drop(self.doors.commit(self.doors.to_create(&new)).await.unwrap()),
        }
    }

    async fn counted(&mut self, open: usize) {
        let reached = self.counts.wait_for(|counts| counts.get("open") == Some(&open));
        drop(tokio::time::timeout(Duration::from_secs(20), reached).await.unwrap().unwrap());
    }

    async fn alarms(&self) -> Vec<String> {
        let filter = EventFilter { kind: EventKind::Alarm.into(), ..EventFilter::default() };
        let events = self.log.list(&filter, "", 100).await.unwrap().records;
        events.into_iter().map(|event| format!("{} {}", event.object_id, event.text)).collect()
    }
}

#[tokio::test]
async fn a_stay_that_is_too_long_is_an_alarm_until_the_state_changes() {
    let begin = UNIX_EPOCH + HOUR;
    let mut house = House::new(Arc::new(MemoryStore::default()), begin);
    house.put("front", "open", begin).await;
    house.put("back", "shut", begin).await;
    house.time.send_replace(begin + HOUR);
    house.counted(1).await;
    let door = house.doors.require("front").await.unwrap();
    assert!(door.overdue && door.reason == "open for more than 1 h", "{door:?}");
    assert_eq!(house.alarms().await, ["front open for more than 1 h"]);
    house.put("front", "shut", begin + HOUR).await;
    house.counted(0).await;
    assert!(!house.doors.require("front").await.unwrap().overdue);
    house.stop.cancel();
}

#[tokio::test]
async fn there_is_one_alarm_for_each_stay_also_after_a_restart() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let begin = UNIX_EPOCH + HOUR;
    let mut house = House::new(store.clone(), begin);
    house.put("front", "open", begin).await;
    house.time.send_replace(begin + HOUR);
    house.counted(1).await;
    house.stop.cancel();
    let mut again = House::new(store, begin + 2 * HOUR);
    again.counted(1).await;
    assert_eq!(again.alarms().await.len(), 1);
    again.put("front", "shut", begin + 2 * HOUR).await;
    again.counted(0).await;
    again.put("front", "open", begin + 2 * HOUR).await;
    again.time.send_replace(begin + 3 * HOUR);
    again.counted(1).await;
    assert_eq!(again.alarms().await.len(), 2);
    again.stop.cancel();
}

#[tokio::test]
async fn a_record_that_moved_on_in_time_is_no_alarm() {
    let begin = UNIX_EPOCH + HOUR;
    let mut house = House::new(Arc::new(MemoryStore::default()), begin);
    house.put("front", "open", begin).await;
    house.put("side", "open", begin).await;
    house.put("front", "open", begin + HOUR).await;
    house.time.send_replace(begin + HOUR);
    house.counted(1).await;
    assert_eq!(house.alarms().await, ["side open for more than 1 h"]);
    house.stop.cancel();
}

#[test]
fn limits_are_in_hours_or_minutes() {
    assert_eq!(describe(24 * HOUR), "24 h");
    assert_eq!(describe(Duration::from_secs(600)), "10 min");
    assert_eq!(describe(Duration::from_secs(90 * 60)), "90 min");
}
