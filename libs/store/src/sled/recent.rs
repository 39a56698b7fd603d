//! The pairs that were written last, in memory.
//!
//! Whoever is woken by a commit reads what it wrote: mirrors, the feed of events, the next claim in
//! the same part of the address tree. These reads need neither the disk nor a blocking thread.

use std::sync::{Mutex, MutexGuard, PoisonError};

use hashlink::LinkedHashMap;

use crate::{Commit, Revision, Versioned, Write};

/// Maximum size of the pairs, in bytes of keys and values.
const MAX_BYTES: usize = 512 * 1024;
/// Maximum size of a pair, in bytes.
const MAX_PAIR_BYTES: usize = 32 * 1024;

/// Durable pairs, the latest write of each key.
#[derive(Debug, Default)]
pub(super) struct RecentPairs(Mutex<Pairs>);

#[derive(Debug, Default)]
struct Pairs {
    /// The pair under each key, in the order of the writes; `None` for a deleted one.
    pairs: LinkedHashMap<String, Option<Versioned>>,
    bytes: usize,
}

impl RecentPairs {
    /// Returns what is stored under `key`, if it was written recently: a pair, or the knowledge that
    /// it was deleted.
    pub(super) fn get(&self, key: &str) -> Option<Option<Versioned>> {
        self.lock().pairs.get(key).cloned()
    }

    /// Adds what `commit` wrote, now that it is durable at `revision`.
    pub(super) fn add(&self, commit: &Commit, revision: Revision) {
        let mut pairs = self.lock();
        for write in &commit.writes {
            let written = match write {
                Write::Put(_, value) => Some(Versioned { value: value.clone(), revision }),
                Write::Delete(_) => None,
            };
            pairs.set(write.key(), written);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Pairs> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pairs {
    fn set(&mut self, key: &str, written: Option<Versioned>) {
        if let Some(old) = self.pairs.remove(key) {
            self.bytes -= size(key, old.as_ref());
        }
        let added = size(key, written.as_ref());
        if added > MAX_PAIR_BYTES {
            return;
        }
        self.bytes += added;
        self.pairs.insert(key.to_owned(), written);
        while self.bytes > MAX_BYTES
            && let Some((oldest, dropped)) = self.pairs.pop_front()
        {
            self.bytes -= size(&oldest, dropped.as_ref());
        }
    }
}

fn size(key: &str, pair: Option<&Versioned>) -> usize {
    key.len() + pair.map_or(0, |pair| pair.value.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str, bytes: usize) -> Commit {
        let write = Write::Put(key.into(), vec![0; bytes].into());
        Commit { writes: vec![write], ..Commit::default() }
    }

    /// Returns the revision of the pair under `key`; 0 if it was deleted.
    fn revision(recent: &RecentPairs, key: &str) -> Option<u64> {
        recent.get(key).map(|pair| pair.map_or(0, |pair| pair.revision.0))
    }

    #[test]
    fn the_latest_write_of_a_key_is_found_also_a_deletion() {
        let recent = RecentPairs::default();
        recent.add(&put("a", 1), Revision(1));
        recent.add(&put("a", 1), Revision(2));
        assert_eq!(revision(&recent, "a"), Some(2));
        let delete = Commit { writes: vec![Write::Delete("a".into())], ..Commit::default() };
        recent.add(&delete, Revision(3));
        assert_eq!(revision(&recent, "a"), Some(0));
        assert_eq!(revision(&recent, "b"), None);
    }

    #[test]
    fn the_oldest_pairs_make_room_and_a_large_one_replaces_a_small_one_without_being_held() {
        let recent = RecentPairs::default();
        for n in 0..100 {
            recent.add(&put(&format!("{n}"), MAX_BYTES / 50), Revision(n));
        }
        assert_eq!(revision(&recent, "0"), None);
        assert_eq!(revision(&recent, "99"), Some(99));
        assert!(recent.lock().bytes <= MAX_BYTES);
        recent.add(&put("99", MAX_PAIR_BYTES), Revision(100));
        assert_eq!(revision(&recent, "99"), None);
    }
}
