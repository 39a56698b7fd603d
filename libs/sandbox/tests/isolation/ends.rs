//! Ends of jobs and of the program: nothing is left.

use std::fs;
use std::path::{Path, PathBuf};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sandbox::Layers;

use crate::scene::{CALLERS, Running, Scene, cgroups, descendants, is_alive, wait_for};

#[test]
fn a_failure_has_its_text_and_a_panic_its_log() {
    let result = Scene::new(CALLERS[0], "fail", "no partition table").run().result;
    assert_eq!(result, Err("Failed(\"no partition table\")".into()));
    let ended = Scene::new(CALLERS[0], "panic", "index 7").run();
    assert_eq!(ended.result, Err("Failed(\"exit status 101 and no result\")".into()));
    assert!(ended.log.contains("index 7"), "{}", ended.log);
}

#[test]
fn an_unknown_job_and_a_missing_directory_are_invalid() {
    let mut scene = Scene::new(CALLERS[0], "missing", "");
    assert!(scene.run().result.unwrap_err().starts_with("InvalidJob("));
    scene.job.name = "echo".into();
    scene.job.scratch = scene.job.scratch.join("missing");
    assert!(scene.run().result.unwrap_err().starts_with("InvalidJob("));
}

/// Starts a job that sleeps, and waits until it does.
pub(crate) fn start_sleeping(scene: &Scene) -> Running {
    let mut running = scene.start();
    assert_eq!(running.line(), "progress 1");
    running
}

#[test]
fn a_killed_program_leaves_no_process_no_cgroup_and_no_mount() {
    for caller in CALLERS {
        let scene = Scene::new(caller, "sleep", "");
        let mut running = start_sleeping(&scene);
        let processes = descendants(running.id());
        assert_eq!(processes.len(), 3);
        let keeper = processes[0].0;
        assert_eq!(cgroups(keeper).is_empty(), !caller.has_cgroup());
        running.kill();
        wait_for("processes are left", || !processes.iter().any(is_alive));
        assert_eq!(cgroups(keeper), Vec::<PathBuf>::new());
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(scene.job.scratch.to_str().unwrap()));
    }
}

#[test]
fn a_killed_keeper_or_builder_leaves_no_process_and_no_cgroup() {
    for caller in CALLERS {
        for index in [0, 1] {
            let scene = Scene::new(caller, "sleep", "");
            let running = start_sleeping(&scene);
            let processes = descendants(running.id());
            let id = i32::try_from(processes[index].0).unwrap();
            kill(Pid::from_raw(id), Signal::SIGKILL).unwrap();
            wait_for("processes are left", || !processes.iter().any(is_alive));
            wait_for("the cgroup is left", || cgroups(processes[0].0).is_empty());
        }
    }
}

#[test]
fn a_dropped_run_kills_its_job_while_the_program_goes_on() {
    for caller in CALLERS {
        let scene = Scene::new(caller, "sleep", "");
        let mut running = scene.start_cancelled();
        assert_eq!(running.line(), "progress 1");
        assert_eq!(running.line(), "cancelled");
        wait_for("processes are left", || !descendants(running.id()).iter().any(is_alive));
    }
}

#[test]
fn a_finished_job_leaves_no_process_of_its_own() {
    let none = Layers { namespaces: false, seccomp: false, cgroup: false, ..Layers::default() };
    for caller in CALLERS {
        // A duration that no other process sleeps.
        let seconds = 1_000_000 + u64::from(std::process::id());
        let scene = Scene::new(caller, "orphan", seconds).with_programs();
        assert_eq!(scene.run().result, Ok("done".into()));
        assert_eq!(sleepers(seconds), [0; 0]);
        assert_eq!(scene.with_layers(none).run().result, Ok("done".into()));
        wait_for("the orphan started", || !sleepers(seconds).is_empty());
        for process in sleepers(seconds) {
            kill(Pid::from_raw(process), Signal::SIGKILL).unwrap();
        }
        wait_for("the orphan ended", || sleepers(seconds).is_empty());
    }
}

/// Returns the processes that sleep for `seconds`.
fn sleepers(seconds: u64) -> Vec<i32> {
    let expected = format!("sleep\0{seconds}\0").into_bytes();
    let is_sleeper = |path: &Path| fs::read(path.join("cmdline")).is_ok_and(|it| it == expected);
    let entries = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    entries
        .filter(|entry| is_sleeper(&entry.path()))
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}
