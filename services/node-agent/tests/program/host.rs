//! A place for one test: a mount namespace with a file system in memory that holds images and the program's directories.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount,
};
use rustix::process::{Pid, Signal, kill_process};

/// A static busybox (Debian: busybox-static).
const BUSYBOX: &str = "/bin/busybox";
const APPLETS: [&str; 18] = [
    "cat", "chroot", "echo", "env", "grep", "head", "kill", "ls", "mkdir", "mknod", "mount",
    "readlink", "sh", "sleep", "touch", "umount", "wc", "yes",
];
/// The looks at a condition, 20 ms apart.
const MAX_LOOKS: u32 = 6000;

/// The place of a test.
pub(crate) struct Host {
    pub(crate) root: PathBuf,
}

/// Runs `test` in a mount namespace of its own, and checks that mounts, loop devices, processes and directories are those of the start.
pub(crate) fn on_host(test: impl FnOnce(&Host) + Send + 'static) {
    let thread = std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNS).expect("these tests run as root");
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
        let directory = tempfile::tempdir().unwrap();
        mount("tmpfs", directory.path(), "tmpfs", MountFlags::empty(), c"mode=755").unwrap();
        let host = Host::new(directory.path().canonicalize().unwrap());
        let mounts = own_mounts();
        test(&host);
        host.check_clean(&mounts);
        drop(host);
        unmount(directory.path(), UnmountFlags::empty()).expect("nothing is open in the directory");
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

pub(crate) fn own_mounts() -> String {
    fs::read_to_string("/proc/thread-self/mountinfo").unwrap()
}

/// Waits until `condition` holds.
#[track_caller]
pub(crate) fn until(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..MAX_LOOKS {
        if condition() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("not within two minutes: {what}");
}

impl Host {
    fn new(root: PathBuf) -> Self {
        let host = Self { root };
        host.image("image");
        host
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn read(&self, name: &str) -> String {
        String::from_utf8_lossy(&fs::read(self.path(name)).unwrap_or_default()).into_owned()
    }

    /// Makes the directory `name` an image with busybox.
    pub(crate) fn image(&self, name: &str) -> PathBuf {
        let image = self.path(name);
        fs::create_dir_all(image.join("bin")).unwrap();
        fs::copy(BUSYBOX, image.join("bin/busybox")).expect("busybox-static is installed");
        for applet in APPLETS {
            symlink("busybox", image.join("bin").join(applet)).unwrap();
        }
        image
    }

    /// Writes an executable file into the image `image`.
    pub(crate) fn script(&self, image: &str, path: &str, text: &str) {
        let file = self.path(image).join(path);
        if file.is_symlink() {
            fs::remove_file(&file).unwrap();
        }
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o755)).unwrap();
    }

    /// Makes the file `name`, a squashfs with the content of `directory`.
    pub(crate) fn squashfs(&self, directory: &str, name: &str) {
        let (source, target) = (self.path(directory), self.path(name));
        run(Command::new("mksquashfs").args([source, target]).args(["-quiet", "-no-progress"]));
    }

    /// Makes the file `name`, an ext4 with the content of `directory`.
    pub(crate) fn ext4(&self, directory: &str, name: &str) {
        let target = self.path(name);
        fs::File::create(&target).unwrap().set_len(24 << 20).unwrap();
        let mut command = Command::new("mkfs.ext4");
        run(command.args(["-q", "-F", "-d"]).arg(self.path(directory)).arg(target));
    }

    /// Makes the images of the client in Python.
    pub(crate) fn client_images(&self) {
        for directory in ["image/proc", "image/dev", "image/sys", "files"] {
            fs::create_dir_all(self.path(directory)).unwrap();
        }
        // Unlike busybox's, it ends at a request to stop: the kernel discards signals to the first process that has no handler for them.
        let sleep = "#!/bin/sh\ntrap 'exit 0' 15\nbusybox sleep 1000 & wait $!\n";
        self.script("image", "bin/sleep", sleep);
        self.squashfs("image", "files/image.sqsh");
        self.ext4("image", "files/image.ext4");
    }

    /// Returns the loop devices whose file was in this place.
    pub(crate) fn loop_devices(&self) -> BTreeSet<String> {
        let names = fs::read_dir("/sys/block").unwrap().map(|entry| entry.unwrap().path());
        let is_ours = |path: &PathBuf| {
            let file = fs::read_to_string(path.join("loop/backing_file")).unwrap_or_default();
            file.contains(self.root.file_name().unwrap().to_str().unwrap())
        };
        names
            .filter(is_ours)
            .map(|path| path.file_name().unwrap().to_string_lossy().into())
            .collect()
    }

    /// Returns the mounts in the mount directory.
    pub(crate) fn mounts(&self) -> Vec<String> {
        let directory = self.text("mounts/");
        let all = own_mounts();
        let points = all.lines().filter_map(|line| line.split(' ').nth(4));
        points.filter(|point| point.starts_with(&directory)).map(str::to_owned).collect()
    }

    /// Returns the processes of this place: those that name it, and those whose root directory is in it.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let root = self.root.to_str().unwrap();
        let entries = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().file_name());
        let pids = entries.filter_map(|name| name.to_str()?.parse().ok());
        let names = |pid: &i32| {
            let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&command).contains(root)
        };
        pids.filter(names).collect()
    }

    /// Returns the names in the directory `name`.
    pub(crate) fn entries(&self, name: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path(name)) else { return Vec::new() };
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// Unmounts and detaches all of this place, as a restart of the machine does.
    pub(crate) fn lose_everything(&self) {
        until("nothing is mounted and attached", || {
            for mount in self.mounts().iter().rev() {
                // What another mount or a device needs is busy until that is gone.
                let _busy = unmount(mount.as_str(), UnmountFlags::empty());
            }
            for device in self.loop_devices() {
                let _busy =
                    Command::new("losetup").arg("-d").arg(format!("/dev/{device}")).output();
            }
            self.mounts().is_empty() && self.loop_devices().is_empty()
        });
    }

    /// Removes the control groups of the runs of this place, whose processes have ended.
    pub(crate) fn remove_control_groups(&self) {
        let Ok(hierarchies) = fs::read_dir("/sys/fs/cgroup") else { return };
        let paths = hierarchies.map(|entry| entry.unwrap().path());
        for root in paths.chain(["/sys/fs/cgroup".into()]) {
            for run in self.entries("state/runs") {
                // Hierarchies without the group.
                let _missing = fs::remove_dir(root.join("tinwright-node").join(run));
            }
            let _in_use = fs::remove_dir(root.join("tinwright-node"));
        }
    }

    /// Returns the mounts that were not there when `before` was read, and those of this place that are gone. Mounts of other programs
    /// end when these remove their directories.
    pub(crate) fn other_mounts(&self, before: &str) -> Vec<String> {
        let now = own_mounts();
        let new = now.lines().filter(|line| !before.lines().any(|earlier| earlier == *line));
        let root = self.root.to_str().unwrap();
        let gone = before.lines().filter(|line| line.contains(root) && !now.contains(*line));
        new.chain(gone).map(str::to_owned).collect()
    }

    fn check_clean(&self, mounts: &str) {
        until("no supervisor and no agent is left", || self.processes().is_empty());
        until("the mounts are those of the start", || self.other_mounts(mounts).is_empty());
        until("no loop device is left", || self.loop_devices().is_empty());
        assert_eq!(self.entries("mounts"), [""; 0], "directories of mounts");
        assert_eq!(self.entries("state/runs"), [""; 0], "run directories");
    }
}

impl Drop for Host {
    /// Ends what a failed test has left. Its mounts end with the namespace.
    fn drop(&mut self) {
        for pid in self.processes() {
            let _ended = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
        }
        self.remove_control_groups();
        // The paths of their files are gone with the mounts.
        let devices = self.loop_devices();
        for mount in self.mounts().iter().rev() {
            let _lazily = unmount(Path::new(mount), UnmountFlags::DETACH);
        }
        for device in devices {
            let _detached =
                Command::new("losetup").arg("-d").arg(format!("/dev/{device}")).status();
        }
    }
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
