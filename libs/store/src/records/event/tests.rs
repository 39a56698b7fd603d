//! The events that changes of records leave.

use std::sync::Arc;

use tinwright::event::v1::EventFilter;
use tinwright::secret::Sealable;
use tinwright::{EventId, Stored};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::events::{
    EventFeed, EventLog, Origin, RESERVED_BYTES, RESERVED_WRITES, to_write, with_origin,
};
use crate::memory::MemoryStore;
use crate::records::{Change, Error, Index, Records};
use crate::{Revision, ScopedStore, Write, limits};

/// A record with a state.
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
    #[prost(string, tag = "5")]
    colour: String,
    #[prost(string, repeated, tag = "6")]
    keys: Vec<String>,
    #[prost(string, tag = "7")]
    warning: String,
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
    const INDEXES: &'static [&'static str] = &["key"];

    fn indexes(door: &Door) -> Vec<Index> {
        door.keys.iter().map(|key| Index::unique("key", key)).collect()
    }

    fn state(door: &Door) -> String {
        door.state.clone()
    }

    fn state_reason(door: &Door) -> &str {
        &door.reason
    }

    fn has_ended(door: &Door) -> bool {
        door.state == "bricked up"
    }

    fn warning(door: &Door) -> &str {
        &door.warning
    }

    fn tenant(_: &Door) -> &str {
        "acme"
    }

    fn changed_fields(old: &Door, new: &Door) -> Vec<String> {
        let changed = (old.colour != new.colour).then(|| "colour".to_owned());
        changed.into_iter().collect()
    }
}

struct House {
    doors: Records<Doors>,
    log: EventLog,
}

impl House {
    fn new() -> Self {
        let store = ScopedStore::new(Arc::new(MemoryStore::default()), "house");
        Self { doors: Records::new(store.clone()), log: EventLog::new(store, "house") }
    }

    /// Commits `change` as `person:anna` asked.
    async fn ask(
        &self,
        call: &'static str,
        change: impl Fn(&Records<Doors>) -> Change,
    ) -> Result<Revision, Error> {
        let commit = async { self.doors.commit(change(&self.doors)).await };
        with_origin(Some(anna(call, true)), commit).await
    }

    async fn events(&self) -> Vec<Event> {
        self.log.list(&EventFilter::default(), "", 100).await.unwrap().records
    }

    /// The events, each in one line.
    async fn lines(&self) -> Vec<String> {
        self.events().await.iter().map(line).collect()
    }

    async fn door(&self) -> Door {
        self.doors.require("front").await.unwrap()
    }
}

fn anna(call: &'static str, is_change_request: bool) -> Arc<Origin> {
    let subject = Some("person:anna".into());
    let role = "operator";
    Arc::new(Origin { call, subject, role, is_change_request, ..Origin::default() })
}

fn line(event: &Event) -> String {
    let kind = event.kind().as_str_name().trim_start_matches("EVENT_KIND_");
    let Event { subject, call, noun, object_id, old_state, new_state, text, .. } = event;
    format!("{kind} {subject} {call} {noun} {object_id} {old_state}>{new_state} {text}")
}

fn front(state: &str) -> Door {
    Door { id: "front".into(), state: state.into(), ..Door::default() }
}

#[tokio::test]
async fn the_change_of_a_caller_is_recorded_with_the_caller_and_the_changed_fields() {
    let house = House::new();
    house.ask("Doors/Create", |doors| doors.to_create(&front("open"))).await.unwrap();
    let old = house.door().await;
    let new = Door { colour: "red".into(), ..old.clone() };
    house.ask("Doors/Update", |doors| doors.to_replace(&old, &new)).await.unwrap();
    let old = house.door().await;
    house.ask("Doors/Delete", |doors| doors.to_delete(&old)).await.unwrap();
    let expected = [
        "CALL person:anna Doors/Create door front >open created",
        "CALL person:anna Doors/Update door front open>open changed colour",
        "CALL person:anna Doors/Delete door front open>deleted deleted",
    ];
    assert_eq!(house.lines().await, expected);
    let event = &house.events().await[0];
    let (owner, tenant, role) = (event.owner.as_str(), event.tenant.as_str(), event.role.as_str());
    assert_eq!((owner, tenant, role), ("house", "acme", "operator"));
    assert!(event.id.parse::<EventId>().is_ok() && event.time.is_some(), "{event:?}");
}

#[tokio::test]
async fn without_a_caller_only_changes_of_the_state_are_recorded() {
    let house = House::new();
    house.doors.commit(house.doors.to_create(&front("open"))).await.unwrap();
    let old = house.door().await;
    let painted = Door { colour: "red".into(), ..old.clone() };
    let old = house.doors.replace(&old, painted).await.unwrap();
    let shut = Door { state: "shut".into(), reason: "a gust\nof wind".into(), ..old.clone() };
    let old = house.doors.replace(&old, shut).await.unwrap();
    let ended = Door { state: "bricked up".into(), ..old.clone() };
    let old = house.doors.replace(&old, ended).await.unwrap();
    house.doors.commit(house.doors.to_delete(&old)).await.unwrap();
    let expected = [
        "TRANSITION   door front >open created",
        "TRANSITION   door front open>shut a gust of wind",
        "TRANSITION   door front shut>bricked up ",
    ];
    assert_eq!(house.lines().await, expected);
}

#[tokio::test]
async fn a_new_warning_is_an_alarm_once() {
    let house = House::new();
    house.doors.commit(house.doors.to_create(&front("open"))).await.unwrap();
    for (warning, colour) in [("woodworm", ""), ("woodworm", "red"), ("", "red"), ("rot", "red")] {
        let old = house.door().await;
        let new = Door { warning: warning.into(), colour: colour.into(), ..old.clone() };
        house.doors.replace(&old, new).await.unwrap();
    }
    let expected = ["ALARM   door front open>open woodworm", "ALARM   door front open>open rot"];
    assert_eq!(house.lines().await[1..], expected);
}

#[tokio::test]
async fn a_report_is_recorded_only_if_it_changes_the_state() {
    let house = House::new();
    house.doors.commit(house.doors.to_create(&front("open"))).await.unwrap();
    for (state, colour) in [("open", "red"), ("shut", "red")] {
        let old = house.door().await;
        let new = Door { state: state.into(), colour: colour.into(), ..old.clone() };
        let report = house.doors.replace(&old, new);
        with_origin(Some(anna("Doors/Report", false)), report).await.unwrap();
    }
    let expected = "TRANSITION person:anna Doors/Report door front open>shut ";
    assert_eq!(house.lines().await[1..], [expected]);
}

#[tokio::test]
async fn a_change_that_is_not_committed_leaves_no_event() {
    let house = House::new();
    let create = |doors: &Records<Doors>| doors.to_create(&front("open"));
    house.ask("Doors/Create", create).await.unwrap();
    let again = house.ask("Doors/Create", create).await;
    assert!(matches!(again, Err(Error::Exists { .. })), "{again:?}");
    let same = house.door().await;
    with_origin(Some(anna("Doors/Update", true)), house.doors.replace(&same, same.clone()))
        .await
        .unwrap();
    assert_eq!(house.lines().await.len(), 1);
}

#[tokio::test]
async fn a_record_leaves_room_for_the_events_of_its_later_changes() {
    let house = House::new();
    let mut door = front("open");
    door.keys = (0..100).map(|n| n.to_string()).collect();
    let refused = house.ask("Doors/Create", |doors| doors.to_create(&door)).await;
    assert!(matches!(refused, Err(Error::Store(crate::Error::Refused(_)))), "{refused:?}");
    door.keys.pop();
    house.ask("Doors/Create", |doors| doors.to_create(&door)).await.unwrap();
    let stored = house.door().await;
    house.ask("Doors/Delete", |doors| doors.to_delete(&stored)).await.unwrap();
    let text = "x".repeat(limits::MAX_VALUE_BYTES);
    let event = Event { text: one_line(&text), ..Event::default() };
    let Write::Put(key, value) = to_write(event) else { unreachable!() };
    assert!((key.len() + value.len()) * RESERVED_WRITES <= RESERVED_BYTES);
}

#[tokio::test]
async fn a_watcher_gets_each_event_that_is_committed_after_it_began() {
    let house = House::new();
    house.doors.commit(house.doors.to_create(&front("open"))).await.unwrap();
    let feed = EventFeed::new(house.log.clone());
    let stop = CancellationToken::new();
    let run = tokio::spawn(feed.clone().run(stop.clone()));
    let filter = EventFilter { noun: "door".into(), ..EventFilter::default() };
    let mut watcher = feed.watch(filter).await;
    house.log.append(Event { noun: "window".into(), ..Event::default() }).await.unwrap();
    let old = house.door().await;
    house.doors.replace(&old, Door { state: "shut".into(), ..old.clone() }).await.unwrap();
    let event = watcher.next().await.unwrap().unwrap();
    assert_eq!(line(&event), "TRANSITION   door front open>shut ");
    stop.cancel();
    run.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_call_that_asks_for_changes_knows_the_objects_that_it_changed() {
    let house = House::new();
    let change = async |is_change_request, colour: &str| {
        let origin = anna("Doors/Change", is_change_request);
        let create = || house.doors.to_create(&front("open"));
        let work = async {
            let refused = house.doors.commit(create().and(create())).await;
            assert!(refused.is_err() || house.doors.get("front").await.unwrap().is_some());
            let Ok(Some(old)) = house.doors.get("front").await else { return };
            let new = Door { colour: colour.into(), ..old.clone() };
            house.doors.replace(&old, new).await.unwrap();
        };
        with_origin(Some(origin.clone()), work).await;
        origin.changed.get()
    };
    house.doors.commit(house.doors.to_create(&front("open"))).await.unwrap();
    assert_eq!(change(true, "red").await, ["door front"]);
    assert_eq!(change(false, "blue").await, [""; 0]);
}
