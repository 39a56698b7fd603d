//! The logs of actions, stored in chunks.
//!
//! ```text
//! workflow/log/<workflow>/<action>                            the length of each attempt's log
//! workflow/chunk/<workflow>/<action>/<attempt>/<offset>       the bytes from there on, at most 16 KiB
//! workflow/tail/<workflow>/<action>                           the last lines of the latest attempt that was reported
//! ```
//!
//! A chunk is written in one commit with the length that it makes, so bytes that are sent twice are stored once. The log of
//! an action holds 1 MiB, all attempts together; then it ends with a mark, and further bytes are dropped. A tail is written in
//! the commit that records the end of its attempt, and has the last lines also of a log that was cut.

use prost::bytes::Bytes;
use store::records::{self, Change, Kind, Mirrored, Records};
use store::{Commit, ScopedStore, Store as _, Write};
use tinwright::secret::Sealable;
use tinwright::workflow::v1 as pb;

/// The most bytes of a chunk.
pub const MAX_CHUNK_BYTES: usize = 16 * 1024;
/// The most bytes of an action's log.
pub const MAX_LOG_BYTES: u64 = 1024 * 1024;
/// The end of a log that was too long.
pub const CUT_MARK: &str = "\n[cut: an action's log holds 1 MiB]\n";
/// The number of chunks that are read at a time.
const CHUNKS_PER_PAGE: usize = 16;
/// The number of chunks that are deleted in one commit.
const CHUNKS_PER_DELETION: usize = 100;

/// The length of an action's log.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Log {
    /// The ids of the workflow and of the action.
    #[prost(string, tag = "1")]
    pub id: String,
    /// The store's revision.
    #[prost(int64, tag = "2")]
    pub revision: i64,
    /// In the order in which they were first written.
    #[prost(message, repeated, tag = "3")]
    pub attempts: Vec<AttemptLog>,
    /// True once the log is cut.
    #[prost(bool, tag = "4")]
    pub cut: bool,
}

/// The length of one attempt's log.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct AttemptLog {
    /// Number of the attempt, from 1.
    #[prost(int32, tag = "1")]
    pub attempt: i32,
    /// In bytes.
    #[prost(uint64, tag = "2")]
    pub length: u64,
}

/// The kind of these records.
#[derive(Debug)]
pub enum LogKind {}

impl Sealable for Log {}

tinwright::stored_record!(Log, "log", id);

impl Kind for LogKind {
    type Record = Log;
    type Id = String;
    const KIND: &'static str = "log";
    /// Its watchers need to know of growth only.
    const MIRRORED: Mirrored = Mirrored::Nothing;
}

/// Names the log of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogKey {
    /// The workflow's id.
    pub workflow: String,
    /// The action's id.
    pub action: String,
}

impl LogKey {
    /// Names the log of `action` in `workflow`.
    pub fn of(workflow: &pb::Workflow, action: &pb::Action) -> Self {
        Self { workflow: workflow.id.clone(), action: action.id.clone() }
    }

    /// The id of the [`Log`].
    pub fn id(&self) -> String {
        format!("{}/{}", self.workflow, self.action)
    }

    fn tail(&self) -> String {
        format!("tail/{}", self.id())
    }

    fn chunks(&self, attempt: i32) -> String {
        match attempt {
            0 => format!("chunk/{}/", self.id()),
            attempt => format!("chunk/{}/{attempt:010}/", self.id()),
        }
    }
}

/// The logs of all actions.
#[derive(Clone, Debug)]
pub struct Logs {
    /// The underlying records.
    pub records: Records<LogKind>,
}

impl Logs {
    /// The logs in `store`.
    pub fn new(store: ScopedStore) -> Self {
        Self { records: Records::new(store) }
    }

    /// Appends `data`, which begins at `offset` of the attempt's log, except the part that is stored already. Stores nothing
    /// if bytes before `offset` are missing. Returns the offset of the next byte to send.
    pub async fn append(
        &self,
        key: &LogKey,
        attempt: i32,
        offset: u64,
        data: &[u8],
    ) -> Result<u64, records::Error> {
        loop {
            let old = self.records.get(&key.id()).await?;
            let log = old.clone().unwrap_or_else(|| Log { id: key.id(), ..Log::default() });
            let (next, change) = match log.append(attempt, offset, data) {
                Appended::Nothing { next } => return Ok(next),
                Appended::Chunk { log: new, at, bytes, next } => {
                    let record = match &old {
                        Some(old) => self.records.to_replace(old, &new),
                        None => self.records.to_create(&new),
                    };
                    let chunk = format!("{}{at:010}", key.chunks(attempt));
                    let writes = vec![Write::Put(chunk, bytes.into())];
                    (next, record.and(Change::from(Commit { writes, ..Commit::default() })))
                }
            };
            match self.records.commit(change).await {
                // Perhaps the same bytes were sent twice at once.
                Err(records::Error::Changed { .. } | records::Error::Exists { .. }) => {}
                done => return done.map(|_| next),
            }
        }
    }

    /// Returns the next chunks of an attempt, or of all attempts at 0, with their keys. `after` is the key of the last chunk
    /// that was read, empty at the beginning.
    pub async fn chunks(
        &self,
        key: &LogKey,
        attempt: i32,
        after: &str,
    ) -> Result<Vec<(String, pb::ReadLogResponse)>, records::Error> {
        let page = self.records.store().list(&key.chunks(attempt), after, CHUNKS_PER_PAGE).await;
        let chunk = |(key, found): (String, store::Versioned)| {
            let read = chunk(&key, found.value).ok_or_else(|| store::Error::Corrupt(key.clone()));
            read.map(|chunk| (key, chunk))
        };
        let chunks = page.and_then(|page| page.pairs.into_iter().map(chunk).collect());
        chunks.map_err(records::Error::from)
    }

    /// Stores the last lines of an action.
    pub fn to_write_tail(key: &LogKey, tail: &str) -> Change {
        let write = match tail {
            "" => Write::Delete(key.tail()),
            tail => Write::Put(key.tail(), tail.as_bytes().to_vec().into()),
        };
        Commit { writes: vec![write], ..Commit::default() }.into()
    }

    /// Returns the last lines of an action; empty if there are none.
    pub async fn tail(&self, key: &LogKey) -> Result<String, records::Error> {
        let found = self.records.store().get(&key.tail()).await?;
        let text = found.map(|found| String::from_utf8_lossy(&found.value).into_owned());
        Ok(text.unwrap_or_default())
    }

    /// Deletes an action's log: its chunks first, so that an interrupted deletion can be repeated.
    pub async fn delete(&self, key: &LogKey) -> Result<(), records::Error> {
        loop {
            let page = self.records.store().list(&key.chunks(0), "", CHUNKS_PER_DELETION).await?;
            let writes: Vec<_> =
                page.pairs.into_iter().map(|(key, _)| Write::Delete(key)).collect();
            if writes.is_empty() {
                break;
            }
            self.records.commit(Commit { writes, ..Commit::default() }.into()).await?;
        }
        let tail = Commit { writes: vec![Write::Delete(key.tail())], ..Commit::default() };
        let log = self.records.get(&key.id()).await?;
        let log = log.map(|log| self.records.to_delete(&log)).unwrap_or_default();
        self.records.commit(log.and(tail.into())).await?;
        Ok(())
    }
}

/// The result of appending bytes.
#[derive(Debug, PartialEq)]
enum Appended {
    /// They are stored already, dropped, or not stored because of a gap before them.
    Nothing { next: u64 },
    /// A chunk to store at an offset.
    Chunk { log: Log, at: u64, bytes: Vec<u8>, next: u64 },
}

impl Log {
    fn length(&self, attempt: i32) -> u64 {
        self.attempts.iter().find(|it| it.attempt == attempt).map_or(0, |it| it.length)
    }

    fn append(mut self, attempt: i32, offset: u64, data: &[u8]) -> Appended {
        let (at, end) = (self.length(attempt), offset.saturating_add(data.len() as u64));
        if self.cut {
            return Appended::Nothing { next: end.max(at) };
        }
        let stored = at.checked_sub(offset).and_then(|stored| usize::try_from(stored).ok());
        let new = stored.and_then(|stored| data.get(stored..)).unwrap_or_default();
        if new.is_empty() {
            return Appended::Nothing { next: at };
        }
        let all: u64 = self.attempts.iter().map(|it| it.length).sum();
        let room = usize::try_from(MAX_LOG_BYTES.saturating_sub(all)).unwrap_or(usize::MAX);
        let mut bytes = new.get(..room).unwrap_or(new).to_vec();
        if room < new.len() {
            self.cut = true;
            bytes.extend_from_slice(CUT_MARK.as_bytes());
        }
        self.grow(attempt, bytes.len() as u64);
        Appended::Chunk { log: self, at, bytes, next: end }
    }

    fn grow(&mut self, attempt: i32, by: u64) {
        match self.attempts.iter_mut().find(|it| it.attempt == attempt) {
            Some(it) => it.length = it.length.saturating_add(by),
            None => self.attempts.push(AttemptLog { attempt, length: by }),
        }
    }
}

/// Reads a chunk, whose key ends in attempt and offset.
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
