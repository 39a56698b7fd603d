//! The one watch that feeds all followers in the process.
//!
//! ```text
//! connect ─▶ watch from the feed's revision + 1 ─▶ publish, publish, … ─▶ broken ─▶ connect
//!                                                        └─ compacted ─▶ all are lost ─▶ connect
//! ```

use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::link::{Fault, Link};
use super::wire::pb::WatchResponse;
use super::wire::{self, Root};
use crate::Revision;
use crate::change_feed::ChangeFeed;

/// The delay before a broken watch is opened again.
const RETRY_DELAY: Duration = Duration::from_millis(200);

/// The reason for a watch's end.
#[derive(Debug, thiserror::Error)]
enum WatchEnd {
    /// No member is reachable.
    #[error("no watch")]
    Unreachable(#[from] Fault),
    /// The connection or its member broke.
    #[error("watch broke")]
    Broken(#[from] Box<tonic::Status>),
    /// Etcd ended it.
    #[error("watch ended by etcd: {0}")]
    Canceled(String),
    /// Etcd no longer has the changes since then.
    #[error("watch compacted up to revision {}", .0.0)]
    Compacted(Revision),
}

/// The state of the watch's task.
#[derive(Debug)]
pub(super) struct Watcher {
    pub(super) link: Arc<Link>,
    pub(super) root: Root,
    pub(super) feed: ChangeFeed,
    pub(super) written: Arc<AtomicU64>,
}

impl Watcher {
    /// Follows the cluster for ever.
    pub(super) async fn run(self) {
        loop {
            let Err(ended) = self.follow().await;
            match &ended {
                WatchEnd::Unreachable(_) => {
                    tracing::debug!(error = &ended as &dyn Error, "no watch on etcd yet")
                }
                WatchEnd::Broken(_) | WatchEnd::Canceled(_) => {
                    tracing::warn!(
                        error = &ended as &dyn Error,
                        "the watch on etcd broke; opening it again"
                    );
                }
                WatchEnd::Compacted(floor) => {
                    tracing::warn!(
                        floor = floor.0,
                        "etcd forgot what was not yet read; all followers list again"
                    );
                    self.feed.restart(*floor);
                }
            }
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }

    /// Publishes what changes until the watch ends.
    async fn follow(&self) -> Result<Infallible, WatchEnd> {
        let newest = wire::revision(self.link.range(self.root.glance()).await?.header);
        // The watch may not have reported the last commits of this process yet.
        let known = self.feed.revision().max(Revision(self.written.load(Ordering::Acquire)));
        if newest < known {
            tracing::warn!(
                newest = newest.0,
                "etcd went back to an older copy of itself; all followers list again"
            );
            self.written.store(0, Ordering::Release);
            self.feed.restart(newest);
        }
        let start = Revision(self.feed.revision().0 + 1);
        let mut watch = self.link.watch(self.root.watch(start)).await?;
        let mut names = Vec::new();
        while let Some(message) = watch.message().await.map_err(Box::new)? {
            if message.compact_revision > 0 {
                return Err(WatchEnd::Compacted(wire::unsigned(message.compact_revision)));
            }
            if message.canceled {
                return Err(WatchEnd::Canceled(message.cancel_reason));
            }
            self.take(message, &mut names);
        }
        Err(WatchEnd::Canceled("no reason given".into()))
    }

    /// Publishes the changes in `message`, once those of its last revision are complete.
    fn take(&self, message: WatchResponse, names: &mut Vec<(Revision, String)>) {
        let progress = message.events.is_empty() && !message.created;
        for pair in message.events.into_iter().filter_map(|event| event.kv) {
            match self.root.strip(&pair.key) {
                Some(key) => names.push((wire::unsigned(pair.mod_revision), key.to_owned())),
                None => {
                    tracing::warn!(key = ?pair.key, "a key that is not ours is below our prefix")
                }
            }
        }
        if message.fragment {
            return;
        }
        self.feed.publish(names.iter().map(|(revision, key)| (*revision, key.as_str())));
        names.clear();
        if progress {
            self.feed.advance(wire::revision(message.header));
        }
    }
}
