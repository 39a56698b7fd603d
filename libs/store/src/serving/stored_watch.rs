//! A watch of all records, including records that the mirror does not hold.

use std::collections::VecDeque;

use tinwright::status::Violations;
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
    /// The records in the store, and the one to follow; empty for all. None if what the mirror holds is sent only.
    stored: Option<(Records<K>, String)>,
    /// The listing, while it is read.
    listing: Option<Part<K::Record>>,
}

#[derive(Debug)]
struct Part<R> {
    records: VecDeque<R>,
    next: Option<String>,
}

impl<K: Kind> StoredWatch<K> {
    /// Sends what `watcher` does.
    pub(super) fn of(watcher: Watcher<K>) -> Self {
        Self { watcher, stored: None, listing: None }
    }

    /// Follows the record `id`, or all if it is empty, as far as the mirror holds them.
    pub(super) fn held(mirror: &Mirror<K>, id: &str) -> Result<Self, Violations> {
        Ok(Self { stored: None, ..Self::all(mirror, id)? })
    }

    /// Follows the record `id`, or all if it is empty.
    pub(super) fn all(mirror: &Mirror<K>, id: &str) -> Result<Self, Violations> {
        let (watcher, id) = match id {
            "" => (mirror.watch(), String::new()),
            one => {
                let id = Violations::parse::<K::Id>("id", one)?.to_string();
                (mirror.watch_one(&id), id)
            }
        };
        let stored = Some((mirror.records().clone(), id));
        Ok(Self { stored, ..Self::of(watcher) })
    }

    /// Follows whether the mirror is confirmed.
    pub(super) fn confirmation(&self) -> watch::Receiver<bool> {
        self.watcher.confirmation()
    }

    /// Waits for the next event.
    pub(super) async fn next(&mut self) -> Result<WatchEvent<K::Record>, Status> {
        loop {
            let Some(part) = &mut self.listing else {
                let slow = |slow: TooSlow| Status::out_of_range(slow.to_string());
                let event = self.watcher.next().await.map_err(slow)?;
                if event != WatchEvent::Synced || self.stored.is_none() {
                    return Ok(event);
                }
                self.listing = self.part("").await?;
                continue;
            };
            if let Some(record) = part.records.pop_front() {
                return Ok(WatchEvent::Put(record));
            }
            let Some(next) = part.next.take() else {
                self.listing = None;
                return Ok(WatchEvent::Synced);
            };
            self.listing = self.part(&next).await?;
        }
    }

    /// Reads the records after the id `after` that the mirror does not hold.
    async fn part(&self, after: &str) -> Result<Option<Part<K::Record>>, records::Error> {
        let Some((records, id)) = &self.stored else { return Ok(None) };
        let is_unheld = |record: &K::Record| !K::MIRRORED.holds(&K::indexes(record));
        if id.is_empty() {
            let listing = records.list(after, PART_RECORDS, is_unheld).await?;
            return Ok(Some(Part { records: listing.records.into(), next: listing.next }));
        }
        let found = records.get(id).await?.filter(is_unheld);
        Ok(Some(Part { records: found.into_iter().collect(), next: None }))
    }
}
