//! The file of the journal.
//!
//! ```text
//! file  = "TINWRIGHT-NODE-1" frame*
//! frame = "FRAM" length(u32) checksum(u32, CRC-32 of the payload) payload(Batch)       all numbers little-endian
//! ```
//!
//! A frame is written and synchronized before the next one is begun, so a crash can damage the last frame only: a damaged frame
//! without a whole one behind it is cut off. A damaged frame with a whole one behind it was damaged later: the journal does not
//! open, because ids and objects could be missing. When the file is much larger than what it has, a new file with the content as one
//! frame takes its place.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use prost::Message as _;

use super::record::{Batch, Change, JournalEntry};
use super::table::Table;

const HEADER: &[u8] = b"TINWRIGHT-NODE-1";
const FRAME: &[u8; 4] = b"FRAM";
const FRAME_HEADER_BYTES: usize = 12;
/// A smaller file is not compacted.
const COMPACTION_MIN_BYTES: u64 = 1 << 20;
/// A file is compacted when it is larger than this many times its size after the last compaction.
const COMPACTION_FACTOR: u64 = 4;

/// A journal that cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The file or its directory cannot be read or written.
    #[error("journal {path}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Another process has the journal open.
    #[error("journal {0}: another process uses it")]
    InUse(PathBuf),
    /// The file is not a journal, or of another version of the program.
    #[error("journal {0}: the file is not a journal of this version")]
    Unknown(PathBuf),
    /// A frame before the last one is damaged.
    #[error("journal {path}: the frame at byte {offset} is damaged")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The byte at which the frame begins.
        offset: u64,
    },
    /// The task that reads the file failed.
    #[error("the journal was not read: {0}")]
    Task(String),
    /// The objects of the journal could not be compared with the kernel.
    #[error("the journal could not be compared with the kernel: {0}")]
    Reconcile(String),
}

/// An open journal.
#[derive(Debug)]
pub(crate) struct JournalFile {
    path: PathBuf,
    file: File,
    length: u64,
    compacted_length: u64,
    /// A write failed, so the end of the file is uncertain.
    is_damaged: bool,
    table: Table,
    /// Locked while the journal is open. A file of its own, because compaction replaces the journal's.
    _lock: File,
}

impl JournalFile {
    /// Opens or creates the journal at `path`.
    pub(crate) fn open(path: &Path) -> Result<Self, OpenError> {
        let failed = |source| OpenError::Io { path: path.to_owned(), source };
        let lock = options().open(suffixed(path, ".lock")).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(OpenError::InUse(path.to_owned())),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let mut file = options().open(path).map_err(failed)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(failed)?;
        let (table, length) = read(path, &bytes)?;
        let (length, compacted_length) = (length as u64, COMPACTION_MIN_BYTES);
        let path = path.to_owned();
        let mut journal =
            Self { path, file, length, compacted_length, is_damaged: false, table, _lock: lock };
        journal.begin().map_err(|source| OpenError::Io { path: journal.path.clone(), source })?;
        Ok(journal)
    }

    /// Returns what the journal has.
    pub(crate) const fn table(&self) -> &Table {
        &self.table
    }

    /// Writes a new file if there was none, or cuts off what follows the last whole frame.
    fn begin(&mut self) -> io::Result<()> {
        if self.length == 0 {
            if self.table.name.is_empty() {
                self.table.name = uuid::Uuid::new_v4().simple().to_string()[..12].to_owned();
                self.table.next_id = 1;
            }
            return self.compact();
        }
        self.file.set_len(self.length)?;
        self.file.seek(SeekFrom::Start(self.length))?;
        self.file.sync_all()
    }

    /// Appends `changes`, and returns after they are on the disk. An error changes nothing of what the journal has.
    pub(crate) fn append(&mut self, changes: Vec<Change>) -> io::Result<()> {
        if self.is_damaged || self.length > self.compacted_length * COMPACTION_FACTOR {
            self.compact()?;
        }
        let entries =
            changes.iter().map(|change| JournalEntry { change: Some(change.clone()) }).collect();
        let frame = frame(&Batch { entries })?;
        if let Err(error) = self.file.write_all(&frame).and_then(|()| self.file.sync_data()) {
            self.is_damaged = true;
            return Err(error);
        }
        self.length += frame.len() as u64;
        changes.into_iter().for_each(|change| self.table.apply(change));
        Ok(())
    }

    /// Writes a new file with what the journal has, and puts it into the place of the old one.
    fn compact(&mut self) -> io::Result<()> {
        let new = suffixed(&self.path, ".new");
        let mut file = options().truncate(true).open(&new)?;
        let frame = frame(&self.table.to_batch())?;
        file.write_all(HEADER)?;
        file.write_all(&frame)?;
        file.sync_all()?;
        std::fs::rename(&new, &self.path)?;
        // The new name is durable after this.
        let directory = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()?;
        self.length = (HEADER.len() + frame.len()) as u64;
        self.compacted_length = self.length.max(COMPACTION_MIN_BYTES);
        (self.file, self.is_damaged) = (file, false);
        Ok(())
    }
}

/// Readable by the owner only: definitions may have secrets.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options
}

fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn frame(batch: &Batch) -> io::Result<Vec<u8>> {
    let payload = batch.encode_to_vec();
    let length = u32::try_from(payload.len()).map_err(io::Error::other)?;
    let mut frame = Vec::with_capacity(FRAME_HEADER_BYTES + payload.len());
    frame.extend_from_slice(FRAME);
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(&crc32fast::hash(&payload).to_le_bytes());
    frame.extend_from_slice(&payload);
    Ok(frame)
}

/// Returns what the file `bytes` has, and the length of its undamaged part: 0 for a new file.
fn read(path: &Path, bytes: &[u8]) -> Result<(Table, usize), OpenError> {
    let mut table = Table::default();
    let Some(mut rest) = bytes.strip_prefix(HEADER) else {
        // A new file gets its header before its name, so only an empty one was made by `options`.
        return match bytes {
            [] => Ok((table, 0)),
            _ => Err(OpenError::Unknown(path.to_owned())),
        };
    };
    while let Some((batch, after)) = first_frame(rest) {
        batch.entries.into_iter().filter_map(|entry| entry.change).for_each(|c| table.apply(c));
        rest = after;
    }
    let offset = bytes.len() - rest.len();
    let whole_frame_behind = (1..rest.len())
        .filter_map(|skipped| rest.get(skipped..))
        .any(|behind| first_frame(behind).is_some());
    if whole_frame_behind || offset == HEADER.len() {
        // A journal always has its first frame: it gets its name after that.
        return Err(OpenError::Damaged { path: path.to_owned(), offset: offset as u64 });
    }
    if !rest.is_empty() {
        tracing::warn!(offset, bytes = rest.len(), "journal: an unfinished write was cut off");
    }
    Ok((table, offset))
}

/// Returns the batch of the frame at the beginning of `bytes` and what follows, if the frame is whole.
fn first_frame(bytes: &[u8]) -> Option<(Batch, &[u8])> {
    let (length, rest) = bytes.strip_prefix(FRAME)?.split_first_chunk()?;
    let (checksum, rest) = rest.split_first_chunk()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    let (payload, rest) = rest.split_at_checked(length)?;
    if crc32fast::hash(payload) != u32::from_le_bytes(*checksum) {
        return None;
    }
    Some((Batch::decode(payload).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_failed_write_the_next_one_goes_to_a_new_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let mut journal = JournalFile::open(&path).unwrap();
        journal.append(vec![Change::NextId(7)]).unwrap();
        // This handle cannot be written through.
        journal.file = File::open(&path).unwrap();
        journal.append(vec![Change::NextId(8)]).unwrap_err();
        assert_eq!(journal.table().next_id, 7);
        // Neither can a new file be made.
        std::fs::create_dir(dir.path().join("journal.new")).unwrap();
        journal.append(vec![Change::NextId(9)]).unwrap_err();
        std::fs::remove_dir(dir.path().join("journal.new")).unwrap();
        journal.append(vec![Change::NextId(10)]).unwrap();
        drop(journal);
        assert_eq!(JournalFile::open(&path).unwrap().table().next_id, 10);
    }
}
