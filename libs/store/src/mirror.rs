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
//! A page of records is read from the table, too, while it certainly has all that is stored ([`is_unchanged`](crate::Store::is_unchanged)), and from the
//! store otherwise.
//!
//! A process acts only on what it has confirmed lately: a mirror reads its store now and then, and without an answer for
//! [`MAX_UNCONFIRMED`] it is not confirmed. Then watches over gRPC end with UNAVAILABLE, and new ones, until everything was read anew.
//!
//! A mirror may hold a part of the records only ([`Kind::MIRRORED`]). The changes of the others pass through it: they are stored for a
//! short time, so that watchers get them, and are in no snapshot.

mod follower;
mod table;
mod watcher;

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use self::follower::Follower;
pub use self::watcher::{TooSlow, Watcher};
use crate::Page;
use crate::records::{AnyKind, Error, Kind, RecordSource, Records};

/// Maximum age of the last confirmation. The records may be outdated afterwards.
pub const MAX_UNCONFIRMED: Duration = Duration::from_secs(15);

/// The records of one kind, in memory.
#[derive(Debug)]
pub struct Mirror<K> {
    records: Records<K>,
    follower: Arc<Follower>,
}

impl<K> Clone for Mirror<K> {
    fn clone(&self) -> Self {
        Self { records: self.records.clone(), follower: self.follower.clone() }
    }
}

impl<K: Kind> Mirror<K> {
    /// An empty mirror of `records`; [`run`](Self::run) fills it.
    pub fn new(records: Records<K>) -> Self {
        let follower = Follower::new(AnyKind::of::<K>(), records.store().clone());
        Self { records, follower: Arc::new(follower) }
    }

    /// Returns the followed records.
    pub fn records(&self) -> &Records<K> {
        &self.records
    }

    /// Follows the store until `stop`. While the store is unreachable, the records stay as they were last read.
    pub fn run(&self, stop: CancellationToken) -> BoxFuture<'static, ()> {
        let follower = self.follower.clone();
        async move { stop.run_until_cancelled(follower.follow()).await.unwrap_or_default() }.boxed()
    }

    /// Resolves once everything has been read for the first time.
    pub fn ready(&self) -> BoxFuture<'static, ()> {
        let follower = self.follower.clone();
        async move { follower.ready().await }.boxed()
    }

    /// Returns the record `id` as it was last read, if the mirror holds it.
    pub fn get(&self, id: &str) -> Option<K::Record> {
        let found = self.follower.read().get(id)?;
        self.records.decode_id(id, &found).ok()
    }

    /// Returns the record `id` as it is stored: from memory while that certainly has all that is
    /// stored, and from the store otherwise.
    pub async fn current(&self, id: &str) -> Result<Option<K::Record>, Error> {
        match self.follower.current(id) {
            Some(found) => Ok(found.map(|found| self.records.decode_id(id, &found)).transpose()?),
            None => self.records.get(id).await,
        }
    }

    /// Follows all records.
    pub fn watch(&self) -> Watcher<K> {
        Watcher::new(self.records.clone(), self.follower.clone(), None)
    }

    /// Follows the record `id`, which need not exist yet.
    pub fn watch_one(&self, id: &str) -> Watcher<K> {
        Watcher::new(self.records.clone(), self.follower.clone(), Some(id))
    }
}

impl<K: Kind> RecordSource<K> for Mirror<K> {
    fn records(&self) -> &Records<K> {
        &self.records
    }

    fn page_in_memory(&self, after: &str, limit: usize) -> Option<Page> {
        self.follower.page(after, limit)
    }
}

#[cfg(test)]
mod tests;
