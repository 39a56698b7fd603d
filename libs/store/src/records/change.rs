//! Changes of records and their index entries in one commit.

use std::collections::BTreeSet;

use prost::Message as _;

use super::{Kind, Records, key};
use crate::{Commit, Expect, Revision, Write};

/// Changes that are committed together. [`Records`] makes them; [`and`](Self::and) joins several.
#[derive(Clone, Debug, Default)]
pub struct Change(Commit);

impl From<Change> for Commit {
    fn from(change: Change) -> Self {
        change.0
    }
}

impl From<Commit> for Change {
    fn from(commit: Commit) -> Self {
        Self(commit)
    }
}

impl Change {
    /// Joins two changes: both are applied, or neither.
    pub fn and(mut self, other: Self) -> Self {
        self.0.expect.extend(other.0.expect);
        self.0.writes.extend(other.0.writes);
        self
    }

    fn put<K: Kind>(&mut self, record: &K::Record) {
        let mut record = record.clone();
        *K::revision_mut(&mut record) = 0;
        let write = Write::Put(key::<K>(K::id(&record)), record.encode_to_vec().into());
        self.0.writes.push(write);
    }

    /// Moves the index entries from those of `old` to those of `new`.
    fn index<K: Kind>(&mut self, old: Option<&K::Record>, new: Option<&K::Record>) {
        let entries = |record: Option<&K::Record>| -> BTreeSet<_> {
            record.into_iter().flat_map(K::indexes).collect()
        };
        let id = old.or(new).map_or("", K::id);
        let (had, has) = (entries(old), entries(new));
        for gone in had.difference(&has) {
            self.0.writes.push(Write::Delete(gone.key(id)));
        }
        for added in has.difference(&had) {
            let key = added.key(id);
            if added.unique {
                self.0.expect.push(Expect::Absent(key.clone()));
            }
            self.0.writes.push(Write::Put(key, id.to_owned().into()));
        }
    }
}

impl<K: Kind> Records<K> {
    /// Adds `record`. Fails if its id exists, or one of its unique values is taken.
    pub fn to_create(&self, record: &K::Record) -> Change {
        let mut change = Change::default();
        change.0.expect.push(Expect::Absent(key::<K>(K::id(record))));
        change.put::<K>(record);
        change.index::<K>(None, Some(record));
        change
    }

    /// Replaces `old` by `new`. Fails if `old` changed since it was read. The id stays.
    pub fn to_replace(&self, old: &K::Record, new: &K::Record) -> Change {
        let mut change = self.unchanged(old);
        change.put::<K>(new);
        change.index::<K>(Some(old), Some(new));
        change
    }

    /// Removes `old`. Fails if it changed since it was read.
    pub fn to_delete(&self, old: &K::Record) -> Change {
        let mut change = self.unchanged(old);
        change.0.writes.push(Write::Delete(key::<K>(K::id(old))));
        change.index::<K>(Some(old), None);
        change
    }

    /// Changes nothing. Fails if `record` changed since it was read.
    pub fn unchanged(&self, record: &K::Record) -> Change {
        let mut record = record.clone();
        let at = Revision(K::revision_mut(&mut record).cast_unsigned());
        let expect = vec![Expect::At(key::<K>(K::id(&record)), at)];
        Change(Commit { expect, writes: Vec::new() })
    }
}
