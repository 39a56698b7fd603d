//! Maps of bounded size: [`BoundedMap`] evicts its oldest entry for a new one, [`ExpiringMap`] also forgets entries after
//! their lifetime.
//!
//! An entry's age counts from its last `insert`; `get_mut` does not renew it. Every operation but `retain` and
//! `iter` takes constant time on average, so both may be used for each packet.
//!
//! ```
//! use std::time::{Duration, Instant};
//! use runtime::bounded_map::{BoundedMap, ExpiringMap};
//!
//! let mut unknown = BoundedMap::new(2);
//! for name in ["a", "b", "c"] {
//!     unknown.insert(name, 1);
//! }
//! assert_eq!((unknown.get(&"a"), unknown.len()), (None, 2));
//!
//! let (mut replies, now) = (ExpiringMap::new(1024, Duration::from_secs(1)), Instant::now());
//! replies.insert("a", 1, now);
//! assert_eq!(replies.get(&"a", now + Duration::from_secs(1)), None);
//! ```

use std::hash::Hash;
use std::time::{Duration, Instant};

use foldhash::quality::RandomState;
use hashlink::LinkedHashMap;

/// A map of at most `max_entries`. For a new key above that the entry that was inserted longest ago is evicted.
#[derive(Debug)]
pub struct BoundedMap<K, V> {
    /// The entry that was inserted longest ago is the first one.
    entries: LinkedHashMap<K, V, RandomState>,
    max_entries: usize,
}

impl<K: Eq + Hash, V> BoundedMap<K, V> {
    /// An empty map. It holds one entry at least.
    pub fn new(max_entries: usize) -> Self {
        Self { entries: LinkedHashMap::default(), max_entries: max_entries.max(1) }
    }

    /// Stores `value` as the newest entry, and returns what was stored under `key`.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        if self.is_full() && !self.entries.contains_key(&key) {
            self.pop_oldest();
        }
        self.entries.insert(key, value)
    }

    /// The value under `key`.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key)
    }

    /// The value under `key`, to be changed; the entry's age stays.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.entries.get_mut(key)
    }

    /// True if there is a value under `key`.
    pub fn contains_key(&self, key: &K) -> bool {
        self.entries.contains_key(key)
    }

    /// Removes and returns the value under `key`.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.entries.remove(key)
    }

    /// The entry that was inserted longest ago.
    pub fn oldest(&self) -> Option<(&K, &V)> {
        self.entries.front()
    }

    /// Removes and returns the entry that was inserted longest ago.
    pub fn pop_oldest(&mut self) -> Option<(K, V)> {
        self.entries.pop_front()
    }

    /// Keeps the entries for which `keep` returns true.
    pub fn retain(&mut self, keep: impl FnMut(&K, &mut V) -> bool) {
        self.entries.retain(keep);
    }

    /// All entries, beginning with the oldest.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter()
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// True if a new key would evict an entry.
    pub fn is_full(&self) -> bool {
        self.entries.len() >= self.max_entries
    }
}

/// A map of at most `max_entries`, each of which is forgotten a `lifetime` after it was inserted.
#[derive(Debug)]
pub struct ExpiringMap<K, V> {
    entries: BoundedMap<K, (Instant, V)>,
    lifetime: Duration,
}

/// Only entries are there that have not expired: there is no room for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no room for another entry")]
pub struct MapFull;

impl<K: Eq + Hash, V> ExpiringMap<K, V> {
    /// An empty map.
    pub fn new(max_entries: usize, lifetime: Duration) -> Self {
        Self { entries: BoundedMap::new(max_entries), lifetime }
    }

    /// Stores `value` under `key`, and evicts the oldest entry if there is no room.
    pub fn insert(&mut self, key: K, value: V, now: Instant) {
        self.remove_expired(now);
        self.entries.insert(key, (now, value));
    }

    /// Stores `value` under `key`, unless that would evict an entry that has not expired. For maps in which forgetting early
    /// does harm, so that a flood of keys must not be able to bring it about.
    pub fn try_insert(&mut self, key: K, value: V, now: Instant) -> Result<(), MapFull> {
        self.remove_expired(now);
        if self.entries.is_full() && !self.entries.contains_key(&key) {
            return Err(MapFull);
        }
        self.entries.insert(key, (now, value));
        Ok(())
    }

    /// The value under `key`.
    pub fn get(&self, key: &K, now: Instant) -> Option<&V> {
        let (inserted, value) = self.entries.get(key)?;
        is_fresh(*inserted, self.lifetime, now).then_some(value)
    }

    /// The value under `key`, to be changed; the entry's age stays.
    pub fn get_mut(&mut self, key: &K, now: Instant) -> Option<&mut V> {
        let (inserted, value) = self.entries.get_mut(key)?;
        is_fresh(*inserted, self.lifetime, now).then_some(value)
    }

    /// The time since `key` was inserted.
    pub fn age(&self, key: &K, now: Instant) -> Option<Duration> {
        let (inserted, _) = self.entries.get(key)?;
        is_fresh(*inserted, self.lifetime, now).then(|| now.saturating_duration_since(*inserted))
    }

    /// Removes the value under `key`, expired or not.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.entries.remove(key).map(|(_, value)| value)
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// The number of entries in memory, with those that have expired and were not removed yet.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there are no entries in memory.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Removes expired entries. Insertions do this too, and it costs nothing where there are none.
    pub fn remove_expired(&mut self, now: Instant) {
        while let Some((_, (inserted, _))) = self.entries.oldest()
            && !is_fresh(*inserted, self.lifetime, now)
        {
            self.entries.pop_oldest();
        }
    }
}

fn is_fresh(inserted: Instant, lifetime: Duration, now: Instant) -> bool {
    now.saturating_duration_since(inserted) < lifetime
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_entry_inserted_longest_ago_is_evicted() {
        let mut map = BoundedMap::new(2);
        assert_eq!(
            [map.insert(1, 'a'), map.insert(2, 'b'), map.insert(1, 'c')],
            [None, None, Some('a')]
        );
        *map.get_mut(&2).unwrap() = 'd';
        map.insert(3, 'e');
        assert_eq!((map.get(&2), map.get(&1), map.get(&3)), (None, Some(&'c'), Some(&'e')));
        assert_eq!(map.pop_oldest(), Some((1, 'c')));
    }

    #[test]
    fn an_entry_expires_a_lifetime_after_its_insertion() {
        let (mut map, now) = (ExpiringMap::new(9, 10 * SECOND), Instant::now());
        map.insert(1, 'a', now);
        *map.get_mut(&1, now + 9 * SECOND).unwrap() = 'b';
        assert_eq!(map.get(&1, now + 9 * SECOND), Some(&'b'));
        assert_eq!(map.age(&1, now + 9 * SECOND), Some(9 * SECOND));
        assert_eq!((map.get(&1, now + 10 * SECOND), map.len()), (None, 1));
        map.insert(2, 'c', now + 10 * SECOND);
        assert_eq!(map.len(), 1);
    }

    #[test]
    fn a_careful_insertion_evicts_expired_entries_alone() {
        let (mut map, now) = (ExpiringMap::new(1, SECOND), Instant::now());
        assert_eq!(map.try_insert(1, 'a', now), Ok(()));
        assert_eq!(map.try_insert(2, 'b', now), Err(MapFull));
        assert_eq!(map.try_insert(1, 'c', now), Ok(()));
        assert_eq!(map.try_insert(2, 'd', now + SECOND), Ok(()));
        map.insert(3, 'e', now + SECOND);
        assert_eq!((map.get(&2, now + SECOND), map.get(&3, now + SECOND)), (None, Some(&'e')));
    }

    proptest! {
        #[test]
        fn what_is_stored_is_what_a_list_by_age_would_hold(
            steps in proptest::collection::vec((any::<bool>(), 0_u8..12), 0..400),
        ) {
            let (mut map, mut model) = (BoundedMap::new(8), Vec::new());
            for (removes, key) in steps {
                model.retain(|other| *other != key);
                if removes {
                    map.remove(&key);
                } else {
                    map.insert(key, ());
                    model.push(key);
                    if model.len() > 8 {
                        model.remove(0);
                    }
                }
                prop_assert_eq!(map.oldest().map(|(key, ())| *key), model.first().copied());
                prop_assert_eq!(map.len(), model.len());
                prop_assert!(model.iter().all(|key| map.contains_key(key)));
            }
        }
    }
}
