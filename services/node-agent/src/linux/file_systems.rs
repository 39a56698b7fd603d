//! File systems: the steps that mount and unmount them. All functions block.

use std::path::{Path, PathBuf};

use mounts::bind::{self, BindOptions};
use mounts::mount_options::MountOptions;
use mounts::mount_point::{self, UnmountOptions};
use mounts::nfs::{self, NfsMount};
use mounts::overlay::{self, Overlay};
use mounts::{Deadline, Error, Result, device_mount, mount_table, paths};

use super::directories::Directories;
use crate::kernel::{MountSource, MountStep, MountTarget, WritableLayer};

/// The mounts in the mount directory.
#[derive(Clone, Debug)]
pub(super) struct FileSystems {
    pub(super) directories: Directories,
    /// Detaches file systems that are in use, instead of reporting that they are.
    pub(super) lazy_unmount: bool,
}

impl FileSystems {
    /// Creates the mount point, and mounts `step` on it. A failure removes what was created.
    pub(super) fn mount(&self, step: &MountStep, limit: Deadline) -> Result<()> {
        let target = self.directories.resolve(&step.target.mountpoint);
        mount_point::create(&target)?;
        let writable = step.target.writable.as_ref().map(|writable| self.layer(writable));
        let mounted = self.mount_source(&step.source, writable.as_ref(), &target, limit);
        if mounted.is_err() {
            discard(&target, writable);
        }
        mounted
    }

    fn mount_source(
        &self,
        source: &MountSource,
        writable: Option<&WritableLayer>,
        target: &Path,
        limit: Deadline,
    ) -> Result<()> {
        match source {
            MountSource::Device { device_file, fs_type, options } => {
                let options = MountOptions::parse(options)?;
                device_mount::mount(device_file, fs_type, &options, target, limit)
            }
            MountSource::Bind { base, path, recursive, ro } => {
                let base = self.directories.resolve(base);
                let source = paths::resolve_below(&base, Path::new(path), limit)?;
                let options = BindOptions { recursive: *recursive, read_only: *ro };
                bind::mount(&source, options, target, limit)
            }
            MountSource::Nfs { host, path, ro, version, options } => {
                let (host, path, options) = (host.clone(), path.clone(), options.clone());
                let version = version.clone();
                let nfs = NfsMount { host, path, read_only: *ro, version, options };
                nfs::mount(&nfs, target, limit)
            }
            MountSource::Overlay { lower } => {
                let layer = writable.ok_or_else(|| {
                    Error::Invalid("the overlay has no writable directory".into())
                })?;
                let lower = lower.iter().map(|path| self.directories.resolve(path)).collect();
                overlay::mount(&overlay_of(layer.clone(), lower), target, limit)
            }
        }
    }

    /// Unmounts `target`, and removes its directories.
    pub(super) fn unmount(&self, target: &MountTarget, limit: Deadline) -> Result<()> {
        let mountpoint = self.directories.resolve(&target.mountpoint);
        let options = UnmountOptions { recursive: target.recursive, lazy: false };
        match mount_point::unmount(&mountpoint, options, limit) {
            Err(Error::Busy(_)) if self.lazy_unmount => {
                let options = UnmountOptions { lazy: true, ..options };
                mount_point::unmount(&mountpoint, options, limit)?;
            }
            result => result?,
        }
        mount_point::remove(&mountpoint)?;
        match &target.writable {
            Some(writable) => {
                overlay::remove_directories(&overlay_of(self.layer(writable), Vec::new()))
            }
            None => Ok(()),
        }
    }

    /// Returns the mount points of nodes in the order in which they were mounted, and all their directories.
    pub(super) fn found(&self) -> Result<(Vec<PathBuf>, Vec<PathBuf>)> {
        let mut mounts = Vec::new();
        for mount in mount_table::read()? {
            let path = self.directories.spell(&mount.mount_point);
            if self.directories.is_own(&mount.mount_point) && !mounts.contains(&path) {
                mounts.push(path);
            }
        }
        let mut directories = Vec::new();
        for base in self.directories.resolved() {
            let entries =
                std::fs::read_dir(base).and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
            let entries = entries.map_err(|error| failed(base, "read", &error))?;
            // The type comes from the directory: a file system that does not answer is not asked.
            let is_directory =
                |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
            let paths = entries.into_iter().filter(is_directory).map(|entry| entry.path());
            let own = paths.filter(|path| self.directories.is_own(path));
            directories.extend(own.map(|path| self.directories.spell(&path)));
        }
        Ok((mounts, directories))
    }

    /// Removes a directory of a node with its content, unless a file system is mounted there or below.
    pub(super) fn remove_directory(&self, path: &Path) -> Result<()> {
        let path = self.directories.resolve(path);
        if !self.directories.is_own(&path) {
            return Err(Error::Invalid(format!("{} is not of a node", path.display())));
        }
        if mount_point::is_mounted(&path)? || !mount_table::below(&path)?.is_empty() {
            return Err(Error::Busy(format!("{} has a file system", path.display())));
        }
        match std::fs::remove_dir_all(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(failed(&path, "remove", &error))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn layer(&self, writable: &WritableLayer) -> WritableLayer {
        let resolve = |path: &Path| self.directories.resolve(path);
        WritableLayer { upper: resolve(&writable.upper), work: resolve(&writable.work) }
    }
}

/// Writes what is cached of the file system at `mountpoint` to its device.
pub(super) fn sync(mountpoint: &Path) -> Result<()> {
    let opened =
        std::fs::File::open(mountpoint).map_err(|error| failed(mountpoint, "open", &error))?;
    rustix::fs::syncfs(opened).map_err(|errno| failed(mountpoint, "synchronize", &errno.into()))
}

fn overlay_of(layer: WritableLayer, lower: Vec<PathBuf>) -> Overlay {
    Overlay { lower, upper: layer.upper, work: layer.work }
}

/// Removes the directories of a mount that failed. If the mount is complete only now, the crate `mounts` undoes it; a mount point
/// that is removed before that cannot be mounted on any more.
fn discard(target: &Path, writable: Option<WritableLayer>) {
    let mut removed = mount_point::remove(target);
    if let Some(layer) = writable {
        removed = removed.and(overlay::remove_directories(&overlay_of(layer, Vec::new())));
    }
    if let Err(error) = removed {
        tracing::warn!(target = %target.display(), %error, "directories of a failed mount were not removed");
    }
}

fn failed(path: &Path, verb: &str, error: &std::io::Error) -> Error {
    let step = format!("{verb} {}", path.display());
    Error::Failed { step, cause: error.to_string(), errno: error.raw_os_error() }
}
