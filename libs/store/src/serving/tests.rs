//! Watches of a store that does not answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::{Instant, sleep, timeout};

use super::*;
use crate::memory::MemoryStore;
use crate::mirror::MAX_UNCONFIRMED;
use crate::records::Records;
use crate::{Changes, Commit, Page, Revision, ScopedStore, Store, Versioned};

#[derive(Clone, PartialEq, prost::Message)]
struct Note {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(int64, tag = "2")]
    revision: i64,
}

impl tinwright::secret::Sealable for Note {}

#[derive(Debug)]
enum Notes {}

tinwright::stored_record!(Note, "note", id);

impl Kind for Notes {
    type Record = Note;
    type Id = String;
    const KIND: &'static str = "note";
}

/// A store that is cut off: it answers nothing while it is silent, and reports no changes.
#[derive(Default)]
struct CutOff {
    store: MemoryStore,
    silent: AtomicBool,
}

impl CutOff {
    async fn reached(&self) {
        while self.silent.load(Ordering::Relaxed) {
            sleep(Duration::from_millis(100)).await;
        }
    }
}

#[async_trait]
impl Store for CutOff {
    async fn get(&self, key: &str) -> Result<Option<Versioned>, crate::Error> {
        self.reached().await;
        self.store.get(key).await
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page, crate::Error> {
        self.reached().await;
        self.store.list(prefix, after, limit).await
    }

    async fn commit(&self, commit: Commit) -> Result<Revision, crate::Error> {
        self.store.commit(commit).await
    }

    async fn changed(&self, prefix: &str, after: Revision) -> Result<Changes, crate::Error> {
        self.reached().await;
        let changes = self.store.changed(prefix, after).await;
        self.reached().await;
        changes
    }
}

#[tokio::test(start_paused = true)]
async fn watches_end_when_the_store_was_silent_for_too_long_and_begin_with_what_is_stored_then() {
    let store = Arc::new(CutOff::default());
    let notes = Records::<Notes>::new(ScopedStore::new(store.clone(), "notes"));
    let (mirror, stop) = (Mirror::new(notes.clone()), CancellationToken::new());
    let (running, until) = (mirror.clone(), stop.clone());
    tokio::spawn(async move { running.run(until).await });
    let watch = || Box::pin(events(StoredWatch::of(mirror.watch()), stop.clone()));
    let (mut open, other) = (watch(), watch());
    assert!(matches!(open.next().await, Some(Ok(WatchEvent::Synced))));
    drop(other);
    let quiet = timeout(MAX_UNCONFIRMED * 4, open.next()).await;
    assert!(quiet.is_err(), "a store that answers is confirmed, though nothing changes");
    store.silent.store(true, Ordering::Relaxed);
    let begun = Instant::now();
    // Another process writes it: this one does not hear of it.
    let new = Note { id: "a".into(), revision: 0 };
    notes.commit(notes.to_create(&new)).await.unwrap();
    let ended = open.next().await.unwrap().map(drop).unwrap_err();
    assert_eq!(ended.code(), Code::Unavailable);
    assert!(open.next().await.is_none());
    let passed = begun.elapsed();
    let least = MAX_UNCONFIRMED - Duration::from_secs(5);
    assert!(passed >= least && passed <= MAX_UNCONFIRMED, "{passed:?}");
    for _ in 0..3 {
        sleep(MAX_UNCONFIRMED).await;
        let refused = watch().next().await.unwrap().map(drop).unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable, "no snapshot while it lasts");
    }
    store.silent.store(false, Ordering::Relaxed);
    sleep(Duration::from_secs(10)).await;
    let mut again = watch();
    let Some(Ok(WatchEvent::Put(note))) = again.next().await else { panic!() };
    assert_eq!(note.id, "a");
    assert!(matches!(again.next().await, Some(Ok(WatchEvent::Synced))));
    stop.cancel();
}
