//! Boots that are stored, and events that are dropped.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use async_trait::async_trait;
use prost::Message as _;
use store::memory::MemoryStore;
use store::{Changes, Commit, Page, Revision, ScopedStore, Store, Versioned, Write};
use tinwright::HardwareId;
use tinwright::netboot::v1::{Boot, ScriptKind};
use uuid::Uuid;

use super::*;
use crate::Mac;
use crate::decision::Fact;
use crate::metrics::Metrics;
use crate::timeline::{BootOwner, BootStep, Timeline};
use tinwright::netboot::v1::BootEventKind as Kind;

/// A store that may be away.
#[derive(Default)]
struct FlakyStore {
    store: MemoryStore,
    away: AtomicBool,
}

#[async_trait]
impl Store for FlakyStore {
    async fn get(&self, key: &str) -> Result<Option<Versioned>, store::Error> {
        self.store.get(key).await
    }
    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page, store::Error> {
        self.store.list(prefix, after, limit).await
    }
    async fn commit(&self, commit: Commit) -> Result<Revision, store::Error> {
        if self.away.load(Ordering::Relaxed) {
            return Err(store::Error::Unavailable("away".into()));
        }
        self.store.commit(commit).await
    }
    async fn changed(&self, prefix: &str, after: Revision) -> Result<Changes, store::Error> {
        self.store.changed(prefix, after).await
    }
}

struct Site {
    store: Arc<FlakyStore>,
    stored: BootStore,
    recorder: Recorder,
    metrics: Metrics,
}

fn site() -> Site {
    let (store, metrics) = (Arc::new(FlakyStore::default()), Metrics::default());
    let stored = BootStore::new(ScopedStore::new(store.clone(), "netboot"));
    let timeline = Timeline::new(metrics.clone());
    let recorder = Recorder::new(timeline, stored.clone(), Clock::system());
    Site { store, stored, recorder, metrics }
}

fn event(owner: HardwareId, seconds: u64, step: BootStep) -> Event {
    let at = SystemTime::now() - Duration::from_secs(seconds);
    Event { owner: BootOwner::Machine(owner), mac: Mac([2; 6]), step, source: None, at }
}

fn script() -> BootStep {
    BootStep::script(ScriptKind::Worker, Fact::WorkflowWaits)
}

async fn all(stored: &BootStore, owner: impl ToString) -> Vec<Boot> {
    stored.list(&owner.to_string(), "", 1000).await.unwrap().records
}

#[tokio::test]
async fn a_page_token_of_another_machine_is_refused() {
    let Site { stored, mut recorder, .. } = site();
    let [a, other] = [HardwareId::new(), HardwareId::new()];
    recorder.add(event(a, 500, script()));
    recorder.store_batch().await;
    let boot = &all(&stored, a).await[0].id;
    assert!(
        stored.list("", boot, 10).await.is_ok()
            && stored.list(&a.to_string(), boot, 10).await.is_ok()
    );
    for (owner, token) in [(other.to_string(), boot.as_str()), (String::new(), "x")] {
        let refused = stored.list(&owner, token, 10).await;
        assert!(matches!(refused, Err(store::records::Error::PageToken(_))), "{owner} {token}");
    }
}

#[tokio::test]
async fn long_boots_end_a_page_early_and_none_is_left_out() {
    let Site { store, stored, .. } = site();
    let owner = HardwareId::new();
    let ids: Vec<_> = (0..12).map(|n| format!("{owner}.{}", Uuid::from_u128(n))).collect();
    for id in &ids {
        let boot = Boot { id: id.clone(), fact: "x".repeat(400 * 1024), ..Boot::default() };
        let write = Write::Put(format!("netboot/boot/{id}"), boot.encode_to_vec().into());
        store.commit(Commit { writes: vec![write], ..Commit::default() }).await.unwrap();
    }
    let (mut listed, mut after) = (Vec::new(), String::new());
    loop {
        let page = stored.list(&owner.to_string(), &after, 1000).await.unwrap();
        assert!(page.records.len() <= 6, "{}", page.records.len());
        listed.extend(page.records.into_iter().map(|boot| boot.id));
        match page.next {
            Some(next) => after = next,
            None => break,
        }
    }
    assert_eq!(listed, ids);
}

#[tokio::test]
async fn the_last_20_boots_of_a_machine_are_stored_in_order_and_no_others_are_deleted() {
    let Site { stored, mut recorder, .. } = site();
    let [a, other] = [HardwareId::new(), HardwareId::new()];
    recorder.add(event(other, 500, script()));
    for n in 0..30 {
        recorder.add(event(a, 400 - n, script()));
        while recorder.store_batch().await {}
    }
    let boots = all(&stored, a).await;
    assert_eq!(boots.len(), 20);
    assert!(boots.is_sorted_by_key(|boot| boot.create_time.unwrap().seconds));
    assert_eq!((all(&stored, other).await.len(), all(&stored, "").await.len()), (1, 21));
    assert_eq!(stored.require(&boots[0].id).await.unwrap().script(), ScriptKind::Worker);
}

#[tokio::test]
async fn clients_without_a_record_have_100_boots_in_all() {
    let Site { stored, mut recorder, .. } = site();
    for n in 0..150 {
        let mac = Mac([2, 0, 0, 0, 0, n]);
        let owner = BootOwner::UnknownClient(mac);
        recorder.add(Event {
            owner,
            mac,
            ..event(HardwareId::new(), 400, BootStep::new(Kind::PhoneHome, ""))
        });
        recorder.store_batch().await;
    }
    assert_eq!(all(&stored, crate::timeline::records::UNKNOWN).await.len(), 100);
}

#[tokio::test]
async fn a_boot_of_last_week_is_deleted() {
    let Site { stored, mut recorder, .. } = site();
    let [old, new] = [HardwareId::new(), HardwareId::new()];
    recorder.add(event(old, 8 * 24 * 60 * 60, script()));
    recorder.add(event(new, 6 * 24 * 60 * 60, script()));
    recorder.store_batch().await;
    recorder.evict().await;
    let left: Vec<_> = all(&stored, "").await.into_iter().map(|boot| boot.hardware_id).collect();
    assert_eq!(left, [new.to_string()]);
}

#[tokio::test]
async fn events_are_stored_once_the_store_is_available_again() {
    let Site { store, stored, mut recorder, .. } = site();
    store.away.store(true, Ordering::Relaxed);
    let a = HardwareId::new();
    recorder.add(event(a, 9, script()));
    recorder.store_batch().await;
    assert!(all(&stored, a).await.is_empty());
    recorder.add(event(a, 8, BootStep::new(Kind::Started, "")));
    store.away.store(false, Ordering::Relaxed);
    recorder.store_batch().await;
    assert_eq!(all(&stored, a).await[0].events.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn boots_are_stored_at_each_interval_and_at_the_stop() {
    let stored = BootStore::new(ScopedStore::new(Arc::new(MemoryStore::default()), "netboot"));
    let timeline = Timeline::new(Metrics::default());
    let (stop, ids) = (CancellationToken::new(), [HardwareId::new(), HardwareId::new()]);
    let recorder = Recorder::new(timeline.clone(), stored.clone(), Clock::system());
    let recording = tokio::spawn(recorder.run(stop.clone()));
    timeline.record(event(ids[0], 9, script()));
    tokio::time::sleep(2 * STORE_INTERVAL).await;
    assert_eq!(all(&stored, "").await.len(), 1);
    timeline.record(event(ids[1], 9, script()));
    stop.cancel();
    recording.await.unwrap();
    assert_eq!(all(&stored, "").await.len(), 2);
}

#[tokio::test]
async fn an_event_that_does_not_fit_into_the_queue_is_counted() {
    let Site { metrics, .. } = site();
    let timeline = Timeline::new(metrics.clone());
    for _ in 0..super::super::queue::MAX_WAITING + 7 {
        timeline.record(event(HardwareId::new(), 0, BootStep::new(Kind::Started, "")));
    }
    assert_eq!(metrics.dropped_boot_events.get(), 7);
}
