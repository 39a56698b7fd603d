//! The stored events of one service.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prost::Message as _;
use tinwright::EventId;
use tinwright::event::v1::{Event, EventFilter};

use super::{KIND, to_write};
use crate::listing::{Listing, ListingBuilder};
use crate::record_error::Error;
use crate::{Commit, ScopedStore, Store as _, Versioned, Write};

/// Retention time of events.
pub const RETENTION: Duration = Duration::from_secs(90 * 24 * 60 * 60);
/// Events that one part of a filtered list reads at most.
const MAX_SCANNED_EVENTS: usize = 2000;
/// Events read at a time.
const PAGE_EVENTS: usize = 500;

/// The events of one service.
#[derive(Clone, Debug)]
pub struct EventLog {
    store: ScopedStore,
    owner: String,
}

impl EventLog {
    /// The events of the service `owner`. Their keys are in `store`.
    pub fn new(store: ScopedStore, owner: &str) -> Self {
        Self { store, owner: owner.to_owned() }
    }

    /// The name of the service.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    pub(super) fn store(&self) -> &ScopedStore {
        &self.store
    }

    /// Stores an event that belongs to no change, such as a refused call.
    pub async fn append(&self, event: Event) -> Result<(), Error> {
        let writes = vec![to_write(event)];
        self.store.commit(Commit { writes, ..Commit::default() }).await?;
        Ok(())
    }

    /// Returns at most `limit` events that pass `filter`, after the id `after`, the oldest first. A strict filter ends a part early:
    /// only an empty [`Listing::next`] means the end.
    pub async fn list(
        &self,
        filter: &EventFilter,
        after: &str,
        limit: usize,
    ) -> Result<Listing<Event>, Error> {
        let mut last = match after {
            "" => filter.start_time.map(|time| first_key_of(time.try_into().unwrap_or(UNIX_EPOCH))),
            id => Some(key(&parse_page_token(id)?)),
        };
        let (mut listing, mut scanned) = (ListingBuilder::new(limit), 0);
        loop {
            let from = last.as_deref().unwrap_or_default();
            let page = self.store.list(&key(""), from, PAGE_EVENTS).await?;
            let mut pairs = page.pairs.into_iter();
            while !listing.is_full()
                && let Some((key, found)) = pairs.next()
            {
                scanned += 1;
                let event = self.decode(&key, &found)?;
                if matches(filter, &event) {
                    listing.push_sized(event, found.value.len());
                }
                last = Some(key);
            }
            let more = page.more || pairs.len() > 0;
            if !more || listing.is_full() || scanned >= MAX_SCANNED_EVENTS {
                let next = last.filter(|_| more).map(|key| id_in(&key).to_owned());
                return Ok(listing.end(next));
            }
        }
    }

    /// Returns the event under `key`, if it exists.
    pub(super) async fn get(&self, key: &str) -> Result<Option<Event>, Error> {
        let found = self.store.get(key).await?;
        found.map(|found| self.decode(key, &found)).transpose()
    }

    /// Deletes the events that are older than [`RETENTION`] at `now`. Returns their number.
    pub async fn delete_expired(&self, now: SystemTime) -> Result<usize, Error> {
        let end = first_key_of(now.checked_sub(RETENTION).unwrap_or(UNIX_EPOCH));
        let mut deleted = 0;
        loop {
            let page = self.store.list(&key(""), "", PAGE_EVENTS).await?;
            let keys = page.pairs.into_iter().map(|(key, _)| key);
            let old: Vec<_> = keys.filter(|key| *key < end).map(Write::Delete).collect();
            if old.is_empty() {
                return Ok(deleted);
            }
            self.store.write_all(&old).await?;
            deleted += old.len();
        }
    }

    fn decode(&self, key: &str, found: &Versioned) -> Result<Event, Error> {
        let event = Event::decode(found.value.clone());
        let event = event.map_err(|_| crate::Error::Corrupt(key.to_owned()))?;
        Ok(Event { id: id_in(key).to_owned(), owner: self.owner.clone(), ..event })
    }
}

/// True if `event` passes `filter`.
pub(super) fn matches(filter: &EventFilter, event: &Event) -> bool {
    let time = |stamp: Option<prost_types::Timestamp>| stamp.map(|at| (at.seconds, at.nanos));
    let is_any_or = |wanted: &str, value: &str| wanted.is_empty() || wanted == value;
    let EventFilter { start_time, end_time, kind, noun, object_id, subject, tenant } = filter;
    start_time.is_none_or(|start| time(event.time) >= time(Some(start)))
        && end_time.is_none_or(|end| time(event.time) < time(Some(end)))
        && (*kind == 0 || *kind == event.kind)
        && is_any_or(noun, &event.noun)
        && is_any_or(object_id, &event.object_id)
        && is_any_or(subject, &event.subject)
        && is_any_or(tenant, &event.tenant)
}

/// Returns a key that sorts before all events from `time` on: the ids begin with 48 bits of
/// milliseconds (RFC 9562 §5.7).
fn first_key_of(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let millis = u64::try_from(since.as_millis()).unwrap_or(u64::MAX) & 0xffff_ffff_ffff;
    key(&format!("{:08x}-{:04x}", millis >> 16, millis & 0xffff))
}

fn key(id: &str) -> String {
    format!("{KIND}/{id}")
}

fn id_in(key: &str) -> &str {
    key.split_once('/').map_or(key, |(_, id)| id)
}

fn parse_page_token(token: &str) -> Result<String, Error> {
    match token.parse::<EventId>() {
        Ok(id) => Ok(id.to_string()),
        Err(_) => Err(Error::PageToken(token.chars().take(80).collect())),
    }
}
