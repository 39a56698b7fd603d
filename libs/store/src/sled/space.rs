//! Space for deletes on a full disk.
//!
//! Sled appends every change to its log, so a delete needs space, too. The file `reserve` beside the database holds some:
//!
//! ```text
//! free space of the disk       reserve    commits
//! at least half of its size    held       all
//! less                         held       only those that add nothing
//! less than an eighth          deleted    only those that add nothing, in the space of the reserve
//! more than twice its size     held       all: the reserve was created again
//! ```
//!
//! Without the reserve, commits that add something are refused until there is more than twice its size: its own space
//! would not stay free otherwise.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::io::Errno;

/// Size of the reserve, unless that is more than an eighth of the disk.
const MAX_RESERVE_BYTES: u64 = 64 * 1024 * 1024;

/// The space of the disk below a store, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct DiskSpace {
    /// Zero if the file system has no limit.
    pub(super) total: u64,
    pub(super) free: u64,
}

/// Measures the disk below a folder.
pub(super) type Measure = fn(&Path) -> io::Result<DiskSpace>;

/// Returns the space of the file system of `folder`.
pub(super) fn measure(folder: &Path) -> io::Result<DiskSpace> {
    let found = statvfs(folder)?;
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    Ok(DiskSpace { total: bytes(found.f_blocks), free: bytes(found.f_bavail) })
}

/// The space below one store.
#[derive(Debug)]
pub(super) struct Space {
    folder: PathBuf,
    measure: Measure,
    /// Size of the reserve.
    size: u64,
    /// True if the reserve exists.
    held: bool,
}

impl Space {
    /// Finds the reserve in `folder`. Creates or deletes it, so that sled has space to open a store on a full disk.
    pub(super) fn open(folder: &Path, measure: Measure) -> io::Result<Self> {
        let size = (measure(folder)?.total / 8).min(MAX_RESERVE_BYTES);
        let mut space = Self { folder: folder.to_owned(), measure, size, held: false };
        let found = fs::metadata(space.file()).map(|found| found.len()).ok();
        space.held = found == Some(size);
        if found.is_some() && !space.held {
            fs::remove_file(space.file())?; // of a disk of another size, or not completely created
        }
        space.room()?;
        Ok(space)
    }

    /// Measures the disk, and creates or deletes the reserve. Returns the bytes that may be added to the store.
    pub(super) fn room(&mut self) -> io::Result<u64> {
        if self.size == 0 {
            return Ok(u64::MAX);
        }
        let mut free = (self.measure)(&self.folder)?.free;
        if self.held && free < self.size / 8 {
            fs::remove_file(self.file())?;
            self.held = false;
            tracing::error!(free, "the disk is full: the store uses its reserve");
        } else if !self.held && free > 2 * self.size {
            match self.create() {
                Ok(()) => (self.held, free) = (true, free - self.size),
                Err(error) => {
                    tracing::error!(
                        error = &error as &dyn std::error::Error,
                        "the reserve is not created"
                    );
                    let _may_not_exist = fs::remove_file(self.file());
                }
            }
        }
        Ok(if self.held { free.saturating_sub(self.size / 2) } else { 0 })
    }

    fn file(&self) -> PathBuf {
        self.folder.join("reserve")
    }

    fn create(&self) -> io::Result<()> {
        let mut file = File::create(self.file())?;
        match fallocate(&file, FallocateFlags::empty(), 0, self.size) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                io::copy(&mut io::repeat(0).take(self.size), &mut file)?;
            }
            allocated => allocated?,
        }
        file.sync_all()
    }
}
