//! Migrations that are run, interrupted, run twice at a time, and refused.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use tokio::sync::{Barrier, Notify};

use super::*;
use crate::memory::MemoryStore;
use crate::{Changes, Page};

/// A store that fails after a number of commits, as if its process were killed there.
struct Killed {
    store: Arc<dyn Store>,
    commits: AtomicUsize,
}

#[async_trait]
impl Store for Killed {
    async fn get(&self, key: &str) -> Result<Option<Versioned>, Error> {
        self.store.get(key).await
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page, Error> {
        self.store.list(prefix, after, limit).await
    }

    async fn commit(&self, commit: Commit) -> Result<Revision, Error> {
        let left = |left: usize| left.checked_sub(1);
        let taken = self.commits.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left);
        taken.map_err(|_| Error::unavailable("killed"))?;
        self.store.commit(commit).await
    }

    async fn changed(&self, prefix: &str, after: Revision) -> Result<Changes, Error> {
        self.store.changed(prefix, after).await
    }
}

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::default())
}

async fn put(store: &dyn Store, key: &str, value: &str) -> Result<Revision, Error> {
    let writes = vec![Write::Put(key.into(), value.to_owned().into())];
    store.commit(Commit { writes, ..Commit::default() }).await
}

async fn value(store: &dyn Store, key: &str) -> String {
    let found = store.get(key).await.unwrap();
    found.map_or(String::new(), |found| String::from_utf8_lossy(&found.value).into_owned())
}

/// Adds `letter` to both keys, each in a commit of its own, unless it is there.
fn append(letter: &'static str) -> Migration {
    Migration::new(letter, move |store| async move {
        for key in ["s/a", "s/b"] {
            let old = value(&*store, key).await;
            if !old.ends_with(letter) {
                put(&*store, key, &format!("{old}{letter}")).await?;
            }
        }
        Ok(())
    })
}

fn steps() -> Vec<Migration> {
    vec![append("x"), append("y")]
}

#[tokio::test]
async fn a_new_store_gets_this_programs_schema_without_a_migration() {
    let store = memory();
    let first = migrate(&store, &steps()).await.unwrap();
    assert_eq!(migrate(&store, &steps()).await.unwrap(), first);
    assert_eq!((value(&*store, KEY).await, value(&*store, "s/a").await), ("4".into(), "".into()));
}

#[tokio::test]
async fn an_older_store_is_migrated_step_by_step_wherever_it_was_interrupted() {
    for from in ["2", "3"] {
        let mut interrupted = 0;
        for kill_after in 0.. {
            let store = memory();
            put(&*store, KEY, from).await.unwrap();
            let killed: Arc<dyn Store> =
                Arc::new(Killed { store: store.clone(), commits: kill_after.into() });
            let outcome = migrate(&killed, &steps()).await;
            interrupted += usize::from(outcome.is_err());
            let done = outcome.is_ok();
            migrate(&store, &steps()).await.unwrap();
            let expected = if from == "2" { "xy" } else { "y" };
            for key in ["s/a", "s/b"] {
                assert_eq!(value(&*store, key).await, expected, "killed after {kill_after}");
            }
            assert_eq!(value(&*store, KEY).await, "4");
            if done {
                break;
            }
        }
        assert_eq!(interrupted, if from == "2" { 8 } else { 4 }, "every commit");
    }
}

#[tokio::test]
async fn the_slower_of_two_processes_that_migrate_writes_nothing_late() {
    let store = memory();
    put(&*store, KEY, "2").await.unwrap();
    let (started, go) = (Arc::new(Barrier::new(2)), Arc::new(Notify::new()));
    let slow = {
        let (started, go) = (started.clone(), go.clone());
        Migration::new("slow", move |store| {
            let (started, go) = (started.clone(), go.clone());
            async move {
                started.wait().await;
                go.notified().await;
                put(&*store, "s/a", "late").await?;
                Ok(())
            }
        })
    };
    let slow_store = store.clone();
    let slow = tokio::spawn(async move { migrate(&slow_store, &[slow]).await });
    started.wait().await;
    let fast = Migration::new("fast", |store| async move {
        put(&*store, "s/a", "done").await?;
        Ok(())
    });
    let revision = migrate(&store, &[fast]).await.unwrap();
    go.notify_one();
    assert_eq!(slow.await.unwrap().unwrap(), revision);
    assert_eq!(value(&*store, "s/a").await, "done");
}

#[tokio::test]
async fn a_process_of_an_older_version_writes_nothing_once_the_migration_began() {
    let store = memory();
    let revision = migrate(&store, &steps()[..1]).await.unwrap();
    let old = FencedStore::new(store.clone(), revision);
    put(&old, "s/a", "1").await.unwrap();
    migrate(&store, &steps()).await.unwrap();
    let refused = put(&old, "s/c", "2").await.unwrap_err();
    assert!(refused.is_retryable(), "{refused}");
    assert!(matches!(old.failed().await, Error::Unavailable(_)));
    assert_eq!(value(&*store, "s/c").await, "");
}

#[tokio::test]
async fn newer_too_old_and_damaged_stores_are_refused_unchanged() {
    for (stored, why) in [
        ("5", "the store has schema 5, this program knows 4: use the newer"),
        ("4 to 5", "the store has schema 5, this program knows 4: use the newer"),
        ("1", "the store has schema 1, this program knows 2 and later: begin with an empty"),
        (RESTORING, "a restore into this store was not completed: delete the store (DATA/store, "),
        ("x", "schema of"),
        ("2 to 4", "schema of"),
    ] {
        let store = memory();
        put(&*store, KEY, stored).await.unwrap();
        let refused = migrate(&store, &steps()).await.unwrap_err().to_string();
        assert!(refused.starts_with(why), "{refused}");
        assert_eq!(value(&*store, KEY).await, stored);
    }
}

#[tokio::test]
async fn a_failed_migration_is_named_and_begun_again() {
    let store = memory();
    put(&*store, KEY, "2").await.unwrap();
    let failing = Migration::new("index dogs", |_| async move {
        Err(Error::Corrupt("dogs/dog/rex".into()).into())
    });
    let refused = migrate(&store, &[failing]).await.unwrap_err().to_string();
    assert_eq!(refused, "migrating the store to schema 3 (index dogs)");
    migrate(&store, &steps()).await.unwrap();
    assert_eq!(value(&*store, "s/a").await, "xy");
}
