//! Counts the allocated bytes and the files in a scratch directory.
//!
//! The directory changes while it is counted, and its contents are hostile: directories are opened
//! relative to their parents and without following links.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fstatvfs, open, openat, statat};
use rustix::io::Errno;

use crate::deleted_files;
use crate::job::Limits;
use crate::link::Stop;

/// Maximum depth of directories: each level holds a descriptor while it is counted.
const MAX_DEPTH: usize = 64;
/// Unit of `st_blocks` (stat(2)).
const BLOCK_BYTES: u64 = 512;

/// Scratch directory and its quota.
pub(crate) struct Quota {
    directory: File,
    max_bytes: u64,
    max_files: u64,
    min_free_bytes: u64,
    device: u64,
}

/// Contents of a directory.
#[derive(Default)]
struct Usage {
    bytes: u64,
    files: u64,
}

impl Quota {
    /// Opens the directory to count.
    pub(crate) fn open(directory: &Path, limits: &Limits) -> io::Result<Self> {
        let directory = File::open(directory)?;
        let device = directory.metadata()?.dev();
        Ok(Self {
            directory,
            max_bytes: limits.scratch_bytes,
            max_files: limits.scratch_files,
            min_free_bytes: limits.free_bytes,
            device,
        })
    }

    /// Returns the reason to stop the job of the process `builder`, if there is one.
    pub(crate) fn exceeded(&self, builder: u32) -> Option<Stop> {
        self.exceeded_by(&deleted_files::sizes(builder, self.device)).or_else(|| {
            let free = fstatvfs(&self.directory).ok()?;
            let free = free.f_bavail.saturating_mul(free.f_frsize);
            (free < self.min_free_bytes).then_some(Stop::DiskFull(free))
        })
    }

    /// Compares the quota with the directory and the files without a name.
    fn exceeded_by(&self, deleted: &[u64]) -> Option<Stop> {
        let files = u64::try_from(deleted.len()).unwrap_or(u64::MAX);
        let mut usage = Usage { bytes: deleted.iter().sum(), files };
        let counted = open_directory(&self.directory, c".")
            .and_then(|directory| self.count(directory, MAX_DEPTH, &mut usage));
        match counted {
            _ if usage.bytes > self.max_bytes => Some(Stop::Bytes(usage.bytes)),
            _ if usage.files > self.max_files => Some(Stop::Files(usage.files)),
            Ok(()) => None,
            Err(Errno::LOOP) => Some(Stop::Uncountable("directories too deep".to_owned())),
            Err(error) => Some(Stop::Uncountable(error.to_string())),
        }
    }

    /// Adds the contents of `directory` to `usage`, until a limit is exceeded.
    fn count(&self, directory: OwnedFd, depth: usize, usage: &mut Usage) -> Result<(), Errno> {
        for entry in Dir::read_from(&directory)? {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            // The job deletes and renames meanwhile.
            let Ok(status) = statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            usage.files += 1;
            usage.bytes += u64::try_from(status.st_blocks).unwrap_or_default() * BLOCK_BYTES;
            if usage.files > self.max_files || usage.bytes > self.max_bytes {
                break;
            }
            if FileType::from_raw_mode(status.st_mode) == FileType::Directory {
                self.count_below(&directory, name, depth, usage)?;
            }
        }
        Ok(())
    }

    fn count_below(
        &self,
        parent: &OwnedFd,
        name: &std::ffi::CStr,
        depth: usize,
        usage: &mut Usage,
    ) -> Result<(), Errno> {
        if depth == 0 {
            return Err(Errno::LOOP);
        }
        match open_directory(parent, name) {
            Ok(directory) => self.count(directory, depth - 1, usage),
            // Deleted, or replaced by a file or a link, since it was listed.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn open_directory(parent: impl AsFd, name: &std::ffi::CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::empty())
}

/// Gives the directory `path` to a user.
pub(crate) fn give(path: &Path, uid: u32, gid: u32) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = open(path, flags, Mode::empty())?;
    std::os::unix::fs::fchown(directory, Some(uid), Some(gid))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn exceeded(path: &Path, scratch_bytes: u64, scratch_files: u64) -> Option<Stop> {
        let limits = Limits { scratch_bytes, scratch_files, ..Limits::default() };
        Quota::open(path, &limits).unwrap().exceeded_by(&[])
    }

    #[test]
    fn files_and_bytes_below_the_quota_are_fine_and_holes_are_free() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        fs::create_dir(path.join("a")).unwrap();
        fs::write(path.join("a/b"), [1; 8192]).unwrap();
        File::create(path.join("hole")).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(exceeded(path, 1 << 20, 3), None);
        assert_eq!(exceeded(path, 1 << 20, 2), Some(Stop::Files(3)));
        assert!(matches!(exceeded(path, 8191, 3), Some(Stop::Bytes(8192..))));
    }

    #[test]
    fn deleted_files_and_too_little_free_space_count() {
        let directory = tempfile::tempdir().unwrap();
        let quota = |limits: &Limits| Quota::open(directory.path(), limits).unwrap();
        let limits = Limits { scratch_bytes: 10, scratch_files: 1, ..Limits::default() };
        assert_eq!(quota(&limits).exceeded_by(&[9]), None);
        assert_eq!(quota(&limits).exceeded_by(&[9, 2]), Some(Stop::Bytes(11)));
        assert_eq!(quota(&limits).exceeded_by(&[1, 2]), Some(Stop::Files(2)));
        let limits = Limits { free_bytes: u64::MAX, ..Limits::default() };
        let stop = quota(&limits).exceeded(u32::MAX);
        assert!(matches!(stop, Some(Stop::DiskFull(_))), "{stop:?}");
    }

    #[test]
    fn links_lead_nowhere() {
        let directory = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/usr", directory.path().join("link")).unwrap();
        assert_eq!(exceeded(directory.path(), 1 << 20, 1), None);
    }

    #[test]
    fn directories_beyond_the_maximum_depth_stop_the_job() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("d/".repeat(MAX_DEPTH + 2))).unwrap();
        let stop = exceeded(directory.path(), 1 << 30, 1000);
        assert!(matches!(stop, Some(Stop::Uncountable(_))), "{stop:?}");
    }
}
