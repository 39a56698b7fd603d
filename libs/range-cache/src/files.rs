//! All cached files: what is on disk, in the order of use, within the limit.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashlink::LinkedHashMap;
use tokio::sync::{Semaphore, oneshot};

use crate::counters::{ByteCounter, CacheUsage};
use crate::disk::{CacheDisk, DataFile};
use crate::entry::{CacheEntry, DATA_SUFFIX, NEW_SUFFIX, RECORD_SUFFIX, data_name, record_name};
use crate::layout::RangeLayout;
use crate::record::StoredRanges;

/// Maximum number of ranges of a cached file. The size of a file is what the origin says.
const MAX_RANGES: u64 = 1 << 20;
/// Maximum number of concurrent fetches. Clients that request and go away cause no more.
pub(crate) const MAX_FETCHES: usize = 32;

/// Ends of the names of a file's data and record.
const SUFFIXES: [&str; 2] = [DATA_SUFFIX, RECORD_SUFFIX];

/// Sizes of a cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheLimits {
    /// Maximum number of bytes of all ranges on disk.
    pub(crate) max_bytes: u64,
    /// Size of a range.
    pub(crate) range_bytes: u64,
    /// Bytes that are read or written at a time.
    pub(crate) piece_bytes: usize,
}

/// The files of a cache.
#[derive(Debug)]
pub(crate) struct CacheFiles {
    /// Sizes.
    pub(crate) limits: CacheLimits,
    /// The directory.
    pub(crate) disk: Arc<dyn CacheDisk>,
    /// Permits of concurrent fetches.
    pub(crate) fetches: Semaphore,
    /// Bytes that readers got without a fetch of theirs.
    pub(crate) hit_bytes: ByteCounter,
    /// Bytes of the origin.
    pub(crate) origin_bytes: ByteCounter,
    evictions: ByteCounter,
    disk_failures: ByteCounter,
    /// The last operation on the disk failed.
    is_failing: AtomicBool,
    index: Mutex<Index>,
    /// Locked while files are created and removed.
    changing: Mutex<()>,
}

/// Files by name, and their size.
#[derive(Debug, Default)]
struct Index {
    /// The file that was opened longest ago is first.
    entries: LinkedHashMap<String, Arc<CacheEntry>>,
    /// Bytes of all ranges that have space on disk.
    reserved: u64,
}

/// A cached file that is open. It is not removed.
#[derive(Clone, Debug)]
pub(crate) struct OpenEntry {
    /// Its ranges.
    pub(crate) entry: Arc<CacheEntry>,
    /// Its bytes.
    pub(crate) data: Arc<dyn DataFile>,
}

impl CacheFiles {
    /// Returns the files that `disk` has, after it removed what is torn, unused or over the limit.
    pub(crate) fn restore(disk: Arc<dyn CacheDisk>, limits: CacheLimits) -> io::Result<Self> {
        let files = Self {
            limits,
            disk,
            fetches: Semaphore::new(MAX_FETCHES),
            hit_bytes: ByteCounter::default(),
            origin_bytes: ByteCounter::default(),
            evictions: ByteCounter::default(),
            disk_failures: ByteCounter::default(),
            is_failing: AtomicBool::new(false),
            index: Mutex::default(),
            changing: Mutex::default(),
        };
        let names = files.disk.names()?;
        for name in names.iter().filter_map(|name| name.strip_suffix(DATA_SUFFIX)) {
            if let Some(entry) = files.restored(name) {
                let mut index = files.index();
                index.reserved += entry.reserved();
                index.entries.insert(name.to_owned(), Arc::new(entry));
            } else {
                files.remove_files(name)?;
            }
        }
        files.remove_others(&names)?;
        files.make_room(0);
        Ok(files)
    }

    /// Runs `job` on a thread that may block. It runs to its end even if the caller is dropped.
    pub(crate) async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        job: impl FnOnce(&Self) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (sender, receiver) = oneshot::channel();
        let files = self.clone();
        self.disk.start(Box::new(move || {
            // The caller may be gone.
            let _ = sender.send(job(&files));
        }));
        receiver.await.unwrap_or_else(|_| Err(io::Error::other("interrupted")))
    }

    /// Opens the file `name`. None: it is not cached, or was removed because it has to be replaced.
    pub(crate) fn open(&self, name: &str) -> Option<OpenEntry> {
        let entry = self.index().entries.to_back(name)?.clone();
        if !entry.is_wrong() {
            match self.open_data(&entry) {
                Ok(data) => return Some(OpenEntry { entry, data }),
                Err(error) => {
                    self.disk_failed("open a file", &error);
                    entry.mark_wrong();
                }
            }
        }
        drop(entry);
        let _changing = self.changing();
        let unused = self.take_unused(|entry| entry.name == name && entry.is_wrong());
        self.remove_entry(unused?);
        None
    }

    /// Creates the file `name`, which has `size` bytes, without stored ranges.
    pub(crate) fn create(&self, name: &str, size: u64) -> io::Result<OpenEntry> {
        let layout = RangeLayout { size, range_bytes: self.limits.range_bytes };
        if layout.count() > MAX_RANGES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let _changing = self.changing();
        let existing = self.index().entries.get(name).cloned();
        if let Some(entry) = existing {
            return match entry.layout == layout && !entry.is_wrong() {
                true => Ok(OpenEntry { data: self.open_data(&entry)?, entry }),
                false => Err(io::Error::other("the file is still read with another size")),
            };
        }
        // A record of a former file of this name would be read with the new one after a power
        // failure.
        self.remove_files(name)?;
        let data = self.disk.open(&data_name(name), true)?;
        data.resize(size)?;
        let entry = Arc::new(CacheEntry::new(name, StoredRanges::new(layout)));
        self.index().entries.insert(name.to_owned(), entry.clone());
        Ok(OpenEntry { entry, data })
    }

    /// Reserves `bytes`, and removes files that nobody reads if they are needed. False: there is no
    /// room.
    pub(crate) fn reserve(&self, bytes: u64) -> bool {
        let _changing = self.changing();
        let is_room = self.make_room(bytes);
        if is_room {
            self.index().reserved += bytes;
        }
        is_room
    }

    /// Returns reserved `bytes`.
    pub(crate) fn release(&self, bytes: u64) {
        let mut index = self.index();
        index.reserved = index.reserved.saturating_sub(bytes);
    }

    /// Removes the file that was opened longest ago, if nobody reads it: the disk is full.
    pub(crate) fn evict(&self) {
        let _changing = self.changing();
        if let Some(entry) = self.take_unused(|entry| entry.reserved() > 0) {
            self.remove_entry(entry);
        }
    }

    /// Counts a failure of the disk, and logs the first one after a success.
    pub(crate) fn disk_failed(&self, operation: &str, error: &io::Error) {
        self.disk_failures.add(1);
        if !self.is_failing.swap(true, Ordering::Relaxed) {
            tracing::warn!(%error, operation, "cache not written: files come from their origin");
        }
    }

    /// Ends the state that [`Self::disk_failed`] began.
    pub(crate) fn disk_worked(&self) {
        if self.is_failing.swap(false, Ordering::Relaxed) {
            tracing::info!("cache written again");
        }
    }

    /// Returns the counters.
    pub(crate) fn usage(&self) -> CacheUsage {
        CacheUsage {
            hit_bytes: self.hit_bytes.get(),
            origin_bytes: self.origin_bytes.get(),
            evictions: self.evictions.get(),
            disk_failures: self.disk_failures.get(),
            stored_bytes: self.index().reserved,
        }
    }

    /// Returns the file `name` as it is on disk. None: it cannot be used.
    fn restored(&self, name: &str) -> Option<CacheEntry> {
        let file = self.disk.open(&record_name(name), false).ok()?;
        let length = file.size().ok().filter(|length| *length <= MAX_RANGES)?;
        let mut bytes = vec![0; usize::try_from(length).ok()?];
        file.read_at(&mut bytes, 0).ok()?;
        let record = StoredRanges::decode(&bytes, self.limits.range_bytes)?;
        let data = self.disk.open(&data_name(name), false).ok()?;
        let layout = record.layout();
        if data.size().ok()? != layout.size {
            return None;
        }
        // Ranges that were being fetched have space that nobody counts.
        for (index, _) in record.iter().filter(|(_, is_stored)| !is_stored) {
            data.release(layout.range(index)).ok()?;
        }
        Some(CacheEntry::new(name, record))
    }

    /// Removes what is left of files that are not cached.
    fn remove_others(&self, names: &[String]) -> io::Result<()> {
        let index = self.index();
        let is_left = |name: &&String| {
            let file = SUFFIXES.iter().find_map(|suffix| name.strip_suffix(suffix));
            file.is_some_and(|file| !index.entries.contains_key(file)) || name.ends_with(NEW_SUFFIX)
        };
        names.iter().filter(is_left).try_for_each(|name| self.disk.remove(name))
    }

    fn open_data(&self, entry: &CacheEntry) -> io::Result<Arc<dyn DataFile>> {
        let data = self.disk.open(&data_name(&entry.name), false)?;
        data.touch()?;
        Ok(data)
    }

    /// Removes files that nobody reads until `bytes` more are within the limit. False: there are
    /// too few of them, and none was removed, or one cannot be removed.
    fn make_room(&self, bytes: u64) -> bool {
        loop {
            let needed = self.index().reserved.saturating_add(bytes);
            let excess = needed.saturating_sub(self.limits.max_bytes);
            if excess == 0 {
                return true;
            }
            if self.unused_bytes() < excess {
                return false;
            }
            if !self.take_unused(|_| true).is_some_and(|entry| self.remove_entry(entry)) {
                return false;
            }
        }
    }

    /// Returns the bytes of all files that nobody reads.
    fn unused_bytes(&self) -> u64 {
        let index = self.index();
        index.entries.values().filter(|entry| is_unused(entry)).map(|entry| entry.reserved()).sum()
    }

    /// Takes the first file out of the index that nobody reads, and for which `is_eligible` holds.
    fn take_unused(&self, is_eligible: impl Fn(&CacheEntry) -> bool) -> Option<Arc<CacheEntry>> {
        let mut index = self.index();
        let mut entries = index.entries.values();
        let name = entries.find(|entry| is_unused(entry) && is_eligible(entry))?.name.clone();
        index.entries.remove(&name)
    }

    /// Removes a file that was taken out of the index. If that fails, it is cached as before.
    fn remove_entry(&self, entry: Arc<CacheEntry>) -> bool {
        let removed = self.remove_files(&entry.name);
        let mut index = self.index();
        if let Err(error) = removed {
            index.entries.insert(entry.name.clone(), entry);
            drop(index);
            self.disk_failed("remove a file", &error);
            return false;
        }
        index.reserved = index.reserved.saturating_sub(entry.reserved());
        self.evictions.add(1);
        true
    }

    /// Removes the files of `name` on disk: the bytes after the record is durably gone.
    fn remove_files(&self, name: &str) -> io::Result<()> {
        self.disk.remove(&record_name(name))?;
        self.disk.sync()?;
        self.disk.remove(&data_name(name))
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changing(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// True if only the index has `entry`. It stays so while the index is locked.
fn is_unused(entry: &Arc<CacheEntry>) -> bool {
    Arc::strong_count(entry) == 1
}
