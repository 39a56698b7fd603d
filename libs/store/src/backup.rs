//! Copies of a store: made while it is used, restored into an empty one.
//!
//! ```text
//! "tinwright store 1\n"
//! length ‖ Entry            the pair of the site, if the store belongs to one
//! length ‖ Entry            a pair, or the deletion of one; a later entry of a key replaces an earlier one
//! length ‖ Entry            the last one: no key, and the SHA-256 of all bytes before it
//! ```
//!
//! **One moment.** The pairs are listed page by page while others write, and the keys that change meanwhile are noted. At the end
//! those are read again, all as of one revision ([`Store::frozen`]): writers wait for these few reads, and never for the list.
//!
//! A restored store has a mark ([`RestoreMark`]): what a restore cannot know is not removed until an operator says so.
//!
//! Secret fields stay encrypted as they are in the store: a backup is of use only with the secrets of the site.

mod api;
mod mark;
mod restore;

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use prost::Message;
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;

pub use self::api::Api;
pub use self::mark::RestoreMark;
pub use self::restore::{RestoreError, restore};
use crate::{Changes, Error, Revision, Store, limits};

/// The key of the mark of the site that a store belongs to. It is outside of the keys of services, as is that of the schema.
pub const SITE_KEY: &str = "site";
/// The first bytes of a backup.
const HEADER: &[u8] = b"tinwright store 1\n";
/// Pairs that are listed at a time.
const PAGE_PAIRS: usize = 500;
/// Bytes at which a chunk is sent.
const CHUNK_BYTES: usize = 64 * 1024;
/// The most bytes of an encoded [`Entry`].
const MAX_ENTRY_BYTES: usize = limits::MAX_KEY_BYTES + limits::MAX_VALUE_BYTES + 64;
/// Interval at which changed keys are noted while the receiver is slow.
const NOTE_INTERVAL: Duration = Duration::from_secs(1);

/// A pair in a backup.
#[derive(Clone, PartialEq, Message)]
struct Entry {
    /// Empty in the last entry.
    #[prost(string, tag = "1")]
    key: String,
    /// None if the pair was deleted.
    #[prost(bytes = "bytes", optional, tag = "2")]
    value: Option<Bytes>,
}

/// A failed backup.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The receiver is gone.
    #[error("the receiver of the backup is gone")]
    Gone,
    /// More keys changed than are noted.
    #[error("the store changed faster than the backup was read: repeat it")]
    Overtaken,
    /// The store failed.
    #[error("reading the store")]
    Store(#[from] Error),
}

/// A backup that is being made.
struct Backup<'a> {
    store: &'a dyn Store,
    out: &'a mpsc::Sender<Bytes>,
    chunk: Vec<u8>,
    digest: Sha256,
    /// The keys that changed since the beginning, up to `noted`.
    changed: BTreeSet<String>,
    noted: Revision,
}

/// Sends a backup of `store`, as it is at one moment before the end, to `out` in chunks. Returns the revision of that moment.
pub async fn write(store: &dyn Store, out: &mpsc::Sender<Bytes>) -> Result<Revision, BackupError> {
    let (Changes::Lost { revision: noted } | Changes::Keys { revision: noted, .. }) =
        store.changed("", Revision::UNKNOWN).await?;
    let (chunk, digest, changed) = (HEADER.to_vec(), Sha256::new(), BTreeSet::new());
    let mut backup = Backup { store, out, chunk, digest, changed, noted };
    // The mark comes first, so that a restore can refuse a backup of another site before it writes anything.
    if let Some(site) = store.get(SITE_KEY).await? {
        backup.push(Entry { key: SITE_KEY.into(), value: Some(site.value) }).await?;
    }
    let mut after = String::new();
    loop {
        let page = store.list("", &after, PAGE_PAIRS).await?;
        for (key, found) in page.pairs {
            after.clone_from(&key);
            if key == SITE_KEY {
                continue; // a newer one is among the changed keys
            }
            backup.push(Entry { key, value: Some(found.value) }).await?;
        }
        backup.note_changes()?;
        if !page.more {
            break;
        }
    }
    let keys = std::mem::take(&mut backup.changed);
    let last = store.frozen(backup.noted, keys).await?.ok_or(BackupError::Overtaken)?;
    for (key, found) in last.pairs {
        backup.push(Entry { key, value: found.map(|found| found.value) }).await?;
    }
    backup.end().await?;
    Ok(last.revision)
}

impl Backup<'_> {
    async fn push(&mut self, entry: Entry) -> Result<(), BackupError> {
        self.chunk.extend(entry.encode_length_delimited_to_vec());
        if self.chunk.len() >= CHUNK_BYTES { self.send().await } else { Ok(()) }
    }

    async fn send(&mut self) -> Result<(), BackupError> {
        let chunk = Bytes::from(std::mem::take(&mut self.chunk));
        self.digest.update(&chunk);
        let out = self.out;
        loop {
            match tokio::time::timeout(NOTE_INTERVAL, out.reserve()).await {
                Ok(Ok(permit)) => {
                    permit.send(chunk);
                    return Ok(());
                }
                Ok(Err(_)) => return Err(BackupError::Gone),
                Err(_) => self.note_changes()?,
            }
        }
    }

    async fn end(mut self) -> Result<(), BackupError> {
        self.send().await?;
        let digest = self.digest.clone().finalize().to_vec().into();
        let last = Entry { key: String::new(), value: Some(digest) };
        self.chunk = last.encode_length_delimited_to_vec();
        self.send().await
    }

    /// Notes the keys that changed since the last time.
    fn note_changes(&mut self) -> Result<(), BackupError> {
        while let Some(changes) = self.store.changed("", self.noted).now_or_never() {
            match changes? {
                Changes::Keys { keys, revision } => {
                    self.changed.extend(keys);
                    self.noted = revision;
                }
                Changes::Lost { .. } => return Err(BackupError::Overtaken),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
