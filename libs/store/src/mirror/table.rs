//! The rows of a mirror, in the order of their last changes.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use tokio::sync::watch;

use crate::{Revision, Versioned};

/// Deletions that are stored. A watcher further behind has to begin again.
pub(super) const MAX_TOMBSTONES: usize = 16 * 1024;
/// Bytes of records that pass through the table without being held. A watcher further behind has to begin again.
pub(super) const MAX_PASSING_BYTES: usize = 4 * 1024 * 1024;
/// Bytes that a row needs besides its record.
const ROW_BYTES: usize = 256;

/// Number of a row's last change. Counts the table's own changes; the store's revisions are not contiguous.
pub(super) type Seq = u64;

/// A record, or what is left of one.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) seq: Seq,
    pub(super) content: Content,
}

/// The content of a row.
#[derive(Debug)]
pub(super) enum Content {
    /// A record, as stored.
    Held(Versioned),
    /// A record that a mirror of its kind does not hold. It is dropped when newer ones need its room.
    Passing(Versioned),
    /// A tombstone: the record was deleted.
    Deleted,
}

impl Content {
    /// The record, if it was not deleted.
    pub(super) fn found(&self) -> Option<&Versioned> {
        match self {
            Self::Held(found) | Self::Passing(found) => Some(found),
            Self::Deleted => None,
        }
    }

    /// The record, if it is held.
    fn held(&self) -> Option<&Versioned> {
        match self {
            Self::Held(found) => Some(found),
            Self::Passing(_) | Self::Deleted => None,
        }
    }
}

/// Every row, once, at its latest change.
#[derive(Debug, Default)]
pub(super) struct Table {
    rows: BTreeMap<Arc<str>, Row>,
    order: BTreeMap<Seq, Arc<str>>,
    tombstones: BTreeMap<Seq, Arc<str>>,
    passing: BTreeMap<Seq, Arc<str>>,
    passing_bytes: usize,
    /// All changes up to this revision were read; none before the first complete read.
    pub(super) read_up_to: Option<Revision>,
    /// The latest change among dropped rows.
    pub(super) floor: Seq,
    /// The latest change. Followers of all rows wait on it.
    newest: watch::Sender<Seq>,
    /// The latest change of a row. Followers of that row wait on it.
    waiting: HashMap<String, watch::Sender<Seq>>,
}

impl Table {
    /// Returns the record `id`.
    pub(super) fn get(&self, id: &str) -> Option<Versioned> {
        self.rows.get(id)?.content.found().cloned()
    }

    /// Returns the row `id`, or its tombstone.
    pub(super) fn row(&self, id: &str) -> Option<&Row> {
        self.rows.get(id)
    }

    /// Every record that is held.
    pub(super) fn held(&self) -> impl Iterator<Item = (&Arc<str>, &Versioned)> {
        self.rows.iter().filter_map(|(id, row)| Some((id, row.content.held()?)))
    }

    /// The records that are held, in id order after the id `after`.
    pub(super) fn held_after(&self, after: &str) -> impl Iterator<Item = (&Arc<str>, &Versioned)> {
        let rows = self.rows.range::<str, _>((Bound::Excluded(after), Bound::Unbounded));
        rows.filter_map(|(id, row)| Some((id, row.content.held()?)))
    }

    /// The ids of all records.
    pub(super) fn ids(&self) -> HashSet<Arc<str>> {
        let records = self.rows.iter().filter(|(_, row)| row.content.found().is_some());
        records.map(|(id, _)| id.clone()).collect()
    }

    /// The ids of the rows that have followers of their own.
    pub(super) fn awaited(&self) -> impl Iterator<Item = &String> {
        self.waiting.keys()
    }

    /// The first row that changed after `seq`.
    pub(super) fn after(&self, seq: Seq) -> Option<(&str, &Row)> {
        let (_, id) = self.order.range(seq + 1..).next()?;
        Some((id, self.rows.get(id)?))
    }

    /// The latest change.
    pub(super) fn newest(&self) -> Seq {
        *self.newest.borrow()
    }

    /// Subscribes to every change.
    pub(super) fn subscribe(&self) -> watch::Receiver<Seq> {
        self.newest.subscribe()
    }

    /// Subscribes to changes of the row `id`.
    pub(super) fn subscribe_to(&mut self, id: &str) -> watch::Receiver<Seq> {
        let sender = self.waiting.entry(id.to_owned());
        sender.or_insert_with(|| watch::Sender::new(0)).subscribe()
    }

    /// Removes the sender of row `id` if nobody waits on it any more.
    pub(super) fn unsubscribe(&mut self, id: &str) {
        if self.waiting.get(id).is_some_and(|sender| sender.receiver_count() == 0) {
            self.waiting.remove(id);
        }
    }

    /// Stores the row `id` as it was read, and wakes its followers. The same revision changes nothing, and neither does the deletion
    /// of a record that is not in the table, unless it may have been dropped (`may_be_dropped`).
    pub(super) fn set(&mut self, id: &str, content: Content, may_be_dropped: bool) {
        let old = self.rows.get_key_value(id);
        let revision = |content: &Content| content.found().map(|found| found.revision);
        let is_same = match old {
            Some((_, row)) => revision(&row.content) == revision(&content),
            None => content.found().is_none() && !may_be_dropped,
        };
        if is_same {
            return;
        }
        let seq = self.newest() + 1;
        let shared = old.map_or_else(|| Arc::from(id), |(shared, _)| shared.clone());
        self.forget(id);
        match &content {
            Content::Held(_) => {}
            Content::Passing(found) => {
                self.passing_bytes += found.value.len() + ROW_BYTES;
                self.passing.insert(seq, shared.clone());
            }
            Content::Deleted => drop(self.tombstones.insert(seq, shared.clone())),
        }
        self.order.insert(seq, shared.clone());
        self.rows.insert(shared, Row { seq, content });
        self.drop_excess();
        if let Some(waiting) = self.waiting.get(id) {
            waiting.send_replace(seq);
        }
        self.newest.send_replace(seq);
    }

    /// Removes the row `id`.
    fn forget(&mut self, id: &str) {
        let Some(Row { seq, content }) = self.rows.remove(id) else { return };
        self.order.remove(&seq);
        self.tombstones.remove(&seq);
        if self.passing.remove(&seq).is_some() {
            let bytes = content.found().map_or(0, |found| found.value.len());
            self.passing_bytes = self.passing_bytes.saturating_sub(bytes + ROW_BYTES);
        }
    }

    fn drop_excess(&mut self) {
        while self.tombstones.len() > MAX_TOMBSTONES {
            let first = self.tombstones.first_key_value().map(|(seq, id)| (*seq, id.clone()));
            self.drop_row(first);
        }
        while self.passing_bytes > MAX_PASSING_BYTES && !self.passing.is_empty() {
            let first = self.passing.first_key_value().map(|(seq, id)| (*seq, id.clone()));
            self.drop_row(first);
        }
    }

    fn drop_row(&mut self, row: Option<(Seq, Arc<str>)>) {
        if let Some((seq, id)) = row {
            self.forget(&id);
            self.floor = self.floor.max(seq);
        }
    }
}

#[cfg(test)]
impl Table {
    /// Number of rows with followers of their own.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Number of stored rows and tombstones.
    pub(super) fn changes(&self) -> usize {
        self.order.len()
    }
}
