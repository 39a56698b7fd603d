//! The embedded store: one directory, one process, no server.
//!
//! ```text
//! commit ─▶ queue ─▶ writer ── stage, stage, stage ─▶ apply ─▶ flush ─▶ fdatasync ─▶ feed, then responses
//! get ─▶ recent pairs, or as list
//! list ────────────────────────▶ sled ───────────────────────────────────────▶ response once durable
//! ```
//!
//! The `open` module opens the database, `layout` defines the keys and values in sled, `writer` is the only module that changes
//! them, by batches of `staged` commits. `recent` has the pairs that were written last.
//!
//! **Crash safety.** A commit is part of one sled batch: after a kill or a power failure it is stored completely or not at all. It
//! is acknowledged after sled's flush *and* an `fdatasync` of the `db` file, because sled's flush alone leaves the last half
//! second, of a new store even everything, in the kernel. An interrupted batch was not acknowledged, and was not visible either:
//! a read of a value that is not yet durable waits for it. After the first error from the disk the state of the kernel's buffers
//! is unknown, so the writer ends: every later commit, and every read that would need one, is `Unavailable` until the store is
//! opened again, and [`failed`](Store::failed) resolves. Dropping the store ends the writer after its queue.
//!
//! **Full disk.** The `space` module reserves some of the disk. When little else is left, commits that create something or that add
//! more than a few KiB are [`Error::Full`]; deletes and small updates are carried out in the reserve.
//!
//! **Limits.** Sled applies one batch at a time in a process, over all databases (a static lock), so more stores in a process do
//! not write faster. A directory belongs to one process. `watch_prefix` can block every writer and is not used;
//! [`change_feed`](crate::change_feed) replaces it.

mod layout;
mod open;
mod recent;
mod space;
mod staged;
mod writer;

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot};

use self::layout::{Layout, Stopped};
use self::recent::RecentPairs;
use self::space::Space;
use self::writer::{Queued, QueuedCommit, QueuedFreeze, Writer};
use crate::change_feed::{ChangeFeed, ChangeFollower, Changes};
use crate::{Commit, Error, Frozen, Page, Revision, Store, Versioned};

/// Commits that may wait for the writer; the next ones wait to be queued.
const MAX_QUEUED_COMMITS: usize = 256;

/// A store in one directory.
#[derive(Debug)]
pub struct Sled {
    layout: Arc<Layout>,
    durable: ChangeFollower,
    recent: Arc<RecentPairs>,
    queue: mpsc::Sender<Queued>,
    _writer: writer::Running, // after `queue`: closing the queue is what ends it
}

impl Sled {
    /// Opens, or creates, the store at `path`. Blocks while sled recovers.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let (db, disk, space) = open::open(path, space::measure)?;
        Self::start(db, disk, space)
    }

    /// Opens the store at `path`, on a disk of the size that `measure` returns.
    #[cfg(test)]
    fn open_measuring(path: &Path, measure: space::Measure) -> Result<Self, Error> {
        let (db, disk, space) = open::open(path, measure)?;
        Self::start(db, disk, space)
    }

    /// Opens the store at `path`, and syncs `other` in place of its file, to show the loss without the sync.
    #[cfg(any(test, feature = "testing"))]
    #[doc(hidden)]
    pub fn open_syncing(path: &Path, other: File) -> Result<Self, Error> {
        let (db, _, space) = open::open(path, space::measure)?;
        Self::start(db, other, space)
    }

    fn start(db: ::sled::Db, disk: File, space: Space) -> Result<Self, Error> {
        let (layout, last) = Layout::read(db)?;
        let (layout, feed) = (Arc::new(layout), ChangeFeed::new(last));
        let (sender, queue) = mpsc::channel(MAX_QUEUED_COMMITS);
        let durable = feed.follow();
        let recent = Arc::new(RecentPairs::default());
        let writer = Writer { layout: layout.clone(), disk, space, feed, recent: recent.clone() };
        let writer = writer.start(queue)?;
        Ok(Self { layout, durable, recent, queue: sender, _writer: writer })
    }

    /// Gives `queued` to the writer.
    async fn queue(&self, queued: Queued) -> Result<(), Error> {
        self.queue.send(queued).await.map_err(|_| Error::unavailable(Stopped))
    }

    /// Reads sled on a blocking thread, and returns the revision read at.
    ///
    /// This holds even for one key that was not written recently: a hit in the cache takes a microsecond, but a miss reads the disk, and both wait while the
    /// writer applies a commit.
    async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Layout) -> Result<T, Error> + Send + 'static,
    ) -> Result<(T, Revision), Error> {
        let layout = self.layout.clone();
        let task = tokio::task::spawn_blocking(move || layout.look(look));
        task.await.map_err(Error::unavailable)?
    }
}

#[async_trait]
impl Store for Sled {
    async fn get(&self, key: &str) -> Result<Option<Versioned>, Error> {
        if let Some(found) = self.recent.get(key) {
            return Ok(found);
        }
        let key = key.to_owned();
        let (found, revision) = self.look(move |layout| layout.get(&key)).await?;
        // A value is durable with its own revision; the absence of a value, with the latest applied revision.
        let needed = found.as_ref().map_or(revision, |found| found.revision);
        self.durable.clone().reached(|| needed).await?;
        Ok(found)
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page, Error> {
        let (prefix, after) = (prefix.to_owned(), after.to_owned());
        let (page, needed) = self.look(move |layout| layout.list(&prefix, &after, limit)).await?;
        self.durable.clone().reached(|| needed).await?;
        Ok(page)
    }

    /// A queued commit is carried out even if the caller no longer waits.
    async fn commit(&self, commit: Commit) -> Result<Revision, Error> {
        commit.check()?;
        let (reply, outcome) = oneshot::channel();
        self.queue(Queued::Commit(QueuedCommit { commit, reply })).await?;
        outcome.await.map_err(|_| Error::unavailable(Stopped))?
    }

    async fn changed(&self, prefix: &str, after: Revision) -> Result<Changes, Error> {
        self.durable.clone().changed(prefix, after).await
    }

    fn is_unchanged(&self, prefix: &str, revision: Revision) -> bool {
        self.durable.is_unchanged(prefix, revision)
    }

    async fn frozen(&self, after: Revision, keys: BTreeSet<String>) -> Result<Frozen, Error> {
        let (reply, outcome) = oneshot::channel();
        self.queue(Queued::Freeze(QueuedFreeze { after, keys, reply })).await?;
        outcome.await.map_err(|_| Error::unavailable(Stopped))?
    }

    async fn failed(&self) -> Error {
        self.durable.clone().closed().await;
        Error::unavailable(Stopped)
    }
}

#[cfg(test)]
mod tests;
