//! The steps of a server: what it writes to its store and to the content of images, and the processes that it starts.

use std::fs;
use std::path::PathBuf;

use nix::libc::{self, c_long};

use crate::tracer::{Call, Steps, begins_process};

/// Calls that change directories, or begin or end a file.
const CHANGES: [(c_long, &str); 11] = [
    (libc::SYS_mkdir, "new directory"),
    (libc::SYS_mkdirat, "new directory"),
    (libc::SYS_rmdir, "removal"),
    (libc::SYS_unlink, "removal"),
    (libc::SYS_unlinkat, "removal"),
    (libc::SYS_rename, "other name"),
    (libc::SYS_renameat, "other name"),
    (libc::SYS_renameat2, "other name"),
    (libc::SYS_link, "second name"),
    (libc::SYS_linkat, "second name"),
    (libc::SYS_ftruncate, "other length"),
];

/// The steps of one server.
pub(super) struct ServerSteps {
    process: i32,
    /// Its data directory.
    data: PathBuf,
}

impl ServerSteps {
    pub(super) fn of(process: i32, data: PathBuf) -> Self {
        Self { process, data }
    }

    /// Returns the folder in the data directory in which the file with this descriptor is.
    fn folder(&self, descriptor: u64) -> Option<String> {
        let path = fs::read_link(format!("/proc/{}/fd/{descriptor}", self.process)).ok()?;
        let folder = path.strip_prefix(&self.data).ok()?.iter().next()?;
        Some(folder.to_str()?.to_owned())
    }

    fn written(&self, descriptor: u64) -> Option<&'static str> {
        match self.folder(descriptor)?.as_str() {
            "store" => Some("write to the store"),
            "images" => Some("write of content"),
            _ => None,
        }
    }

    fn flushed(&self, descriptor: u64) -> Option<&'static str> {
        match self.folder(descriptor)?.as_str() {
            "store" => Some("flush of the store"),
            "images" => Some("flush of content"),
            _ => None,
        }
    }
}

impl Steps for ServerSteps {
    fn entered(&mut self, call: &Call) -> Option<&'static str> {
        let [first, _, third] = call.arguments;
        match call.number {
            libc::SYS_write | libc::SYS_writev | libc::SYS_pwrite64 | libc::SYS_pwritev => {
                self.written(first)
            }
            libc::SYS_fsync | libc::SYS_fdatasync | libc::SYS_sync_file_range => {
                self.flushed(first)
            }
            libc::SYS_openat => {
                let creates = third & u64::from(libc::O_CREAT.cast_unsigned()) != 0;
                creates.then_some("new file")
            }
            _ if begins_process(call) => Some("new process"),
            number => CHANGES.iter().find(|(call, _)| *call == number).map(|(_, name)| *name),
        }
    }
}
