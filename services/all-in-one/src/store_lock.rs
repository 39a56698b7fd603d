//! The process that uses the store in a directory. The store is locked by a lock of flock(2) on its file, which the kernel lists
//! with the process that holds it (proc(5), `/proc/locks`). A file with a process id would outlive a killed process, and then
//! name another one.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use procfs::process::{FDTarget, Process};
use procfs::{Lock, LockKind, LockType};

/// The file of the store that is locked.
const LOCKED_FILE: &str = "db";

/// Returns the id of the process that uses the store in `directory`; none if nobody does, or it is in another namespace.
pub(crate) fn holder(directory: &Path) -> Option<i32> {
    let path = directory.join(LOCKED_FILE).canonicalize().ok()?;
    let file = std::fs::metadata(&path).ok()?;
    let is_exclusive = |lock: &Lock| {
        matches!((&lock.lock_type, &lock.kind), (LockType::FLock, LockKind::Write))
            && lock.inode == file.ino()
    };
    let locks = procfs::locks().ok()?.into_iter().filter(is_exclusive);
    let owner = |lock: Lock| {
        let pid = lock.pid.filter(|pid| *pid > 0)?;
        // Layered file systems have another device than the one that is locked.
        let is_of_file = rustix::fs::makedev(lock.devmaj, lock.devmin) == file.dev();
        (is_of_file || has_open(pid, &path)).then_some(pid)
    };
    locks.into_iter().find_map(owner)
}

/// True if the process `pid` has the file at `path` open, as far as this process may know.
fn has_open(pid: i32, path: &Path) -> bool {
    let files = Process::new(pid).and_then(|process| process.fd());
    let is_it = |target: &FDTarget| matches!(target, FDTarget::Path(open) if open == path);
    files.is_ok_and(|files| files.flatten().any(|file| is_it(&file.target)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_the_lock_is_named_while_it_holds_it() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(holder(directory.path()), None);
        let store = store::sled::Sled::open(directory.path()).unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        assert_eq!(holder(directory.path()), Some(own));
        drop(store);
        let released = (0..500).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            holder(directory.path()).is_none()
        });
        assert!(released);
    }
}
