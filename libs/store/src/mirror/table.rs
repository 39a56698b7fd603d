//! The rows of a mirror, in the order in which they last changed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use tokio::sync::watch;

use crate::Versioned;

/// Deletions that are stored. A watcher further behind has to begin again.
pub(super) const MAX_TOMBSTONES: usize = 16 * 1024;

/// Number of a row's last change. Counts the table's own changes; the store's revisions are not contiguous.
pub(super) type Seq = u64;

/// A record, or the tombstone of one.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) seq: Seq,
    /// As stored; none if it was deleted.
    pub(super) found: Option<Versioned>,
}

/// Every row, once, at its latest change.
#[derive(Debug, Default)]
pub(super) struct Table {
    rows: HashMap<Arc<str>, Row>,
    order: BTreeMap<Seq, Arc<str>>,
    tombstones: BTreeMap<Seq, Arc<str>>,
    /// The latest deletion whose tombstone was dropped.
    pub(super) floor: Seq,
    /// The latest change. Followers of all rows wait on it.
    newest: watch::Sender<Seq>,
    /// The latest change of a row. Followers of that row wait on it.
    waiting: HashMap<String, watch::Sender<Seq>>,
}

impl Table {
    /// Returns the live row `id`.
    pub(super) fn get(&self, id: &str) -> Option<Versioned> {
        self.rows.get(id)?.found.clone()
    }

    /// Returns the row `id`, or its tombstone.
    pub(super) fn row(&self, id: &str) -> Option<&Row> {
        self.rows.get(id)
    }

    /// Every live row.
    pub(super) fn live(&self) -> impl Iterator<Item = (&Arc<str>, &Versioned)> {
        self.rows.iter().filter_map(|(id, row)| Some((id, row.found.as_ref()?)))
    }

    /// The ids of live rows.
    pub(super) fn ids(&self) -> HashSet<Arc<str>> {
        self.live().map(|(id, _)| id.clone()).collect()
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

    /// Stores the row `id` as it was read, and wakes its followers. The same revision changes nothing.
    pub(super) fn set(&mut self, id: &str, found: Option<Versioned>) {
        let old = self.rows.get_key_value(id);
        let revision = |found: &Option<Versioned>| found.as_ref().map(|found| found.revision);
        if old.map_or(found.is_none(), |(_, row)| revision(&row.found) == revision(&found)) {
            return;
        }
        let seq = self.newest() + 1;
        let shared = old.map_or_else(|| Arc::from(id), |(shared, _)| shared.clone());
        if let Some((_, Row { seq: old, .. })) = old {
            self.tombstones.remove(old);
            self.order.remove(old);
        }
        if found.is_none() {
            self.tombstones.insert(seq, shared.clone());
        }
        self.order.insert(seq, shared.clone());
        self.rows.insert(shared, Row { seq, found });
        self.drop_tombstones();
        if let Some(waiting) = self.waiting.get(id) {
            waiting.send_replace(seq);
        }
        self.newest.send_replace(seq);
    }

    fn drop_tombstones(&mut self) {
        while self.tombstones.len() > MAX_TOMBSTONES {
            let Some((seq, id)) = self.tombstones.pop_first() else { return };
            self.order.remove(&seq);
            self.rows.remove(&id);
            self.floor = seq;
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
