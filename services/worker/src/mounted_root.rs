//! Runs work inside a file system on a disk, in a thread with its own mount namespace.
//!
//! The thread mounts the file system in this namespace and changes its root directory to it. So symbolic links and `..`
//! cannot lead out of the file system, and the mounts of a killed action end with the thread. Other threads and programs do
//! not see the mounts.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind_recursive, mount_change,
    unmount,
};
use rustix::process::{chroot, fchdir};
use tokio::sync::oneshot;

use crate::disk;
use crate::environment::{self, Environment};

/// Mount point of a file system that becomes the root directory.
const ROOT_MOUNT: &str = "/run/tinwright/target";

/// Mount point of the original cexec image for commands without a chroot.
const ASIDE_MOUNT: &str = "/mountAction";

/// Attempts to unmount a busy file system, 100 ms apart.
const MAX_UNMOUNTS: u32 = 50;

/// A file system that could not be mounted, entered or left.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Disk(#[from] disk::Error),
    #[error("{}: cannot mount it as {fs_type}", disk.display())]
    Mount { disk: PathBuf, fs_type: String, source: io::Error },
    #[error("{}: no file system that this kernel supports", .0.display())]
    Unknown(PathBuf),
    #[error("{}: cannot {operation}", disk.display())]
    Setup { disk: PathBuf, operation: &'static str, source: io::Error },
    #[error("{}: the thread working on it panicked", .0.display())]
    Panicked(PathBuf),
}

impl crate::error::StepError for Error {}

/// The position of the file system in the thread's directory tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    /// The file system is the root directory; nothing else is mounted.
    Root,
    /// As `Root`, with the machine's `/dev`, `/proc` and `/sys`.
    System,
    /// The root directory does not change. The file system is mounted at `/mountAction`.
    MountedAside,
}

/// A file system on a disk.
#[derive(Clone, Debug)]
pub(crate) struct TargetFilesystem {
    /// The disk, usually a partition.
    pub(crate) disk: PathBuf,
    /// The file system's type. `None`: all types that the kernel supports are tried.
    pub(crate) fs_type: Option<String>,
}

impl TargetFilesystem {
    /// Parses the variables: the disk is in `name`, the type in `FS_TYPE`.
    pub(crate) fn parse(
        environment: &Environment,
        name: &'static str,
    ) -> Result<Self, environment::Error> {
        let disk = environment.required(name)?.into();
        Ok(Self { disk, fs_type: environment.optional("FS_TYPE").map(str::to_owned) })
    }

    /// Runs `work` with the file system mounted, then flushes and unmounts it.
    pub(crate) async fn with_mounted<T: Send + 'static>(
        self,
        view: View,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Error> {
        disk::examine(&self.disk)?;
        let (done, result) = oneshot::channel();
        let (disk, span) = (self.disk.clone(), tracing::Span::current());
        let not_started = self.failed("start a thread");
        let thread = thread::Builder::new().name("target-fs".into()).spawn(move || {
            let _cancelled = done.send(span.in_scope(|| self.run_here(view, work)));
        });
        thread.map_err(not_started)?;
        result.await.map_err(|_| Error::Panicked(disk))?
    }

    /// Runs `work` on this thread. Its mount namespace has changed afterwards: it must not be used for anything else.
    fn run_here<T>(&self, view: View, work: impl FnOnce() -> T) -> Result<T, Error> {
        unshare(CloneFlags::CLONE_NEWNS).map_err(self.failed("create a mount namespace"))?;
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        mount_change("/", private).map_err(self.failed("make its mounts private"))?;
        let place = Path::new(if view == View::MountedAside { ASIDE_MOUNT } else { ROOT_MOUNT });
        fs::create_dir_all(place).map_err(self.failed("create its mount point"))?;
        self.mount(place)?;
        // From here on, if this thread ends for any reason, the end of its namespace unmounts the file system.
        let outside = fs::File::open("/").map_err(self.failed("open the root directory"))?;
        enter(view, place).map_err(self.failed("enter its file system"))?;
        let result = work();
        let left = fchdir(&outside).and_then(|()| chroot("."));
        left.map_err(self.failed("leave its file system"))?;
        leave(place).map_err(self.failed("unmount it"))?;
        Ok(result)
    }

    /// Returns the error of an `operation` that failed.
    fn failed<E: Into<io::Error>>(
        &self,
        operation: &'static str,
    ) -> impl FnOnce(E) -> Error + use<E> {
        let disk = self.disk.clone();
        move |source| Error::Setup { disk, operation, source: source.into() }
    }

    fn mount(&self, place: &Path) -> Result<(), Error> {
        if let Some(fs_type) = &self.fs_type {
            return self.mount_as(fs_type, place);
        }
        let supported = fs::read_to_string("/proc/filesystems").unwrap_or_default();
        let mut types = supported.lines().filter(|line| !line.starts_with("nodev")).map(str::trim);
        let mounted = types.any(|fs_type| self.mount_as(fs_type, place).is_ok());
        mounted.then_some(()).ok_or_else(|| Error::Unknown(self.disk.clone()))
    }

    fn mount_as(&self, fs_type: &str, place: &Path) -> Result<(), Error> {
        let mounted = mount(&self.disk, place, fs_type, MountFlags::empty(), None);
        let source = |error: rustix::io::Errno| Error::Mount {
            disk: self.disk.clone(),
            fs_type: fs_type.into(),
            source: error.into(),
        };
        mounted.map_err(source)
    }
}

fn enter(view: View, place: &Path) -> io::Result<()> {
    if view == View::MountedAside {
        return Ok(());
    }
    for tree in ["dev", "proc", "sys"] {
        let target = place.join(tree);
        // No mount through a symbolic link: the root directory is not changed yet, so it would lead out of the file system.
        if view == View::System && fs::symlink_metadata(&target).is_ok_and(|it| it.is_dir()) {
            mount_bind_recursive(Path::new("/").join(tree), &target)?;
        }
    }
    chroot(place)?;
    std::env::set_current_dir("/")
}

/// Flushes and unmounts the file system. Unmounting succeeds only if no process uses it any more. If a command left such a
/// process behind, the file system is flushed and detached; the kernel unmounts it when the process ends.
fn leave(place: &Path) -> io::Result<()> {
    for tree in ["dev", "proc", "sys"] {
        let _not_bound = unmount(place.join(tree), UnmountFlags::DETACH);
    }
    let root = fs::File::open(place)?;
    rustix::fs::syncfs(&root)?;
    drop(root);
    for _ in 0..MAX_UNMOUNTS {
        match unmount(place, UnmountFlags::empty()) {
            // A killed process may not have ended yet.
            Err(Errno::BUSY) => thread::sleep(Duration::from_millis(100)),
            ended => return Ok(ended?),
        }
    }
    tracing::warn!("file system detached: a process left behind by the action still uses it");
    Ok(unmount(place, UnmountFlags::DETACH)?)
}
