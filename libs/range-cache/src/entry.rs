//! A cached file in memory: the state of each of its ranges.
//!
//! Absent --begin--> Fetching --drop of [`BegunFetch`]--> Stored, Partial or Absent

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::disk::CacheDisk;
use crate::layout::RangeLayout;
use crate::origin::OriginError;
use crate::record::StoredRanges;

/// End of the names of files with bytes.
pub(crate) const DATA_SUFFIX: &str = ".cache-data";
/// End of the names of records.
pub(crate) const RECORD_SUFFIX: &str = ".cache-ranges";
/// End of the names of records that are being written.
pub(crate) const NEW_SUFFIX: &str = ".cache-ranges.new";

/// A cached file.
#[derive(Debug)]
pub(crate) struct CacheEntry {
    /// Name of the file at the origin.
    pub(crate) name: String,
    /// Division into ranges.
    pub(crate) layout: RangeLayout,
    /// States of all ranges that are not absent.
    ranges: Mutex<HashMap<u64, RangeState>>,
    /// Record on disk. Locked while it is written.
    record: Mutex<StoredRanges>,
    /// The file on disk is not the origin's, or cannot be opened. It is replaced when nobody reads
    /// it.
    is_wrong: AtomicBool,
}

/// A range that has space on disk.
#[derive(Debug)]
enum RangeState {
    /// A fetch writes the range.
    Fetching(watch::Receiver<FetchProgress>),
    /// A fetch ended early. The range begins with this number of right bytes.
    Partial(u64),
    /// All bytes are on disk.
    Stored,
}

/// Progress of a fetch.
#[derive(Clone, Debug, Default)]
pub(crate) struct FetchProgress {
    /// Number of bytes from the beginning of the range on that can be read.
    pub(crate) written: u64,
    /// Reason of the end, if not all bytes were written.
    pub(crate) failure: Option<FetchFailure>,
}

/// A fetch did not store its range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FetchFailure {
    /// The origin did not send all bytes.
    Origin(OriginError),
    /// There is no room, or the disk failed: even bytes that were written may be lost.
    NotStored,
}

impl From<OriginError> for FetchFailure {
    fn from(error: OriginError) -> Self {
        Self::Origin(error)
    }
}

/// Source of the bytes of a range.
#[derive(Debug)]
pub(crate) enum RangeAccess {
    /// They are on disk.
    Stored,
    /// A running fetch writes them.
    Joined(watch::Receiver<FetchProgress>),
    /// The caller has to fetch them.
    Begun(BegunFetch),
}

/// Permission to write a range. Drop sets the state in which the range is left.
#[derive(Debug)]
pub(crate) struct BegunFetch {
    /// The file.
    pub(crate) entry: Arc<CacheEntry>,
    /// Index of the range.
    pub(crate) index: u64,
    /// State of the range if the fetch ends now.
    pub(crate) end: FetchEnd,
    /// Reason for readers why it ends without all bytes.
    pub(crate) failure: Option<FetchFailure>,
    /// Progress for readers. Drop adds the failure after it has set the state.
    pub(crate) progress: watch::Sender<FetchProgress>,
}

/// State of a range after its fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FetchEnd {
    /// The range has no space on disk.
    Absent,
    /// The range has space, and begins with this number of right bytes.
    Partial(u64),
    /// All bytes are on disk.
    Stored,
}

impl CacheEntry {
    /// Returns the file `name` with the ranges of `record`, which is as on disk.
    pub(crate) fn new(name: &str, record: StoredRanges) -> Self {
        let stored = record.iter().filter(|(_, is_stored)| *is_stored);
        let ranges = stored.map(|(index, _)| (index, RangeState::Stored)).collect();
        Self {
            name: name.to_owned(),
            layout: record.layout(),
            ranges: Mutex::new(ranges),
            record: Mutex::new(record),
            is_wrong: AtomicBool::new(false),
        }
    }

    /// Returns the source of the range `index`. If it must be `fresh`, bytes on disk do not count.
    pub(crate) fn access(self: &Arc<Self>, index: u64, fresh: bool) -> RangeAccess {
        let mut ranges = self.ranges();
        let end = match ranges.get(&index) {
            Some(RangeState::Fetching(progress)) => return RangeAccess::Joined(progress.clone()),
            Some(RangeState::Stored) if !fresh => return RangeAccess::Stored,
            Some(RangeState::Partial(prefix)) if !fresh => FetchEnd::Partial(*prefix),
            Some(RangeState::Stored | RangeState::Partial(_)) => FetchEnd::Partial(0),
            None => FetchEnd::Absent,
        };
        let progress = FetchProgress { written: end.prefix(), failure: None };
        let (sender, receiver) = watch::channel(progress);
        ranges.insert(index, RangeState::Fetching(receiver));
        RangeAccess::Begun(BegunFetch {
            entry: self.clone(),
            index,
            end,
            failure: None,
            progress: sender,
        })
    }

    /// Marks the stored range `index` as one that has to be fetched again.
    pub(crate) fn forget(&self, index: u64) {
        if let Some(state @ RangeState::Stored) = self.ranges().get_mut(&index) {
            *state = RangeState::Partial(0);
        }
    }

    /// Records durably that the range `index` is not on disk.
    pub(crate) fn clear_record(&self, disk: &dyn CacheDisk, index: u64) -> io::Result<()> {
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        if !record.contains(index) {
            return Ok(());
        }
        let mut cleared = record.clone();
        cleared.set(index, false);
        write_record(disk, &self.name, &cleared)?;
        disk.sync()?;
        *record = cleared;
        Ok(())
    }

    /// Records that the range `index` is on disk. It is durable already; the record may become so
    /// later.
    pub(crate) fn set_record(&self, disk: &dyn CacheDisk, index: u64) -> io::Result<()> {
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        record.set(index, true);
        write_record(disk, &self.name, &record)
    }

    /// Returns the bytes of the disk that the ranges have. None of them is being fetched.
    pub(crate) fn reserved(&self) -> u64 {
        self.ranges().keys().map(|index| self.layout.length(*index)).sum()
    }

    /// Marks the file as one that has to be replaced.
    pub(crate) fn mark_wrong(&self) {
        self.is_wrong.store(true, Ordering::Relaxed);
    }

    /// True if the file has to be replaced.
    pub(crate) fn is_wrong(&self) -> bool {
        self.is_wrong.load(Ordering::Relaxed)
    }

    fn ranges(&self) -> MutexGuard<'_, HashMap<u64, RangeState>> {
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FetchEnd {
    /// Returns the number of right bytes at the beginning of an incomplete range.
    pub(crate) fn prefix(self) -> u64 {
        match self {
            Self::Partial(prefix) => prefix,
            Self::Absent | Self::Stored => 0,
        }
    }
}

impl Drop for BegunFetch {
    fn drop(&mut self) {
        let state = match self.end {
            FetchEnd::Absent => None,
            FetchEnd::Partial(prefix) => Some(RangeState::Partial(prefix)),
            FetchEnd::Stored => Some(RangeState::Stored),
        };
        match state {
            Some(state) => self.entry.ranges().insert(self.index, state),
            None => self.entry.ranges().remove(&self.index),
        };
        let failure = self.failure.take();
        self.progress.send_if_modified(|progress| {
            progress.failure = failure;
            progress.failure.is_some()
        });
    }
}

/// Returns the name of the file on disk that has the bytes of `name`.
pub(crate) fn data_name(name: &str) -> String {
    format!("{name}{DATA_SUFFIX}")
}

/// Returns the name of the file on disk that has the record of `name`.
pub(crate) fn record_name(name: &str) -> String {
    format!("{name}{RECORD_SUFFIX}")
}

/// Replaces the record of `name`. A power failure leaves the old or the new one.
fn write_record(disk: &dyn CacheDisk, name: &str, record: &StoredRanges) -> io::Result<()> {
    let new = format!("{name}{NEW_SUFFIX}");
    let file = disk.open(&new, true)?;
    file.write_at(&record.encode(), 0)?;
    file.sync()?;
    disk.rename(&new, &record_name(name))
}
