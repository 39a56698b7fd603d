//! Operations of the file system that a cache needs. The trait lets tests fail them, and simulate a
//! power failure.

use std::fmt::Debug;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustix::fs::{
    FallocateFlags, FlockOperation, Timespec, Timestamps, UTIME_NOW, fallocate, flock, futimens,
    statvfs,
};
use rustix::io::Errno;

/// Name of the file that the process locks.
const LOCK: &str = "lock";
/// Space of the file system that stays free for others: at most this, and at most a twentieth.
const RESERVE_BYTES: u64 = 1 << 30;

/// Work for a thread that may block.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// A directory with files.
pub(crate) trait CacheDisk: Debug + Send + Sync {
    /// Starts `job` on a thread that may block.
    fn start(&self, job: Job);
    /// Returns the names of all files; the one that was changed or touched longest ago is first.
    fn names(&self) -> io::Result<Vec<String>>;
    /// Opens the file `name`. A new one is empty.
    fn open(&self, name: &str, is_new: bool) -> io::Result<Arc<dyn DataFile>>;
    /// Gives a file another name, in place of the file that has it.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes the file `name`. Not an error if there is none.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes changes of names durable.
    fn sync(&self) -> io::Result<()>;
    /// Returns the number of bytes that the file system has for new files.
    fn free(&self) -> io::Result<u64>;
}

/// An open file.
pub(crate) trait DataFile: Debug + Send + Sync {
    /// Returns the size in bytes.
    fn size(&self) -> io::Result<u64>;
    /// Changes the size. New bytes are a hole.
    fn resize(&self, size: u64) -> io::Result<()>;
    /// Fills `buffer` with the bytes from `offset` on.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
    /// Writes all `bytes` at `offset`.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Allocates the bytes `range`.
    fn allocate(&self, range: Range<u64>) -> io::Result<()>;
    /// Makes the bytes `range` a hole.
    fn release(&self, range: Range<u64>) -> io::Result<()>;
    /// Makes the bytes of the file durable.
    fn sync(&self) -> io::Result<()>;
    /// Sets the time of the last change to now.
    fn touch(&self) -> io::Result<()>;
}

/// A directory of the host, which one process uses at a time.
#[derive(Debug)]
pub(crate) struct LockedDirectory {
    path: PathBuf,
    /// Locked while it is open.
    _lock: File,
}

impl LockedDirectory {
    /// Opens the directory at `path`, which is made if there is none. Fails if another process has
    /// it.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let lock = options().create(true).open(path.join(LOCK))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self { path: path.to_owned(), _lock: lock })
    }
}

impl CacheDisk for LockedDirectory {
    fn start(&self, job: Job) {
        tokio::task::spawn_blocking(job);
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let entry = |entry: io::Result<fs::DirEntry>| {
            let entry = entry?;
            Ok((entry.metadata()?.modified()?, entry.file_name()))
        };
        let mut entries: Vec<_> =
            fs::read_dir(&self.path)?.map(entry).collect::<io::Result<_>>()?;
        entries.sort();
        let names = entries.into_iter().filter_map(|(_, name): (SystemTime, _)| {
            name.into_string().ok().filter(|name| name != LOCK)
        });
        Ok(names.collect())
    }

    fn open(&self, name: &str, is_new: bool) -> io::Result<Arc<dyn DataFile>> {
        let file = options().create(is_new).truncate(is_new).open(self.path.join(name))?;
        Ok(Arc::new(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.path.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    fn free(&self) -> io::Result<u64> {
        let space = statvfs(&self.path)?;
        let bytes = |blocks: u64| blocks.saturating_mul(space.f_frsize);
        let reserve = RESERVE_BYTES.min(bytes(space.f_blocks) / 20);
        Ok(bytes(space.f_bavail).saturating_sub(reserve))
    }
}

impl DataFile for File {
    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn resize(&self, size: u64) -> io::Result<()> {
        self.set_len(size)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn allocate(&self, range: Range<u64>) -> io::Result<()> {
        match fallocate(self, FallocateFlags::KEEP_SIZE, range.start, range.end - range.start) {
            // Some file systems cannot allocate ahead: there a write fails if the disk is full.
            Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn release(&self, range: Range<u64>) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(self, flags, range.start, range.end - range.start)?)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn touch(&self) -> io::Result<()> {
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        Ok(futimens(self, &Timestamps { last_access: now, last_modification: now })?)
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    options
}
