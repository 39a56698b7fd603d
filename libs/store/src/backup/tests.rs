//! Backups that are refused, cut, damaged and restored where something is already.

use std::sync::Arc;

use tinwright::event::v1::{EventFilter, EventKind};

use super::*;
use crate::events::EventLog;
use crate::memory::MemoryStore;
use crate::{Commit, ScopedStore, Write};

const SITE: &str = "ours";

fn marks() -> [String; 1] {
    [SITE.into()]
}

async fn filled() -> MemoryStore {
    let store = MemoryStore::default();
    let pairs = [("schema", "2"), (SITE_KEY, SITE), ("a/1", "one"), ("a/2", "")];
    let writes = pairs.map(|(key, value)| Write::Put(key.into(), value.into())).into();
    store.commit(Commit { writes, ..Commit::default() }).await.unwrap();
    store
}

async fn backup() -> Vec<u8> {
    let store = filled().await;
    let (out, mut chunks) = mpsc::channel(100);
    write(&store, &out).await.unwrap();
    drop(out);
    let mut bytes = Vec::new();
    while let Some(chunk) = chunks.recv().await {
        bytes.extend_from_slice(&chunk);
    }
    bytes
}

async fn pairs(store: &MemoryStore) -> Vec<(String, Bytes)> {
    let found = store.list("", "", 100).await.unwrap().pairs;
    found.into_iter().map(|(key, at)| (key, at.value)).collect()
}

#[tokio::test]
async fn a_restored_store_has_the_same_pairs() {
    let restored = MemoryStore::default();
    assert_eq!(restore(&restored, &marks(), &mut backup().await.as_slice()).await.unwrap(), 4);
    assert_eq!(pairs_without_mark(restored).await, pairs(&filled().await).await);
}

/// Returns the pairs of a restored `store`, without its mark.
async fn pairs_without_mark(store: MemoryStore) -> Vec<(String, Bytes)> {
    let store = Arc::new(store);
    let mark = RestoreMark::new(store.clone());
    assert!(mark.is_set().await.unwrap());
    mark.remove("image").await.unwrap();
    let mut pairs = pairs(&store).await;
    pairs.retain(|(key, _)| !key.starts_with("image/event/"));
    pairs
}

#[tokio::test]
async fn a_backup_has_what_is_written_while_it_is_made() {
    let store = Arc::new(filled().await);
    let large = |name: &str| Write::Put(format!("a/large/{name}"), vec![7; CHUNK_BYTES].into());
    let writes = ["1", "2", "3", "4", "5", "6"].map(large).into();
    store.commit(Commit { writes, ..Commit::default() }).await.unwrap();
    let (out, mut chunks) = mpsc::channel(1);
    let backup = tokio::spawn({
        let store = store.clone();
        async move { write(&*store, &out).await }
    });
    // The pairs are listed by now, and most of them do not fit into the channel.
    let mut bytes = chunks.recv().await.unwrap().to_vec();
    let put = |key: &str| Write::Put(key.into(), "later".into());
    let writes = vec![put("a/1"), put("a/0"), put("b"), Write::Delete("a/large/6".into())];
    store.commit(Commit { writes, ..Commit::default() }).await.unwrap();
    while let Some(chunk) = chunks.recv().await {
        bytes.extend_from_slice(&chunk);
    }
    backup.await.unwrap().unwrap();
    let restored = MemoryStore::default();
    restore(&restored, &marks(), &mut bytes.as_slice()).await.unwrap();
    assert_eq!(pairs_without_mark(restored).await, pairs(&store).await);
}

#[tokio::test]
async fn a_store_with_anything_in_it_is_left_as_it_is() {
    let store = MemoryStore::default();
    let writes = vec![Write::Put("a/1".into(), "mine".into())];
    store.commit(Commit { writes, ..Commit::default() }).await.unwrap();
    let refused = restore(&store, &marks(), &mut backup().await.as_slice()).await;
    assert!(matches!(refused, Err(RestoreError::NotEmpty)));
    assert_eq!(pairs(&store).await, [("a/1".into(), "mine".into())]);
}

#[tokio::test]
async fn a_backup_of_another_site_is_refused_before_anything_is_written() {
    let store = MemoryStore::default();
    let refused = restore(&store, &["theirs".into()], &mut backup().await.as_slice()).await;
    assert!(matches!(refused, Err(RestoreError::OtherSite)));
    assert_eq!(pairs(&store).await, []);
}

#[tokio::test]
async fn whatever_byte_is_missing_or_changed_the_store_is_not_opened() {
    let whole = backup().await;
    let mut broken: Vec<_> = (0..whole.len()).map(|length| whole[..length].to_vec()).collect();
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        broken.push(changed);
    }
    for bytes in broken {
        let store: std::sync::Arc<dyn Store> = std::sync::Arc::new(MemoryStore::default());
        assert!(restore(&*store, &marks(), &mut bytes.as_slice()).await.is_err());
        let begun = !store.list("", "", 1).await.unwrap().pairs.is_empty();
        assert_eq!(crate::schema::migrate(&store, &[]).await.is_err(), begun);
    }
}

#[tokio::test]
async fn a_backup_ends_when_its_receiver_is_gone() {
    let (out, chunks) = mpsc::channel(1);
    drop(chunks);
    assert!(matches!(write(&filled().await, &out).await, Err(BackupError::Gone)));
}

#[tokio::test]
async fn a_mark_is_removed_once_with_one_event_and_whoever_waits_for_it_goes_on() {
    let store: Arc<dyn Store> = Arc::new(filled().await);
    let mark = RestoreMark::new(store.clone());
    mark.removed().await.unwrap();
    assert_eq!(mark.remove("image").await.unwrap(), None, "there is none");
    mark.set().await.unwrap();
    let waiting = tokio::spawn({
        let mark = mark.clone();
        async move { mark.removed().await }
    });
    let (one, other) = tokio::join!(mark.remove("image"), mark.remove("image"));
    assert_eq!([one, other].into_iter().filter_map(Result::unwrap).count(), 1);
    waiting.await.unwrap().unwrap();
    assert!(!mark.is_set().await.unwrap());
    let log = EventLog::new(ScopedStore::new(store, "image"), "image");
    let events = log.list(&EventFilter::default(), "", 100).await.unwrap().records;
    let [event] = &events[..] else { panic!("{events:?}") };
    assert_eq!((event.kind(), event.noun.as_str()), (EventKind::Call, "store"));
    assert!(event.text.contains("images are collected again"), "{}", event.text);
}

#[tokio::test]
async fn a_backup_of_a_marked_store_restores_with_a_mark_of_its_own() {
    let store = Arc::new(filled().await);
    let writes = vec![Write::Put(mark::KEY.into(), "1".into())];
    store.commit(Commit { writes, ..Commit::default() }).await.unwrap();
    let (out, mut chunks) = mpsc::channel(100);
    write(&*store, &out).await.unwrap();
    drop(out);
    let mut bytes = Vec::new();
    while let Some(chunk) = chunks.recv().await {
        bytes.extend_from_slice(&chunk);
    }
    let restored = Arc::new(MemoryStore::default());
    restore(&*restored, &marks(), &mut bytes.as_slice()).await.unwrap();
    let time = RestoreMark::new(restored).remove("image").await.unwrap().unwrap();
    assert!(time > std::time::UNIX_EPOCH + Duration::from_secs(1));
}
