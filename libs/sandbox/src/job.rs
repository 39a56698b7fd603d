//! Values that describe a job and its confinement.

use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Names at the sandbox's root that a job's own files must not use.
const RESERVED: [&str; 10] =
    ["bin", "dev", "lib", "lib64", "oldroot", "proc", "program", "sbin", "scratch", "usr"];

/// A job: a function of this program, its input and its files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// Name of the function, as passed to [`run_if_sandboxed`](crate::run_if_sandboxed).
    pub name: String,
    /// Input of the function, at most [`MAX_INPUT_BYTES`](Job::MAX_INPUT_BYTES).
    pub input: Vec<u8>,
    /// Directory of the host that the job may write to; it is the working directory of the job.
    ///
    /// Where the caller is root, the directory is given to the sandbox's [`User`]. Its contents are
    /// hostile once the job has run: open them without following symbolic links.
    pub scratch: PathBuf,
    /// Files and directories that the job may read: path on the host, path in the sandbox. The
    /// sandbox's [`User`] needs read permission.
    pub read_only: Vec<(PathBuf, PathBuf)>,
    /// True if the job may start programs, such as `qemu-img`.
    pub programs_allowed: bool,
    /// Limits of the job.
    pub limits: Limits,
}

/// Limits of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Timeout of the job, its setup included.
    pub wall_clock: Duration,
    /// Maximum memory in bytes: of all processes with a cgroup, of each process without.
    pub memory_bytes: u64,
    /// Maximum number of processes and threads.
    pub processes: u64,
    /// Maximum allocated bytes in the scratch directory, counted each second.
    pub scratch_bytes: u64,
    /// Maximum number of files and directories in the scratch directory, counted each second.
    pub scratch_files: u64,
    /// Minimum free bytes of the scratch directory's file system, looked at each second.
    pub free_bytes: u64,
    /// Maximum size of one file in bytes, holes included.
    pub file_bytes: u64,
    /// Maximum number of open descriptors of a process.
    pub open_files: u64,
    /// Maximum size of the result in bytes.
    pub output_bytes: u32,
}

/// Unprivileged ids of the host that a job runs as if its caller is root.
///
/// No other service should use them: its processes could enter the sandbox and change the scratch
/// directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// Protection that holds on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// True if a cgroup limits memory and processes; else `RLIMIT_AS` and `RLIMIT_NPROC` do.
    pub cgroup: bool,
    /// State of Landlock.
    pub landlock: LandlockState,
    /// True if the caller was root and the job runs as [`User`].
    pub dropped_root: bool,
}

/// State of Landlock, which depends on the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LandlockState {
    /// Each rule is enforced.
    Full,
    /// The kernel enforces some of the rules.
    Partial,
    /// The kernel has no Landlock. Namespaces and seccomp hold.
    None,
}

/// Layers of the sandbox, for tests of a single layer.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Layers {
    /// Namespaces and mounts.
    pub namespaces: bool,
    /// System call filters.
    pub seccomp: bool,
    /// Landlock rules.
    pub landlock: bool,
    /// Resource limits.
    pub rlimits: bool,
    /// Cgroup.
    pub cgroup: bool,
    /// Scratch quota.
    pub quota: bool,
}

impl Job {
    /// Maximum size of a job's input.
    pub const MAX_INPUT_BYTES: usize = 1024 * 1024;

    /// Returns the job `name` with default limits, without other files and programs.
    pub fn new(name: impl Into<String>, input: Vec<u8>, scratch: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            input,
            scratch: scratch.into(),
            read_only: Vec::new(),
            programs_allowed: false,
            limits: Limits::default(),
        }
    }

    /// Returns the problem of a job that cannot be started.
    pub(crate) fn problem(&self) -> Option<String> {
        if self.input.len() > Self::MAX_INPUT_BYTES {
            return Some(format!("input: {} bytes: too long", self.input.len()));
        }
        let targets = || self.read_only.iter().map(|(_, target)| target);
        if let Some(target) = targets().find(|target| !is_allowed_target(target)) {
            return Some(format!("read_only: {}: not an allowed path", target.display()));
        }
        // A file cannot be added below a directory that is read-only already.
        let is_nested =
            |target: &PathBuf| targets().filter(|other| target.starts_with(other)).count() > 1;
        let nested = targets().find(|target| is_nested(target));
        nested.map(|target| format!("read_only: {}: below another path", target.display()))
    }
}

/// True for an absolute path without `.` and `..` outside the sandbox's own directories.
fn is_allowed_target(path: &Path) -> bool {
    let mut components = path.components();
    let is_absolute = components.next() == Some(Component::RootDir);
    let names: Option<Vec<&str>> = components
        .map(|component| if let Component::Normal(name) = component { name.to_str() } else { None })
        .collect();
    let is_free = |names: &Vec<&str>| names.first().is_some_and(|name| !RESERVED.contains(name));
    is_absolute && names.as_ref().is_some_and(is_free)
}

impl Default for Limits {
    fn default() -> Self {
        const GIB: u64 = 1024 * 1024 * 1024;
        Self {
            wall_clock: Duration::from_mins(30),
            memory_bytes: 4 * GIB,
            processes: 256,
            scratch_bytes: 64 * GIB,
            scratch_files: 10_000,
            free_bytes: GIB,
            file_bytes: 64 * GIB,
            open_files: 256,
            output_bytes: 1024 * 1024,
        }
    }
}

impl Default for User {
    /// Returns the ids of Debian's `nobody` and `nogroup`, which own no files.
    fn default() -> Self {
        Self { uid: 65534, gid: 65534 }
    }
}

impl Default for Layers {
    fn default() -> Self {
        Self {
            namespaces: true,
            seccomp: true,
            landlock: true,
            rlimits: true,
            cgroup: true,
            quota: true,
        }
    }
}

impl fmt::Display for Confinement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits = match self.cgroup {
            true => "cgroup",
            false => "rlimits, because no cgroup is delegated",
        };
        let landlock = match self.landlock {
            LandlockState::Full => "full",
            LandlockState::Partial => "partial",
            LandlockState::None => "none",
        };
        let user = if self.dropped_root { "unprivileged id" } else { "caller's id" };
        write!(formatter, "memory and processes: {limits}, Landlock: {landlock}, user: {user}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_cannot_be_placed_over_a_directory_of_the_sandbox() {
        for path in ["relative", "/", "/usr/x", "/program", "/a/../usr", "/scratch/a", "/proc"] {
            assert!(!is_allowed_target(Path::new(path)), "{path}");
        }
        assert!(is_allowed_target(Path::new("/image")) && is_allowed_target(Path::new("/in/a")));
    }

    #[test]
    fn a_file_cannot_be_placed_below_another_one() {
        let problem = |targets: &[&str]| {
            let mut job = Job::new("a", Vec::new(), "/scratch");
            job.read_only = targets.iter().map(|it| ("/x".into(), it.into())).collect();
            job.problem()
        };
        assert_eq!(problem(&["/in/a", "/in/b", "/in/ab"]), None);
        assert!(problem(&["/in/a", "/in"]).is_some() && problem(&["/in", "/in"]).is_some());
    }

    #[test]
    fn too_much_input_is_a_problem() {
        let job = |length| Job::new("a", vec![0; length], "/scratch").problem();
        assert_eq!(job(Job::MAX_INPUT_BYTES), None);
        assert!(job(Job::MAX_INPUT_BYTES + 1).is_some());
    }
}
