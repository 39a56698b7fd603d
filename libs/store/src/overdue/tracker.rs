//! The records in states with a time limit, in the order of their deadlines.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::marker::PhantomData;
use std::time::SystemTime;

use tinwright::watch::WatchEvent;
use tinwright::{Bounded, Stored as _};

use super::due;
use crate::records::Kind;

/// The records of one kind that are in states with a time limit.
#[derive(Debug)]
pub(super) struct Tracker<K> {
    stays: HashMap<String, Stay>,
    /// The records to be marked, by time.
    to_mark: BTreeSet<(SystemTime, String)>,
    /// Every state that a record was overdue in, so that their counts return to zero.
    states: BTreeSet<String>,
    kind: PhantomData<fn() -> K>,
}

#[derive(Debug)]
struct Stay {
    state: String,
    due: SystemTime,
    /// Its entry in `to_mark`, if it has one.
    marked_at: Option<SystemTime>,
}

impl<K> Default for Tracker<K> {
    fn default() -> Self {
        let (stays, to_mark, states) = (HashMap::new(), BTreeSet::new(), BTreeSet::new());
        Self { stays, to_mark, states, kind: PhantomData }
    }
}

impl<K: Kind<Record: Bounded>> Tracker<K> {
    /// Applies an event of the watch. Returns true if the overdue records at `now` may be others.
    pub(super) fn apply(&mut self, event: WatchEvent<K::Record>, now: SystemTime) -> bool {
        let is_overdue =
            |this: &Self, id: &str| this.stays.get(id).is_some_and(|stay| stay.due <= now);
        match event {
            WatchEvent::Put(record) => {
                let was = is_overdue(self, record.id());
                self.put(&record);
                was || is_overdue(self, record.id())
            }
            WatchEvent::Deleted(id) => {
                let was = is_overdue(self, &id);
                self.remove(&id);
                was
            }
            WatchEvent::Synced => false,
        }
    }

    /// Follows `record` in its present state.
    fn put(&mut self, record: &K::Record) {
        let id = record.id();
        self.remove(id);
        let Some(due) = due(record) else { return };
        let marked_at = (!K::is_overdue(record)).then_some(due);
        if let Some(at) = marked_at {
            self.to_mark.insert((at, id.to_owned()));
        }
        self.stays.insert(id.to_owned(), Stay { state: K::state(record), due, marked_at });
    }

    /// Follows the record `id` no longer.
    fn remove(&mut self, id: &str) {
        if let Some(stay) = self.stays.remove(id)
            && let Some(at) = stay.marked_at
        {
            self.to_mark.remove(&(at, id.to_owned()));
        }
    }

    /// Returns the time at which the next record is to be marked.
    pub(super) fn next_due(&self) -> Option<SystemTime> {
        self.to_mark.first().map(|(due, _)| *due)
    }

    /// Returns a record that is to be marked at `now`, once.
    pub(super) fn take_due(&mut self, now: SystemTime) -> Option<String> {
        self.to_mark.first().filter(|(due, _)| *due <= now)?;
        let (_, id) = self.to_mark.pop_first()?;
        if let Some(stay) = self.stays.get_mut(&id) {
            stay.marked_at = None;
        }
        Some(id)
    }

    /// Returns the record `id` once more, at `time`.
    pub(super) fn retry(&mut self, id: &str, time: SystemTime) {
        if let Some(stay) = self.stays.get_mut(id) {
            stay.marked_at = Some(time);
            self.to_mark.insert((time, id.to_owned()));
        }
    }

    /// Returns the number of records that are overdue at `now`, and marked, in each state, and 0 for states where one was.
    pub(super) fn overdue(&mut self, now: SystemTime) -> BTreeMap<String, usize> {
        let is_overdue = |stay: &&Stay| stay.due <= now && stay.marked_at.is_none();
        let overdue = self.stays.values().filter(is_overdue);
        let mut counts: BTreeMap<_, _> = self.states.iter().map(|it| (it.clone(), 0)).collect();
        for stay in overdue {
            *counts.entry(stay.state.clone()).or_default() += 1;
        }
        self.states.extend(counts.keys().cloned());
        counts
    }
}
