//! What another service's watch told, kept on disk for the next start: whoever answers machines can go on with it while
//! that service is out of reach.
//!
//! ```text
//! watch ─▶ FeedCache::record ─▶ pending, the latest of each object ─▶ FeedCache::run ─▶ disk, batch by batch
//! start ─▶ FeedCache::load ─▶ what the watch had told when it was last written, and when it was last live
//! ```
//!
//! Noting never waits: what comes while a batch is written is in the next one. A batch is there as a whole or not at all,
//! however many commits it takes ([`disk`]), so what is loaded is what the watch told at some moment: never an address that
//! two have because one batch was cut short.

mod disk;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use prost::Message;
use sha2::{Digest as _, Sha256};
use tinwright::watch::FeedEvent;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use self::disk::Disk;
use crate::{Error, ScopedStore};

/// How often it is written down that a feed is still live.
const STILL_LIVE: Duration = Duration::from_secs(60);

/// Seals what is kept. Its owner's name is bound to it.
pub trait Sealer: fmt::Debug + Send + Sync + 'static {
    /// `plain` of `owner`, as it may be on a disk; none if it cannot be sealed.
    fn seal(&self, owner: &str, plain: &[u8]) -> Option<Vec<u8>>;

    /// What of `owner` is in `sealed`; none if it is another one's, or another site's.
    fn unseal(&self, owner: &str, sealed: &[u8]) -> Option<Vec<u8>>;
}

/// What is kept of the objects of a feed.
#[derive(Debug)]
pub struct Projection<T> {
    /// What an object goes by.
    pub id: fn(&T) -> &str,
    /// What of it is kept; none: it need not be.
    pub project: fn(&T) -> Option<T>,
}

/// What a feed had told.
#[derive(Clone, Debug, PartialEq)]
pub struct CachedFeed<T> {
    /// All there was, in id order.
    pub objects: Vec<T>,
    /// When the feed was last known to be live.
    pub last_live: SystemTime,
}

/// The copy of one feed.
#[derive(Debug)]
pub struct FeedCache<T> {
    disk: Disk,
    projection: Projection<T>,
    pending: Mutex<Pending>,
    work: Notify,
}

/// What is still to be written. Conflated: the latest of each object.
#[derive(Debug, Default)]
struct Pending {
    /// The digest of each object that will be on disk once `changes` are.
    known: HashMap<String, [u8; 32]>,
    changes: BTreeMap<String, Option<Bytes>>,
    last_live: Option<SystemTime>,
    live: bool,
    /// The last batch may have been cut short.
    torn: bool,
}

impl<T: Message + Default> FeedCache<T> {
    /// The copy of `feed` in the follower's own `store`, sealed with `seal`.
    pub fn new(
        store: ScopedStore,
        feed: &str,
        seal: Arc<dyn Sealer>,
        projection: Projection<T>,
    ) -> Self {
        let disk = Disk::new(store, feed, seal);
        Self { disk, projection, pending: Mutex::default(), work: Notify::new() }
    }

    /// What was kept; none before the feed has told everything once, or where it cannot be read with this site's key. To be
    /// called before anything is noted.
    pub async fn load(&self) -> Result<Option<CachedFeed<T>>, Error> {
        let Some((found, last_live)) = self.disk.load().await? else { return Ok(None) };
        let objects: Result<Vec<T>, _> =
            found.values().map(|bytes| T::decode(bytes.as_slice())).collect();
        let Ok(objects) = objects else {
            // Of a version that we do not know: the feed will tell it again.
            self.disk.clear().await?;
            return Ok(None);
        };
        let known = found.iter().map(|(id, bytes)| (id.clone(), Sha256::digest(bytes).into()));
        self.pending().known = known.collect();
        Ok(Some(CachedFeed { objects, last_live }))
    }

    /// Takes `news` of the feed, which came at `now`. Does not wait for any disk.
    pub fn record(&self, news: &FeedEvent<T>, now: SystemTime) {
        let mut pending = self.pending();
        match news {
            FeedEvent::Snapshot(all) => {
                let before: HashSet<String> = pending.known.keys().cloned().collect();
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

    /// Writes what is noted, as it comes, until `stop`. What could not be written is tried again with the next.
    pub async fn run(&self, stop: CancellationToken) {
        let mut alive = tokio::time::interval(STILL_LIVE);
        loop {
            tokio::select! {
                () = self.work.notified() => {}
                _ = alive.tick() => {}
                () = stop.cancelled() => {}
            }
            self.pending().still_live(SystemTime::now());
            if let Err(error) = self.write().await {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "the copy of a feed is not up to date");
            }
            if stop.is_cancelled() {
                return;
            }
        }
    }

    /// Writes what is noted by now.
    pub async fn write(&self) -> Result<(), Error> {
        let (changes, last_live, torn) = {
            let mut pending = self.pending();
            let Some(last_live) = pending.last_live.take() else { return Ok(()) };
            (
                std::mem::take(&mut pending.changes),
                last_live,
                std::mem::replace(&mut pending.torn, true),
            )
        };
        let written = async {
            if torn {
                self.disk.mend().await?;
            }
            self.disk.write(&changes, last_live).await
        };
        let written = written.await;
        let mut pending = self.pending();
        match &written {
            Ok(()) => pending.torn = false,
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
        if self.known.insert(id.to_owned(), digest) != Some(digest) {
            self.changes.insert(id.to_owned(), Some(bytes));
        }
    }

    fn remove(&mut self, id: &str) {
        if self.known.remove(id).is_some() {
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
