//! A file tree as the kernel unpacks it: a cpio archive in the "new ASCII" form (the kernel's
//! `Documentation/driver-api/early-userspace/buffer-format.rst`).
//!
//! The same tree is the same bytes, whoever writes it, when and where: entries go by name, everything is root's and of
//! no particular time, and inode numbers are places in the archive.

use std::collections::BTreeMap;
use std::io::{self, Write};

/// What the last entry is called.
const TRAILER: &str = "TRAILER!!!";

/// A file tree, by path from its root, without a leading slash.
#[derive(Debug, Default)]
pub(super) struct Archive {
    entries: BTreeMap<String, Entry>,
}

#[derive(Debug)]
enum Entry {
    Directory,
    File { permissions: u32, content: Vec<u8> },
    Link { target: String },
}

impl Entry {
    /// File type and permissions (inode(7)).
    fn mode(&self) -> u32 {
        match self {
            Self::Directory => 0o040_755,
            Self::File { permissions, .. } => 0o100_000 | permissions,
            Self::Link { .. } => 0o120_777,
        }
    }

    fn content(&self) -> &[u8] {
        match self {
            Self::Directory => &[],
            Self::File { content, .. } => content,
            Self::Link { target } => target.as_bytes(),
        }
    }

    /// Names it has; a directory's own `.` is one, its subdirectories' `..` are left uncounted.
    fn names(&self) -> u32 {
        if matches!(self, Self::Directory) { 2 } else { 1 }
    }
}

impl Archive {
    /// Adds an empty directory.
    pub(super) fn directory(&mut self, path: &str) {
        self.add(path, Entry::Directory);
    }

    /// Adds a file that anybody reads.
    pub(super) fn file(&mut self, path: &str, content: impl Into<Vec<u8>>) {
        self.add(path, Entry::File { permissions: 0o644, content: content.into() });
    }

    /// Adds a file that anybody reads and runs.
    pub(super) fn program(&mut self, path: &str, content: impl Into<Vec<u8>>) {
        self.add(path, Entry::File { permissions: 0o755, content: content.into() });
    }

    /// Adds a symbolic link.
    pub(super) fn link(&mut self, path: &str, target: &str) {
        self.add(path, Entry::Link { target: target.into() });
    }

    /// Adds `entry` and the directories above it. By name, they come before what is in them.
    fn add(&mut self, path: &str, entry: Entry) {
        for (slash, _) in path.match_indices('/') {
            let above = path.get(..slash).unwrap_or_default();
            self.entries.entry(above.into()).or_insert(Entry::Directory);
        }
        self.entries.insert(path.into(), entry);
    }

    /// Writes all of it. An entry has room for 4 GiB; `InvalidInput` names one that is longer.
    pub(super) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        for ((path, entry), inode) in self.entries.iter().zip(1..) {
            write_entry(out, inode, path, entry)?;
        }
        let end = Entry::File { permissions: 0, content: Vec::new() };
        write_entry(out, 0, TRAILER, &end)
    }
}

fn write_entry(out: &mut impl Write, inode: u32, path: &str, entry: &Entry) -> io::Result<()> {
    let too_long = |_| io::Error::new(io::ErrorKind::InvalidInput, format!("{path} is too long"));
    let content = entry.content();
    let name = path.len() + 1; // with the NUL that ends it
    let (owner, time, device, checksum) = (0, 0, 0, 0);
    let length = u32::try_from(content.len()).map_err(too_long)?;
    let name_length = u32::try_from(name).map_err(too_long)?;
    write!(out, "070701")?;
    for field in [inode, entry.mode(), owner, owner, entry.names(), time, length] {
        write!(out, "{field:08x}")?;
    }
    for field in [device, device, device, device, name_length, checksum] {
        write!(out, "{field:08x}")?;
    }
    out.write_all(path.as_bytes())?;
    out.write_all(&[0])?;
    pad(out, HEADER + name)?;
    out.write_all(content)?;
    pad(out, content.len())
}

/// A magic number and thirteen fields.
const HEADER: usize = 6 + 13 * 8;

/// Fills up to a multiple of four after `length` bytes.
fn pad(out: &mut impl Write, length: usize) -> io::Result<()> {
    let missing = length.next_multiple_of(4) - length;
    std::iter::repeat_n(0, missing).try_for_each(|zero| out.write_all(&[zero]))
}

#[cfg(test)]
mod tests {
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

    fn bytes(archive: &Archive) -> Vec<u8> {
        let mut bytes = Vec::new();
        archive.write(&mut bytes).unwrap();
        bytes
    }

    /// What GNU cpio prints when it is given `archive`, in the directory `place`.
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
    fn cpio_lists_directories_before_what_is_in_them() {
        let place = tempfile::tempdir().unwrap();
        let listed = cpio(&["-it", "--quiet"], &bytes(&tree()), place.path());
        let names: Vec<_> = listed.lines().collect();
        assert_eq!(names, ["bin", "bin/hello", "bin/sh", "etc", "etc/a", "etc/a/b", "proc"]);
    }

    #[test]
    fn cpio_unpacks_what_went_in() {
        let place = tempfile::tempdir().unwrap();
        cpio(&["-i", "--quiet", "--no-preserve-owner"], &bytes(&tree()), place.path());
        let said = Command::new(place.path().join("bin/sh")).output().unwrap().stdout;
        assert_eq!(said, b"hello\n");
        assert_eq!(std::fs::read(place.path().join("etc/a/b")).unwrap(), b"five!");
    }

    #[test]
    fn cpio_sees_root_s_files_of_no_particular_time() {
        let place = tempfile::tempdir().unwrap();
        let listed = cpio(&["-itvn", "--quiet"], &bytes(&tree()), place.path());
        let hello = listed.lines().find(|line| line.ends_with("bin/hello")).unwrap();
        let words: Vec<_> = hello.split_whitespace().collect();
        assert_eq!(words, ["-rwxr-xr-x", "1", "0", "0", "21", "Jan", "1", "1970", "bin/hello"]);
    }

    #[test]
    fn the_order_of_adding_leaves_no_trace() {
        let mut other = Archive::default();
        other.directory("proc");
        other.file("etc/a/b", "five!");
        other.link("bin/sh", "hello");
        other.program("bin/hello", "#!/bin/sh\necho hello\n");
        assert!(bytes(&other) == bytes(&tree()));
    }
}
