//! Work inside a file system on a disk, in a thread with its own mount namespace.
//!
//! The thread mounts the disk in that namespace and makes it its root directory: symbolic links and `..` cannot lead out of
//! it, and mounts left by a killed action end with the thread. Nothing of this is visible to the rest of the program or of
//! the machine.

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

use crate::environment::{self, Environment};

/// Mount point for views with the file system as root directory.
const ROOT_MOUNT: &str = "/run/tinwright/target";

/// Mount point of the original cexec image for commands without a chroot.
const ASIDE_MOUNT: &str = "/mountAction";

/// Attempts to unmount a busy file system, 100 ms apart.
const MAX_UNMOUNTS: u32 = 50;

/// A file system that could not be mounted, entered or left.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{}: cannot mount it as {fs_type}", disk.display())]
    Mount { disk: PathBuf, fs_type: String, source: io::Error },
    #[error("{}: no file system that this kernel supports", .0.display())]
    Unknown(PathBuf),
    #[error("{}: cannot {doing}", disk.display())]
    Setup { disk: PathBuf, doing: &'static str, source: io::Error },
    #[error("{}: the thread working on it panicked", .0.display())]
    Panicked(PathBuf),
}

impl crate::error::StepError for Error {}

/// The view that the work has of the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    /// The file system is the root directory; nothing else is mounted.
    Root,
    /// As `Root`, with the machine's `/dev`, `/proc` and `/sys`.
    System,
    /// The root directory stays; the file system is mounted at `/mountAction`.
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
        let (done, result) = oneshot::channel();
        let disk = self.disk.clone();
        let span = tracing::Span::current();
        let thread = thread::Builder::new().name("target-fs".into()).spawn(move || {
            let _cancelled = done.send(span.in_scope(|| self.run_here(view, work)));
        });
        thread.map_err(|source| Error::Setup {
            disk: disk.clone(),
            doing: "start a thread",
            source,
        })?;
        result.await.map_err(|_| Error::Panicked(disk))?
    }

    /// Runs `work` on this thread, which must not be used for anything else afterwards.
    fn run_here<T>(&self, view: View, work: impl FnOnce() -> T) -> Result<T, Error> {
        let failed = |doing| move |source| Error::Setup { disk: self.disk.clone(), doing, source };
        unshare(CloneFlags::CLONE_NEWNS)
            .map_err(io::Error::from)
            .map_err(failed("create a mount namespace"))?;
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        mount_change("/", private)
            .map_err(io::Error::from)
            .map_err(failed("make its mounts private"))?;
        let place = Path::new(if view == View::MountedAside { ASIDE_MOUNT } else { ROOT_MOUNT });
        fs::create_dir_all(place).map_err(failed("create its mount point"))?;
        self.mount(place)?;
        // From here on the end of the namespace unmounts it, however this thread ends.
        let outside = fs::File::open("/").map_err(failed("open the root directory"))?;
        enter(view, place).map_err(failed("enter its file system"))?;
        let result = work();
        fchdir(&outside)
            .and_then(|()| chroot("."))
            .map_err(io::Error::from)
            .map_err(failed("leave its file system"))?;
        leave(place).map_err(failed("unmount it"))?;
        Ok(result)
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
        // A link would lead out of the file system: the root directory is not changed yet.
        if view == View::System && fs::symlink_metadata(&target).is_ok_and(|it| it.is_dir()) {
            mount_bind_recursive(Path::new("/").join(tree), &target)?;
        }
    }
    chroot(place)?;
    std::env::set_current_dir("/")
}

/// Flushes and unmounts the file system, which proves that nobody uses it any more. If a command left a process behind
/// that does, the file system is flushed and detached, and is unmounted when the process ends.
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
