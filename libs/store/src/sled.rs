//! The embedded store: one directory, one process, no server.
//!
//! ```text
//! commit ─▶ queue ─▶ writer ── stage, stage, stage ─▶ apply ─▶ flush ─▶ fdatasync ─▶ feed, then answers
//! get, list ───────────────────▶ sled ───────────────────────────────────────▶ answer once durable
//! ```
//!
//! The `open` module opens, `layout` says how pairs lie in sled, `writer` is the only one who changes them, by what it
//! has `staged`.
//!
//! **Crash story.** A commit lies within one sled batch: after a kill or a pulled plug it is there as a whole or not at
//! all. It is acknowledged after sled's flush *and* our own `fdatasync` of the `db` file, because sled's flush alone
//! leaves the last half second, of a new store even everything, in the kernel. A batch cut short was acknowledged to
//! nobody, and shown to nobody either: a read that met something not yet durable waits for it. After the first
//! error from the disk, what the kernel still holds is unknowable, so the writer ends: every later commit, and every
//! read that would need one, is `Unavailable` until the store is opened again. Dropping the store ends the writer
//! after its queue.
//!
//! **Limits.** Sled lets one batch of one database in a process be applied at a time (a static lock), so more
//! stores in a process do not write faster. A directory belongs to one process. `watch_prefix` can freeze every
//! writer and is not used; [`change_feed`](crate::change_feed) is.

mod layout;
mod open;
mod staged;
mod writer;

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot};

use self::layout::Layout;
use self::writer::{QueuedCommit, Writer};
use crate::change_feed::{ChangeFeed, ChangeFollower, Changes};
use crate::{Commit, Error, Page, Revision, Store, Versioned};

/// Commits that may wait for the writer; the next ones wait to be queued.
const MAX_QUEUED_COMMITS: usize = 256;

/// A store in one directory.
#[derive(Debug)]
pub struct Sled {
    layout: Arc<Layout>,
    durable: ChangeFollower,
    orders: mpsc::Sender<QueuedCommit>,
    _writer: writer::Running, // after `orders`: closing the queue is what ends it
}

impl Sled {
    /// Opens, or creates, the store at `path`. Blocks while sled recovers.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let (db, disk) = open::open(path)?;
        Self::start(db, disk)
    }

    /// Opens the store at `path` and from then on syncs `other` in place of its file, to show what that would lose.
    #[cfg(any(test, feature = "testing"))]
    #[doc(hidden)]
    pub fn open_syncing(path: &Path, other: File) -> Result<Self, Error> {
        let (db, _) = open::open(path)?;
        Self::start(db, other)
    }

    fn start(db: ::sled::Db, disk: File) -> Result<Self, Error> {
        let (layout, last) = Layout::read(db)?;
        let (layout, feed) = (Arc::new(layout), ChangeFeed::new(last));
        let (orders, queue) = mpsc::channel(MAX_QUEUED_COMMITS);
        let durable = feed.follow();
        let writer = Writer { layout: layout.clone(), disk, feed }.start(queue)?;
        Ok(Self { layout, durable, orders, _writer: writer })
    }

    /// Reads sled on a blocking thread, and returns the revision read at.
    ///
    /// On a blocking thread even for one key: a hit in the cache takes a microsecond, but a miss reads the disk, and
    /// either waits while the writer applies a commit.
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
        let key = key.to_owned();
        let (found, revision) = self.look(move |layout| layout.get(&key)).await?;
        // A value is durable with its own revision; that there is none, with whatever was applied last.
        let seen = found.as_ref().map_or(revision, |found| found.revision);
        self.durable.clone().reached(|| seen).await?;
        Ok(found)
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page, Error> {
        let (prefix, after) = (prefix.to_owned(), after.to_owned());
        let (page, seen) = self.look(move |layout| layout.list(&prefix, &after, limit)).await?;
        self.durable.clone().reached(|| seen).await?;
        Ok(page)
    }

    /// Once queued, a commit is carried out even if nobody waits for the answer any more.
    async fn commit(&self, commit: Commit) -> Result<Revision, Error> {
        commit.check()?;
        let (reply, outcome) = oneshot::channel();
        let order = QueuedCommit { commit, reply };
        self.orders.send(order).await.map_err(|_| Error::unavailable(writer::Stopped))?;
        outcome.await.map_err(|_| Error::unavailable(writer::Stopped))?
    }

    async fn changed(&self, prefix: &str, after: Revision) -> Result<Changes, Error> {
        self.durable.clone().changed(prefix, after).await
    }
}

#[cfg(test)]
mod tests;
