//! This machine's name servers, seen from inside the installed system, whose own files stay untouched.
//!
//! A tmpfs on `/run`, which is empty in a system that is not running, takes the file; `/etc/resolv.conf` is covered
//! by it, or leads to it where it is a link into `/run`, as it is under systemd. All of it is in the calling thread's
//! mount namespace: a crash at any moment leaves the disk as it was, but for an empty file where there was none.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};

const CONF: &str = "/etc/resolv.conf";
const PRIVATE: &str = "/run/resolv.conf";

/// Covers the installed system's file until it is dropped.
#[derive(Debug)]
pub(super) struct Cover {
    bound: Option<PathBuf>,
    /// An empty file that was made to be covered.
    made: Option<PathBuf>,
}

/// The machine's file, if there is one.
pub(super) fn ours() -> io::Result<Option<Vec<u8>>> {
    match fs::read(CONF) {
        Ok(servers) => Ok(Some(servers)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Covers the file with `servers`, in the root directory that the calling thread has.
pub(super) fn cover(servers: &[u8]) -> io::Result<Cover> {
    let mut cover = Cover { bound: None, made: None };
    fs::create_dir_all("/run")?;
    mount("tmpfs", "/run", "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, None)?;
    if let Some(place) = link_into_run() {
        place.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(place, servers)?;
        return Ok(cover);
    }
    if !Path::new(CONF).try_exists()? {
        fs::write(CONF, [])?;
        cover.made = Some(CONF.into());
    }
    fs::write(PRIVATE, servers)?;
    let place = fs::canonicalize(CONF)?;
    mount_bind(PRIVATE, &place)?;
    cover.bound = Some(place);
    Ok(cover)
}

/// Where the file's link leads, if it leads into `/run`.
fn link_into_run() -> Option<PathBuf> {
    let target = Path::new("/etc").join(fs::read_link(CONF).ok()?);
    let inside = ["/run", "/etc/../run", "/var/run", "/etc/../var/run"]
        .iter()
        .any(|run| target.starts_with(run));
    inside.then_some(target)
}

impl Drop for Cover {
    fn drop(&mut self) {
        // What fails here goes with the namespace.
        let _uncovered = self.bound.take().map(|place| unmount(place, UnmountFlags::DETACH));
        let _removed = self.made.take().map(fs::remove_file);
        let _gone = unmount("/run", UnmountFlags::DETACH);
    }
}
