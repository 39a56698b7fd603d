//! All records of one kind in memory, updated by one task, for all watchers in the process.
//!
//! ```text
//! store ─changed─▶ run ─▶ table ─▶ Watcher, Watcher, Watcher …      each at its own pace
//! ```
//!
//! The store has one reader for any number of watchers: one read for each record that changed. A watcher first gets
//! all records, then [`WatchEvent::Synced`](tinwright::watch::WatchEvent::Synced), then changes, the latest state of each record: a slow watcher
//! skips states that were overwritten meanwhile, and delays no other. A watcher of one record is woken by that record alone.

mod table;
mod watcher;

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::table::Table;
pub use self::watcher::{TooSlow, Watcher};
use crate::records::{Error, Kind, Records};
use crate::{Changes, Revision, Store};

/// The pause after a failure of the store; doubled up to [`RETRY_DELAY_MAX`].
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(100);
/// The longest pause after failures.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(5);
/// Rows that are deleted before readers get their turn.
const MAX_ROWS_PER_LOCK: usize = 500;

/// The records of one kind, in memory.
#[derive(Debug)]
pub struct Mirror<K> {
    records: Records<K>,
    shared: Arc<Shared>,
}

impl<K> Clone for Mirror<K> {
    fn clone(&self) -> Self {
        Self { records: self.records.clone(), shared: self.shared.clone() }
    }
}

#[derive(Debug)]
struct Shared {
    table: RwLock<Table>,
    synced: watch::Sender<bool>,
}

impl Shared {
    // The table is consistent between any two statements that use it, so a panic elsewhere does not damage it.
    fn read(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Kind> Mirror<K> {
    /// An empty mirror of `records`; [`run`](Self::run) fills it.
    pub fn new(records: Records<K>) -> Self {
        let shared = Shared { table: RwLock::default(), synced: watch::Sender::new(false) };
        Self { records, shared: Arc::new(shared) }
    }

    /// Returns the followed records.
    pub fn records(&self) -> &Records<K> {
        &self.records
    }

    /// Follows the store until `stop`. While the store is unreachable, the records stay as they were last read.
    pub async fn run(&self, stop: CancellationToken) {
        stop.run_until_cancelled(self.follow()).await;
    }

    /// Resolves once everything has been read for the first time.
    pub async fn ready(&self) {
        let mut synced = self.shared.synced.subscribe();
        // The sender lives as long as the mirror does.
        let _synced = synced.wait_for(|synced| *synced).await;
    }

    /// Returns the record `id` as it was last read.
    pub fn get(&self, id: &str) -> Option<K::Record> {
        let found = self.shared.read().get(id)?;
        self.records.decode_id(id, &found).ok()
    }

    /// Follows all records.
    pub fn watch(&self) -> Watcher<K> {
        Watcher::all(self.records.clone(), self.shared.clone())
    }

    /// Follows the record `id`, which need not exist yet.
    pub fn watch_one(&self, id: &str) -> Watcher<K> {
        Watcher::one(self.records.clone(), self.shared.clone(), id)
    }

    async fn follow(&self) {
        let (mut after, mut pause) = (Revision::UNKNOWN, FIRST_RETRY_DELAY);
        loop {
            match self.step(after).await {
                Ok(revision) => (after, pause) = (revision, FIRST_RETRY_DELAY),
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        kind = K::KIND,
                        "reading changed records failed; trying again"
                    );
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(RETRY_DELAY_MAX);
                }
            }
        }
    }

    /// Reads the records that changed since `after`. Returns the revision read up to.
    async fn step(&self, after: Revision) -> Result<Revision, Error> {
        let prefix = format!("{}/", K::KIND);
        match self.records.store().changed(&prefix, after).await? {
            Changes::Keys { keys, revision } => {
                for key in keys {
                    let found = self.records.store().get(&key).await?;
                    let id = key.strip_prefix(&prefix).unwrap_or(&key);
                    self.shared.write().set(id, found);
                }
                Ok(revision)
            }
            Changes::Lost { revision } => {
                self.list(&prefix).await?;
                self.shared.synced.send_replace(true);
                Ok(revision)
            }
        }
    }

    /// Reads all records, and removes those that no longer exist. The table is locked for a page at a time, so that readers do
    /// not wait for the whole list.
    async fn list(&self, prefix: &str) -> Result<(), Error> {
        let mut gone = self.shared.read().ids();
        let mut pages = self.records.store().pages(prefix);
        while let Some(pairs) = pages.next().await? {
            let mut table = self.shared.write();
            for (key, found) in pairs {
                let id = key.strip_prefix(prefix).unwrap_or(&key);
                gone.remove(id);
                table.set(id, Some(found));
            }
        }
        let gone: Vec<_> = gone.into_iter().collect();
        for ids in gone.chunks(MAX_ROWS_PER_LOCK) {
            let mut table = self.shared.write();
            ids.iter().for_each(|id| table.set(id, None));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
