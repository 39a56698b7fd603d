//! Finds files that a job deleted but keeps open: they use space without a name.
//!
//! Best effort: a root caller needs `CAP_SYS_PTRACE` for this. A file that is only mapped, or on its
//! way through a socket, has no descriptor. The minimum of free space covers those.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;

/// Unit of `st_blocks` (stat(2)).
const BLOCK_BYTES: u64 = 512;

/// Returns the allocated bytes of each file without a name on `device` that a descendant of the
/// process `ancestor` has open.
pub(crate) fn sizes(ancestor: u32, device: u64) -> Vec<u64> {
    let mut seen = HashSet::new();
    let descriptors = descendants(ancestor).into_iter().flat_map(|process| {
        let entries = fs::read_dir(format!("/proc/{process}/fd"));
        entries.into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path())
    });
    descriptors
        .filter_map(|path| fs::metadata(path).ok())
        .filter(|file| file.is_file() && file.nlink() == 0 && file.dev() == device)
        .filter(|file| seen.insert(file.ino()))
        .map(|file| file.blocks() * BLOCK_BYTES)
        .collect()
}

/// Returns the children of `ancestor` and their descendants. PID 1 of a PID
/// namespace adopts the orphans in it, so that none is missed.
fn descendants(ancestor: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    let entries = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    for process in entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
        let status = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        if let Some(parent) = parent(&status) {
            children.entry(parent).or_default().push(process);
        }
    }
    let mut found = children.remove(&ancestor).unwrap_or_default();
    let mut index = 0;
    while let Some(process) = found.get(index) {
        found.extend(children.remove(process).unwrap_or_default());
        index += 1;
    }
    found
}

/// Returns the parent in the text of `/proc/PID/stat`. The name before it may contain anything.
fn parent(status: &str) -> Option<u32> {
    status.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn the_parent_is_found_behind_any_name() {
        assert_eq!(parent("12 (a) S 9 (b) R 34 12 12 0"), Some(34));
        assert_eq!(parent("12 (a"), None);
    }

    #[test]
    fn a_deleted_file_that_a_child_has_open_is_found() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[1; 10_000]).unwrap();
        let device = file.metadata().unwrap().dev();
        let mut child = Command::new("sleep").arg("600").stdin(Stdio::from(file)).spawn().unwrap();
        let sizes = sizes(std::process::id(), device);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(sizes.iter().any(|size| *size >= 10_000), "{sizes:?}");
    }
}
