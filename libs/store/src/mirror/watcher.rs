//! A follower of a mirror.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tinwright::watch::WatchEvent;
use tokio::sync::watch;

use super::follower::Follower;
use super::table::Seq;
use crate::records::{Kind, Mirrored, Records};
use crate::{Store as _, Versioned};

/// The interval at which the store is asked again for a record that the mirror has not read yet.
const REREAD_INTERVAL: Duration = Duration::from_millis(100);

/// The watcher missed deletions, or changes of records that the mirror does not hold, and the mirror no longer stores them. It has to
/// begin again.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the watcher is too slow and missed changes: begin again")]
pub struct TooSlow;

/// Follows all records or one.
#[derive(Debug)]
pub struct Watcher<K> {
    records: Records<K>,
    rows: RowWatcher,
}

impl<K: Kind> Watcher<K> {
    pub(super) fn new(records: Records<K>, follower: Arc<Follower>, only: Option<&str>) -> Self {
        Self { records, rows: RowWatcher::new(follower, only) }
    }

    /// Follows whether the mirror is confirmed.
    pub(crate) fn confirmation(&self) -> watch::Receiver<bool> {
        self.rows.follower.confirmed.subscribe()
    }

    /// Waits for the next event.
    pub async fn next(&mut self) -> Result<WatchEvent<K::Record>, TooSlow> {
        loop {
            match self.rows.next().await? {
                RowEvent::Put((id, found)) => match self.records.decode_id(&id, &found) {
                    Ok(record) => return Ok(WatchEvent::Put(record)),
                    // A check of the store finds it.
                    Err(error) => {
                        tracing::error!(error = &error as &dyn std::error::Error, kind = K::KIND, %id);
                    }
                },
                RowEvent::Deleted(id) => return Ok(WatchEvent::Deleted(id)),
                RowEvent::Synced => return Ok(WatchEvent::Synced),
            }
        }
    }
}

/// An event of a row: the record as it is stored, with its id.
type RowEvent = WatchEvent<(Arc<str>, Versioned)>;

/// Follows all rows or one, whichever their kind.
#[derive(Debug)]
struct RowWatcher {
    follower: Arc<Follower>,
    /// The record to follow; none follows all.
    only: Option<String>,
    /// Records of the first snapshot that are still to be sent; none before the snapshot.
    beginning: Option<VecDeque<(Arc<str>, Versioned)>>,
    synced: bool,
    /// The last change that was sent.
    sent: Seq,
    changed: watch::Receiver<Seq>,
}

impl RowWatcher {
    fn new(follower: Arc<Follower>, only: Option<&str>) -> Self {
        let changed = match only {
            Some(id) => follower.write().subscribe_to(id),
            None => follower.read().subscribe(),
        };
        let only = only.map(str::to_owned);
        Self { follower, only, beginning: None, synced: false, sent: 0, changed }
    }

    /// Waits for the next event.
    async fn next(&mut self) -> Result<RowEvent, TooSlow> {
        if self.beginning.is_none() {
            self.begin().await;
        }
        loop {
            if let Some(event) = self.next_of_snapshot() {
                return Ok(event);
            }
            // Marked before reading: a change in between wakes at once.
            self.changed.mark_unchanged();
            if let Some(event) = self.changed_since()? {
                return Ok(event);
            }
            // The sender lives as long as the table does.
            let _changed = self.changed.changed().await;
        }
    }

    /// Takes the first snapshot, once the mirror is filled.
    async fn begin(&mut self) {
        self.follower.ready().await;
        self.until_read().await;
        let table = self.follower.read();
        let beginning = match &self.only {
            Some(id) => {
                table.get(id).map(|found| (id.as_str().into(), found)).into_iter().collect()
            }
            None => table.held().map(|(id, found)| (id.clone(), found.clone())).collect(),
        };
        self.sent = table.newest();
        self.beginning = Some(beginning);
    }

    /// Waits until the mirror has the followed record, if the store has it: its creator may follow it at once. While the store is out of
    /// reach, what the mirror has counts.
    async fn until_read(&mut self) {
        let Follower { kind, store, .. } = &*self.follower;
        let is_mirrored = kind.mirrored == Mirrored::All;
        let Some(id) = self.only.as_ref().filter(|_| is_mirrored) else { return };
        let key = kind.key(id);
        while self.follower.read().get(id).is_none() {
            match store.get(&key).await {
                Ok(Some(found)) if kind.read(store, &key, &found).is_ok() => {}
                Ok(_) | Err(_) => return,
            }
            let _changed_or_later =
                tokio::time::timeout(REREAD_INTERVAL, self.changed.changed()).await;
        }
    }

    fn next_of_snapshot(&mut self) -> Option<RowEvent> {
        if let Some((id, found)) = self.beginning.as_mut()?.pop_front() {
            return Some(RowEvent::Put((id, found)));
        }
        (!std::mem::replace(&mut self.synced, true)).then_some(RowEvent::Synced)
    }

    fn changed_since(&mut self) -> Result<Option<RowEvent>, TooSlow> {
        let table = self.follower.read();
        let next = match &self.only {
            // Its last change, of which the sender tells, may have been dropped.
            Some(id) if table.row(id).is_none() && *self.changed.borrow() > self.sent => {
                self.sent = *self.changed.borrow();
                return Err(TooSlow);
            }
            Some(id) => {
                let row = table.row(id).filter(|row| row.seq > self.sent);
                row.map(|row| (id.as_str(), row))
            }
            None if table.floor > self.sent => return Err(TooSlow),
            None => table.after(self.sent),
        };
        let Some((id, row)) = next else { return Ok(None) };
        self.sent = row.seq;
        Ok(Some(match row.content.found() {
            Some(found) => RowEvent::Put((id.into(), found.clone())),
            None => RowEvent::Deleted(id.to_owned()),
        }))
    }
}

impl Drop for RowWatcher {
    fn drop(&mut self) {
        if let Some(id) = &self.only {
            let mut table = self.follower.write();
            self.changed = table.subscribe(); // in the place of its own, which must be gone to be not counted
            table.unsubscribe(id);
        }
    }
}

#[cfg(test)]
impl<K> Watcher<K> {
    /// True if a change is waiting to be read.
    pub(super) fn is_awake(&self) -> bool {
        self.rows.changed.has_changed().unwrap_or(true)
    }
}
