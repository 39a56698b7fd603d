//! The keys of a feed's objects in the store.
//!
//! ```text
//! feed/<feed>/object/<id>     an object, sealed
//! feed/<feed>/last_live       time at which the feed was last live: seconds since 1970 (u64); written with the first batch
//! feed/<feed>/next/<id>       part of a batch too long for one commit: 1 ‖ the new sealed object, or 0 for a deletion
//! feed/<feed>/ready           mark of a complete long batch: its last_live
//! ```
//!
//! A batch that fits into one commit is one. A longer one is first written beside the objects; with the commit that writes
//! `ready` it is valid, and is moved to its place. After a crash the next start first completes a batch that is ready, and
//! deletes one that is not.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use crate::{Commit, Error, ScopedStore, Sealer, Store as _, Write, limits};

/// Bytes of values in a commit of a long batch: half of the limit, so that its keys fit.
const COMMIT_VALUE_BYTES: usize = limits::MAX_COMMIT_BYTES / 2;

/// The stored objects of one feed.
#[derive(Debug)]
pub(super) struct Disk {
    store: ScopedStore,
    prefix: String,
    seal: Arc<dyn Sealer>,
}

impl Disk {
    pub(super) fn new(store: ScopedStore, feed: &str, seal: Arc<dyn Sealer>) -> Self {
        Self { store, prefix: format!("feed/{feed}/"), seal }
    }

    fn key(&self, name: &str) -> String {
        [&self.prefix, name].concat()
    }

    fn object(&self, id: &str) -> String {
        self.key(&format!("object/{id}"))
    }

    fn next(&self, id: &str) -> String {
        self.key(&format!("next/{id}"))
    }

    /// Returns every object by its id, decrypted, and the time at which the feed was last live. None without a complete batch, or
    /// if it cannot be decrypted.
    pub(super) async fn load(
        &self,
    ) -> Result<Option<(BTreeMap<String, Vec<u8>>, SystemTime)>, Error> {
        self.recover().await?;
        let last_live = self.store.get(&self.key("last_live")).await?;
        let Some(last_live) = last_live.and_then(|last_live| time(&last_live.value)) else {
            return Ok(None);
        };
        let (mut found, objects) = (BTreeMap::new(), self.object(""));
        let mut pages = self.store.pages(&objects);
        while let Some(pairs) = pages.next().await? {
            for (key, at) in pairs {
                let Some(plain) = self.seal.unseal(&key, &at.value) else {
                    tracing::warn!(
                        key,
                        "the feed cache is deleted: this site's key does not decrypt it"
                    );
                    self.clear().await?;
                    return Ok(None);
                };
                found.insert(key.strip_prefix(&objects).unwrap_or(&key).to_owned(), plain);
            }
        }
        Ok(Some((found, last_live)))
    }

    /// Writes `changes`, all of them or none, and the time at which the feed was last live.
    pub(super) async fn write(
        &self,
        changes: &BTreeMap<String, Option<Bytes>>,
        last_live: SystemTime,
    ) -> Result<(), Error> {
        let at_once = changes.len() < limits::MAX_WRITES
            && changes.values().flatten().map(Bytes::len).sum::<usize>() <= COMMIT_VALUE_BYTES;
        if at_once {
            let mut writes: Vec<_> =
                changes.iter().map(|(id, change)| self.placed(id, change.as_ref())).collect();
            writes.push(Write::Put(self.key("last_live"), seconds(last_live)));
            return self.commit(writes).await;
        }
        let staged = changes.iter().map(|(id, change)| vec![self.staged(id, change.as_ref())]);
        self.in_steps(staged).await?;
        self.commit(vec![Write::Put(self.key("ready"), seconds(last_live))]).await?;
        self.move_ready(seconds(last_live)).await
    }

    /// Completes a long batch that is ready, and deletes one that is not.
    pub(super) async fn recover(&self) -> Result<(), Error> {
        match self.store.get(&self.key("ready")).await? {
            Some(ready) => self.move_ready(ready.value).await,
            None => self.delete(&self.next("")).await,
        }
    }

    /// Deletes everything, beginning with the mark of a whole batch.
    pub(super) async fn clear(&self) -> Result<(), Error> {
        self.commit(vec![Write::Delete(self.key("last_live"))]).await?;
        self.delete(&self.prefix).await
    }

    /// Moves a ready batch to its place.
    async fn move_ready(&self, last_live: Bytes) -> Result<(), Error> {
        let staged = self.next("");
        let mut pages = self.store.pages(&staged);
        while let Some(pairs) = pages.next().await? {
            let moves = pairs.into_iter().map(|(key, at)| {
                let object = self.object(key.strip_prefix(&staged).unwrap_or(&key));
                let placed = match at.value.split_first() {
                    Some((1, sealed)) => Write::Put(object, at.value.slice_ref(sealed)),
                    Some(_) | None => Write::Delete(object),
                };
                vec![placed, Write::Delete(key)]
            });
            self.in_steps(moves).await?;
        }
        let done = [Write::Put(self.key("last_live"), last_live), Write::Delete(self.key("ready"))];
        self.commit(done.into()).await
    }

    async fn delete(&self, prefix: &str) -> Result<(), Error> {
        let mut pages = self.store.pages(prefix);
        while let Some(pairs) = pages.next().await? {
            let deletes: Vec<_> = pairs.into_iter().map(|(key, _)| Write::Delete(key)).collect();
            self.store.write_all(&deletes).await?;
        }
        Ok(())
    }

    /// Commits groups of writes in as few commits as possible, each group in one.
    async fn in_steps(&self, all: impl Iterator<Item = Vec<Write>>) -> Result<(), Error> {
        let (mut step, mut size) = (Vec::new(), 0);
        for writes in all {
            let more = writes.iter().map(length).sum::<usize>();
            if !step.is_empty()
                && (step.len() + writes.len() > limits::MAX_WRITES
                    || size + more > COMMIT_VALUE_BYTES)
            {
                self.commit(std::mem::take(&mut step)).await?;
                size = 0;
            }
            size += more;
            step.extend(writes);
        }
        if step.is_empty() { Ok(()) } else { self.commit(step).await }
    }

    async fn commit(&self, writes: Vec<Write>) -> Result<(), Error> {
        self.store.commit(Commit { writes, ..Commit::default() }).await.map(|_| ())
    }

    fn placed(&self, id: &str, change: Option<&Bytes>) -> Write {
        let key = self.object(id);
        match self.sealed(&key, change) {
            Some(sealed) => Write::Put(key, sealed.into()),
            None => Write::Delete(key),
        }
    }

    fn staged(&self, id: &str, change: Option<&Bytes>) -> Write {
        let sealed = self.sealed(&self.object(id), change);
        let value = sealed.map_or_else(|| vec![0], |sealed| [&[1], &sealed[..]].concat());
        Write::Put(self.next(id), value.into())
    }

    /// Returns the encrypted object; none if it cannot be stored, which does not stop the others.
    fn sealed(&self, key: &str, change: Option<&Bytes>) -> Option<Vec<u8>> {
        let sealed = self.seal.seal(key, change?);
        let kept = sealed.filter(|sealed| sealed.len() < limits::MAX_VALUE_BYTES);
        if kept.is_none() {
            tracing::warn!(
                key,
                "an object of the feed is too long to be stored, or cannot be encrypted"
            );
        }
        kept
    }
}

fn length(write: &Write) -> usize {
    match write {
        Write::Put(_, value) => value.len(),
        Write::Delete(_) => 0,
    }
}

fn seconds(time: SystemTime) -> Bytes {
    let since = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    since.to_be_bytes().to_vec().into()
}

fn time(value: &[u8]) -> Option<SystemTime> {
    let seconds = u64::from_be_bytes(value.try_into().ok()?);
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}
