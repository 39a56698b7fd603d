//! The result of the changes of a journal.

use std::collections::BTreeMap;

use super::record::{Batch, CallRecord, Change, JournalEntry, ObjectRecord};

/// All that a journal has. Compaction writes it as one batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Table {
    pub(crate) objects: BTreeMap<i64, ObjectRecord>,
    pub(crate) results: BTreeMap<String, CallRecord>,
    pub(crate) next_id: i64,
    pub(crate) name: String,
}

impl Table {
    pub(crate) fn apply(&mut self, change: Change) {
        match change {
            Change::Put(record) => {
                let id = record.id();
                self.next_id = self.next_id.max(id + 1);
                self.objects.insert(id, *record);
            }
            Change::Remove(id) => {
                self.objects.remove(&id);
            }
            Change::PutResult(record) => {
                self.results.insert(record.call_id.clone(), record);
            }
            Change::RemoveResult(call_id) => {
                self.results.remove(&call_id);
            }
            Change::NextId(id) => self.next_id = self.next_id.max(id),
            Change::Name(name) => self.name = name,
        }
    }

    /// Returns the changes that make an empty table into this one.
    pub(crate) fn to_batch(&self) -> Batch {
        let first = [Change::Name(self.name.clone()), Change::NextId(self.next_id)];
        let objects = self.objects.values().cloned().map(|record| Change::Put(Box::new(record)));
        let results = self.results.values().cloned().map(Change::PutResult);
        let changes = first.into_iter().chain(objects).chain(results);
        Batch { entries: changes.map(|change| JournalEntry { change: Some(change) }).collect() }
    }
}
