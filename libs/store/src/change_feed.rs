//! The keys of recent commits.
//!
//! Each durable commit is published here: its revision and the keys it wrote, in a ring of at most [`MAX_NAMES`] names.
//! Followers wait on the ring and never block a writer. A follower that the ring has overtaken gets [`Changes::Lost`] and lists.
//! Nothing here is stored: after a restart the ring is empty and begins at the store's revision, so that earlier followers have
//! to list too. When the writer ends, for whatever reason, waiting followers get an error.
//!
//! **Number of followers.** A commit wakes the followers of the kinds of keys that it writes, and no
//! others. Followers of anything else than a kind are woken by every commit. One follower for each
//! noun and process is meant: watchers of one machine wait on a [`mirror`](crate::mirror), not here.

mod signals;

use std::collections::{BTreeSet, HashMap, VecDeque};

use tokio::sync::watch;

use self::signals::KindSignals;

use crate::{Error, Revision};

/// Keys in the ring.
pub const MAX_NAMES: usize = 16 * 1024;

/// Keys to read again. Begin following with [`Revision::UNKNOWN`], and continue with the `revision` returned here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changes {
    /// Keys that may have changed.
    Keys {
        /// In key order, each once.
        keys: Vec<String>,
        /// The keys are complete up to this revision.
        revision: Revision,
    },
    /// The reader is too far behind: list everything under the prefix again.
    Lost {
        /// The revision to continue with: a list read now and the changes after it miss nothing.
        revision: Revision,
    },
}

/// The keys of recent commits.
#[derive(Debug)]
struct Ring {
    names: VecDeque<(Revision, String)>,
    /// The newest revision of a dropped name.
    floor: Revision,
    revision: Revision,
    start: Revision,
    /// Each kind of key that was written since `start`. Kinds are few, and all of them are named in
    /// the sources.
    kinds: HashMap<String, WrittenKind>,
}

/// Revisions of one kind of key.
#[derive(Clone, Copy, Debug)]
struct WrittenKind {
    /// The newest revision.
    last: Revision,
    /// The newest revision of a dropped name.
    floor: Revision,
}

/// Returns the part of `key` that names its kind: `<service>/<kind>/`.
fn kind(key: &str) -> Option<&str> {
    let (end, _) = key.match_indices('/').nth(1)?;
    key.get(..=end)
}

/// True if `prefix` is a whole kind.
fn is_kind(prefix: &str) -> bool {
    kind(prefix) == Some(prefix)
}

impl Ring {
    fn new(revision: Revision) -> Self {
        Self {
            names: VecDeque::new(),
            floor: revision,
            revision,
            start: revision,
            kinds: HashMap::new(),
        }
    }

    fn push(&mut self, revision: Revision, key: &str) {
        if let Some(kind) = kind(key) {
            match self.kinds.get_mut(kind) {
                Some(written) => written.last = revision,
                None => {
                    let written = WrittenKind { last: revision, floor: self.start };
                    self.kinds.insert(kind.to_owned(), written);
                }
            }
        }
        self.names.push_back((revision, key.to_owned()));
        if self.names.len() > MAX_NAMES {
            self.drop_oldest();
        }
        self.revision = revision;
    }

    fn drop_oldest(&mut self) {
        let Some((revision, key)) = self.names.pop_front() else { return };
        self.floor = revision;
        if let Some(written) = kind(&key).and_then(|kind| self.kinds.get_mut(kind)) {
            written.floor = revision;
        }
    }

    /// Returns the oldest revision that a reader of `prefix` can continue from.
    fn floor_of(&self, prefix: &str) -> Revision {
        match is_kind(prefix) {
            true => self.kinds.get(prefix).map_or(self.start, |written| written.floor),
            false => self.floor,
        }
    }

    /// True if no key under `prefix`, which is a kind, was written after `after`.
    fn is_unchanged(&self, prefix: &str, after: Revision) -> bool {
        let last = self.kinds.get(prefix).map_or(self.start, |written| written.last);
        is_kind(prefix) && last <= after && after <= self.revision
    }

    fn since(&self, prefix: &str, after: Revision) -> Option<Changes> {
        let revision = self.revision;
        if after < self.floor_of(prefix) {
            return Some(Changes::Lost { revision });
        }
        let old = self.names.partition_point(|(at, _)| *at <= after);
        let under = self.names.range(old..).filter(|(_, key)| key.starts_with(prefix));
        let keys: BTreeSet<_> = under.map(|(_, key)| key).collect();
        let keys: Vec<_> = keys.into_iter().cloned().collect();
        (!keys.is_empty()).then_some(Changes::Keys { keys, revision })
    }
}

/// The writer has ended, and with it the feed.
#[derive(Debug, thiserror::Error)]
#[error("the feed of changes has ended")]
struct FeedEnded;

/// The writer's end. Dropping it ends the feed.
#[derive(Debug)]
pub(crate) struct ChangeFeed {
    ring: watch::Sender<Ring>,
    signals: KindSignals,
}

impl ChangeFeed {
    /// An empty feed that begins at `revision`.
    pub(crate) fn new(revision: Revision) -> Self {
        Self { ring: watch::Sender::new(Ring::new(revision)), signals: KindSignals::default() }
    }

    /// The newest revision published.
    pub(crate) fn revision(&self) -> Revision {
        self.ring.borrow().revision
    }

    /// Publishes the keys of durable commits, oldest first.
    pub(crate) fn publish<'a>(&self, names: impl Iterator<Item = (Revision, &'a str)>) {
        let mut kinds = BTreeSet::new();
        self.ring.send_modify(|ring| {
            for (revision, key) in names {
                ring.push(revision, key);
                kinds.extend(kind(key));
            }
        });
        self.signals.wake(&kinds);
    }

    /// Publishes that nothing else was written up to `revision`.
    pub(crate) fn advance(&self, revision: Revision) {
        self.ring.send_modify(|ring| ring.revision = ring.revision.max(revision));
    }

    /// Restarts at `revision`: the changes before it are unknown, and every follower has to list.
    pub(crate) fn restart(&self, revision: Revision) {
        self.ring.send_replace(Ring::new(revision));
        self.signals.wake_all();
    }

    /// A reader's end.
    pub(crate) fn follow(&self) -> ChangeFollower {
        ChangeFollower { ring: self.ring.subscribe(), signals: self.signals.clone() }
    }
}

impl Drop for ChangeFeed {
    fn drop(&mut self) {
        self.signals.close();
    }
}

/// A reader's end.
#[derive(Clone, Debug)]
pub(crate) struct ChangeFollower {
    ring: watch::Receiver<Ring>,
    signals: KindSignals,
}

impl ChangeFollower {
    /// Implements [`Store::changed`](crate::Store::changed) for engines that are the only writers of their data.
    pub(crate) async fn changed(self, prefix: &str, after: Revision) -> Result<Changes, Error> {
        let revision = self.revision();
        // A reader ahead of the store is lost as well: the store was replaced by an older copy.
        if after > revision {
            Ok(Changes::Lost { revision })
        } else {
            self.newer(prefix, after).await
        }
    }

    /// Does the same if a reader ahead of the feed is not lost, because the feed may be late.
    pub(crate) async fn newer(
        mut self,
        prefix: &str,
        mut after: Revision,
    ) -> Result<Changes, Error> {
        let mut last = Revision(0);
        // Before the ring is read: a commit after that wakes this follower.
        let mut signal = match is_kind(prefix) {
            true => Some(self.signals.of(prefix).ok_or(Error::unavailable(FeedEnded))?),
            false => None,
        };
        loop {
            {
                let ring = self.ring.borrow_and_update();
                let revision = ring.revision;
                if revision < last {
                    return Ok(Changes::Lost { revision }); // the feed was restarted at an earlier revision
                }
                if let Some(changes) = ring.since(prefix, after) {
                    return Ok(changes);
                }
                // A waiting follower keeps up, even if other prefixes change a lot.
                (last, after) = (revision, after.max(revision));
            }
            let woken = match &mut signal {
                Some(signal) => signal.changed().await,
                None => self.ring.changed().await,
            };
            woken.map_err(Error::unavailable)?;
        }
    }

    /// Implements [`Store::is_unchanged`](crate::Store::is_unchanged) for engines that are the only writers of their data.
    pub(crate) fn is_unchanged(&self, prefix: &str, after: Revision) -> bool {
        self.ring.borrow().is_unchanged(prefix, after)
    }

    /// Returns the keys that changed after `after`; none if the ring has overtaken the reader.
    pub(crate) fn keys_since(&self, after: Revision) -> Option<Vec<String>> {
        match self.ring.borrow().since("", after) {
            None => Some(Vec::new()),
            Some(Changes::Keys { keys, .. }) => Some(keys),
            Some(Changes::Lost { .. }) => None,
        }
    }

    /// Resolves once the writer has ended.
    pub(crate) async fn closed(mut self) {
        while self.ring.changed().await.is_ok() {}
    }

    /// The newest revision published.
    pub(crate) fn revision(&self) -> Revision {
        self.ring.borrow().revision
    }

    /// Resolves once everything up to `goal` is published, so durable; the goal may change with the feed.
    pub(crate) async fn reached(mut self, goal: impl Fn() -> Revision) -> Result<(), Error> {
        let reached = self.ring.wait_for(|ring| ring.revision >= goal()).await;
        reached.map(drop).map_err(Error::unavailable)
    }
}

#[cfg(test)]
mod tests;
