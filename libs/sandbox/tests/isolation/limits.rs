//! Attempts to use up the host.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use sandbox::Layers;

use crate::ends::start_sleeping;
use crate::scene::{CALLERS, Caller, ORDINARY, ROOT, Scene, cgroups, descendants};

const MIB: u64 = 1024 * 1024;

/// Error of a job that ran under the limits.
fn error(scene: Scene) -> String {
    scene.run().result.unwrap_err()
}

/// Root's jobs with a cgroup, without one, and an ordinary user's.
fn groups() -> [(Caller, Layers); 3] {
    let without = Layers { cgroup: false, ..Layers::default() };
    [(ROOT, Layers::default()), (ROOT, without), (ORDINARY, Layers::default())]
}

/// The limits of a job's memory and processes, as a cgroup has them, and as rlimits.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    cgroup: [Option<u64>; 2],
    rlimits: [Option<u64>; 2],
}

impl Found {
    /// Reads the limits of the process `job`, whose cgroup `keeper` created.
    fn of(keeper: u32, job: u32) -> Self {
        let groups = cgroups(keeper);
        let is_member = |group: &&PathBuf| {
            let members = fs::read_to_string(group.join("cgroup.procs")).unwrap();
            members.lines().any(|id| id == job.to_string())
        };
        let read = |names: &[&str]| {
            let files = groups.iter().filter(is_member);
            let mut files = files.flat_map(|group| names.iter().map(move |name| group.join(name)));
            files.find_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok())
        };
        let rlimits = fs::read_to_string(format!("/proc/{job}/limits")).unwrap();
        let rlimit = |name: &str| {
            let line = rlimits.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.split_whitespace().next().unwrap().parse().ok()
        };
        Self {
            cgroup: [read(&["memory.max", "memory.limit_in_bytes"]), read(&["pids.max"])],
            rlimits: [rlimit("Max address space"), rlimit("Max processes")],
        }
    }
}

#[test]
fn memory_and_processes_are_limited_by_a_cgroup_where_the_caller_may_create_one() {
    let expected = [Some(64 * MIB), Some(20)];
    for (caller, layers) in groups() {
        let scene = Scene::new(caller, "sleep", "").with_layers(layers);
        let scene = scene.with_limits(|limits| {
            (limits.memory_bytes, limits.processes) = (64 * MIB, 20);
        });
        let running = start_sleeping(&scene);
        let [(keeper, _), _, (job, _)] = descendants(running.id()).try_into().unwrap();
        let found = Found::of(keeper, job);
        if layers.cgroup && caller.has_cgroup() {
            assert_eq!(found.cgroup, expected, "{caller:?}");
            assert!(
                found.rlimits.iter().zip(expected).all(|(it, limit)| *it != limit),
                "{found:?}"
            );
        } else {
            assert_eq!(found, Found { cgroup: [None; 2], rlimits: expected }, "{caller:?}");
        }
    }
}

#[test]
fn a_job_that_takes_too_much_memory_is_stopped() {
    for (caller, layers) in groups() {
        let scene = Scene::new(caller, "memory", 512).with_layers(layers);
        let scene = scene.with_limits(|limits| limits.memory_bytes = 64 * MIB);
        assert_eq!(error(scene), "OutOfMemory", "{caller:?} {layers:?}");
    }
}

#[test]
fn a_fork_bomb_stays_small() {
    for (caller, layers) in groups() {
        let scene = Scene::new(caller, "processes", 100).with_layers(layers).with_programs();
        let scene = scene.with_limits(|limits| limits.processes = 20);
        let count: u32 = scene.run().result.unwrap().parse().unwrap();
        assert!((10..=20).contains(&count), "{count} {caller:?} {layers:?}");
    }
}

#[test]
fn processes_need_permission() {
    assert_eq!(Scene::new(ROOT, "processes", 1).run().result, Ok("0".into()));
}

#[test]
fn descriptors_are_limited() {
    let scene = Scene::new(ROOT, "descriptors", 100);
    let scene = scene.with_limits(|limits| limits.open_files = 20);
    let count: u32 = scene.run().result.unwrap().parse().unwrap();
    assert!((10..20).contains(&count), "{count}");
}

#[test]
fn too_many_bytes_in_scratch_stop_the_job() {
    for caller in CALLERS {
        for name in ["bytes", "hoard", "deleted"] {
            let scene = Scene::new(caller, name, 16);
            let scene = scene.with_limits(|limits| limits.scratch_bytes = 4 * MIB);
            assert!(error(scene).starts_with("TooManyBytes("), "{name}");
        }
    }
}

#[test]
fn too_many_files_in_scratch_stop_the_job() {
    for caller in CALLERS {
        for name in ["files", "flood"] {
            let scene = Scene::new(caller, name, 500);
            let scene = scene.with_limits(|limits| limits.scratch_files = 100);
            assert_eq!(error(scene), "TooManyFiles(101)");
        }
    }
}

#[test]
fn a_directory_that_cannot_be_counted_stops_the_job() {
    assert!(error(Scene::new(ORDINARY, "hidden", "")).starts_with("UncountableScratch("));
    let scene = Scene::new(ROOT, "hidden", "");
    let scene = scene.with_limits(|limits| limits.scratch_bytes = MIB / 2);
    assert!(error(scene).starts_with("TooManyBytes("));
}

#[test]
fn a_full_file_system_stops_the_job() {
    let scene = Scene::new(ROOT, "sleep", "");
    let scene = scene.with_limits(|limits| limits.free_bytes = u64::MAX);
    assert!(error(scene).starts_with("DiskFull("));
}

#[test]
fn a_file_has_a_maximum_size() {
    let scene = Scene::new(ROOT, "size", 1001);
    let scene = scene.with_limits(|limits| limits.file_bytes = 1000);
    assert_eq!(error(scene), "Failed(\"File too large (os error 27)\")");
}

#[test]
fn a_long_result_stops_the_job() {
    let scene = Scene::new(ROOT, "long", 1001);
    assert_eq!(
        error(scene.with_limits(|limits| limits.output_bytes = 1000)),
        "OutputTooLong(1000)"
    );
    let scene = Scene::new(ROOT, "long", 1000);
    let ended = scene.with_limits(|limits| limits.output_bytes = 1000).run();
    assert_eq!(ended.result.unwrap().len(), 1000);
}

#[test]
fn the_log_has_a_maximum_length() {
    let ended = Scene::new(ROOT, "log", 1_000_000).run();
    assert_eq!((ended.result, ended.log.len()), (Ok(String::new()), 64 * 1024));
}

#[test]
fn a_job_that_runs_too_long_is_stopped() {
    for caller in CALLERS {
        let scene = Scene::new(caller, "sleep", "");
        let scene = scene.with_limits(|limits| limits.wall_clock = Duration::from_secs(1));
        assert_eq!(error(scene), "TimedOut");
    }
}
