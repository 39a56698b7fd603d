//! Changes of records and their index entries in one commit.

use std::collections::BTreeSet;

use tinwright::Stored;
use tinwright::event::v1::Event;

use super::{Index, Kind, Records, event, key, quota};
use crate::{
    Commit, Error, Expect, Revision, ScopedStore, Store as _, Write, events, limits, seal,
};

/// Changes that are committed together. [`Records`] makes them; [`and`](Self::and) joins several.
#[derive(Clone, Debug, Default)]
pub struct Change {
    commit: Commit,
    /// The events of the changes.
    events: Vec<Event>,
    /// The names of the changed objects, for the log.
    objects: Vec<String>,
    /// True if room for events has to be left in the commit.
    reserves_events: bool,
    /// True if something could not be sealed: then nothing is committed.
    unsealed: bool,
}

/// The secrets of a record could not be encrypted.
#[derive(Debug, thiserror::Error)]
#[error("the secret fields of a record cannot be encrypted")]
struct NotSealed;

impl From<Commit> for Change {
    fn from(commit: Commit) -> Self {
        Self { commit, ..Self::default() }
    }
}

impl Change {
    /// A change that cannot be committed, because something could not be encrypted.
    pub(super) fn unsealed() -> Self {
        Self { unsealed: true, ..Self::default() }
    }

    /// Joins two changes: both are applied, or neither.
    pub fn and(mut self, other: Self) -> Self {
        self.commit.expect.extend(other.commit.expect);
        self.commit.writes.extend(other.commit.writes);
        self.events.extend(other.events);
        self.objects.extend(other.objects);
        self.reserves_events |= other.reserves_events;
        self.unsealed |= other.unsealed;
        self
    }

    /// Returns what is to be committed, with the events. Fails if the changes leave no room for events, whether they are events or
    /// not: else a record could be created that no caller could change.
    pub(super) fn into_commit(self) -> Result<Commit, Error> {
        let Self { mut commit, events, objects: _, reserves_events, unsealed } = self;
        if unsealed {
            return Err(Error::unavailable(NotSealed));
        }
        if reserves_events {
            limits::check_reserve(&commit, events::RESERVED_WRITES, events::RESERVED_BYTES)?;
        }
        let events = events.into_iter().take(events::RESERVED_WRITES);
        commit.writes.extend(events.map(events::to_write));
        Ok(commit)
    }

    /// Takes the names of the changed objects.
    pub(super) fn take_objects(&mut self) -> Vec<String> {
        std::mem::take(&mut self.objects)
    }

    /// Adds the event of a change, if it is one.
    fn record<K: Kind>(&mut self, old: Option<&K::Record>, new: Option<&K::Record>) {
        self.objects.extend(new.or(old).filter(|_| K::EVENTS).map(event::object_name::<K>));
        self.events.extend(event::of_change::<K>(old, new));
        // A deletion is always let through.
        self.reserves_events |= K::EVENTS && new.is_some();
    }

    fn put<K: Kind>(&mut self, store: &ScopedStore, record: &K::Record) {
        let mut record = record.clone();
        *record.revision_mut() = 0;
        let key = key::<K>(record.id());
        match seal::encode(record, &store.full(&key), store.sealer().as_deref()) {
            Some(value) => self.commit.writes.push(Write::Put(key, value)),
            None => self.unsealed = true,
        }
    }

    /// Replaces the index entries of `old` with the entries of `new`.
    fn index<K: Kind>(&mut self, old: Option<&K::Record>, new: Option<&K::Record>) {
        let entries =
            |record: Option<&K::Record>| record.map(quota::entries::<K>).unwrap_or_default();
        let id = old.or(new).map_or("", Stored::id);
        self.replace_entries(id, entries(old), entries(new));
    }

    /// Replaces the index entries `had` of the record `id` with the entries `has`.
    fn replace_entries(&mut self, id: &str, had: Vec<Index>, has: Vec<Index>) {
        let [had, has] = [had, has].map(BTreeSet::from_iter);
        for gone in had.difference(&has) {
            self.commit.writes.push(Write::Delete(gone.key(id)));
        }
        for added in has.difference(&had) {
            let key = added.key(id);
            if added.unique {
                self.commit.expect.push(Expect::Absent(key.clone()));
            }
            self.commit.writes.push(Write::Put(key, id.to_owned().into()));
        }
    }
}

impl<K: Kind> Records<K> {
    /// Adds `record`. Fails if its id exists, or one of its unique values is taken.
    pub fn to_create(&self, record: &K::Record) -> Change {
        let mut change = Change::default();
        change.commit.expect.push(Expect::Absent(key::<K>(record.id())));
        change.put::<K>(&self.store, record);
        change.index::<K>(None, Some(record));
        change.record::<K>(None, Some(record));
        change
    }

    /// Replaces `old` by `new`. Fails if `old` changed since it was read. The id stays.
    pub fn to_replace(&self, old: &K::Record, new: &K::Record) -> Change {
        let mut change = self.unchanged(old);
        change.put::<K>(&self.store, new);
        change.index::<K>(Some(old), Some(new));
        change.record::<K>(Some(old), Some(new));
        change
    }

    /// Removes `old`. Fails if it changed since it was read.
    pub fn to_delete(&self, old: &K::Record) -> Change {
        let mut change = self.unchanged(old);
        change.commit.writes.push(Write::Delete(key::<K>(old.id())));
        change.index::<K>(Some(old), None);
        change.record::<K>(Some(old), None);
        change
    }

    /// Changes nothing. Fails if `record` changed since it was read.
    pub fn unchanged(&self, record: &K::Record) -> Change {
        let mut record = record.clone();
        let at = Revision(record.revision_mut().cast_unsigned());
        let expect = vec![Expect::At(key::<K>(record.id()), at)];
        Change::from(Commit { expect, writes: Vec::new() })
    }
}
