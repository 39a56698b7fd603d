//! The directory for the files of builds.
//!
//! ```text
//! <scratch>/.lock                    locked while a builder runs
//! <scratch>/<build id>.<attempt>/    the files of one attempt, removed at its end
//! ```
//!
//! A builder that was killed leaves directories. The next one removes them before its first build.
//! Files with other names are not touched: the directory may have been configured by mistake.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rustix::fs::{FlockOperation, flock, statvfs};
use tinwright::BuildId;

use crate::failure::Failure;

/// Bytes of the file system that stay free, unless 5 % of it are less.
const RESERVE_BYTES: u64 = 2 << 30;

/// The directory of a builder. It is locked until this is dropped.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    _lock: File,
}

/// The directory of an attempt. It is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct BuildScratch(PathBuf);

/// Bytes of a file system.
struct Space {
    total: u64,
    free: u64,
}

impl Folder {
    /// Opens the directory at `path`, or makes it. Removes what another builder left.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let folder = Self::lock(path).with_context(|| format!("scratch: {}", path.display()))?;
        folder.remove_leftovers().with_context(|| format!("scratch: {}", path.display()))?;
        Ok(folder)
    }

    fn lock(path: &Path) -> anyhow::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let lock =
            File::options().create(true).truncate(false).write(true).open(path.join(".lock"))?;
        let locked = flock(&lock, FlockOperation::NonBlockingLockExclusive);
        locked.context("another builder uses the directory")?;
        Ok(Self { path: std::path::absolute(path)?, _lock: lock })
    }

    fn remove_leftovers(&self) -> io::Result<()> {
        for entry in self.path.read_dir()? {
            let entry = entry?;
            if entry.file_name().to_str().is_some_and(is_attempt) {
                tracing::info!(path = %entry.path().display(), "scratch of an earlier build removed");
                std::fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(())
    }

    /// Makes the directory of an attempt. An earlier one with the same name is removed.
    pub(crate) fn create(&self, build: BuildId, attempt: u32) -> Result<BuildScratch, Failure> {
        let path = self.path.join(format!("{build}.{attempt}"));
        let failed = |error| Failure::host("scratch", error);
        match std::fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => DirBuilder::new().mode(0o700).create(&path).map_err(failed)?,
        }
        Ok(BuildScratch(path))
    }
}

impl BuildScratch {
    /// Returns the path of the directory.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the number of bytes that the attempt may still write. Fails if they are less than
    /// `needed`.
    pub(crate) fn room(&self, needed: u64) -> Result<u64, Failure> {
        let room = self.space()?.free.saturating_sub(self.reserve()?);
        match room < needed.max(1) {
            true => Err(Failure::temporary(format_args!(
                "builder: scratch: {needed} bytes needed, {room} bytes free"
            ))),
            false => Ok(room),
        }
    }

    /// Returns the number of bytes of the file system that stay free.
    pub(crate) fn reserve(&self) -> Result<u64, Failure> {
        Ok(reserve(self.space()?.total))
    }

    fn space(&self) -> Result<Space, Failure> {
        let statistics = statvfs(&self.0).map_err(|error| Failure::host("scratch", error))?;
        let bytes = |blocks: u64| blocks.saturating_mul(statistics.f_frsize);
        Ok(Space { total: bytes(statistics.f_blocks), free: bytes(statistics.f_bavail) })
    }
}

impl Drop for BuildScratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "scratch not removed");
        }
    }
}

/// True if `name` is that of an attempt's directory.
fn is_attempt(name: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(build, attempt)| {
        build.parse::<BuildId>().is_ok() && attempt.parse::<u32>().is_ok()
    })
}

/// Returns the number of bytes that stay free in a file system of `total` bytes.
fn reserve(total: u64) -> u64 {
    RESERVE_BYTES.min(total / 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUILD: &str = "0198a1b2-0000-7000-8000-000000000001";

    #[test]
    fn two_builders_do_not_share_a_directory() {
        let place = tempfile::tempdir().unwrap();
        let first = Folder::open(place.path()).unwrap();
        let error = format!("{:#}", Folder::open(place.path()).unwrap_err());
        assert!(error.contains("another builder uses the directory"), "{error}");
        drop(first);
        Folder::open(place.path()).unwrap();
    }

    #[test]
    fn leftovers_are_removed_and_other_files_are_not() {
        let place = tempfile::tempdir().unwrap();
        let leftover = place.path().join(format!("{BUILD}.3"));
        std::fs::create_dir(&leftover).unwrap();
        std::fs::write(leftover.join("disk.raw"), "x").unwrap();
        std::fs::create_dir(place.path().join("data.1")).unwrap();
        let _folder = Folder::open(place.path()).unwrap();
        assert!(!leftover.exists());
        assert!(place.path().join("data.1").exists());
    }

    #[test]
    fn the_directory_of_an_attempt_is_empty_and_goes_with_it() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::open(place.path()).unwrap();
        let path = place.path().join(format!("{BUILD}.1"));
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("old"), "x").unwrap();
        let scratch = folder.create(BUILD.parse().unwrap(), 1).unwrap();
        assert!(!path.join("old").exists());
        std::fs::write(scratch.path().join("new"), "x").unwrap();
        drop(scratch);
        assert!(!path.exists());
    }

    #[test]
    fn two_gib_or_a_twentieth_stays_free() {
        const GIB: u64 = 1 << 30;
        assert_eq!(reserve(1000 * GIB), 2 * GIB);
        assert_eq!(reserve(20 * GIB), GIB);
    }

    #[test]
    fn a_lack_of_room_is_temporary() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::open(place.path()).unwrap();
        let scratch = folder.create(BUILD.parse().unwrap(), 1).unwrap();
        assert!(scratch.room(1).unwrap() > 0);
        let failure = scratch.room(u64::MAX).unwrap_err();
        assert!(failure.may_retry);
        assert!(failure.reason.starts_with("builder: scratch: 18446744073709551615 bytes needed"));
    }
}
