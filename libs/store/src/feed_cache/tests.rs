//! The next start loads what was recorded, wherever the last one was interrupted.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::UNIX_EPOCH;

use async_trait::async_trait;
use tinwright::instance::v1::Instance;

use super::*;
use crate::memory::MemoryStore;
use crate::sled::Sled;
use crate::{Changes, Commit, Page, Revision, Store, Versioned};

/// Turns every bit, and binds the owner by writing it down.
#[derive(Debug)]
struct Turned(u8);

impl Sealer for Turned {
    fn seal(&self, owner: &str, plain: &[u8]) -> Option<Vec<u8>> {
        let turned = plain.iter().map(|byte| byte ^ self.0);
        Some(owner.bytes().chain([0]).chain(turned).collect())
    }

    fn unseal(&self, owner: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        let rest = sealed.strip_prefix(owner.as_bytes())?.strip_prefix(&[0])?;
        let plain: Vec<_> = rest.iter().map(|byte| byte ^ self.0).collect();
        plain.is_ascii().then_some(plain)
    }
}

/// A store whose disk fails after so many commits.
struct Frail {
    inner: Arc<dyn Store>,
    left: AtomicUsize,
}

#[async_trait]
impl Store for Frail {
    async fn get(&self, key: &str) -> Result<Option<Versioned>, Error> {
        self.inner.get(key).await
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page, Error> {
        self.inner.list(prefix, after, limit).await
    }

    async fn commit(&self, commit: Commit) -> Result<Revision, Error> {
        let fewer = |left: usize| left.checked_sub(1);
        match self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer) {
            Ok(_) => self.inner.commit(commit).await,
            Err(_) => Err(Error::unavailable("the disk is full")),
        }
    }

    async fn changed(&self, prefix: &str, after: Revision) -> Result<Changes, Error> {
        self.inner.changed(prefix, after).await
    }
}

fn copy(store: &Arc<dyn Store>) -> FeedCache<Instance> {
    sealed_with(0x80, store)
}

fn sealed_with(key: u8, store: &Arc<dyn Store>) -> FeedCache<Instance> {
    let part = Projection { id: |instance: &Instance| &instance.id, project: kept };
    FeedCache::new(ScopedStore::new(store.clone(), "edge"), "instance", Arc::new(Turned(key)), part)
}

/// All but tags, and of a released one nothing.
fn kept(instance: &Instance) -> Option<Instance> {
    let bare = Instance { tags: Vec::new(), ..instance.clone() };
    (!instance.released).then_some(bare)
}

fn instance(id: usize, hostname: &str) -> Instance {
    Instance { id: format!("i{id:04}"), hostname: hostname.into(), ..Instance::default() }
}

fn all(count: usize, hostname: &str) -> FeedEvent<Instance> {
    FeedEvent::Snapshot((0..count).map(|n| instance(n, hostname)).collect())
}

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

/// The ids and host names that the next start finds.
async fn found(store: &Arc<dyn Store>) -> Option<Vec<(String, String)>> {
    let kept = copy(store).load().await.unwrap()?;
    Some(kept.objects.into_iter().map(|one| (one.id, one.hostname)).collect())
}

fn named(count: usize, hostname: &str) -> Option<Vec<(String, String)>> {
    Some((0..count).map(|n| (format!("i{n:04}"), hostname.to_owned())).collect())
}

#[tokio::test]
async fn recorded_objects_are_stored_encrypted_and_projected() {
    let dir = tempfile::tempdir().unwrap();
    {
        let store: Arc<dyn Store> = Arc::new(Sled::open(dir.path()).unwrap());
        let copy = copy(&store);
        assert_eq!(copy.load().await.unwrap(), None);
        copy.record(&all(3, "web"), at(1));
        let tagged = Instance { tags: vec!["t".into()], ..instance(1, "db") };
        copy.record(&FeedEvent::Put(tagged), at(2));
        copy.record(&FeedEvent::Deleted("i0000".into()), at(3));
        copy.record(&FeedEvent::Put(Instance { released: true, ..instance(2, "web") }), at(4));
        copy.write().await.unwrap();
    }
    let store: Arc<dyn Store> = Arc::new(Sled::open(dir.path()).unwrap());
    let kept = copy(&store).load().await.unwrap().unwrap();
    assert_eq!(kept, CachedFeed { objects: vec![instance(1, "db")], last_live: at(4) });
    let page = store.list("edge/", "", 10).await.unwrap();
    for (key, at) in page.pairs {
        assert!(!at.value.windows(2).any(|part| part == b"db"), "{key} is in plain");
    }
}

#[tokio::test]
async fn the_last_live_time_is_stored_and_does_not_advance_without_a_live_feed() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let copy = copy(&store);
    copy.record(&all(1, "web"), at(1));
    copy.record(&FeedEvent::Disconnected, at(5));
    copy.record(&FeedEvent::Disconnected, at(9));
    copy.write().await.unwrap();
    assert_eq!(sealed_with(0x80, &store).load().await.unwrap().unwrap().last_live, at(5));
}

#[tokio::test]
async fn a_snapshot_removes_missing_objects_and_writes_only_changed_ones() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let first = copy(&store);
    first.record(&all(5, "web"), at(1));
    first.write().await.unwrap();
    let again = copy(&store);
    again.load().await.unwrap();
    again.record(&all(4, "web"), at(2));
    assert_eq!(again.pending().changes.keys().collect::<Vec<_>>(), ["i0004"]);
    again.write().await.unwrap();
    assert_eq!(found(&store).await, named(4, "web"));
}

#[tokio::test]
async fn an_interrupted_long_batch_is_completed_or_discarded() {
    const OBJECTS: usize = 250;
    let mut outcomes = HashSet::new();
    for commits in 0.. {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let before = copy(&store);
        before.record(&all(OBJECTS, "old"), at(1));
        before.write().await.unwrap();

        let left = AtomicUsize::new(commits);
        let frail: Arc<dyn Store> = Arc::new(Frail { inner: store.clone(), left });
        let cut = copy(&frail);
        cut.load().await.unwrap();
        cut.record(&all(OBJECTS - 20, "new"), at(2));
        let whole = cut.write().await.is_ok();
        let found = found(&store).await;
        assert!(found == named(OBJECTS, "old") || found == named(OBJECTS - 20, "new"), "{commits}");
        outcomes.insert(found);
        if whole {
            break;
        }
    }
    assert_eq!(outcomes.len(), 2);
}

#[tokio::test]
async fn a_failed_batch_is_written_with_the_next() {
    for commits in 0..8 {
        let inner: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let frail = Arc::new(Frail { inner: inner.clone(), left: AtomicUsize::new(commits) });
        let store: Arc<dyn Store> = frail.clone();
        let copy = copy(&store);
        copy.record(&all(250, "old"), at(1));
        assert!(copy.write().await.is_err(), "{commits}");
        frail.left.store(1000, Ordering::Relaxed);
        copy.record(&FeedEvent::Put(instance(0, "old")), at(2));
        copy.record(&FeedEvent::Deleted("i0249".into()), at(2));
        copy.write().await.unwrap();
        assert_eq!(found(&inner).await, named(249, "old"), "{commits}");
    }
}

#[tokio::test]
async fn the_cache_of_another_site_is_deleted() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let theirs = copy(&store);
    theirs.record(&all(2, "web"), at(1));
    theirs.write().await.unwrap();
    assert_eq!(sealed_with(0, &store).load().await.unwrap(), None);
    assert_eq!(found(&store).await, None, "nothing of it is left");
}

#[tokio::test]
async fn changes_are_written_as_they_come_and_once_more_at_the_stop() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let (copy, stop) = (Arc::new(copy(&store)), CancellationToken::new());
    let running = tokio::spawn({
        let (copy, stop) = (copy.clone(), stop.clone());
        async move { copy.run(stop).await }
    });
    copy.record(&all(2, "web"), SystemTime::now());
    stop.cancel();
    running.await.unwrap();
    assert_eq!(found(&store).await, named(2, "web"));
}
