//! Loop devices, detached at the end of their test.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// A block device over a file full of old data.
pub(crate) struct LoopDisk {
    pub(crate) path: String,
    backing: PathBuf,
    _directory: TempDir,
}

/// The old content of every disk, repeated.
pub(crate) const OLD: u8 = 0xdd;

impl LoopDisk {
    pub(crate) fn new(size: u64) -> Self {
        Self::with_sectors(size, 512)
    }

    /// Creates a disk with sectors of `sector` bytes.
    pub(crate) fn with_sectors(size: u64, sector: u64) -> Self {
        let directory = TempDir::new().unwrap();
        let backing = directory.path().join("disk");
        fs::write(&backing, vec![OLD; usize::try_from(size).unwrap()]).unwrap();
        let path = sh(&format!("losetup -b {sector} --find --show {}", backing.display()));
        Self { path, backing, _directory: directory }
    }

    /// Creates a disk on which partitions can be made.
    pub(crate) fn with_partitions(size: u64) -> Self {
        let mut disk = Self::new(size);
        sh(&format!("losetup --detach {}", disk.path));
        disk.path = sh(&format!("losetup -P --find --show {}", disk.backing.display()));
        disk
    }

    /// Makes the partition 1, from 1 to 5 MiB, without a table: the kernel may have no parser for tables. Returns its path.
    pub(crate) fn add_partition(&self) -> String {
        sh(&format!("addpart {} 1 2048 8192", self.path));
        format!("{}p1", self.path)
    }

    /// Creates a disk with an ext4 file system.
    pub(crate) fn ext4() -> Self {
        let disk = Self::new(16 << 20);
        sh(&format!("mkfs.ext4 -q -F {}", disk.path));
        disk
    }

    /// Returns the content of the device, read from its backing file.
    pub(crate) fn content(&self) -> Vec<u8> {
        File::open(&self.path).unwrap().sync_all().unwrap();
        fs::read(&self.backing).unwrap()
    }

    /// True if all of the old data is still there.
    pub(crate) fn is_untouched(&self) -> bool {
        self.content().iter().all(|byte| *byte == OLD)
    }

    /// Returns the 512-byte sectors written so far, and those discarded or zeroed (the kernel's Documentation/block/stat).
    pub(crate) fn sectors(&self) -> (u64, u64) {
        let name = self.path.trim_start_matches("/dev/");
        let stat = fs::read_to_string(format!("/sys/block/{name}/stat")).unwrap();
        let fields: Vec<u64> =
            stat.split_whitespace().map(|field| field.parse().unwrap()).collect();
        (fields[6], fields[13])
    }

    /// Returns the bytes allocated for the backing file; discarded ranges are not allocated.
    pub(crate) fn allocated(&self) -> u64 {
        File::open(&self.path).unwrap().sync_all().unwrap();
        self.backing.metadata().unwrap().blocks() * 512
    }

    /// Mounts the file system until the guard is dropped.
    pub(crate) fn mounted(&self) -> Mounted {
        let place = TempDir::new().unwrap();
        sh(&format!("mount -t ext4 {} {}", self.path, place.path().display()));
        Mounted(place)
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        let _detached = Command::new("losetup").args(["--detach", &self.path]).status();
    }
}

/// A mounted file system.
pub(crate) struct Mounted(TempDir);

impl Mounted {
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _unmounted = Command::new("umount").arg(self.0.path()).status();
    }
}

/// Runs `command`, which must succeed, and returns its output.
pub(crate) fn sh(command: &str) -> String {
    let output = Command::new("sh").args(["-c", command]).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}
