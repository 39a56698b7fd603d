//! Device nodes and links in `/dev`.

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat, symlinkat};

use crate::record::{Fault, InStep};

/// Character devices for all users: path, major and minor number (devices.txt of the kernel).
const NODES: [(&str, u32, u32); 6] = [
    ("/dev/null", 1, 3),
    ("/dev/zero", 1, 5),
    ("/dev/full", 1, 7),
    ("/dev/tty", 5, 0),
    ("/dev/random", 1, 8),
    ("/dev/urandom", 1, 9),
];

/// Links: path and target.
const LINKS: [(&str, &str); 5] = [
    ("/dev/ptmx", "/dev/pts/ptmx"),
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
];

/// Creates them in the empty `/dev`. Call it without a umask.
///
/// # Errors
/// The kernel refuses one.
pub(super) fn create_all() -> Result<(), Fault> {
    for (path, major, minor) in NODES {
        let mode = Mode::from_raw_mode(0o666);
        mknodat(CWD, path, FileType::CharacterDevice, mode, makedev(major, minor)).in_step(path)?;
    }
    LINKS.iter().try_for_each(|(path, target)| symlinkat(*target, CWD, *path).in_step(path))
}
