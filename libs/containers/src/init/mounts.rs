//! The file systems that every container finds mounted.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::record::{Fault, InStep};

/// A mount: target, type, flags and data.
type Entry = (&'static str, &'static str, MountFlags, &'static std::ffi::CStr);

const NOEXEC_NOSUID: MountFlags = MountFlags::NOEXEC.union(MountFlags::NOSUID);
const NOSUID_NODEV: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);
const RESTRICTED: MountFlags = NOEXEC_NOSUID.union(MountFlags::NODEV);

/// For every container. devpts: an instance of its own; a `ptmx` for all users; terminals for the group `tty`, which has
/// the id 5 in Debian, Red Hat and SUSE systems.
const ALWAYS: [Entry; 6] = [
    ("/proc", "proc", RESTRICTED, c""),
    ("/dev", "tmpfs", MountFlags::NOEXEC.union(MountFlags::STRICTATIME), c"mode=755"),
    ("/dev/shm", "tmpfs", RESTRICTED, c"mode=1777"),
    ("/dev/mqueue", "mqueue", RESTRICTED, c""),
    ("/dev/pts", "devpts", NOEXEC_NOSUID, c"newinstance,ptmxmode=0666,mode=0620,gid=5"),
    ("/sys", "sysfs", RESTRICTED.union(MountFlags::RDONLY), c""),
];

/// For systemd, which expects them from a container manager.
const SYSTEMD: [Entry; 4] = [
    ("/run", "tmpfs", NOSUID_NODEV, c"mode=755"),
    ("/tmp", "tmpfs", NOSUID_NODEV, c"mode=1777"),
    ("/sys/fs/cgroup", "tmpfs", NOSUID_NODEV, c"mode=755"),
    ("/var/lib/journal", "tmpfs", NOSUID_NODEV, c"mode=755"),
];

/// Mounts them below `/`, which is the image. Call it without a umask.
///
/// # Errors
/// A directory cannot be created, as in a read-only image that lacks it, or the kernel refuses a mount.
pub(super) fn mount_all(systemd: bool) -> Result<(), Fault> {
    let more: &[Entry] = if systemd { &SYSTEMD } else { &[] };
    ALWAYS
        .iter()
        .chain(more)
        .try_for_each(|entry| mount_entry(*entry).in_step(&format!("mounting {}", entry.0)))
}

fn mount_entry((target, kind, flags, data): Entry) -> io::Result<()> {
    create_directory(Path::new(target))?;
    detach_mounts(target)?;
    Ok(mount(kind, target, kind, flags, data)?)
}

/// Creates `path` and its parents, unless it is a directory, or a link to one.
fn create_directory(path: &Path) -> io::Result<()> {
    if path.is_dir() { Ok(()) } else { DirBuilder::new().recursive(true).mode(0o755).create(path) }
}

/// Detaches what the image brought along at `target`.
fn detach_mounts(target: &str) -> io::Result<()> {
    loop {
        match unmount(target, UnmountFlags::DETACH) {
            Ok(()) => {}
            // Not a mount point.
            Err(Errno::INVAL) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}
