//! A follower of a mirror.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tinwright::watch::WatchEvent;
use tokio::sync::watch;

use super::Shared;
use super::table::Seq;
use crate::Versioned;
use crate::records::{Kind, Mirrored, Records};

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
    shared: Arc<Shared>,
    /// The record to follow; none follows all.
    only: Option<String>,
    /// Records of the first snapshot that are still to be sent; none before the snapshot.
    beginning: Option<VecDeque<(Arc<str>, Versioned)>>,
    synced: bool,
    /// The last change that was sent.
    sent: Seq,
    changed: watch::Receiver<Seq>,
}

impl<K: Kind> Watcher<K> {
    pub(super) fn new(records: Records<K>, shared: Arc<Shared>, only: Option<&str>) -> Self {
        let changed = match only {
            Some(id) => shared.write().subscribe_to(id),
            None => shared.read().subscribe(),
        };
        let only = only.map(str::to_owned);
        Self { records, shared, only, beginning: None, synced: false, sent: 0, changed }
    }

    /// Follows whether the mirror is confirmed.
    pub(crate) fn confirmation(&self) -> watch::Receiver<bool> {
        self.shared.confirmed.subscribe()
    }

    /// Waits for the next event.
    pub async fn next(&mut self) -> Result<WatchEvent<K::Record>, TooSlow> {
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
        let mut synced = self.shared.synced.subscribe();
        // Dropped at once: it is a lock.
        drop(synced.wait_for(|synced| *synced).await);
        self.until_read().await;
        let table = self.shared.read();
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
        let Some(id) = self.only.clone().filter(|_| K::MIRRORED == Mirrored::All) else { return };
        while self.shared.read().get(&id).is_none() {
            if !matches!(self.records.get(&id).await, Ok(Some(_))) {
                return;
            }
            let _changed_or_later =
                tokio::time::timeout(REREAD_INTERVAL, self.changed.changed()).await;
        }
    }

    fn next_of_snapshot(&mut self) -> Option<WatchEvent<K::Record>> {
        let beginning = self.beginning.as_mut()?;
        while let Some((id, found)) = beginning.pop_front() {
            if let Some(event) = put(&self.records, &id, &found) {
                return Some(event);
            }
        }
        let first = !std::mem::replace(&mut self.synced, true);
        first.then_some(WatchEvent::Synced)
    }

    fn changed_since(&mut self) -> Result<Option<WatchEvent<K::Record>>, TooSlow> {
        let table = self.shared.read();
        loop {
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
            let event = match row.content.found() {
                Some(found) => put(&self.records, id, found),
                None => Some(WatchEvent::Deleted(id.to_owned())),
            };
            if event.is_some() {
                return Ok(event);
            }
        }
    }
}

impl<K> Drop for Watcher<K> {
    fn drop(&mut self) {
        if let Some(id) = &self.only {
            let mut table = self.shared.write();
            self.changed = table.subscribe(); // in the place of its own, which must be gone to be not counted
            table.unsubscribe(id);
        }
    }
}

/// Returns the event for a record; none for a corrupt one, which a check of the store finds.
fn put<K: Kind>(
    records: &Records<K>,
    id: &str,
    found: &Versioned,
) -> Option<WatchEvent<K::Record>> {
    match records.decode_id(id, found) {
        Ok(record) => Some(WatchEvent::Put(record)),
        Err(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, kind = K::KIND, id);
            None
        }
    }
}

#[cfg(test)]
impl<K> Watcher<K> {
    /// True if a change is waiting to be read.
    pub(super) fn is_awake(&self) -> bool {
        self.changed.has_changed().unwrap_or(true)
    }
}
