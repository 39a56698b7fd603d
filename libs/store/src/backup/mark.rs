//! The mark of a restored store: the content of images is not collected.
//!
//! ```text
//! restored ─▶ "1795000000"      the store was restored at this time (seconds since 1970)
//! ```
//!
//! The key is outside of the keys of services. A restore writes it in the commit that lets the
//! store be opened. It stays until an operator has it removed.
//!
//! A restored store does not know what was stored after its backup. Another copy may know it.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prost_types::Timestamp;
use tinwright::event::v1::{Event, EventKind};

use crate::events::{self, current_origin, record_changed};
use crate::{Changes, Commit, Error, Expect, Revision, ScopedStore, Store, Write};

/// The key of the mark.
pub(super) const KEY: &str = "restored";
/// The noun of the event of a removal.
const NOUN: &str = "store";

/// Returns the write that marks a store as restored now.
pub(super) fn to_write() -> Write {
    let since = crate::wall_time().duration_since(UNIX_EPOCH).unwrap_or_default();
    Write::Put(KEY.into(), since.as_secs().to_string().into())
}

/// The mark of a store, if it was restored.
#[derive(Clone, Debug)]
pub struct RestoreMark {
    store: Arc<dyn Store>,
}

impl RestoreMark {
    /// The mark of `store`.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store }
    }

    /// True if the store was restored, and the mark was not removed since.
    pub async fn is_set(&self) -> Result<bool, Error> {
        Ok(self.store.get(KEY).await?.is_some())
    }

    /// Sets the mark, as a restore does.
    pub async fn set(&self) -> Result<(), Error> {
        let writes = vec![to_write()];
        self.store.commit(Commit { writes, ..Commit::default() }).await.map(drop)
    }

    /// Removes the mark. The event of it belongs to the service `owner`. Returns the time of the
    /// restore; none if there was no mark.
    pub async fn remove(&self, owner: &str) -> Result<Option<SystemTime>, Error> {
        loop {
            let Some(found) = self.store.get(KEY).await? else { return Ok(None) };
            let time = parse(&found.value).ok_or_else(|| Error::Corrupt(KEY.into()))?;
            let event = ScopedStore::new(self.store.clone(), owner).to_full(removal(time));
            let expect = vec![Expect::At(KEY.into(), found.revision)];
            let writes = vec![Write::Delete(KEY.into()), event];
            match self.store.commit(Commit { expect, writes }).await {
                Ok(_) => {
                    record_changed(vec![NOUN.into()]);
                    return Ok(Some(time));
                }
                Err(Error::Conflict(_)) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits until there is no mark.
    pub async fn removed(&self) -> Result<(), Error> {
        let mut seen = Revision::UNKNOWN;
        loop {
            let (Changes::Lost { revision } | Changes::Keys { revision, .. }) =
                self.store.changed(KEY, seen).await?;
            if !self.is_set().await? {
                return Ok(());
            }
            seen = revision;
        }
    }
}

/// Returns the time in the value of the key.
fn parse(value: &[u8]) -> Option<SystemTime> {
    let seconds = str::from_utf8(value).ok()?.parse().ok()?;
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

/// Returns the write of the event that the mark of a restore at `time` is removed.
fn removal(time: SystemTime) -> Write {
    let mut event = Event {
        kind: EventKind::Call.into(),
        noun: NOUN.into(),
        text: format!("images are collected again after the restore of {}", Timestamp::from(time)),
        ..Event::default()
    };
    if let Some(origin) = current_origin() {
        origin.write(&mut event);
    }
    events::to_write(event)
}
