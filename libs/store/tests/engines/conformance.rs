//! Tests that every engine passes: [`all`].

mod following;
mod freezing;
mod listing;
mod refusing;

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;

use store::deferred::DeferredStore;
use store::memory::MemoryStore;
use store::sled::Sled;
use store::{Commit, Error, Expect, Revision, Store, Write};

fn put(key: &str, value: impl Into<Bytes>) -> Commit {
    Commit { writes: vec![Write::Put(key.into(), value.into())], ..Commit::default() }
}

#[tokio::test]
async fn memory_conforms() {
    all(&MemoryStore::default()).await;
}

#[tokio::test]
async fn sled_conforms() {
    let dir = tempfile::tempdir().unwrap();
    all(&Sled::open(&dir.path().join("made/on/the/way")).unwrap()).await;
}

#[tokio::test]
async fn a_deferred_store_conforms_once_it_is_open() {
    let deferred =
        DeferredStore::new(|| async { Ok(Arc::new(MemoryStore::default()) as Arc<dyn Store>) });
    deferred.changed("", Revision::UNKNOWN).await.unwrap();
    all(&deferred).await;
}

/// Runs the whole suite against an empty store.
pub(crate) async fn all(store: &dyn Store) {
    let minute = Duration::from_secs(60);
    tokio::time::timeout(minute, everything(store)).await.expect("no wait here is endless");
}

async fn everything(store: &dyn Store) {
    a_commit_is_read_back_at_its_revision(store).await;
    a_stale_expectation_changes_nothing(store).await;
    nothing_is_expected_at_no_revision(store).await;
    a_conflict_names_the_first_key_that_failed(store).await;
    a_commit_without_writes_only_asks(store).await;
    the_longest_value_comes_back(store).await;
    writers_who_compare_lose_no_increment(store).await;
    listing::all(store).await;
    following::all(store).await;
    refusing::all(store).await;
    freezing::all(store).await;
}

async fn a_commit_is_read_back_at_its_revision(store: &dyn Store) {
    let first = store.commit(put("m/1", "a")).await.unwrap();
    let second = store.commit(put("m/1", "b")).await.unwrap();
    let read = store.get("m/1").await.unwrap().unwrap();
    assert!(second > first);
    assert_eq!((read.value.as_ref(), read.revision), (&b"b"[..], second));
    assert_eq!(store.get("m/none").await.unwrap(), None);
}

async fn a_stale_expectation_changes_nothing(store: &dyn Store) {
    let old = store.commit(put("s/1", "a")).await.unwrap();
    store.commit(put("s/1", "b")).await.unwrap();
    let stale = Commit {
        expect: vec![Expect::At("s/1".into(), old)],
        writes: vec![Write::Put("s/2".into(), "x".into()), Write::Delete("s/1".into())],
    };
    assert!(matches!(store.commit(stale).await, Err(Error::Conflict(key)) if key == "s/1"));
    assert_eq!(store.get("s/2").await.unwrap(), None);
    let taken = Commit { expect: vec![Expect::Absent("s/1".into())], ..put("s/1", "c") };
    assert!(matches!(store.commit(taken).await, Err(Error::Conflict(_))));
    assert_eq!(store.get("s/1").await.unwrap().unwrap().value.as_ref(), b"b");
}

async fn nothing_is_expected_at_no_revision(store: &dyn Store) {
    let nowhere = Commit { expect: vec![Expect::At("z/1".into(), Revision(0))], ..put("z/1", "a") };
    assert!(matches!(store.commit(nowhere).await, Err(Error::Conflict(key)) if key == "z/1"));
}

async fn a_conflict_names_the_first_key_that_failed(store: &dyn Store) {
    let at = store.commit(put("f/2", "a")).await.unwrap();
    let [good, bad] = [at, Revision(at.0 + 1000)].map(|at| Expect::At("f/2".into(), at));
    let expect = vec![Expect::Absent("f/1".into()), good, bad, Expect::At("f/3".into(), at)];
    let outcome = store.commit(Commit { expect, ..put("f/4", "a") }).await;
    assert!(matches!(outcome, Err(Error::Conflict(key)) if key == "f/2"));
}

async fn a_commit_without_writes_only_asks(store: &dyn Store) {
    let at = store.commit(put("q/1", "a")).await.unwrap();
    let ask = |expect| Commit { expect: vec![expect], ..Commit::default() };
    assert_eq!(store.commit(ask(Expect::At("q/1".into(), at))).await.unwrap(), at);
    let wrong = store.commit(ask(Expect::Absent("q/1".into()))).await;
    assert!(matches!(wrong, Err(Error::Conflict(_))));
}

async fn the_longest_value_comes_back(store: &dyn Store) {
    for length in [store::limits::MAX_VALUE_BYTES, 100_000, 0] {
        let value: Vec<u8> = (0..length).map(|n| (n / 251) as u8).collect();
        store.commit(put("v/1", value.clone())).await.unwrap();
        assert!(store.get("v/1").await.unwrap().unwrap().value == value, "{length} bytes");
    }
}

async fn writers_who_compare_lose_no_increment(store: &dyn Store) {
    together((0..64).map(|_| async {
        for _ in 0..4 {
            increment(store, "n/1").await;
        }
    }))
    .await;
    assert_eq!(store.get("n/1").await.unwrap().unwrap().value.as_ref(), 256_u64.to_be_bytes());
}

async fn increment(store: &dyn Store, key: &str) {
    loop {
        let (expect, count) = match store.get(key).await.unwrap() {
            None => (Expect::Absent(key.into()), 0),
            Some(found) => {
                let count = u64::from_be_bytes(found.value.as_ref().try_into().unwrap());
                (Expect::At(key.into(), found.revision), count)
            }
        };
        let value = (count + 1).to_be_bytes().to_vec();
        match store.commit(Commit { expect: vec![expect], ..put(key, value) }).await {
            Ok(_) => return,
            Err(Error::Conflict(_)) => tokio::task::yield_now().await,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Runs `futures` side by side to their ends.
async fn together<F: Future<Output = ()>>(futures: impl Iterator<Item = F>) {
    let mut running: Vec<_> = futures.map(Box::pin).collect();
    poll_fn(|cx| {
        running.retain_mut(|future| future.as_mut().poll(cx).is_pending());
        if running.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
