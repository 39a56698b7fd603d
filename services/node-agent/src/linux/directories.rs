//! The directories of mount points and of the overlays' writable directories, in both of their spellings.
//!
//! `/var/run` is a symbolic link on most hosts, so the kernel's list of mounts has other paths than the configuration. Objects keep
//! the configured spelling, which responses show; system calls and comparisons with the kernel's list use the resolved one.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mounts::{Error, Result, mount_point};
use rustix::mount::MountFlags;

/// The beginnings of the names of directories that a node makes. The rest is a number.
const KINDS: [&str; 3] = ["mount_", "upper_", "work_"];

/// The directory of mount points, and the one of writable directories if that is another one.
#[derive(Clone, Debug)]
pub(super) struct Directories {
    all: Vec<Directory>,
    /// Locked while this process works in the directories: another node would remove what it does not know of.
    _locks: Arc<Vec<File>>,
}

/// A directory as it was configured, and without symbolic links.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Directory {
    configured: PathBuf,
    resolved: PathBuf,
}

impl Directories {
    /// Creates the directories if they are missing. A limit `upper_max_bytes` makes the second one a file system in memory of that size.
    pub(super) fn open(mounts: &Path, upper: &Path, upper_max_bytes: Option<u64>) -> Result<Self> {
        let mut all = vec![Directory::open(mounts)?];
        if upper != mounts {
            let directory = Directory::open(upper)?;
            if let Some(max_bytes) = upper_max_bytes {
                limit(&directory.resolved, max_bytes)?;
            }
            all.push(directory);
        } else if upper_max_bytes.is_some() {
            return Err(Error::Invalid("a size needs an upper directory of its own".into()));
        }
        let locks = all.iter().map(|directory| lock(&directory.resolved)).collect::<Result<_>>()?;
        Ok(Self { all, _locks: Arc::new(locks) })
    }

    /// Returns the directories without symbolic links.
    pub(super) fn resolved(&self) -> impl Iterator<Item = &Path> {
        self.all.iter().map(|directory| directory.resolved.as_path())
    }

    /// Returns `path` as the kernel spells it.
    pub(super) fn resolve(&self, path: &Path) -> PathBuf {
        let resolved = self.all.iter().find_map(|it| replace(path, &it.configured, &it.resolved));
        resolved.unwrap_or_else(|| path.to_owned())
    }

    /// Returns `path`, which the kernel spells so, as objects spell it.
    pub(super) fn spell(&self, path: &Path) -> PathBuf {
        let spelt = self.all.iter().find_map(|it| replace(path, &it.resolved, &it.configured));
        spelt.unwrap_or_else(|| path.to_owned())
    }

    /// True if `path`, without symbolic links, is directly in one of the directories and has a name that a node makes. Others are left
    /// alone: the directory may have been something else before.
    pub(super) fn is_own(&self, path: &Path) -> bool {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let is_number =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        KINDS.iter().any(|kind| name.strip_prefix(kind).is_some_and(is_number))
            && self.resolved().any(|directory| path.parent() == Some(directory))
    }
}

impl Directory {
    /// Creates the directory if it is missing, and resolves it.
    fn open(configured: &Path) -> Result<Self> {
        mount_point::create_base(configured)?;
        let resolved = configured.canonicalize();
        let resolved = resolved.map_err(|error| failed("resolve", configured, &error))?;
        Ok(Self { configured: configured.to_owned(), resolved })
    }
}

fn replace(path: &Path, from: &Path, to: &Path) -> Option<PathBuf> {
    path.strip_prefix(from).ok().map(|rest| to.join(rest))
}

/// Mounts a file system in memory on `directory`, unless an earlier process did.
fn limit(directory: &Path, max_bytes: u64) -> Result<()> {
    if mount_point::is_mounted(directory)? {
        return Ok(());
    }
    let data = std::ffi::CString::new(format!("mode=0700,size={max_bytes}"));
    let data = data.map_err(|_| Error::Invalid("size".into()))?;
    let mounted =
        rustix::mount::mount("tmpfs", directory, "tmpfs", MountFlags::empty(), data.as_c_str());
    mounted.map_err(|errno| failed("mount a tmpfs on", directory, &errno.into()))
}

fn lock(directory: &Path) -> Result<File> {
    let file = File::open(directory).map_err(|error| failed("open", directory, &error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            Err(Error::Busy(format!("another process uses {}", directory.display())))
        }
        Err(TryLockError::Error(error)) => Err(failed("lock", directory, &error)),
    }
}

fn failed(verb: &str, path: &Path, error: &std::io::Error) -> Error {
    let step = format!("{verb} {}", path.display());
    Error::Failed { step, cause: error.to_string(), errno: error.raw_os_error() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap();
        (directory, path)
    }

    #[test]
    fn paths_are_translated_in_both_directions() {
        let (_directory, base) = base();
        std::fs::create_dir(base.join("run")).unwrap();
        std::os::unix::fs::symlink("run", base.join("link")).unwrap();
        let (mounts, upper) = (base.join("link/mounts"), base.join("link/upper"));
        let directories = Directories::open(&mounts, &upper, None).unwrap();
        for name in ["mounts/mount_1", "upper/upper_1"] {
            let (spelt, resolved) = (base.join("link").join(name), base.join("run").join(name));
            assert_eq!(directories.resolve(&spelt), resolved);
            assert_eq!(directories.spell(&resolved), spelt);
        }
        assert_eq!(directories.resolve(Path::new("/srv")), Path::new("/srv"));
    }

    #[test]
    fn only_names_that_a_node_makes_are_its_own() {
        let (_directory, base) = base();
        let directories = Directories::open(&base, &base, None).unwrap();
        for name in ["mount_1", "upper_12797039027953551179", "work_0"] {
            assert!(directories.is_own(&base.join(name)), "{name}");
        }
        for name in ["mount_", "mount_1a", "data", "mount_1/mount_1", "mounts_1"] {
            assert!(!directories.is_own(&base.join(name)), "{name}");
        }
        assert!(!directories.is_own(Path::new("/mount_1")));
    }

    #[test]
    fn two_processes_cannot_use_one_directory() {
        let (_directory, base) = base();
        let first = Directories::open(&base, &base, None).unwrap();
        assert!(matches!(Directories::open(&base, &base, None), Err(Error::Busy(_))));
        drop(first);
        assert!(Directories::open(&base, &base, None).is_ok());
    }
}
