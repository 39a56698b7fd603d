//! An interrupted `tinwright image build` leaves no process, no mount and no file.

use std::fs::File;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::process::soon;

/// Stands in for mmdebstrap, whose last argument is the directory of the system: mounts a file system there, as mmdebstrap mounts /proc, and
/// does not end by itself. `$IDS` gets its id and that of its child.
const ENDLESS_MMDEBSTRAP: &str = r#"
for root; do :; done
mkdir -p "$root/proc"
mount -t tmpfs none "$root/proc"
echo content > "$root/proc/file"
sleep 300 &
echo $$ $! > "$IDS.new"
mv "$IDS.new" "$IDS"
wait
"#;

/// Stands in for mmdebstrap: makes the files of the system that a build reads.
const MMDEBSTRAP: &str = r#"
for root; do :; done
mkdir -p "$root/etc/ssh" "$root/usr/lib/grub/i386-pc"
head -c 512 /dev/zero > "$root/usr/lib/grub/i386-pc/boot.img"
"#;

/// Stands in for `chroot ROOT grub-mkimage`.
const CHROOT: &str = r#"head -c 512 /dev/zero > "$1/boot/grub/i386-pc/core.img""#;

/// Size of the root file system in MiB. Compressing its zeros takes longer than the test.
const SIZE_MIB: &str = "262144";

/// A running build, and the directory with its files.
struct Build {
    place: tempfile::TempDir,
    child: Child,
}

impl Build {
    /// Starts a build with stand-ins for the programs that it runs.
    fn start(mmdebstrap: &str) -> Self {
        assert!(
            rustix::process::geteuid().is_root(),
            "images are built by root: run tests as root"
        );
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        for directory in ["programs", "images", "temporary"] {
            std::fs::create_dir(path(directory)).unwrap();
        }
        let programs = [("mmdebstrap", mmdebstrap), ("chroot", CHROOT)];
        for (name, script) in
            programs.into_iter().chain(["mke2fs", "mformat", "mmd", "mcopy"].map(|name| (name, "")))
        {
            let program = path("programs").join(name);
            std::fs::write(&program, format!("#!/bin/sh\nset -e\n{script}")).unwrap();
            std::fs::set_permissions(program, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        // An earlier image, which stays.
        std::fs::write(path("images/debian-12.raw.zst"), "earlier").unwrap();
        // If the build leaves a mount, no other process sees it.
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private"]);
        // This process may have been started to ignore SIGINT, as shells start commands in the background.
        command.args(["env", "--default-signal=INT", env!("CARGO_BIN_EXE_tinwright")]);
        command.args(["image", "build", "debian-12", "--size", SIZE_MIB, "--files"]);
        command.arg(path("images")).env("TMPDIR", path("temporary")).env("IDS", path("ids"));
        let path_variable = std::env::var("PATH").unwrap();
        command.env("PATH", format!("{}:{path_variable}", path("programs").display()));
        let log = File::create(path("log")).unwrap();
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        Self { place, child }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap()
    }

    /// Sends `signal` once there is a file at `path`, and waits for the end.
    async fn interrupt(&mut self, path: &Path, signal: Signal) -> ExitStatus {
        let reached = async {
            while !path.exists() {
                assert!(self.child.try_wait().unwrap().is_none(), "{}", self.log());
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        soon(reached).await;
        assert_ne!(names(&self.path("temporary")), [""; 0], "the files of the build");
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        let ended = async {
            loop {
                match self.child.try_wait().unwrap() {
                    Some(status) => return status,
                    None => tokio::time::sleep(Duration::from_millis(10)).await,
                }
            }
        };
        soon(ended).await
    }

    /// Checks that the directories are as before the build.
    fn check_removed(&self) {
        assert_eq!(names(&self.path("temporary")), [""; 0], "{}", self.log());
        assert_eq!(names(&self.path("images")), ["debian-12.raw.zst"], "{}", self.log());
        let image = std::fs::read_to_string(self.path("images/debian-12.raw.zst")).unwrap();
        assert_eq!(image, "earlier");
    }
}

impl Drop for Build {
    fn drop(&mut self) {
        // An error means that it has ended.
        drop(self.child.kill());
    }
}

/// Returns the names in `directory`.
fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Waits until the process `id` has ended. A zombie has: in a container, it may stay.
async fn ended(id: &str) {
    let runs = || {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat"));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    };
    let ended = async {
        while runs() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon(ended).await;
}

#[tokio::test]
async fn an_interrupted_installation_of_packages_ends_its_processes_and_removes_its_files() {
    for (signal, name) in [(Signal::INT, "SIGINT"), (Signal::TERM, "SIGTERM")] {
        let mut build = Build::start(ENDLESS_MMDEBSTRAP);
        let ids = build.path("ids");
        let status = build.interrupt(&ids, signal).await;
        let log = build.log();
        assert_eq!(status.code(), Some(1), "{log}");
        assert!(log.ends_with(&format!("tinwright: interrupted by {name}\n")), "{log}");
        build.check_removed();
        let ids = std::fs::read_to_string(ids).unwrap();
        assert_eq!(ids.split_whitespace().count(), 2, "{ids}");
        for id in ids.split_whitespace() {
            ended(id).await;
        }
    }
}

#[tokio::test]
async fn an_interrupted_compression_removes_its_files_and_leaves_the_earlier_image() {
    let mut build = Build::start(MMDEBSTRAP);
    let compressed = build.path("images/.debian-12.raw.zst.tmp");
    let status = build.interrupt(&compressed, Signal::INT).await;
    let log = build.log();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("debian-12: compressing\n"), "{log}");
    assert!(log.ends_with("tinwright: interrupted by SIGINT\n"), "{log}");
    build.check_removed();
}
