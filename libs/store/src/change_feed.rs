//! The keys of recent commits.
//!
//! Each durable commit is published here: its revision and the keys it wrote, in a ring of at most [`MAX_NAMES`] names.
//! Followers wait on the ring and never block a writer. A follower that the ring has overtaken gets [`Changes::Lost`] and lists.
//! Nothing here is stored: after a restart the ring is empty and begins at the store's revision, so that earlier followers have
//! to list too. When the writer ends, for whatever reason, waiting followers get an error.
//!
//! **Number of followers.** Every commit wakes every follower, which looks for its prefix among the new keys. This is meant for
//! one follower per noun and process, some dozens. Ten thousand followers would turn one commit into ten thousand wake-ups:
//! watchers of one machine each wait on a [`mirror`](crate::mirror), not here.

use std::collections::{BTreeSet, HashMap, VecDeque};

use tokio::sync::watch;

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
        /// The revision up to which the keys are complete.
        revision: Revision,
    },
    /// The reader is too far behind: list everything under the prefix again.
    Lost {
        /// The revision to continue with: a list read now and the changes after it miss nothing.
        revision: Revision,
    },
}

/// The keys written since `floor`.
#[derive(Debug)]
struct Ring {
    names: VecDeque<(Revision, String)>,
    floor: Revision,
    revision: Revision,
    start: Revision,
    /// The revision that last wrote each kind of key, since `start`. Kinds are few, and all of them are named in the sources.
    kinds: HashMap<String, Revision>,
}

/// Returns the part of `key` that names its kind: `<service>/<kind>/`.
fn kind(key: &str) -> Option<&str> {
    let (end, _) = key.match_indices('/').nth(1)?;
    key.get(..=end)
}

impl Ring {
    fn new(revision: Revision) -> Self {
        let (names, kinds) = (VecDeque::new(), HashMap::new());
        Self { names, floor: revision, revision, start: revision, kinds }
    }

    fn push(&mut self, revision: Revision, key: &str) {
        if let Some(kind) = kind(key) {
            match self.kinds.get_mut(kind) {
                Some(last) => *last = revision,
                None => drop(self.kinds.insert(kind.to_owned(), revision)),
            }
        }
        self.names.push_back((revision, key.to_owned()));
        if self.names.len() > MAX_NAMES {
            self.floor = self.names.pop_front().map_or(self.floor, |(dropped, _)| dropped);
        }
        self.revision = revision;
    }

    /// True if no key under `prefix`, which is a kind, was written after `after`.
    fn is_unchanged(&self, prefix: &str, after: Revision) -> bool {
        let last = self.kinds.get(prefix).copied().unwrap_or(self.start);
        kind(prefix) == Some(prefix) && last <= after && after <= self.revision
    }

    fn since(&self, prefix: &str, after: Revision) -> Option<Changes> {
        let revision = self.revision;
        if after < self.floor {
            return Some(Changes::Lost { revision });
        }
        let old = self.names.partition_point(|(at, _)| *at <= after);
        let under = self.names.range(old..).filter(|(_, key)| key.starts_with(prefix));
        let keys: BTreeSet<_> = under.map(|(_, key)| key).collect();
        let keys: Vec<_> = keys.into_iter().cloned().collect();
        (!keys.is_empty()).then_some(Changes::Keys { keys, revision })
    }
}

/// The writer's end. Dropping it ends the feed.
#[derive(Debug)]
pub(crate) struct ChangeFeed {
    ring: watch::Sender<Ring>,
}

impl ChangeFeed {
    /// An empty feed that begins at `revision`.
    pub(crate) fn new(revision: Revision) -> Self {
        Self { ring: watch::Sender::new(Ring::new(revision)) }
    }

    /// The newest revision published.
    pub(crate) fn revision(&self) -> Revision {
        self.ring.borrow().revision
    }

    /// Publishes the keys of durable commits, oldest first.
    pub(crate) fn publish<'a>(&self, names: impl Iterator<Item = (Revision, &'a str)>) {
        self.ring.send_modify(|ring| names.for_each(|(revision, key)| ring.push(revision, key)));
    }

    /// Publishes that nothing else was written up to `revision`.
    pub(crate) fn advance(&self, revision: Revision) {
        self.ring.send_modify(|ring| ring.revision = ring.revision.max(revision));
    }

    /// Restarts at `revision`: the changes before it are unknown, and every follower has to list.
    pub(crate) fn restart(&self, revision: Revision) {
        self.ring.send_replace(Ring::new(revision));
    }

    /// A reader's end.
    pub(crate) fn follow(&self) -> ChangeFollower {
        ChangeFollower { ring: self.ring.subscribe() }
    }
}

/// A reader's end.
#[derive(Clone, Debug)]
pub(crate) struct ChangeFollower {
    ring: watch::Receiver<Ring>,
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
            self.ring.changed().await.map_err(Error::unavailable)?;
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
