//! The task that reads the records of one kind, whichever it is, and the table that it fills.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tokio::sync::watch;
use tokio::time::sleep;

use super::MAX_UNCONFIRMED;
use super::table::{Content, Table};
use crate::records::{AnyKind, Error, Mirrored};
use crate::{Changes, Page, Revision, ScopedStore, Store as _, Versioned};

/// The pause after a failure of the store; doubled up to [`RETRY_DELAY_MAX`].
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(100);
/// The longest pause after failures.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(5);
/// Interval at which the store is asked for a confirmation.
const CONFIRMATION_INTERVAL: Duration = Duration::from_secs(5);
/// Rows that are deleted before readers get their turn.
const MAX_ROWS_PER_LOCK: usize = 500;
/// Records that are read one by one at the same time.
const MAX_CONCURRENT_READS: usize = 16;

/// Follows the records of one kind in a store.
#[derive(Debug)]
pub(super) struct Follower {
    pub(super) kind: &'static AnyKind,
    pub(super) store: ScopedStore,
    table: RwLock<Table>,
    pub(super) synced: watch::Sender<bool>,
    /// False from [`MAX_UNCONFIRMED`] after the last answer of the store until everything was read anew.
    pub(super) confirmed: watch::Sender<bool>,
}

impl Follower {
    /// A follower of the records of `kind` in `store`, with an empty table.
    pub(super) fn new(kind: &'static AnyKind, store: ScopedStore) -> Self {
        let [synced, confirmed] = [false, true].map(watch::Sender::new);
        Self { kind, store, table: RwLock::default(), synced, confirmed }
    }

    // The table is consistent between any two statements that use it, so a panic elsewhere does not damage it.
    pub(super) fn read(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolves once everything has been read for the first time.
    pub(super) async fn ready(&self) {
        let mut synced = self.synced.subscribe();
        // The sender lives as long as this does. Dropped at once: it is a lock.
        drop(synced.wait_for(|synced| *synced).await);
    }

    /// Returns the record `id` as it is stored; none if the table may be behind the store.
    pub(super) fn current(&self, id: &str) -> Option<Option<Versioned>> {
        let table = self.read();
        self.is_complete(&table).then(|| table.get(id))
    }

    /// Returns at most `limit` records in id order after the id `after`; none if the table may be behind the store.
    pub(super) fn page(&self, after: &str, limit: usize) -> Option<Page> {
        let table = Some(self.read()).filter(|table| self.is_complete(table))?;
        let pair = |(id, found): (&Arc<str>, &Versioned)| Ok((self.kind.key(id), found.clone()));
        Page::gather(table.held_after(after).map(Ok), limit, pair).ok()
    }

    /// True if `table` certainly has all records that are stored now.
    fn is_complete(&self, table: &Table) -> bool {
        let is_unchanged = |revision| self.store.is_unchanged(&self.kind.key(""), revision);
        self.kind.mirrored == Mirrored::All && table.read_up_to.is_some_and(is_unchanged)
    }

    /// Reads what changes, as long as it is polled.
    pub(super) async fn follow(&self) {
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
                        kind = self.kind.kind,
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
                self.store.get(self.kind.kind).await.map(|_| end)
            };
            tokio::select! {
                biased;
                () = &mut end => return,
                asked = asked => end = asked.unwrap_or(end),
            }
        }
    }

    fn set_confirmed(&self, confirmed: bool) {
        let was = self.confirmed.send_replace(confirmed);
        match (was, confirmed) {
            (true, false) => {
                tracing::warn!(kind = self.kind.kind, "the store does not answer: watches end");
            }
            (false, true) => tracing::info!(kind = self.kind.kind, "the store was read anew"),
            (true, true) | (false, false) => {}
        }
    }

    /// Reads the records that changed since `after`. Returns the revision read up to.
    async fn step(&self, after: Revision) -> Result<Revision, Error> {
        let prefix = self.kind.key("");
        let read_up_to = match self.store.changed(&prefix, after).await? {
            Changes::Keys { keys, revision } => {
                for key in keys {
                    self.read_one(key.strip_prefix(&prefix).unwrap_or(&key)).await?;
                }
                revision
            }
            Changes::Lost { revision } => {
                match self.kind.mirrored {
                    Mirrored::All => self.list(&prefix).await?,
                    Mirrored::Indexed(index) => self.list_indexed(&format!("{index}/")).await?,
                    Mirrored::Nothing => self.read_again(HashSet::new()).await?,
                }
                self.synced.send_replace(true);
                revision
            }
        };
        self.write().read_up_to = Some(read_up_to);
        Ok(read_up_to)
    }

    /// Reads all records, and removes deleted ones. The table is locked for a page at a time, so that readers do
    /// not wait for the whole list.
    async fn list(&self, prefix: &str) -> Result<(), Error> {
        let mut gone = self.read().ids();
        let mut pages = self.store.pages(prefix);
        while let Some(pairs) = pages.next().await? {
            let mut table = self.write();
            for (key, found) in pairs {
                let id = key.strip_prefix(prefix).unwrap_or(&key);
                gone.remove(id);
                table.set(id, Content::Held(found), false);
            }
        }
        let gone: Vec<_> = gone.into_iter().collect();
        for ids in gone.chunks(MAX_ROWS_PER_LOCK) {
            let mut table = self.write();
            ids.iter().for_each(|id| table.set(id, Content::Deleted, false));
        }
        Ok(())
    }

    /// Reads the records in an index, whose keys begin with `prefix`, and those that are in the table.
    async fn list_indexed(&self, prefix: &str) -> Result<(), Error> {
        let mut pages = self.store.pages(prefix);
        let mut ids = HashSet::new();
        while let Some(pairs) = pages.next().await? {
            ids.extend(pairs.iter().map(|(key, _)| key.strip_prefix(prefix).unwrap_or(key).into()));
        }
        self.read_again(ids).await
    }

    /// Reads the records `ids`, those that are in the table, and those that somebody follows.
    async fn read_again(&self, mut ids: HashSet<Arc<str>>) -> Result<(), Error> {
        {
            let table = self.read();
            ids.extend(table.ids());
            ids.extend(table.awaited().map(|id| Arc::from(id.as_str())));
        }
        let ids = stream::iter(ids).map(Ok);
        ids.try_for_each_concurrent(MAX_CONCURRENT_READS, async |id: Arc<str>| {
            self.read_one(&id).await
        })
        .await
    }

    /// Reads the record `id`.
    async fn read_one(&self, id: &str) -> Result<(), Error> {
        let key = self.kind.key(id);
        let content = match self.store.get(&key).await? {
            // A corrupt record is held: watchers report it.
            Some(found) if self.kind.mirrored == Mirrored::All => Content::Held(found),
            Some(found) => match self.kind.read(&self.store, &key, &found) {
                Ok(record) if !self.kind.mirrored.holds(&record.entries) => Content::Passing(found),
                Ok(_) | Err(_) => Content::Held(found),
            },
            None => Content::Deleted,
        };
        self.write().set(id, content, self.kind.mirrored != Mirrored::All);
        Ok(())
    }
}
