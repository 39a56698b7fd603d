//! A place for one test: a mount namespace with a tmpfs that holds an image, run directories and logs.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use containers::cgroup::Cgroup;
use containers::{Launcher, Limits, LogSettings, Namespaces, Quotes, Run, RunOutcome, Spec};
use nix::sched::{CloneFlags, unshare};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount,
};
use rustix::process::{Pid, Signal, kill_process};

/// The executable with the supervisor's subcommand.
pub(crate) const DAEMON: &str = env!("CARGO_BIN_EXE_container-daemon");
/// A static busybox (Debian: busybox-static).
const BUSYBOX: &str = "/bin/busybox";
const APPLETS: [&str; 16] = [
    "cat", "chroot", "env", "grep", "head", "hostname", "ls", "mkdir", "mknod", "mount",
    "readlink", "sh", "sleep", "stat", "wc", "yes",
];
/// Looks at a condition, 20 ms apart.
const MAX_LOOKS: u32 = 3000;

static COUNTER: AtomicU32 = AtomicU32::new(0);

/// The place of a test.
pub(crate) struct Host {
    pub(crate) root: PathBuf,
    name: String,
    runs: AtomicU32,
}

/// Runs `test` in a mount namespace of its own, and checks that nothing is left of it.
pub(crate) fn on_host(test: impl AsyncFnOnce(&Host) + Send + 'static) {
    let thread = std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNS).expect("tests run as root");
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
        let directory = tempfile::tempdir().unwrap();
        mount("tmpfs", directory.path(), "tmpfs", MountFlags::empty(), c"mode=755").unwrap();
        let mounts = own_mounts();
        let host = Host::new(directory.path().canonicalize().unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            test(&host).await;
            host.check_clean().await;
        });
        // Mounts of other programs end when these remove their directories.
        let new: Vec<_> = own_mounts().difference(&mounts).cloned().collect();
        assert_eq!(new, [""; 0]);
        drop(runtime);
        // A program that another test starts has copies of our descriptors until it is executed.
        let is_unmounted = || unmount(directory.path(), UnmountFlags::empty()).is_ok();
        until("nothing is open in the image", is_unmounted);
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

fn own_mounts() -> BTreeSet<String> {
    let all = fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
    all.lines().map(str::to_owned).collect()
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
    panic!("not within a minute: {what}");
}

/// True if the process `pid` exists and is no zombie.
pub(crate) fn is_running(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, fields)| !fields.starts_with(['Z', 'X']))
}

pub(crate) fn sigkill(pid: i32) {
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
}

impl Host {
    fn new(root: PathBuf) -> Self {
        for directory in ["image/bin", "runs", "logs"] {
            fs::create_dir_all(root.join(directory)).unwrap();
        }
        fs::copy(BUSYBOX, root.join("image/bin/busybox")).expect("busybox-static is installed");
        for applet in APPLETS {
            symlink("busybox", root.join("image/bin").join(applet)).unwrap();
        }
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        Self {
            root,
            name: format!("tinwright-test-{}-{number}", std::process::id()),
            runs: AtomicU32::new(0),
        }
    }

    /// A path in the image.
    pub(crate) fn image(&self, path: &str) -> PathBuf {
        self.root.join("image").join(path)
    }

    /// Writes an executable file into the image.
    pub(crate) fn script(&self, path: &str, text: &str) {
        fs::write(self.image(path), text).unwrap();
        fs::set_permissions(self.image(path), Permissions::from_mode(0o755)).unwrap();
    }

    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.image(path)).unwrap_or_default()
    }

    /// A run of `command` with a log of its own.
    pub(crate) fn spec(&self, command: &str) -> Spec {
        let number = self.runs.fetch_add(1, Ordering::Relaxed);
        Spec {
            container: number.into(),
            image: self.root.join("image"),
            command: command.to_owned(),
            quotes: Quotes::Strip,
            systemd: false,
            namespaces: Namespaces::default(),
            limits: Limits::default(),
            cgroup: format!("{}/{number}", self.name),
            log: LogSettings::new(self.root.join(format!("logs/{number}-1.log"))),
        }
    }

    pub(crate) fn directory(&self, spec: &Spec) -> PathBuf {
        self.root.join(format!("runs/{}", spec.container))
    }

    pub(crate) fn log(spec: &Spec) -> String {
        String::from_utf8_lossy(&fs::read(&spec.log.path).unwrap_or_default()).into_owned()
    }

    pub(crate) async fn try_start(&self, spec: &Spec) -> Result<Run, containers::Error> {
        let launcher = Launcher { program: DAEMON.into(), arguments: vec!["supervise".into()] };
        Run::start(&launcher, &self.directory(spec), spec).await
    }

    pub(crate) async fn start(&self, spec: &Spec) -> Run {
        self.try_start(spec).await.unwrap()
    }

    /// Runs `command` to its end, and returns how it ended and what it wrote: its log without the lines of the server.
    pub(crate) async fn run(&self, spec: &Spec) -> (RunOutcome, String) {
        let outcome = self.start(spec).await.wait().await.unwrap();
        let log = Self::log(spec);
        let is_server_line = |line: &str| line.contains(" init: ") || line.contains(" container(");
        let output = log
            .lines()
            .filter(|line| !is_server_line(line))
            .map(|line| format!("{line}\n"))
            .collect();
        (outcome, output)
    }

    /// Checks that no control group, process or zombie of this test is left.
    async fn check_clean(&self) {
        let cgroup = Cgroup::find(&self.name).unwrap();
        for directory in cgroup.directories() {
            assert!(!directory.exists(), "{directory:?}");
        }
        until("no supervisor is left", || processes_naming(&self.root).is_empty());
        until("no zombie is left", || zombie_children().is_empty());
    }
}

/// The processes with `path` in their command line.
pub(crate) fn processes_naming(path: &Path) -> Vec<i32> {
    let path = path.to_str().unwrap();
    let names = |pid: i32| {
        let command_line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&command_line).contains(path)
    };
    all_pids().into_iter().filter(|pid| names(*pid)).collect()
}

fn all_pids() -> Vec<i32> {
    let entries = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().file_name());
    entries.filter_map(|name| name.to_str()?.parse().ok()).collect()
}

fn zombie_children() -> Vec<i32> {
    let own = std::process::id().to_string();
    let is_zombie_child = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields: Vec<&str> =
            stat.rsplit_once(") ").map_or("", |(_, fields)| fields).split(' ').collect();
        fields.first() == Some(&"Z") && fields.get(1) == Some(&own.as_str())
    };
    all_pids().into_iter().filter(is_zombie_child).collect()
}
