//! Commits before they are written to sled: checked one after the other, applied together.
//!
//! For each batch, however small, sled writes and waits for two log buffers. All commits that share a sync therefore share a
//! batch: each sees the changes of those before it, and readers see all of them at once or none.

use std::collections::HashMap;

use ::sled::Batch;

use super::layout::{Head, Layout, REVISION, pair_key, part_key};
use crate::{Commit, Error, Expect, Revision, Write};

/// Bytes at which a batch ends, with the commit that exceeds them: readers wait while it is applied.
const MAX_BATCH_BYTES: usize = 4 * 1024 * 1024;

/// Maximum growth of the stored values by an update on a full disk.
const MAX_UPDATE_GROWTH_BYTES: usize = 4 * 1024;

/// Commits staged on top of the applied ones.
#[derive(Debug)]
pub(super) struct Staged<'a> {
    layout: &'a Layout,
    /// The newest revision, staged ones included.
    revision: Revision,
    batch: Batch,
    /// The head of each pair that the batch changes; `None` for one that it removes.
    heads: HashMap<String, Option<Head>>,
    size: usize,
}

impl<'a> Staged<'a> {
    /// An empty stage on top of `layout`, which has only one writer.
    pub(super) fn on(layout: &'a Layout) -> Result<Self, Error> {
        let revision = layout.revision()?;
        Ok(Self { layout, revision, batch: Batch::default(), heads: HashMap::new(), size: 0 })
    }

    /// True if another commit should wait for the next batch.
    pub(super) fn full(&self) -> bool {
        self.size >= MAX_BATCH_BYTES
    }

    /// Stages `commit` if all it expects holds, else nothing of it. It may add `room` bytes to the store, which becomes less.
    pub(super) fn take(&mut self, commit: &Commit, room: &mut u64) -> Result<Revision, Error> {
        for expect in &commit.expect {
            expect.check(self.head(expect.key())?.map(|head| head.revision))?;
        }
        // Everything that can fail comes before the first change.
        let old = commit.writes.iter().map(|write| self.head(write.key()));
        let old = old.collect::<Result<Vec<_>, _>>()?;
        if commit.writes.is_empty() {
            return Ok(self.revision);
        }
        let length = commit.writes.iter().map(written_bytes).sum::<usize>() as u64;
        if length > *room && adds(commit, &old) {
            return Err(Error::Full);
        }
        *room = room.saturating_sub(length);
        self.revision = Revision(self.revision.0 + 1);
        for (write, old) in commit.writes.iter().zip(old) {
            self.stage(write, old.map_or(0, |head| head.parts()));
        }
        Ok(self.revision)
    }

    /// Applies all staged commits or none. They are durable after a [`flush`](Layout::flush) and a sync of the disk.
    pub(super) fn apply(mut self) -> Result<(), Error> {
        if self.heads.is_empty() {
            return Ok(());
        }
        self.batch.insert(REVISION, &self.revision.0.to_be_bytes());
        self.layout.apply(self.batch, self.revision)
    }

    fn stage(&mut self, write: &Write, old_parts: usize) {
        let key = write.key();
        let head = match write {
            Write::Delete(_) => {
                self.batch.remove(pair_key(key));
                None
            }
            Write::Put(_, value) => Some(self.put(key, value)),
        };
        let kept = head.as_ref().map_or(0, Head::parts);
        (kept..old_parts).for_each(|n| self.batch.remove(part_key(key, n)));
        self.heads.insert(key.to_owned(), head);
        self.size += key.len();
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Head {
        let head = Head { revision: self.revision, length: value.len() };
        let inline = if head.parts() == 0 { value } else { &[] };
        self.batch.insert(pair_key(key), head.encode(inline));
        let parts = head.cut(value);
        (0..).zip(parts).for_each(|(n, part)| self.batch.insert(part_key(key, n), part));
        self.size += value.len();
        head
    }

    fn head(&self, key: &str) -> Result<Option<Head>, Error> {
        match self.heads.get(key) {
            Some(staged) => Ok(*staged),
            None => self.layout.head(key),
        }
    }
}

/// True if `commit` creates a pair, or adds much to the values whose heads are `old`: not for deletes and usual updates.
fn adds(commit: &Commit, old: &[Option<Head>]) -> bool {
    let puts = |key: &str| {
        let put = |write: &Write| matches!(write, Write::Put(written, _) if written == key);
        commit.writes.iter().any(put)
    };
    let creates = |expect: &Expect| matches!(expect, Expect::Absent(key) if puts(key));
    let before: usize = old.iter().flatten().map(|head| head.length).sum();
    let after: usize = commit.writes.iter().map(written_bytes).sum();
    after > before + MAX_UPDATE_GROWTH_BYTES || commit.expect.iter().any(creates)
}

fn written_bytes(write: &Write) -> usize {
    match write {
        Write::Put(key, value) => key.len() + value.len(),
        Write::Delete(_) => 0,
    }
}
