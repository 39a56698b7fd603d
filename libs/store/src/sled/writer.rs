//! The one thread that writes: many commits, one `fdatasync`.
//!
//! It takes all commits that were queued while it was busy, and those of threads that wait for its core, so a busy store syncs
//! more commits at a time. Within a batch each commit sees those before it, and a failed expectation affects only its own
//! commit. An outcome, success or failure, is sent only after everything it depends on is durable. An error from the disk, or a
//! panic in sled, ends the thread. The feed is dropped with it, which ends all followers.

use std::collections::BTreeSet;
use std::fs::File;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use tokio::sync::{mpsc, oneshot};

use super::layout::Layout;
use super::recent::RecentPairs;
use super::space::Space;
use super::staged::Staged;
use crate::change_feed::ChangeFeed;
use crate::{Commit, Error, Frozen, FrozenPairs, Revision};

/// Commits that share a sync.
const MAX_BATCH_COMMITS: usize = 256;

type Outcome = Result<Revision, Error>;

/// A commit, and the channel for its outcome.
#[derive(Debug)]
pub(super) struct QueuedCommit {
    pub(super) commit: Commit,
    pub(super) reply: oneshot::Sender<Outcome>,
}

/// Reads that are done between two batches, when all that is applied is durable.
#[derive(Debug)]
pub(super) struct QueuedFreeze {
    pub(super) after: Revision,
    pub(super) keys: BTreeSet<String>,
    pub(super) reply: oneshot::Sender<Result<Frozen, Error>>,
}

/// Work for the thread.
#[derive(Debug)]
pub(super) enum Queued {
    Commit(QueuedCommit),
    Freeze(QueuedFreeze),
}

/// The state of the thread.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) layout: Arc<Layout>,
    pub(super) disk: File,
    pub(super) space: Space,
    pub(super) feed: ChangeFeed,
    pub(super) recent: Arc<RecentPairs>,
}

/// The thread. Dropping this waits for it, so close the queue first.
#[derive(Debug)]
pub(super) struct Running(Option<JoinHandle<()>>);

impl Drop for Running {
    fn drop(&mut self) {
        // A panic was already reported by the thread.
        let _ended = self.0.take().map(JoinHandle::join);
    }
}

impl Writer {
    /// Carries out commits until the queue is closed and empty, or the disk fails.
    pub(super) fn start(self, queue: mpsc::Receiver<Queued>) -> Result<Running, Error> {
        let thread = thread::Builder::new().name("store-writer".into());
        let thread = thread.spawn(move || self.run(queue)).map_err(Error::unavailable)?;
        Ok(Running(Some(thread)))
    }

    fn run(mut self, mut queue: mpsc::Receiver<Queued>) {
        let mut received = Vec::with_capacity(MAX_BATCH_COMMITS);
        while queue.blocking_recv_many(&mut received, MAX_BATCH_COMMITS) > 0 {
            // Returns at once if no thread waits for this core.
            thread::yield_now();
            while received.len() < MAX_BATCH_COMMITS
                && let Ok(queued) = queue.try_recv()
            {
                received.push(queued);
            }
            let (mut batch, mut freezes) = (Vec::with_capacity(received.len()), Vec::new());
            for queued in received.drain(..) {
                match queued {
                    Queued::Commit(commit) => batch.push(commit),
                    Queued::Freeze(freeze) => freezes.push(freeze),
                }
            }
            match self.carry_out(&batch) {
                Ok(outcomes) => {
                    for (queued, outcome) in batch.drain(..).zip(outcomes) {
                        let _gone = queued.reply.send(outcome);
                    }
                }
                // Dropping the batch and the queue fails all their commits with `Stopped`.
                Err(failure) => return report(&failure),
            }
            for QueuedFreeze { after, keys, reply } in freezes {
                let _gone = reply.send(self.freeze(after, keys));
            }
        }
    }

    /// Reads the pairs under `keys` and under all keys changed after `after`. Nothing is applied meanwhile.
    fn freeze(&self, after: Revision, mut keys: BTreeSet<String>) -> Result<Frozen, Error> {
        let Some(changed) = self.feed.follow().keys_since(after) else { return Ok(None) };
        keys.extend(changed);
        let pair = |key: String| self.layout.get(&key).map(|found| (key, found));
        let pairs = keys.into_iter().map(pair).collect::<Result<_, _>>()?;
        Ok(Some(FrozenPairs { pairs, revision: self.feed.revision() }))
    }

    /// Returns the outcome of each commit in `batch`, all of them durable; or the disk's error.
    fn carry_out(&mut self, batch: &[QueuedCommit]) -> Result<Vec<Outcome>, Error> {
        let mut outcomes = Vec::with_capacity(batch.len());
        let mut room = self.space.room().map_err(Error::unavailable)?;
        let mut staged = Staged::on(&self.layout)?;
        for queued in batch {
            let outcome = staged.take(&queued.commit, &mut room);
            if let Err(failure @ Error::Unavailable(_)) = outcome {
                return Err(failure);
            }
            outcomes.push(outcome);
            if staged.full() {
                staged.apply()?;
                staged = Staged::on(&self.layout)?;
            }
        }
        staged.apply()?;
        if self.layout.revision()? > self.feed.revision() {
            self.layout.flush()?;
            self.disk.sync_data().map_err(Error::unavailable)?;
        }
        let applied = || {
            let outcomes = batch.iter().zip(&outcomes);
            outcomes.filter_map(|(queued, outcome)| Some((&queued.commit, *outcome.as_ref().ok()?)))
        };
        applied().for_each(|(commit, revision)| self.recent.add(commit, revision));
        self.feed.publish(applied().flat_map(|(commit, revision)| commit.names(revision)));
        Ok(outcomes)
    }
}

fn report(failure: &Error) {
    let cause = std::error::Error::source(failure);
    tracing::error!(
        error = cause,
        "the store's disk failed; commits are refused until the store is opened again"
    );
}
