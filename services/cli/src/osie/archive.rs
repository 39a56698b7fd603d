//! A file tree as a cpio archive in the "new ASCII" format, which the kernel unpacks (the kernel's
//! `Documentation/driver-api/early-userspace/buffer-format.rst`).
//!
//! Archives are reproducible: entries are in name order, everything belongs to root and has the time 0, and inode numbers
//! are positions in the archive.

use std::collections::BTreeMap;
use std::io::{self, Write as _};

use cpio::newc;

/// A file tree, by path from its root, without a leading slash.
#[derive(Debug, Default)]
pub(super) struct Archive {
    entries: BTreeMap<String, Entry>,
}

#[derive(Debug)]
struct Entry {
    /// File type and permissions (inode(7)).
    mode: u32,
    content: Vec<u8>,
}

const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_644;
const PROGRAM: u32 = 0o100_755;
const LINK: u32 = 0o120_777;

impl Archive {
    /// Adds an empty directory.
    pub(super) fn directory(&mut self, path: &str) {
        self.add(path, DIRECTORY, []);
    }

    /// Adds a file.
    pub(super) fn file(&mut self, path: &str, content: impl Into<Vec<u8>>) {
        self.add(path, FILE, content);
    }

    /// Adds an executable file.
    pub(super) fn program(&mut self, path: &str, content: impl Into<Vec<u8>>) {
        self.add(path, PROGRAM, content);
    }

    /// Adds a symbolic link.
    pub(super) fn link(&mut self, path: &str, target: &str) {
        self.add(path, LINK, target);
    }

    /// Adds an entry and the directories above it. In name order, these come first.
    fn add(&mut self, path: &str, mode: u32, content: impl Into<Vec<u8>>) {
        for (slash, _) in path.match_indices('/') {
            let directory = Entry { mode: DIRECTORY, content: Vec::new() };
            let path = path.get(..slash).unwrap_or_default();
            self.entries.entry(path.into()).or_insert(directory);
        }
        self.entries.insert(path.into(), Entry { mode, content: content.into() });
    }

    /// Returns the archive. A file of 4 GiB or more is an error.
    pub(super) fn bytes(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        for ((path, Entry { mode, content }), inode) in self.entries.iter().zip(1..) {
            let length = u32::try_from(content.len()).map_err(|_| {
                io::Error::new(io::ErrorKind::InvalidInput, format!("{path} is too long"))
            })?;
            // A directory's own `.` is a name, too; the `..` of its subdirectories are not counted.
            let names = if *mode == DIRECTORY { 2 } else { 1 };
            let header = newc::Builder::new(path).ino(inode).mode(*mode).nlink(names);
            let mut entry = header.write(&mut bytes, length);
            entry.write_all(content)?;
            entry.finish()?;
        }
        newc::trailer(&mut bytes)?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use super::*;

    fn tree() -> Archive {
        let mut tree = Archive::default();
        tree.program("bin/hello", "#!/bin/sh\necho hello\n");
        tree.link("bin/sh", "hello");
        tree.file("etc/a/b", "five!");
        tree.directory("proc");
        tree
    }

    /// Runs GNU cpio with the input `archive` in the directory `place`. Returns its output.
    fn cpio(arguments: &[&str], archive: &[u8], place: &std::path::Path) -> String {
        let mut cpio = Command::new("cpio");
        cpio.args(arguments).current_dir(place).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut cpio = cpio.spawn().unwrap();
        cpio.stdin.take().unwrap().write_all(archive).unwrap();
        let done = cpio.wait_with_output().unwrap();
        assert!(done.status.success());
        String::from_utf8(done.stdout).unwrap()
    }

    #[test]
    fn cpio_lists_directories_before_their_contents() {
        let place = tempfile::tempdir().unwrap();
        let listed = cpio(&["-it", "--quiet"], &tree().bytes().unwrap(), place.path());
        let names: Vec<_> = listed.lines().collect();
        assert_eq!(names, ["bin", "bin/hello", "bin/sh", "etc", "etc/a", "etc/a/b", "proc"]);
    }

    #[test]
    fn cpio_unpacks_the_same_files() {
        let place = tempfile::tempdir().unwrap();
        cpio(&["-i", "--quiet", "--no-preserve-owner"], &tree().bytes().unwrap(), place.path());
        let output = Command::new(place.path().join("bin/sh")).output().unwrap().stdout;
        assert_eq!(output, b"hello\n");
        assert_eq!(std::fs::read(place.path().join("etc/a/b")).unwrap(), b"five!");
    }

    #[test]
    fn files_belong_to_root_and_have_the_time_0() {
        let place = tempfile::tempdir().unwrap();
        let listed = cpio(&["-itvn", "--quiet"], &tree().bytes().unwrap(), place.path());
        let hello = listed.lines().find(|line| line.ends_with("bin/hello")).unwrap();
        let words: Vec<_> = hello.split_whitespace().collect();
        assert_eq!(words, ["-rwxr-xr-x", "1", "0", "0", "21", "Jan", "1", "1970", "bin/hello"]);
    }

    #[test]
    fn the_order_of_adding_has_no_effect() {
        let mut other = Archive::default();
        other.directory("proc");
        other.file("etc/a/b", "five!");
        other.link("bin/sh", "hello");
        other.program("bin/hello", "#!/bin/sh\necho hello\n");
        assert!(other.bytes().unwrap() == tree().bytes().unwrap());
    }
}
