//! Control groups of version 1 and version 2 as one type.
//!
//! A container is a member of one group of the same name in each mounted hierarchy. Limits are written where a hierarchy
//! offers them. Killing works without any hierarchy too: the container's PID namespace ends with its PID 1, and the group
//! only finds processes that entered it from elsewhere.

mod hierarchy;

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::spec::Limits;

/// Attempts to create a group while a parent is being removed by another run's end.
const CREATE_ATTEMPTS: u32 = 20;
/// Time between two looks at a group whose processes are ending.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Attempts to remove a group whose last process has just ended.
const REMOVE_ATTEMPTS: u32 = 400;

/// A control group: one directory in each hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroup {
    directories: Vec<PathBuf>,
}

impl Cgroup {
    /// The group `name` in each hierarchy mounted in this process's mount namespace; it is not created yet.
    ///
    /// # Errors
    /// `name` is not a plain relative path, or the mounts cannot be read.
    pub fn find(name: &str) -> io::Result<Self> {
        let plain =
            Path::new(name).components().all(|component| matches!(component, Component::Normal(_)));
        if name.is_empty() || !plain {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("invalid control group {name:?}"),
            ));
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        Ok(Self {
            directories: hierarchy::mount_points(&mounts)
                .into_iter()
                .map(|path| path.join(name))
                .collect(),
        })
    }

    /// The group with these directories, as an earlier process recorded them.
    pub fn from_directories(directories: Vec<PathBuf>) -> Self {
        Self { directories }
    }

    /// The directory in each hierarchy.
    pub fn directories(&self) -> &[PathBuf] {
        &self.directories
    }

    /// Creates the group with `limits`. A hierarchy that does not let us create groups is left out.
    ///
    /// # Errors
    /// A limit cannot be set in any hierarchy.
    pub fn create(&mut self, limits: &Limits) -> io::Result<()> {
        self.directories.retain(|directory| create_directory(directory).is_ok());
        self.leave_out_unified();
        if let Some(processes) = limits.max_processes {
            self.set(&["pids.max"], processes)?;
        }
        if let Some(bytes) = limits.max_memory_bytes {
            self.set(&["memory.max", "memory.limit_in_bytes"], bytes)?;
        }
        Ok(())
    }

    /// Leaves out the hierarchy of version 2 if it has no controllers beside hierarchies of version 1: it adds nothing, and entering it is
    /// slow.
    fn leave_out_unified(&mut self) {
        let controllers =
            |directory: &Path| fs::read_to_string(directory.join("cgroup.controllers"));
        if self.directories.iter().any(|directory| controllers(directory).is_err()) {
            let is_empty =
                |directory: &Path| controllers(directory).is_ok_and(|it| it.trim().is_empty());
            let left_out = self.directories.extract_if(.., |directory| is_empty(directory));
            left_out.for_each(|directory| remove(&directory));
        }
    }

    /// Moves the calling process, which has a single thread, into the group. A hierarchy that refuses it is skipped, as a cpuset
    /// without CPUs is.
    ///
    /// # Errors
    /// A hierarchy with a limit refuses it.
    pub fn enter(&self, limits: &Limits) -> io::Result<()> {
        for directory in &self.directories {
            // Version 1. A thread that moves itself does not wait until all processors have noticed, unlike a process that is moved:
            // that takes 10 to 40 ms.
            let threads = directory.join("tasks");
            let file = if threads.exists() { threads } else { directory.join("cgroup.procs") };
            match fs::write(file, "0") {
                Err(error) if is_limited(directory, limits) => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// Kills every member until none is left, and removes the group. Processes that the kernel cannot end, such as those
    /// waiting for a file server, are waited for.
    pub fn destroy(&self) {
        while !self.is_empty() {
            self.kill();
            sleep(POLL_INTERVAL);
        }
        self.directories.iter().for_each(|directory| remove(directory));
    }

    /// True if no process is in the group or in a group below it.
    pub fn is_empty(&self) -> bool {
        self.directories.iter().all(|directory| members(directory).is_empty())
    }

    fn kill(&self) {
        for directory in &self.directories {
            // Linux 5.14, version 2 only: ends the members at once, forks included.
            if fs::write(directory.join("cgroup.kill"), "1").is_err() {
                members(directory).into_iter().for_each(|pid| kill_member(directory, pid));
            }
        }
    }

    /// Writes `value` to the first of `files` that exists.
    fn set(&self, files: &[&str], value: u64) -> io::Result<()> {
        let mut candidates = self
            .directories
            .iter()
            .flat_map(|directory| files.iter().map(|file| directory.join(file)));
        match candidates.find(|path| path.exists()) {
            Some(path) => fs::write(path, value.to_string()),
            None => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!("no hierarchy offers {}", files.join(" or ")),
            )),
        }
    }
}

/// True if one of `limits` is set in `directory`.
fn is_limited(directory: &Path, limits: &Limits) -> bool {
    let has = |file: &str| directory.join(file).exists();
    (limits.max_processes.is_some() && has("pids.max"))
        || (limits.max_memory_bytes.is_some()
            && (has("memory.max") || has("memory.limit_in_bytes")))
}

/// Creates `directory` and its parents, with the controllers of version 2 where they can be had.
fn create_directory(directory: &Path) -> io::Result<()> {
    let mut result = Ok(());
    for _ in 0..CREATE_ATTEMPTS {
        if let Some(parent) = directory.parent() {
            result = fs::create_dir_all(parent);
            hierarchy::enable_controllers(parent);
        }
        result = result.and_then(|()| fs::create_dir_all(directory));
        if !result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            break;
        }
    }
    result
}

/// The processes in `directory` and below it.
fn members(directory: &Path) -> Vec<i32> {
    let mut found = processes(directory);
    for group in groups_below(directory) {
        found.extend(members(&group));
    }
    found
}

fn processes(directory: &Path) -> Vec<i32> {
    let text = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

fn groups_below(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let is_group = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    entries.filter_map(Result::ok).filter(is_group).map(|entry| entry.path()).collect()
}

/// Kills `pid` if it is still a member once its descriptor is open: its id may be another process's by now.
fn kill_member(directory: &Path, pid: i32) {
    let Some(process) =
        Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok())
    else {
        return;
    };
    if members(directory).contains(&pid) {
        // ESRCH: it ended by itself.
        let _sent = pidfd_send_signal(process, Signal::KILL);
    }
}

/// Removes the group `directory`, those below it, and its parent if that is empty.
fn remove(directory: &Path) {
    groups_below(directory).iter().for_each(|group| remove(group));
    for _ in 0..REMOVE_ATTEMPTS {
        match fs::remove_dir(directory) {
            // A group stays busy for a moment after its last process has ended.
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => sleep(POLL_INTERVAL),
            Ok(()) | Err(_) => break,
        }
    }
    if let Some(parent) = directory.parent() {
        // ENOTEMPTY or EBUSY: other groups or processes are in it, or it is the hierarchy's root.
        let _removed = fs::remove_dir(parent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_leaves_the_hierarchy_is_refused() {
        for name in ["", "/a", "../a", "a/../../b", "./a"] {
            assert_eq!(
                Cgroup::find(name).unwrap_err().kind(),
                io::ErrorKind::InvalidInput,
                "{name}"
            );
        }
    }

    #[test]
    fn a_limit_that_no_hierarchy_offers_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let mut cgroup = Cgroup::from_directories(vec![directory.path().join("a/b")]);
        cgroup.create(&Limits::default()).unwrap();
        assert!(directory.path().join("a/b").is_dir());
        let limits = Limits { max_processes: Some(1), max_memory_bytes: None };
        assert_eq!(cgroup.create(&limits).unwrap_err().kind(), io::ErrorKind::Unsupported);
    }

    #[test]
    fn limits_are_written_where_the_hierarchy_has_their_file() {
        let directory = tempfile::tempdir().unwrap();
        for (hierarchy, file) in [("first", "pids.max"), ("second", "memory.limit_in_bytes")] {
            fs::create_dir_all(directory.path().join(hierarchy)).unwrap();
            fs::write(directory.path().join(hierarchy).join(file), "max").unwrap();
        }
        let directories = ["first", "second"].map(|name| directory.path().join(name));
        let mut cgroup = Cgroup::from_directories(directories.to_vec());
        cgroup.create(&Limits { max_processes: Some(64), max_memory_bytes: Some(4096) }).unwrap();
        let read = |path: &str| fs::read_to_string(directory.path().join(path)).unwrap();
        assert_eq!(
            (read("first/pids.max"), read("second/memory.limit_in_bytes")),
            ("64".into(), "4096".into())
        );
    }

    #[test]
    fn destroying_a_group_ends_its_members_and_removes_the_groups_below_it() {
        let name = format!("tinwright-test-{}/a", std::process::id());
        let mut cgroup = Cgroup::find(&name).unwrap();
        cgroup.create(&Limits::default()).unwrap();
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        for directory in cgroup.directories() {
            // A cpuset without CPUs refuses it.
            let _moved = fs::write(directory.join("cgroup.procs"), child.id().to_string());
        }
        assert!(!cgroup.directories().is_empty() && !cgroup.is_empty());
        for directory in cgroup.directories() {
            fs::create_dir_all(directory.join("below/deeper")).unwrap();
        }
        cgroup.destroy();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&child.wait().unwrap()), Some(9));
        for directory in cgroup.directories() {
            assert!(
                !directory.exists() && directory.parent().is_none_or(|parent| !parent.exists()),
                "{directory:?}"
            );
        }
    }
}
