//! A disk to overwrite. It is checked before writing, opened with O_EXCL so that nobody mounts it meanwhile, and read back
//! afterwards.
//!
//! Whole aligned blocks bypass the page cache: bytes counted as written were accepted by the disk, and bytes read back
//! come from the disk.

pub(crate) mod block;
pub(crate) mod leftovers;
mod usage;

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::fs::{Advice, FallocateFlags, OFlags, fadvise, fallocate};
use rustix::io::Errno;

use block::{ALIGN, Block, is_zero};
pub(crate) use usage::{DeviceKind, every_disk, is_disk_name};

/// Attempts to make the kernel re-read the partition table. The kernel refuses while udev probes the old partitions.
const MAX_REREADS: u32 = 20;

/// A disk that cannot be used, or an operation that failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{}: no such disk; this machine has {found}", path.display())]
    Missing { path: PathBuf, found: String },
    #[error("{}: not a disk", .0.display())]
    NotADisk(PathBuf),
    #[error("{}: in use: {by}", path.display())]
    InUse { path: PathBuf, by: String },
    #[error("{}: too small: holds {capacity} bytes, the image needs {needs}", path.display())]
    TooSmall { path: PathBuf, capacity: u64, needs: String },
    #[error("{}: cannot {operation}", path.display())]
    Io { path: PathBuf, operation: String, source: io::Error },
    #[error("{}: verification failed: bytes {from} to {to} differ from the data written", path.display())]
    Differs { path: PathBuf, from: u64, to: u64 },
}

impl crate::error::StepError for Error {}

/// An open disk, or a file used as one.
#[derive(Debug)]
pub(crate) struct Disk {
    path: PathBuf,
    file: File,
    /// The same disk, opened with O_DIRECT. `None` if the file system does not support it.
    direct: Option<File>,
    /// Size in bytes. `None` for a file, which can grow.
    capacity: Option<u64>,
    kind: DeviceKind,
    /// True for a block device until fallocate(2) reports that it cannot zero a range itself.
    zeroes_ranges: AtomicBool,
}

impl Disk {
    /// Opens the disk at `path`. Refuses a disk that is mounted, used for swap, or part of another device, unless `force`.
    pub(crate) fn open(path: &Path, force: bool) -> Result<Self, Error> {
        let metadata = examine(path)?;
        let is_disk = metadata.file_type().is_block_device();
        if !is_disk && !metadata.is_file() {
            return Err(Error::NotADisk(path.into()));
        }
        let exclusive = if is_disk && !force { OFlags::EXCL } else { OFlags::empty() };
        let file = open(path, exclusive).map_err(|source| match source.raw_os_error() {
            Some(errno) if errno == Errno::BUSY.raw_os_error() => {
                Error::InUse { path: path.into(), by: usage::explain(metadata.rdev()) }
            }
            _ => Error::Io { path: path.into(), operation: "open it".into(), source },
        })?;
        let (direct, zeroes_ranges) = (open(path, OFlags::DIRECT).ok(), AtomicBool::new(is_disk));
        let kind = if is_disk { usage::kind(metadata.rdev()) } else { DeviceKind::Disk };
        let mut disk =
            Self { path: path.into(), file, direct, capacity: None, kind, zeroes_ranges };
        let end = disk.end()?;
        disk.capacity = is_disk.then_some(end);
        Ok(disk)
    }

    /// Returns the kind of the device. A file counts as a disk.
    pub(crate) fn kind(&self) -> DeviceKind {
        self.kind
    }

    /// Returns the offset of the end in bytes: the size of a disk, the present length of a file.
    pub(crate) fn end(&mut self) -> Result<u64, Error> {
        let end = self.file.seek(SeekFrom::End(0));
        end.map_err(|source| self.io("determine its size".into(), source))
    }

    /// Returns the size in bytes, or `None` for a file.
    pub(crate) fn capacity(&self) -> Option<u64> {
        self.capacity
    }

    /// True if whole aligned blocks are read from the disk, not from the page cache.
    pub(crate) fn bypasses_cache(&self) -> bool {
        self.direct.is_some()
    }

    /// Returns an error if this is a file and not a block device.
    pub(crate) fn require_block_device(self) -> Result<Self, Error> {
        if self.capacity.is_some() { Ok(self) } else { Err(Error::NotADisk(self.path)) }
    }

    /// Returns the size of a sector in bytes.
    pub(crate) fn sector_size(&mut self) -> Result<u64, Error> {
        let sector = gptman::linux::get_sector_size(&mut self.file).map_err(io::Error::other);
        sector.map_err(|source| self.io("determine its sector size".into(), source))
    }

    /// Returns the possible sector sizes of a partition table here: the disk's own, or both usual
    /// ones for a file.
    pub(crate) fn sector_sizes(&mut self) -> Result<Vec<u64>, Error> {
        match self.capacity {
            Some(_) => Ok(vec![self.sector_size()?]),
            None => Ok(vec![512, 4096]),
        }
    }

    /// Returns a file that accesses the disk through the page cache, for random access. Call [`Disk::flush`] afterwards.
    pub(crate) fn cached(&mut self) -> &mut File {
        &mut self.file
    }

    /// Returns the error for an image of `needs` bytes that does not fit.
    pub(crate) fn too_small(&self, needs: impl Into<String>) -> Error {
        Error::TooSmall {
            path: self.path.clone(),
            capacity: self.capacity.unwrap_or_default(),
            needs: needs.into(),
        }
    }

    /// Writes `bytes` at the offset `at`.
    pub(crate) fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Error> {
        let aligned =
            if at.is_multiple_of(ALIGN) { bytes.len() - bytes.len() % ALIGN as usize } else { 0 };
        let (whole, rest) = bytes.split_at(aligned);
        let direct = self.direct.as_ref().filter(|_| !whole.is_empty());
        let written = match direct.map(|direct| direct.write_all_at(whole, at)) {
            Some(Ok(())) => self.file.write_all_at(rest, at + whole.len() as u64),
            // The disk needs a larger alignment, or O_DIRECT is not supported.
            Some(Err(error)) if error.kind() != io::ErrorKind::InvalidInput => Err(error),
            Some(Err(_)) | None => self.file.write_all_at(bytes, at),
        };
        written
            .map_err(|source| self.io(format!("write {} bytes at byte {at}", bytes.len()), source))
    }

    /// Zeroes the `length` bytes at `at`: by discarding if the disk guarantees zeroes afterwards, else by writing. The old
    /// content is gone in either case.
    pub(crate) fn zero(&self, at: u64, length: u64) -> Result<(), Error> {
        let failed = |source| self.io(format!("zero {length} bytes at byte {at}"), source);
        if (at | length).is_multiple_of(ALIGN) && self.zeroes_ranges.load(Ordering::Relaxed) {
            // FALLOC_FL_PUNCH_HOLE on a block device discards only if the range reads as zeroes afterwards.
            if self.allocate(FallocateFlags::PUNCH_HOLE, at, length).map_err(failed)?
                || self.allocate(FallocateFlags::ZERO_RANGE, at, length).map_err(failed)?
            {
                return Ok(());
            }
            self.zeroes_ranges.store(false, Ordering::Relaxed);
        }
        let zeroes = Block::new();
        let mut done = 0;
        while done < length {
            let step =
                zeroes.capacity().get(..usize::try_from(length - done).unwrap_or(usize::MAX));
            let step = step.unwrap_or(zeroes.capacity());
            self.write(at + done, step)?;
            done += step.len() as u64;
        }
        Ok(())
    }

    /// Calls fallocate(2). Returns false if the disk does not support the operation.
    fn allocate(&self, mode: FallocateFlags, at: u64, length: u64) -> io::Result<bool> {
        match fallocate(&self.file, mode | FallocateFlags::KEEP_SIZE, at, length) {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NODEV | Errno::REMOTEIO) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Flushes everything written to the disk, and drops the page cache so that reads come from the disk.
    pub(crate) fn flush(&self) -> Result<(), Error> {
        self.file.sync_all().map_err(|source| self.io("flush it".into(), source))?;
        fadvise(&self.file, 0, None, Advice::DontNeed)
            .map_err(|error| self.io("drop its cache".into(), error.into()))
    }

    /// Reads the `length` bytes at `at` into `block`.
    pub(crate) fn read(&self, at: u64, block: &mut Block, length: usize) -> Result<(), Error> {
        // O_DIRECT reads whole sectors only; the disk may continue after the end of the image.
        let whole = length.next_multiple_of(ALIGN as usize);
        let directly = |direct: &File| fill(direct, at, block.space(whole), length).ok();
        let filled = self.direct.as_ref().and_then(directly);
        let filled = filled.map_or_else(|| fill(&self.file, at, block.space(length), length), Ok);
        filled.map_err(|source| self.io(format!("read {length} bytes at byte {at}"), source))
    }

    /// Returns the `length` bytes at `at`, at most [`block::SIZE`].
    pub(crate) fn bytes(&self, at: u64, length: usize) -> Result<Vec<u8>, Error> {
        let mut block = Block::new();
        self.read(at, &mut block, length)?;
        block.truncate(length);
        Ok(block.content().to_vec())
    }

    /// Returns the error for `length` bytes at `at` that differ from what was written.
    pub(crate) fn differs(&self, at: u64, length: u64) -> Error {
        Error::Differs { path: self.path.clone(), from: at, to: at + length }
    }

    /// Fails unless the `length` bytes at `at`, which are read into `block`, are zero.
    pub(crate) fn check_zero(
        &self,
        at: u64,
        block: &mut Block,
        length: usize,
    ) -> Result<(), Error> {
        self.read(at, block, length)?;
        block.truncate(length);
        is_zero(block.content()).then_some(()).ok_or_else(|| self.differs(at, length as u64))
    }

    /// Discards the `length` bytes at `at`. Returns false if the disk cannot, or does not guarantee zeroes afterwards.
    pub(crate) fn discard(&self, at: u64, length: u64) -> Result<bool, Error> {
        self.allocate(FallocateFlags::PUNCH_HOLE, at, length)
            .map_err(|source| self.io(format!("discard {length} bytes at byte {at}"), source))
    }

    /// Makes the kernel re-read the partition table of a whole disk. A failure is only logged: a loop device, for example,
    /// may be configured without partitions.
    pub(crate) fn reread_partitions(&mut self) {
        if self.capacity.is_none() || self.kind == DeviceKind::Partition {
            return;
        }
        for _ in 1..MAX_REREADS {
            match gptman::linux::reread_partition_table(&mut self.file) {
                Err(gptman::linux::BlockError::RereadTable(nix::errno::Errno::EBUSY)) => {}
                Err(error) => {
                    return tracing::warn!(disk = %self.path.display(), %error, "partition table not re-read");
                }
                Ok(()) => return,
            }
            thread::sleep(Duration::from_millis(100));
        }
        tracing::warn!(disk = %self.path.display(), "partition table not re-read: a partition is in use");
    }

    /// Returns the error for a failed `operation`.
    pub(crate) fn io(&self, operation: String, source: io::Error) -> Error {
        Error::Io { path: self.path.clone(), operation, source }
    }
}

/// Returns the metadata of the disk at `path`. The error of one that is not there names the disks of this machine.
pub(crate) fn examine(path: &Path) -> Result<Metadata, Error> {
    path.metadata().map_err(|source| {
        if source.kind() == io::ErrorKind::NotFound {
            Error::Missing { path: path.into(), found: usage::list(&every_disk()) }
        } else {
            Error::Io { path: path.into(), operation: "examine it".into(), source }
        }
    })
}

fn open(path: &Path, flags: OFlags) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).custom_flags(flags.bits().cast_signed()).open(path)
}

/// Reads at least `min_bytes` at `at` into `space`.
fn fill(file: &File, at: u64, space: &mut [u8], min_bytes: usize) -> io::Result<()> {
    let mut filled = 0;
    while filled < min_bytes {
        match file.read_at(space.get_mut(filled..).unwrap_or_default(), at + filled as u64) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
