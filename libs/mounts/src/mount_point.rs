//! Directories to mount on, and unmounting.

use std::{
    fs,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, CWD, StatxAttributes, StatxFlags},
    io::Errno,
    mount::UnmountFlags,
};

use crate::{Deadline, Error, Result, bounded::bounded, mount_table};

/// How a mount is undone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UnmountOptions {
    /// Unmounts also what is mounted below, the newest first: the mounts that came with a recursive bind.
    pub recursive: bool,
    /// Detaches a file system in use: it vanishes from the tree now, and ends when its last user does.
    pub lazy: bool,
}

/// Makes the directory in which mount points are made, with mode 0700 and its parents. Exists already: nothing is done.
///
/// # Errors
/// [`Error::Failed`] if it cannot be made.
pub fn create_base(directory: &Path) -> Result<()> {
    let step = || format!("create {}", directory.display());
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(|e| Error::failed(step(), e))
}

/// Makes one directory, with mode 0755 whatever the umask.
///
/// # Errors
/// [`Error::Failed`] if it cannot be made, or exists.
pub fn create(directory: &Path) -> Result<()> {
    let step = || format!("create {}", directory.display());
    fs::DirBuilder::new().mode(0o755).create(directory).map_err(|e| Error::failed(step(), e))?;
    let mode = rustix::fs::Mode::from_raw_mode(0o755);
    rustix::fs::chmod(directory, mode).map_err(|e| Error::failed(step(), e))
}

/// Removes an empty directory that is not a mount point. Missing: nothing is done.
///
/// # Errors
/// [`Error::Busy`] if something is mounted on it, [`Error::Failed`] otherwise, if it is not empty for example.
pub fn remove(directory: &Path) -> Result<()> {
    match rustix::fs::rmdir(directory) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(Errno::BUSY) => Err(Error::Busy(format!("{} is a mount point", directory.display()))),
        Err(errno) => Err(Error::failed(format!("remove {}", directory.display()), errno)),
    }
}

/// True if something is mounted on `path`. False if there is no such directory.
///
/// A comparison of device numbers with the parent would miss a bind mount from the same file system.
///
/// # Errors
/// [`Error::Failed`] if its status cannot be read.
pub fn is_mounted(path: &Path) -> Result<bool> {
    // The server of a network file system is not asked: it may be gone.
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    match rustix::fs::statx(CWD, path, flags, StatxFlags::empty()) {
        Ok(status) if status.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) => {
            Ok(status.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
        }
        // Linux before 5.8 has no such attribute; a file system with an I/O error or a stale handle has no status.
        Ok(_) | Err(Errno::IO | Errno::STALE) => {
            Ok(mount_table::read()?.iter().any(|mount| mount.mount_point == path))
        }
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
        Err(errno) => Err(Error::failed(format!("stat {}", path.display()), errno)),
    }
}

/// Unmounts what is mounted on `target`; nothing is done if nothing is. The directory stays.
///
/// # Errors
/// [`Error::Busy`] if the file system is in use and the call is not lazy. Of a recursive one, mounts below it may be gone then.
/// [`Error::Failed`] if the kernel refuses for another reason, or the file system does not answer.
pub fn unmount(target: &Path, options: UnmountOptions, deadline: Deadline) -> Result<()> {
    let step = format!("unmount {}", target.display());
    let target = target.to_owned();
    bounded(&step, deadline, move || unmount_all(&target, options), drop)
}

fn unmount_all(target: &Path, options: UnmountOptions) -> Result<()> {
    let mut flags = UnmountFlags::NOFOLLOW;
    if options.lazy {
        flags |= UnmountFlags::DETACH; // umount2(2): takes the mounts below with it.
    } else if options.recursive {
        let below = mount_table::below(target)?;
        below.iter().rev().try_for_each(|mount| unmount_one(&mount.mount_point, flags))?;
    }
    unmount_one(target, flags)
}

fn unmount_one(target: &Path, flags: UnmountFlags) -> Result<()> {
    match rustix::mount::unmount(target, flags) {
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(()), // Not a mount point.
        Err(Errno::BUSY) => Err(Error::Busy(format!("{} is in use", target.display()))),
        Err(errno) => Err(Error::failed(format!("unmount {}", target.display()), errno)),
    }
}

/// Undoes a mount that was complete only after its deadline. Nobody has learned of it, so nobody uses it.
pub(crate) fn undo(target: PathBuf) {
    let flags = UnmountFlags::NOFOLLOW | UnmountFlags::DETACH;
    if let Err(error) = rustix::mount::unmount(&target, flags) {
        tracing::error!(target = %target.display(), %error, "late mount not undone");
        return;
    }
    if let Err(error) = remove(&target) {
        tracing::warn!(target = %target.display(), %error, "mount point of a late mount not removed");
    }
}
