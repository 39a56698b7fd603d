//! Work inside a file system on a disk, from a thread that alone sees it mounted.
//!
//! The thread takes a mount namespace of its own, mounts the disk there, and makes it its root directory: symbolic
//! links and `..` in the file system lead nowhere else, and what a killed action leaves mounted goes with its
//! thread. Nothing of this is visible to the rest of the program or of the machine.

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

/// Where the file system is mounted, in the thread's own eyes. The second is where commands of the cexec image that
/// do not ask for a chroot look for it.
const ROOT: &str = "/run/tinwright/target";
const BESIDE: &str = "/mountAction";

/// How often to try to unmount what is in use, a tenth of a second apart.
const UNMOUNTS: u32 = 50;

/// Why the file system could not be worked in.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{}: cannot mount it as {fs_type}", disk.display())]
    Mount { disk: PathBuf, fs_type: String, source: io::Error },
    #[error("{}: no file system this kernel knows", .0.display())]
    Unknown(PathBuf),
    #[error("{}: cannot {doing}", disk.display())]
    Setup { disk: PathBuf, doing: &'static str, source: io::Error },
    #[error("{}: the thread working on it has ended", .0.display())]
    Lost(PathBuf),
}

/// What the work sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    /// The file system as its root, and nothing else.
    Root,
    /// The same, with the machine's `/dev`, `/proc` and `/sys` in it.
    System,
    /// This program's root as ever, with the file system at `/mountAction`.
    Beside,
}

/// A disk with a file system.
#[derive(Clone, Debug)]
pub(crate) struct Installed {
    /// The disk, a partition most often.
    pub(crate) disk: PathBuf,
    /// The file system's type; without one, all that the kernel knows are tried.
    pub(crate) fs_type: Option<String>,
}

impl Installed {
    /// Does `work` with the file system mounted, and unmounts it. All that was written is on the disk then.
    pub(crate) async fn visit<T: Send + 'static>(
        self,
        view: View,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Error> {
        let (done, result) = oneshot::channel();
        let disk = self.disk.clone();
        let span = tracing::Span::current();
        let thread = thread::Builder::new().name("installed".into()).spawn(move || {
            let _gone = done.send(span.in_scope(|| self.visit_here(view, work)));
        });
        thread.map_err(|source| Error::Setup {
            disk: disk.clone(),
            doing: "start a thread",
            source,
        })?;
        result.await.map_err(|_| Error::Lost(disk))?
    }

    /// The same on this thread, which is good for nothing else afterwards.
    fn visit_here<T>(&self, view: View, work: impl FnOnce() -> T) -> Result<T, Error> {
        let failed = |doing| move |source| Error::Setup { disk: self.disk.clone(), doing, source };
        unshare(CloneFlags::CLONE_NEWNS)
            .map_err(io::Error::from)
            .map_err(failed("take a mount namespace"))?;
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        mount_change("/", private)
            .map_err(io::Error::from)
            .map_err(failed("keep its mounts private"))?;
        let place = Path::new(if view == View::Beside { BESIDE } else { ROOT });
        fs::create_dir_all(place).map_err(failed("make a place to mount it"))?;
        self.mount(place)?;
        // From here on the namespace's end unmounts, whichever way this thread ends.
        let outside = fs::File::open("/").map_err(failed("keep the root directory"))?;
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
        let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
        let mut types = known.lines().filter(|line| !line.starts_with("nodev")).map(str::trim);
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
    if view == View::Beside {
        return Ok(());
    }
    for tree in ["dev", "proc", "sys"] {
        let target = place.join(tree);
        // A link would lead out of the file system: this is before the change of root.
        if view == View::System && fs::symlink_metadata(&target).is_ok_and(|it| it.is_dir()) {
            mount_bind_recursive(Path::new("/").join(tree), &target)?;
        }
    }
    chroot(place)?;
    std::env::set_current_dir("/")
}

/// Flushes the file system and takes it off, which proves that nobody works in it any more. If a command left a
/// process behind that does, it is flushed and detached, and goes when the process does.
fn leave(place: &Path) -> io::Result<()> {
    for tree in ["dev", "proc", "sys"] {
        let _not_bound = unmount(place.join(tree), UnmountFlags::DETACH);
    }
    let root = fs::File::open(place)?;
    rustix::fs::syncfs(&root)?;
    drop(root);
    for _ in 0..UNMOUNTS {
        match unmount(place, UnmountFlags::empty()) {
            // A process that was killed may still be dying.
            Err(Errno::BUSY) => thread::sleep(Duration::from_millis(100)),
            ended => return Ok(ended?),
        }
    }
    tracing::warn!("a process that was left behind uses the file system: flushed and detached");
    Ok(unmount(place, UnmountFlags::DETACH)?)
}
