//! A watch of all records of a kind whose mirror holds a part of them.

use std::collections::VecDeque;

use tinwright::watch::WatchEvent;
use tokio::sync::watch;
use tonic::Status;

use crate::mirror::{Mirror, TooSlow, Watcher};
use crate::records::{self, Kind, Records};

/// Records of one part of the listing.
const PART_RECORDS: usize = 100;

/// Sends what the mirror holds, then the other records from the store, then synced, then changes.
///
/// The store is read after the mirror's snapshot, so that a record which leaves the mirror meanwhile is not missed: it is sent in its
/// latest state, perhaps twice.
#[derive(Debug)]
pub(super) struct StoredWatch<K: Kind> {
    watcher: Watcher<K>,
    records: Records<K>,
    /// The record to follow; empty for all.
    id: String,
    /// The listing, while it is read.
    listing: Option<Part<K::Record>>,
}

#[derive(Debug)]
struct Part<R> {
    records: VecDeque<R>,
    next: Option<String>,
}

impl<K: Kind> StoredWatch<K> {
    /// Follows the record `id`, or all if it is empty.
    pub(super) fn new(mirror: &Mirror<K>, id: String) -> Self {
        let watcher = if id.is_empty() { mirror.watch() } else { mirror.watch_one(&id) };
        Self { watcher, records: mirror.records().clone(), id, listing: None }
    }

    /// Follows whether the mirror is confirmed.
    pub(super) fn confirmation(&self) -> watch::Receiver<bool> {
        self.watcher.confirmation()
    }

    /// Waits for the next event.
    pub(super) async fn next(&mut self) -> Result<WatchEvent<K::Record>, Status> {
        loop {
            let Some(part) = &mut self.listing else {
                match self.watcher.next().await {
                    Ok(WatchEvent::Synced) => self.listing = Some(self.part("").await?),
                    Ok(event) => return Ok(event),
                    Err(TooSlow) => return Err(Status::out_of_range(TooSlow.to_string())),
                }
                continue;
            };
            if let Some(record) = part.records.pop_front() {
                return Ok(WatchEvent::Put(record));
            }
            let Some(next) = part.next.take() else {
                self.listing = None;
                return Ok(WatchEvent::Synced);
            };
            self.listing = Some(self.part(&next).await?);
        }
    }

    /// Reads the records after the id `after` that the mirror does not hold.
    async fn part(&self, after: &str) -> Result<Part<K::Record>, records::Error> {
        let is_unheld = |record: &K::Record| !K::MIRRORED.holds::<K>(record);
        if self.id.is_empty() {
            let listing = self.records.list(after, PART_RECORDS, is_unheld).await?;
            return Ok(Part { records: listing.records.into(), next: listing.next });
        }
        let found = self.records.get(&self.id).await?.filter(is_unheld);
        Ok(Part { records: found.into_iter().collect(), next: None })
    }
}
