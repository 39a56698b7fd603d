//! Objects of another service's watch, stored on disk. An edge that restarts while that service is unreachable uses them.
//!
//! ```text
//! watch ─▶ FeedCache::record ─▶ pending, the latest of each object ─▶ FeedCache::run ─▶ disk, batch by batch
//! start ─▶ FeedCache::load ─▶ the objects of the last written batch, and the time when the feed was last live
//! ```
//!
//! `record` never waits: events that come while a batch is written go into the next one. A batch is stored as a whole or not
//! at all, however many commits it takes ([`disk`]), so `load` returns a state that the feed had: never one address with two
//! owners because a batch was interrupted.

mod disk;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use prost::Message;
use sha2::{Digest as _, Sha256};
use tinwright::watch::FeedEvent;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use self::disk::Disk;
use crate::{Error, ScopedStore, Sealer};

/// Interval at which the time of a live feed is stored.
const LIVE_TIME_INTERVAL: Duration = Duration::from_secs(60);

/// The stored part of a feed's objects.
#[derive(Debug)]
pub struct Projection<T> {
    /// Returns an object's id.
    pub id: fn(&T) -> &str,
    /// Returns the part of an object to store; none if it is not stored.
    pub project: fn(&T) -> Option<T>,
}

/// The stored state of a feed.
#[derive(Clone, Debug, PartialEq)]
pub struct CachedFeed<T> {
    /// All objects, in id order.
    pub objects: Vec<T>,
    /// The time when the feed was last live.
    pub last_live: SystemTime,
}

/// The stored objects of one feed.
#[derive(Debug)]
pub struct FeedCache<T> {
    disk: Disk,
    projection: Projection<T>,
    pending: Mutex<Pending>,
    work: Notify,
}

/// Changes to write: the latest of each object.
#[derive(Debug, Default)]
struct Pending {
    /// The digest of each object that will be on disk once `changes` are.
    digests: HashMap<String, [u8; 32]>,
    changes: BTreeMap<String, Option<Bytes>>,
    last_live: Option<SystemTime>,
    live: bool,
    /// The last batch may be incomplete on disk.
    incomplete: bool,
}

impl<T: Message + Default> FeedCache<T> {
    /// Stores `feed` in the follower's own `store`, encrypted by `seal`.
    pub fn new(
        store: ScopedStore,
        feed: &str,
        seal: Arc<dyn Sealer>,
        projection: Projection<T>,
    ) -> Self {
        let disk = Disk::new(store, feed, seal);
        Self { disk, projection, pending: Mutex::default(), work: Notify::new() }
    }

    /// Loads the stored state; none before the first whole batch, or if this site's key does not decrypt it. Call it before
    /// `record`.
    pub async fn load(&self) -> Result<Option<CachedFeed<T>>, Error> {
        let Some((found, last_live)) = self.disk.load().await? else { return Ok(None) };
        let objects: Result<Vec<T>, _> =
            found.values().map(|bytes| T::decode(bytes.as_slice())).collect();
        let Ok(objects) = objects else {
            // Written by an unknown version. The feed sends everything again.
            self.disk.clear().await?;
            return Ok(None);
        };
        let digests = found.iter().map(|(id, bytes)| (id.clone(), Sha256::digest(bytes).into()));
        self.pending().digests = digests.collect();
        Ok(Some(CachedFeed { objects, last_live }))
    }

    /// Records the event `event`, received at `now`. Does not wait for the disk.
    pub fn record(&self, event: &FeedEvent<T>, now: SystemTime) {
        let mut pending = self.pending();
        match event {
            FeedEvent::Snapshot(all) => {
                let before: HashSet<String> = pending.digests.keys().cloned().collect();
                let there: HashSet<&str> = all.iter().map(self.projection.id).collect();
                for gone in before.iter().filter(|id| !there.contains(id.as_str())) {
                    pending.remove(gone);
                }
                all.iter().for_each(|object| self.put(&mut pending, object));
                pending.live = true;
            }
            FeedEvent::Put(object) => self.put(&mut pending, object),
            FeedEvent::Deleted(id) => pending.remove(id),
            FeedEvent::Disconnected => {
                pending.still_live(now);
                pending.live = false;
            }
        }
        pending.still_live(now);
        drop(pending);
        self.work.notify_one();
    }

    fn put(&self, pending: &mut Pending, object: &T) {
        let id = (self.projection.id)(object);
        match (self.projection.project)(object) {
            Some(kept) => pending.put(id, kept.encode_to_vec().into()),
            None => pending.remove(id),
        }
    }

    /// Writes recorded changes until `stop`. A batch that failed is written again with the next.
    pub async fn run(&self, stop: CancellationToken) {
        let mut alive = tokio::time::interval(LIVE_TIME_INTERVAL);
        loop {
            tokio::select! {
                () = self.work.notified() => {}
                _ = alive.tick() => {}
                () = stop.cancelled() => {}
            }
            self.pending().still_live(crate::wall_time());
            if let Err(error) = self.write().await {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "writing the feed cache failed; trying again");
            }
            if stop.is_cancelled() {
                return;
            }
        }
    }

    /// Writes the changes recorded so far.
    pub async fn write(&self) -> Result<(), Error> {
        let (changes, last_live, incomplete) = {
            let mut pending = self.pending();
            let Some(last_live) = pending.last_live.take() else { return Ok(()) };
            (
                std::mem::take(&mut pending.changes),
                last_live,
                std::mem::replace(&mut pending.incomplete, true),
            )
        };
        let written = async {
            if incomplete {
                self.disk.recover().await?;
            }
            self.disk.write(&changes, last_live).await
        };
        let written = written.await;
        let mut pending = self.pending();
        match &written {
            Ok(()) => pending.incomplete = false,
            Err(_) => {
                for (id, change) in changes {
                    pending.changes.entry(id).or_insert(change);
                }
                pending.last_live.get_or_insert(last_live);
            }
        }
        written
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pending {
    fn put(&mut self, id: &str, bytes: Bytes) {
        let digest = Sha256::digest(&bytes).into();
        if self.digests.insert(id.to_owned(), digest) != Some(digest) {
            self.changes.insert(id.to_owned(), Some(bytes));
        }
    }

    fn remove(&mut self, id: &str) {
        if self.digests.remove(id).is_some() {
            self.changes.insert(id.to_owned(), None);
        }
    }

    fn still_live(&mut self, now: SystemTime) {
        if self.live {
            self.last_live = Some(now);
        }
    }
}

#[cfg(test)]
mod tests;
