//! The cgroup of a job: root's, or one that was delegated to the caller.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use containers::Limits as GroupLimits;
use containers::cgroup::Cgroup;

use crate::job::Limits;

/// Minimum age of a group that is removed for lack of a keeper.
const MIN_ABANDONED_AGE: Duration = Duration::from_mins(1);
/// Parent of all groups of sandboxes.
const PARENT: &str = "tinwright-sandbox";

/// Returns a name for the group of the job of `keeper`. It has the time, since containers that share
/// the groups have processes of the same number.
pub(crate) fn name(keeper: u32) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    format!("{PARENT}/{keeper}-{now}")
}

/// Creates the group `name` with the limits of a job. None if no place allows both limits.
pub(crate) fn create(name: &str, limits: &Limits) -> Option<Cgroup> {
    let found = Cgroup::find(name).ok()?;
    found.directories().iter().filter_map(|path| path.parent()).for_each(remove_abandoned);
    let delegated = delegated(&found, name).into_iter().map(|path| vec![path]);
    std::iter::once(found.directories().to_vec())
        .chain(delegated)
        .find_map(|directories| create_in(directories, limits))
}

/// Kills what is left in the group `name`, wherever it was created, and removes it.
pub(crate) fn destroy(name: &str) {
    let Ok(found) = Cgroup::find(name) else { return };
    let places = found.directories().iter().cloned().chain(delegated(&found, name));
    let existing = places.filter(|place| place.exists()).collect();
    Cgroup::from_directories(existing).destroy();
}

/// Removes the groups below `parent` that killed keepers left. They have no processes: removing
/// others is refused by the kernel.
fn remove_abandoned(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().filter_map(Result::ok) {
        let name = entry.file_name();
        if name.to_str().is_some_and(is_abandoned) {
            let _removed = fs::remove_dir(entry.path());
        }
    }
}

/// True if the keeper in the name of a group is gone. It may live in another container's process
/// namespace: a new group, which has no process yet, is left alone.
fn is_abandoned(name: &str) -> bool {
    let Some((keeper, created)) = name.split_once('-') else { return false };
    let age = created.parse().ok().map(Duration::from_nanos).and_then(|created| {
        SystemTime::now().duration_since(UNIX_EPOCH).ok()?.checked_sub(created)
    });
    let is_gone = keeper.parse().is_ok_and(|id: u32| !Path::new(&format!("/proc/{id}")).exists());
    is_gone && age.is_some_and(|age| age > MIN_ABANDONED_AGE)
}

fn create_in(directories: Vec<PathBuf>, limits: &Limits) -> Option<Cgroup> {
    let mut group = Cgroup::from_directories(directories);
    match group.create(&group_limits(limits)) {
        Ok(()) => {
            deny_swap(&group, limits.memory_bytes);
            Some(group)
        }
        Err(_) => {
            group.destroy();
            None
        }
    }
}

/// Moves this process into the group, so that its children are members.
pub(crate) fn enter(directories: &[PathBuf], limits: &Limits) -> io::Result<()> {
    Cgroup::from_directories(directories.to_vec()).enter(&group_limits(limits))
}

fn group_limits(limits: &Limits) -> GroupLimits {
    GroupLimits {
        max_processes: Some(limits.processes),
        max_memory_bytes: Some(limits.memory_bytes),
    }
}

/// Keeps the memory limit from being evaded by swap space. A host without swap accounting lacks
/// the files.
fn deny_swap(group: &Cgroup, memory_bytes: u64) {
    for directory in group.directories() {
        let _written = fs::write(directory.join("memory.swap.max"), "0");
        let joint = directory.join("memory.memsw.limit_in_bytes");
        let _written = fs::write(joint, memory_bytes.to_string());
    }
}

/// Returns the places of a group in version 2 beside and below the group of this process.
///
/// A group with processes cannot pass on controllers, so that the place below only works where the
/// service manager delegated a group and put this program into a subgroup.
fn delegated(found: &Cgroup, name: &str) -> Vec<PathBuf> {
    let depth = Path::new(name).components().count();
    let mounts =
        found.directories().iter().filter_map(|directory| directory.ancestors().nth(depth));
    let unified = mounts.into_iter().find(|mount| mount.join("cgroup.controllers").exists());
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = own.lines().find_map(|line| line.strip_prefix("0::/").map(str::to_owned));
    let (Some(unified), Some(own)) = (unified, own) else { return Vec::new() };
    let own = unified.join(own);
    own.parent().into_iter().chain([own.as_path()]).map(|place| place.join(name)).collect()
}

/// True if the kernel killed a process of the group because of its memory limit.
pub(crate) fn was_out_of_memory(group: &Cgroup) -> bool {
    let files = ["memory.oom_control", "memory.events"];
    let paths = group.directories().iter().flat_map(|path| files.map(|file| path.join(file)));
    paths.filter_map(|path| fs::read_to_string(path).ok()).any(|text| has_oom_kills(&text))
}

fn has_oom_kills(text: &str) -> bool {
    let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
    count.is_some_and(|count| count.trim() != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_old_group_without_a_keeper_is_abandoned() {
        let own = std::process::id();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
        assert!(is_abandoned("4294967295-1000"));
        for name in [
            &format!("4294967295-{now}"),
            &format!("{own}-1000"),
            "x-1000",
            "4294967295-x",
            "4294967295",
            "",
        ] {
            assert!(!is_abandoned(name), "{name}");
        }
    }

    #[test]
    fn kills_are_read_from_both_versions() {
        assert!(has_oom_kills("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"));
        assert!(has_oom_kills("low 0\nhigh 0\nmax 9\noom 1\noom_kill 1\noom_group_kill 0\n"));
        assert!(!has_oom_kills("oom 1\noom_kill 0\noom_group_kill 0\n") && !has_oom_kills(""));
    }
}
