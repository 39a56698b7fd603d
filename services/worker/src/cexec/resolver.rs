//! Mounts this machine's resolv.conf over that of the installed system. The files on the disk do not change.
//!
//! The content is written to a tmpfs on `/run`, which is empty in a system that is not running. It is bind-mounted on
//! `/etc/resolv.conf`, unless that is a link into `/run`, as with systemd. All mounts are in the calling thread's mount
//! namespace: a crash leaves the disk unchanged, except for an empty resolv.conf if there was none.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};

const RESOLV_CONF: &str = "/etc/resolv.conf";
const TMPFS_COPY: &str = "/run/resolv.conf";

/// The mounts; removed when dropped.
#[derive(Debug)]
pub(super) struct Cover {
    bound: Option<PathBuf>,
    /// An empty file that was created as the mount point.
    created: Option<PathBuf>,
}

/// Reads this machine's file, if there is one.
pub(super) fn read_own() -> io::Result<Option<Vec<u8>>> {
    match fs::read(RESOLV_CONF) {
        Ok(servers) => Ok(Some(servers)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Mounts `servers` over the file, in the calling thread's root directory.
pub(super) fn cover(servers: &[u8]) -> io::Result<Cover> {
    let mut cover = Cover { bound: None, created: None };
    fs::create_dir_all("/run")?;
    mount("tmpfs", "/run", "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, None)?;
    if let Some(place) = link_into_run() {
        place.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(place, servers)?;
        return Ok(cover);
    }
    if !Path::new(RESOLV_CONF).try_exists()? {
        fs::write(RESOLV_CONF, [])?;
        cover.created = Some(RESOLV_CONF.into());
    }
    fs::write(TMPFS_COPY, servers)?;
    let place = fs::canonicalize(RESOLV_CONF)?;
    mount_bind(TMPFS_COPY, &place)?;
    cover.bound = Some(place);
    Ok(cover)
}

/// Returns the target of the file, if it is a link into `/run`.
fn link_into_run() -> Option<PathBuf> {
    let target = Path::new("/etc").join(fs::read_link(RESOLV_CONF).ok()?);
    let inside = ["/run", "/etc/../run", "/var/run", "/etc/../var/run"]
        .iter()
        .any(|run| target.starts_with(run));
    inside.then_some(target)
}

impl Drop for Cover {
    fn drop(&mut self) {
        // Errors are ignored: the end of the namespace removes remaining mounts.
        let _unmounted = self.bound.take().map(|place| unmount(place, UnmountFlags::DETACH));
        let _removed = self.created.take().map(fs::remove_file);
        let _unmounted = unmount("/run", UnmountFlags::DETACH);
    }
}
