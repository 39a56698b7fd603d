//! What actions wrote, in chunks.
//!
//! ```text
//! workflow/log/<workflow>/<action>                        how long each try's log is
//! workflow/chunk/<workflow>/<action>/<try>/<offset>       the bytes from there on, at most 16 KiB
//! ```
//!
//! A chunk and the length it makes are one commit, so what is sent twice is there once. An action's log holds 1 MiB,
//! its tries together; then it ends with a mark, and the rest is passed over.

mod reader;

use prost::bytes::Bytes;
use store::records::{self, Change, Index, Kind, Records};
use store::{Commit, ScopedStore, Store as _, Write};
use tinwright::workflow::v1 as pb;

pub use reader::{Growth, Reader};

/// The most bytes of a chunk.
pub const CHUNK: usize = 16 * 1024;
/// The most bytes of an action's log.
pub const LIMIT: u64 = 1024 * 1024;
/// The end of a log that was longer.
pub const MARK: &str = "\n[cut: an action's log holds 1 MiB]\n";
/// How many chunks are read at a time.
const PAGE: usize = 16;
/// How many are removed in one commit.
const STEP: usize = 100;

/// Why a log was not read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Bytes are missing before these.
    #[error("bytes are missing: go on from offset {0}")]
    Gap(u64),
    /// The store.
    #[error(transparent)]
    Records(#[from] records::Error),
}

/// How long an action's log is.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Log {
    /// The workflow's id and the action's.
    #[prost(string, tag = "1")]
    pub id: String,
    /// The store's.
    #[prost(int64, tag = "2")]
    pub revision: i64,
    /// In the order they were first written.
    #[prost(message, repeated, tag = "3")]
    pub tries: Vec<Try>,
    /// The mark is set.
    #[prost(bool, tag = "4")]
    pub cut: bool,
}

/// How long a try's log is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct Try {
    /// Which, from 1.
    #[prost(int32, tag = "1")]
    pub attempt: i32,
    /// In bytes.
    #[prost(uint64, tag = "2")]
    pub length: u64,
}

/// The kind of these records.
#[derive(Debug)]
pub enum LogKind {}

impl Kind for LogKind {
    type Record = Log;
    const NOUN: &'static str = "log";
    const KIND: &'static str = "log";
    const INDEXES: &'static [&'static str] = &[];

    fn id(log: &Log) -> &str {
        &log.id
    }

    fn revision_mut(log: &mut Log) -> &mut i64 {
        &mut log.revision
    }

    fn indexes(_: &Log) -> Vec<Index> {
        Vec::new()
    }
}

/// Of which action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Of {
    /// Its workflow's id.
    pub workflow: String,
    /// Its own.
    pub action: String,
}

impl Of {
    /// The id of its [`Log`].
    pub fn id(&self) -> String {
        format!("{}/{}", self.workflow, self.action)
    }

    fn chunks(&self, attempt: i32) -> String {
        match attempt {
            0 => format!("chunk/{}/", self.id()),
            attempt => format!("chunk/{}/{attempt:010}/", self.id()),
        }
    }
}

/// All logs.
#[derive(Clone, Debug)]
pub struct Logs {
    records: Records<LogKind>,
}

impl Logs {
    /// Those kept in `store`.
    pub fn new(store: ScopedStore) -> Self {
        Self { records: Records::new(store) }
    }

    /// The records underneath.
    pub fn records(&self) -> &Records<LogKind> {
        &self.records
    }

    /// Adds `data`, which begins at `offset` of the try's log, as far as it is not there yet. Answers where the next
    /// byte goes.
    pub async fn append(
        &self,
        of: &Of,
        attempt: i32,
        offset: u64,
        data: &[u8],
    ) -> Result<u64, Error> {
        loop {
            let old = self.records.get(&of.id()).await?;
            let log = old.clone().unwrap_or_else(|| Log { id: of.id(), ..Log::default() });
            let (next, change) = match log.after(attempt, offset, data)? {
                Added::Nothing(next) => return Ok(next),
                Added::Chunk { log: new, at, bytes, next } => {
                    let record = match &old {
                        Some(old) => self.records.to_replace(old, &new),
                        None => self.records.to_create(&new),
                    };
                    let key = format!("{}{at:010}", of.chunks(attempt));
                    let writes = vec![Write::Put(key, bytes.into())];
                    (next, record.and(Change::from(Commit { writes, ..Commit::default() })))
                }
            };
            match self.records.commit(change).await {
                // The same bytes, perhaps, sent twice at once.
                Err(records::Error::Changed { .. } | records::Error::Exists { .. }) => {}
                done => return Ok(done.map(|_| next)?),
            }
        }
    }

    /// The next chunks of a try, or of all at 0, after the key of the last one read (nothing to begin with).
    pub async fn chunks(
        &self,
        of: &Of,
        attempt: i32,
        after: &str,
    ) -> Result<Vec<(String, pb::ReadLogResponse)>, Error> {
        let page = self.records.store().list(&of.chunks(attempt), after, PAGE).await;
        let chunk = |(key, found): (String, store::Versioned)| {
            let read = chunk(&key, found.value).ok_or_else(|| store::Error::Corrupt(key.clone()));
            read.map(|chunk| (key, chunk))
        };
        let chunks = page.and_then(|page| page.pairs.into_iter().map(chunk).collect());
        Ok(chunks.map_err(records::Error::from)?)
    }

    /// Removes an action's log: its chunks first, so that a removal cut short can be repeated.
    pub async fn delete(&self, of: &Of) -> Result<(), records::Error> {
        loop {
            let page = self.records.store().list(&of.chunks(0), "", STEP).await?;
            let writes: Vec<_> =
                page.pairs.into_iter().map(|(key, _)| Write::Delete(key)).collect();
            if writes.is_empty() {
                break;
            }
            self.records.commit(Commit { writes, ..Commit::default() }.into()).await?;
        }
        if let Some(log) = self.records.get(&of.id()).await? {
            self.records.commit(self.records.to_delete(&log)).await?;
        }
        Ok(())
    }
}

/// What comes of bytes that were sent.
#[derive(Debug, PartialEq)]
enum Added {
    /// They are there, or are passed over; the next byte goes here.
    Nothing(u64),
    /// A chunk to store at an offset.
    Chunk { log: Log, at: u64, bytes: Vec<u8>, next: u64 },
}

impl Log {
    fn length(&self, attempt: i32) -> u64 {
        self.tries.iter().find(|one| one.attempt == attempt).map_or(0, |one| one.length)
    }

    fn after(mut self, attempt: i32, offset: u64, data: &[u8]) -> Result<Added, Error> {
        let (at, end) = (self.length(attempt), offset.saturating_add(data.len() as u64));
        if self.cut {
            return Ok(Added::Nothing(end.max(at)));
        }
        let known = at.checked_sub(offset).ok_or(Error::Gap(at))?;
        let fresh =
            usize::try_from(known).ok().and_then(|known| data.get(known..)).unwrap_or_default();
        if fresh.is_empty() {
            return Ok(Added::Nothing(at));
        }
        let all: u64 = self.tries.iter().map(|one| one.length).sum();
        let room = usize::try_from(LIMIT.saturating_sub(all)).unwrap_or(usize::MAX);
        let mut bytes = fresh.get(..room).unwrap_or(fresh).to_vec();
        if room < fresh.len() {
            self.cut = true;
            bytes.extend_from_slice(MARK.as_bytes());
        }
        self.grow(attempt, bytes.len() as u64);
        Ok(Added::Chunk { log: self, at, bytes, next: end })
    }

    fn grow(&mut self, attempt: i32, by: u64) {
        match self.tries.iter_mut().find(|one| one.attempt == attempt) {
            Some(one) => one.length = one.length.saturating_add(by),
            None => self.tries.push(Try { attempt, length: by }),
        }
    }
}

/// The chunk under a key that ends in try and offset.
fn chunk(key: &str, data: Bytes) -> Option<pb::ReadLogResponse> {
    let (rest, offset) = key.rsplit_once('/')?;
    let (_, attempt) = rest.rsplit_once('/')?;
    Some(pb::ReadLogResponse {
        attempt: attempt.parse().ok()?,
        offset: offset.parse().ok()?,
        data: data.into(),
    })
}

#[cfg(test)]
mod tests;
