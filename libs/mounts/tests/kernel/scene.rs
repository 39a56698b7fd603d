//! A private place for one test, and the check that the test leaves nothing behind.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::Duration,
};

use mounts::{
    Deadline,
    loop_device::{self, LoopDevice, LoopOptions},
    mount_options::MountOptions,
    mount_point::{self, UnmountOptions},
    mount_table,
    paths::{self, ResolvedPath},
};
use nix::sched::{CloneFlags, unshare};
use rustix::mount::{MountPropagationFlags, mount_change};

static SCENES: AtomicU32 = AtomicU32::new(0);

/// Long enough for a loaded host: no step of these tests waits for it.
pub(crate) fn limit() -> Deadline {
    Deadline::after(Duration::from_secs(120))
}

/// A temporary directory, and a prefix for the marks of loop devices.
pub(crate) struct Scene {
    directory: tempfile::TempDir,
    prefix: String,
}

/// Runs a test in a thread with a mount namespace of its own, and checks that mounts and loop devices are those of the start.
pub(crate) fn in_private_namespace(test: impl FnOnce(&Scene) + Send + 'static) {
    let run = move || {
        unshare(CloneFlags::CLONE_NEWNS).expect("these tests need root");
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
        let number = SCENES.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("mounts-test-{}-{number}-", std::process::id());
        let scene = Scene { directory: tempfile::tempdir().unwrap(), prefix };
        let before = mount_table::read().unwrap();
        test(&scene);
        assert_eq!(mount_table::read().unwrap(), before);
        assert_eq!(scene.loop_devices(), []);
    };
    if let Err(panic) = thread::spawn(run).join() {
        std::panic::resume_unwind(panic);
    }
}

impl Scene {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Makes a directory for a mount.
    pub(crate) fn mount_point(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        mount_point::create(&path).unwrap();
        path
    }

    pub(crate) fn resolve(&self, path: &str) -> ResolvedPath {
        resolve_below(self.directory.path(), path)
    }

    pub(crate) fn mark(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    pub(crate) fn options(&self, name: &str) -> LoopOptions {
        LoopOptions { mark: self.mark(name), read_only: false, partition_scan: false }
    }

    /// Returns the loop devices of this test.
    pub(crate) fn loop_devices(&self) -> Vec<LoopDevice> {
        let mut devices = loop_device::list().unwrap();
        devices.retain(|device| device.mark.starts_with(&self.prefix));
        devices
    }

    /// Makes a file with an empty ext4 file system of 8 MiB.
    pub(crate) fn ext4_image(&self, name: &str) {
        let path = self.path(name);
        fs::File::create(&path).unwrap().set_len(8 << 20).unwrap();
        let made = Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&path).status().unwrap();
        assert!(made.success());
    }

    /// Attaches a file of the scene as a loop device with the mark `name`.
    pub(crate) fn attach(&self, file: &str, name: &str) -> LoopDevice {
        loop_device::attach(&self.resolve(file), self.options(name), limit()).unwrap()
    }
}

impl Drop for Scene {
    /// Frees what a failed test has left: its mounts end with the namespace, but loop devices belong to the host.
    fn drop(&mut self) {
        for mount in mount_table::below(self.directory.path()).unwrap().iter().rev() {
            let lazily = UnmountOptions { recursive: false, lazy: true };
            let _ = mount_point::unmount(&mount.mount_point, lazily, limit());
        }
        for device in self.loop_devices().iter().rev() {
            let _ = loop_device::detach(device.number, &device.mark, limit());
        }
    }
}

/// A small squashfs image with `greeting` and `etc/passwd`.
pub(crate) const SQUASHFS: &[u8] = include_bytes!("../data/small.sqsh");

pub(crate) fn resolve_below(base: &Path, path: &str) -> ResolvedPath {
    paths::resolve_below(base, Path::new(path), limit()).unwrap()
}

pub(crate) fn detach(device: &LoopDevice) -> mounts::Result<()> {
    loop_device::detach(device.number, &device.mark, limit())
}

pub(crate) fn mount(
    device: &LoopDevice,
    fs_type: &str,
    words: &[&str],
    target: &Path,
) -> mounts::Result<()> {
    let options = MountOptions::parse(words).unwrap();
    mounts::device_mount::mount(&device.device_file(), fs_type, &options, target, limit())
}

/// Unmounts, without taking along what is mounted below, and not lazily.
pub(crate) fn unmount(target: &Path) -> mounts::Result<()> {
    mount_point::unmount(target, UnmountOptions::default(), limit())
}

/// Mounts an empty file system in memory.
pub(crate) fn mount_tmpfs(target: &Path) {
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("tmpfs", target, "tmpfs", flags, c"size=1m").unwrap();
}

/// Returns the error number of a write into `directory`.
pub(crate) fn write_error(directory: &Path) -> Option<i32> {
    fs::write(directory.join("new"), "text").err().map(|error| error.raw_os_error().unwrap())
}

/// Linux's `EROFS`.
pub(crate) const READ_ONLY_FILE_SYSTEM: Option<i32> = Some(30);
