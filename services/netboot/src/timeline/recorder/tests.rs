//! What is kept, and what is given up.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use store::memory::MemoryStore;
use store::{Changes, Commit, Page, Revision, ScopedStore, Store, Versioned};
use tinwright::HardwareId;
use tinwright::netboot::v1::Boot;

use super::*;
use crate::Mac;
use crate::decision::Fact;
use crate::timeline::{BootStep, BootSubject, Timeline};

/// A store that may be away.
#[derive(Default)]
struct Moody {
    store: MemoryStore,
    away: AtomicBool,
}

#[async_trait]
impl Store for Moody {
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
    store: Arc<Moody>,
    kept: BootStore,
    recorder: Recorder,
    metrics: Metrics,
}

fn site() -> Site {
    let (store, metrics) = (Arc::new(Moody::default()), Metrics::default());
    let kept = BootStore::new(ScopedStore::new(store.clone(), "netboot"));
    let (_, events) = Timeline::new(metrics.clone());
    let recorder = Recorder::new(events, kept.clone(), metrics.clone());
    Site { store, kept, recorder, metrics }
}

fn event(owner: HardwareId, seconds: u64, what: BootStep) -> Event {
    let at = SystemTime::now() - Duration::from_secs(seconds);
    Event { who: BootSubject::Machine(owner, Mac([2; 6])), what, source: None, at }
}

fn script() -> BootStep {
    BootStep::Script { kind: "worker", fact: Fact::WorkflowWaits }
}

async fn all(kept: &BootStore, owner: impl ToString) -> Vec<Boot> {
    kept.list(&owner.to_string(), "", 1000).await.unwrap().records
}

#[tokio::test]
async fn the_last_20_boots_of_a_machine_are_kept_in_order_and_nobody_elses_go() {
    let Site { kept, mut recorder, .. } = site();
    let [a, other] = [HardwareId::new(), HardwareId::new()];
    recorder.take(event(other, 500, script()));
    for n in 0..30 {
        recorder.take(event(a, 400 - n, script()));
        while recorder.keep().await == Pace::More {}
    }
    let boots = all(&kept, a).await;
    assert_eq!(boots.len(), 20);
    assert!(boots.is_sorted_by_key(|boot| boot.create_time.unwrap().seconds));
    assert_eq!((all(&kept, other).await.len(), all(&kept, "").await.len()), (1, 21));
    assert_eq!(kept.require(&boots[0].id).await.unwrap().script, "worker");
}

#[tokio::test]
async fn strangers_are_100_in_all() {
    let Site { kept, mut recorder, .. } = site();
    for n in 0..150 {
        let who = BootSubject::UnknownClient(Mac([2, 0, 0, 0, 0, n]));
        recorder.take(Event { who, ..event(HardwareId::new(), 400, BootStep::PhoneHome) });
        recorder.keep().await;
    }
    assert_eq!(all(&kept, crate::timeline::records::UNKNOWN).await.len(), 100);
}

#[tokio::test]
async fn a_boot_of_last_week_is_forgotten() {
    let Site { kept, mut recorder, .. } = site();
    let [old, new] = [HardwareId::new(), HardwareId::new()];
    recorder.take(event(old, 8 * 24 * 60 * 60, script()));
    recorder.take(event(new, 6 * 24 * 60 * 60, script()));
    recorder.keep().await;
    recorder.forget().await;
    let left: Vec<_> = all(&kept, "").await.into_iter().map(|boot| boot.hardware_id).collect();
    assert_eq!(left, [new.to_string()]);
}

#[tokio::test]
async fn what_happened_while_the_store_was_away_is_kept_once_it_is_back() {
    let Site { store, kept, mut recorder, .. } = site();
    store.away.store(true, Ordering::Relaxed);
    let a = HardwareId::new();
    recorder.take(event(a, 9, script()));
    recorder.keep().await;
    assert!(all(&kept, a).await.is_empty());
    recorder.take(event(a, 8, BootStep::Started));
    store.away.store(false, Ordering::Relaxed);
    recorder.keep().await;
    assert_eq!(all(&kept, a).await[0].events.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn few_are_kept_within_a_moment_and_all_of_them_at_the_end() {
    let metrics = Metrics::default();
    let kept = BootStore::new(ScopedStore::new(Arc::new(MemoryStore::default()), "netboot"));
    let (timeline, queue) = Timeline::new(metrics.clone());
    let (stop, ids) = (CancellationToken::new(), [HardwareId::new(), HardwareId::new()]);
    let recorder = Recorder::new(queue, kept.clone(), metrics);
    let recording = tokio::spawn(recorder.run(stop.clone()));
    timeline.record(event(ids[0], 9, script()));
    tokio::time::sleep(2 * TICK).await;
    assert_eq!(all(&kept, "").await.len(), 1);
    timeline.record(event(ids[1], 9, script()));
    stop.cancel();
    recording.await.unwrap();
    assert_eq!(all(&kept, "").await.len(), 2);
}

#[tokio::test]
async fn what_does_not_fit_the_queue_is_counted_and_nobody_waits() {
    let Site { metrics, .. } = site();
    let (timeline, _unread) = Timeline::new(metrics.clone());
    for _ in 0..super::super::queue::MOST + 7 {
        timeline.record(event(HardwareId::new(), 0, BootStep::Started));
    }
    assert_eq!(metrics.dropped_events(), 7);
}
