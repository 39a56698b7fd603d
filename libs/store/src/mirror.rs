//! All records of one kind in memory, updated by one task, for all watchers in the process.
//!
//! ```text
//! store ─changed─▶ run ─▶ table ─▶ Watcher, Watcher, Watcher …      each at its own pace
//! ```
//!
//! The store has one reader for any number of watchers: one read for each record that changed. A watcher first gets
//! all records, then [`WatchEvent::Synced`](tinwright::watch::WatchEvent::Synced), then changes, the latest state of each record: a slow watcher
//! skips states that were overwritten meanwhile, and delays no other. A watcher of one record is woken by that record alone.
//!
//! A page of records is read from the table, too, while it certainly has all that is stored ([`Store::is_unchanged`]), and from the
//! store otherwise.
//!
//! A process acts only on what it has confirmed lately: a mirror reads its store now and then, and without an answer for
//! [`MAX_UNCONFIRMED`] it is not confirmed. Then watches over gRPC end with UNAVAILABLE, and new ones, until everything was read anew.
//!
//! A mirror may hold a part of the records only ([`Kind::MIRRORED`]). The changes of the others pass through it: they are stored for a
//! short time, so that watchers get them, and are in no snapshot.

mod table;
mod watcher;

use std::collections::HashSet;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use self::table::{Content, Table};
pub use self::watcher::{TooSlow, Watcher};
use crate::records::{Error, Kind, Mirrored, RecordSource, Records};
use crate::{Changes, Page, Revision, Store, Versioned};

/// The pause after a failure of the store; doubled up to [`RETRY_DELAY_MAX`].
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(100);
/// The longest pause after failures.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(5);
/// Interval at which the store is asked for a confirmation.
const CONFIRMATION_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum age of the last confirmation. The records may be outdated afterwards.
pub const MAX_UNCONFIRMED: Duration = Duration::from_secs(15);
/// Rows that are deleted before readers get their turn.
const MAX_ROWS_PER_LOCK: usize = 500;
/// Records that are read one by one at the same time.
const MAX_CONCURRENT_READS: usize = 16;

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
    /// False from [`MAX_UNCONFIRMED`] after the last answer of the store until everything was read anew.
    confirmed: watch::Sender<bool>,
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
        let [synced, confirmed] = [false, true].map(watch::Sender::new);
        let shared = Shared { table: RwLock::default(), synced, confirmed };
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

    /// Returns the record `id` as it was last read, if the mirror holds it.
    pub fn get(&self, id: &str) -> Option<K::Record> {
        let found = self.shared.read().get(id)?;
        self.records.decode_id(id, &found).ok()
    }

    /// Returns the record `id` as it is stored: from memory while that certainly has all that is
    /// stored, and from the store otherwise.
    pub async fn current(&self, id: &str) -> Result<Option<K::Record>, Error> {
        let in_memory = {
            let table = self.shared.read();
            self.is_complete(&table).then(|| table.get(id))
        };
        match in_memory {
            Some(found) => Ok(found.map(|found| self.records.decode_id(id, &found)).transpose()?),
            None => self.records.get(id).await,
        }
    }

    /// True if `table` certainly has all records that are stored now.
    fn is_complete(&self, table: &Table) -> bool {
        let is_unchanged = |revision| self.records.store().is_unchanged(&Self::prefix(), revision);
        K::MIRRORED == Mirrored::All && table.read_up_to.is_some_and(is_unchanged)
    }

    /// Follows all records.
    pub fn watch(&self) -> Watcher<K> {
        Watcher::new(self.records.clone(), self.shared.clone(), None)
    }

    /// Follows the record `id`, which need not exist yet.
    pub fn watch_one(&self, id: &str) -> Watcher<K> {
        Watcher::new(self.records.clone(), self.shared.clone(), Some(id))
    }

    async fn follow(&self) {
        let (mut after, mut pause) = (Revision::UNKNOWN, None);
        let mut unconfirmed = Box::pin(self.unconfirmed());
        loop {
            let step = async {
                sleep(pause.unwrap_or_default()).await;
                self.step(after).await
            };
            let step = tokio::select! {
                step = step => step,
                () = &mut unconfirmed => {
                    self.set_confirmed(false);
                    // Changes meanwhile may not be reported in order: everything is read again.
                    after = Revision::UNKNOWN;
                    unconfirmed.set(self.unconfirmed());
                    continue;
                }
            };
            match step {
                Ok(revision) => {
                    (after, pause) = (revision, None);
                    self.set_confirmed(true);
                }
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        kind = K::KIND,
                        "reading changed records failed; trying again"
                    );
                    let doubled = |pause: Duration| (pause * 2).min(RETRY_DELAY_MAX);
                    pause = Some(pause.map_or(FIRST_RETRY_DELAY, doubled));
                }
            }
        }
    }

    /// Asks the store for confirmations. Resolves [`MAX_UNCONFIRMED`] after the last request that it answered.
    async fn unconfirmed(&self) {
        let mut end = Box::pin(sleep(MAX_UNCONFIRMED));
        loop {
            let asked = async {
                sleep(CONFIRMATION_INTERVAL).await;
                // An answer confirms what was stored when the request began.
                let end = Box::pin(sleep(MAX_UNCONFIRMED));
                self.records.store().get(K::KIND).await.map(|_| end)
            };
            tokio::select! {
                biased;
                () = &mut end => return,
                asked = asked => end = asked.unwrap_or(end),
            }
        }
    }

    fn set_confirmed(&self, confirmed: bool) {
        let was = self.shared.confirmed.send_replace(confirmed);
        match (was, confirmed) {
            (true, false) => {
                tracing::warn!(kind = K::KIND, "the store does not answer: watches end");
            }
            (false, true) => tracing::info!(kind = K::KIND, "the store was read anew"),
            (true, true) | (false, false) => {}
        }
    }

    /// Reads the records that changed since `after`. Returns the revision read up to.
    async fn step(&self, after: Revision) -> Result<Revision, Error> {
        let prefix = Self::prefix();
        let read_up_to = match self.records.store().changed(&prefix, after).await? {
            Changes::Keys { keys, revision } => {
                for key in keys {
                    self.read(key.strip_prefix(&prefix).unwrap_or(&key)).await?;
                }
                revision
            }
            Changes::Lost { revision } => {
                match K::MIRRORED {
                    Mirrored::All => self.list(&prefix).await?,
                    Mirrored::Indexed(index) => self.list_indexed(&format!("{index}/")).await?,
                    Mirrored::Nothing => self.read_again(HashSet::new()).await?,
                }
                self.shared.synced.send_replace(true);
                revision
            }
        };
        self.shared.write().read_up_to = Some(read_up_to);
        Ok(read_up_to)
    }

    /// Returns the beginning of all keys of the records.
    fn prefix() -> String {
        format!("{}/", K::KIND)
    }

    /// Reads all records, and removes deleted ones. The table is locked for a page at a time, so that readers do
    /// not wait for the whole list.
    async fn list(&self, prefix: &str) -> Result<(), Error> {
        let mut gone = self.shared.read().ids();
        let mut pages = self.records.store().pages(prefix);
        while let Some(pairs) = pages.next().await? {
            let mut table = self.shared.write();
            for (key, found) in pairs {
                let id = key.strip_prefix(prefix).unwrap_or(&key);
                gone.remove(id);
                table.set(id, Content::Held(found), false);
            }
        }
        let gone: Vec<_> = gone.into_iter().collect();
        for ids in gone.chunks(MAX_ROWS_PER_LOCK) {
            let mut table = self.shared.write();
            ids.iter().for_each(|id| table.set(id, Content::Deleted, false));
        }
        Ok(())
    }

    /// Reads the records in an index, whose keys begin with `prefix`, and those that are in the table.
    async fn list_indexed(&self, prefix: &str) -> Result<(), Error> {
        let mut pages = self.records.store().pages(prefix);
        let mut ids = HashSet::new();
        while let Some(pairs) = pages.next().await? {
            ids.extend(pairs.iter().map(|(key, _)| key.strip_prefix(prefix).unwrap_or(key).into()));
        }
        self.read_again(ids).await
    }

    /// Reads the records `ids`, those that are in the table, and those that somebody follows.
    async fn read_again(&self, mut ids: HashSet<Arc<str>>) -> Result<(), Error> {
        {
            let table = self.shared.read();
            ids.extend(table.ids());
            ids.extend(table.awaited().map(|id| Arc::from(id.as_str())));
        }
        let ids = stream::iter(ids).map(Ok);
        ids.try_for_each_concurrent(MAX_CONCURRENT_READS, async |id: Arc<str>| self.read(&id).await)
            .await
    }

    /// Reads the record `id`.
    async fn read(&self, id: &str) -> Result<(), Error> {
        let found = self.records.store().get(&format!("{}/{id}", K::KIND)).await?;
        let content = match found {
            // A corrupt record is held: watchers report it.
            Some(found) if K::MIRRORED == Mirrored::All => Content::Held(found),
            Some(found) => match self.records.decode_id(id, &found) {
                Ok(record) if !K::MIRRORED.holds::<K>(&record) => Content::Passing(found),
                Ok(_) | Err(_) => Content::Held(found),
            },
            None => Content::Deleted,
        };
        self.shared.write().set(id, content, K::MIRRORED != Mirrored::All);
        Ok(())
    }
}

impl<K: Kind> RecordSource<K> for Mirror<K> {
    fn records(&self) -> &Records<K> {
        &self.records
    }

    fn page_in_memory(&self, after: &str, limit: usize) -> Option<Page> {
        let table = self.shared.read();
        if !self.is_complete(&table) {
            return None;
        }
        let prefix = Self::prefix();
        let pair =
            |(id, found): (&Arc<str>, &Versioned)| Ok(([&prefix, &**id].concat(), found.clone()));
        Page::gather(table.held_after(after).map(Ok), limit, pair).ok()
    }
}

#[cfg(test)]
mod tests;
