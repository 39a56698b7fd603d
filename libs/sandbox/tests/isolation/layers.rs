//! Each layer alone: an attack that it stops, and that succeeds without any layer.

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use sandbox::Layers;

use crate::scene::{ROOT, Scene, Victim};

const MIB: u64 = 1024 * 1024;
const NONE: Layers = Layers {
    namespaces: false,
    seccomp: false,
    landlock: false,
    rlimits: false,
    cgroup: false,
    quota: false,
};

/// Runs the job without any layer, and with `only` one.
fn compare(scene: Scene, only: Layers) -> (Result<String, String>, Result<String, String>) {
    let without = scene.with_layers(NONE);
    let result = without.run().result;
    for entry in fs::read_dir(&without.job.scratch).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    (result, without.with_layers(only).run().result)
}

#[test]
fn namespaces_alone_hide_files_processes_and_the_network() {
    let only = Layers { namespaces: true, ..NONE };
    let mut scene = Scene::new(ROOT, "read", "");
    let planted = scene.plant("planted");
    scene.job.input = planted.to_str().unwrap().into();
    let (without, with) = compare(scene, only);
    assert_eq!(without, Ok("planted".into()));
    assert_eq!(with, Err("Failed(\"No such file or directory (os error 2)\")".into()));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let scene = Scene::new(ROOT, "connect", listener.local_addr().unwrap());
    let (without, with) = compare(scene, only);
    assert_eq!(without, Ok("done".into()));
    assert_eq!(with, Err("Failed(\"Network is unreachable (os error 101)\")".into()));
    let mut victim = Victim::start(ROOT);
    let scene = Scene::new(ROOT, "kill", victim.0.id()).with_layers(only);
    assert_eq!(scene.run().result, Err("Failed(\"ESRCH: No such process\")".into()));
    assert!(victim.is_alive());
    scene.with_layers(NONE).run().result.unwrap();
    assert!(victim.0.wait().is_ok());
}

#[test]
fn mounts_alone_protect_inputs_and_keep_programs_out_of_scratch() {
    let only = Layers { namespaces: true, ..NONE };
    let mut scene = Scene::new(ROOT, "write", "/in/file").with_layers(only);
    let planted = scene.plant("planted");
    fs::set_permissions(&planted, Permissions::from_mode(0o666)).unwrap();
    scene.job.read_only = vec![(planted, "/in/file".into())];
    let read_only = Err("Failed(\"Read-only file system (os error 30)\")".into());
    assert_eq!(scene.run().result, read_only);
    for path in ["/file", "/in/other", "/dev/file", "/usr/file", "/bin/file"] {
        scene.job.input = path.into();
        assert_eq!(scene.run().result, read_only, "{path}");
    }
    let scene = Scene::new(ROOT, "program", "/scratch/true").with_layers(only);
    fs::copy("/bin/true", scene.job.scratch.join("true")).unwrap();
    let denied = Err("Failed(\"Permission denied (os error 13)\")".into());
    assert_eq!(scene.run().result, denied);
}

#[test]
fn seccomp_alone_refuses_calls() {
    let only = Layers { seccomp: true, ..NONE };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let scene = Scene::new(ROOT, "connect", listener.local_addr().unwrap());
    let (without, with) = compare(scene, only);
    assert_eq!(without, Ok("done".into()));
    assert_eq!(with, Err("Failed(\"Operation not permitted (os error 1)\")".into()));
    let (without, with) = compare(Scene::new(ROOT, "unshare", ""), only);
    assert_eq!((without, with), (Ok("done".into()), Err("SyscallRefused".into())));
    let (without, with) = compare(Scene::new(ROOT, "ptrace", ""), only);
    assert_eq!((without, with), (Ok("done".into()), Err("SyscallRefused".into())));
}

#[test]
fn landlock_alone_hides_files_and_programs() {
    let only = Layers { landlock: true, ..NONE };
    let denied: Result<String, _> = Err("Failed(\"Permission denied (os error 13)\")".to_owned());
    let mut scene = Scene::new(ROOT, "read", "");
    let planted = scene.plant("planted");
    scene.job.input = planted.to_str().unwrap().into();
    let (without, with) = compare(scene, only);
    assert_eq!((without, with), (Ok("planted".into()), denied.clone()));
    let (without, with) = compare(Scene::new(ROOT, "program", "/bin/true"), only);
    assert_eq!((without, with), (Ok(String::new()), denied));
}

/// Linux 6.7 and 6.12 added these rules. Without them the check calls Landlock partial, and the other
/// layers have to hold.
#[test]
fn landlock_alone_hides_sockets_and_processes_where_the_check_calls_it_full() {
    let only = Layers { landlock: true, ..NONE };
    let (check, _) = Scene::new(ROOT, "", "").check();
    let is_full = check.contains("Landlock: full");
    assert!(is_full || check.contains("Landlock: partial"), "{check}");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (without, with) =
        compare(Scene::new(ROOT, "connect", listener.local_addr().unwrap()), only);
    assert_eq!(without, Ok("done".into()));
    let mut victim = Victim::start(ROOT);
    let scene = Scene::new(ROOT, "kill", victim.0.id()).with_layers(only);
    let killed = scene.run().result;
    if is_full {
        assert_eq!(with, Err("Failed(\"Permission denied (os error 13)\")".into()));
        assert_eq!(killed, Err("Failed(\"EPERM: Operation not permitted\")".into()));
        assert!(victim.is_alive());
    } else {
        // One of the two is missing at least.
        assert!(with.is_ok() || killed.is_ok(), "{check}");
    }
}

#[test]
fn rlimits_alone_limit_memory_processes_and_files() {
    let only = Layers { rlimits: true, ..NONE };
    let scene = Scene::new(ROOT, "memory", 256).with_limits(|it| it.memory_bytes = 64 * MIB);
    let (without, with) = compare(scene, only);
    assert_eq!((without, with), (Ok("256".into()), Err("OutOfMemory".into())));
    let scene = Scene::new(ROOT, "size", 1001).with_limits(|it| it.file_bytes = 1000);
    let (without, with) = compare(scene, only);
    assert_eq!(without, Ok("done".into()));
    // PID 1 of a namespace would ignore SIGXFSZ and see an error instead.
    assert_eq!(with, Err("Killed(25)".into()));
    // The count of processes is one of the user namespace.
    let both = Layers { namespaces: true, ..only };
    let scene = Scene::new(ROOT, "processes", 40).with_limits(|it| it.processes = 20);
    let (without, with) = compare(scene, both);
    assert_eq!(without, Ok("40".into()));
    assert!(with.unwrap().parse::<u32>().unwrap() < 20);
}

#[test]
fn a_cgroup_alone_limits_memory_and_processes() {
    let only = Layers { cgroup: true, ..NONE };
    let scene = Scene::new(ROOT, "memory", 256).with_limits(|it| it.memory_bytes = 64 * MIB);
    let (without, with) = compare(scene, only);
    assert_eq!((without, with), (Ok("256".into()), Err("OutOfMemory".into())));
    let scene = Scene::new(ROOT, "processes", 40).with_limits(|it| it.processes = 20);
    let (without, with) = compare(scene, only);
    assert_eq!(without, Ok("40".into()));
    assert!(with.unwrap().parse::<u32>().unwrap() < 20);
}

#[test]
fn the_quota_alone_limits_bytes_and_files() {
    let only = Layers { quota: true, ..NONE };
    let scene = Scene::new(ROOT, "bytes", 8).with_limits(|it| it.scratch_bytes = 4 * MIB);
    let (without, with) = compare(scene, only);
    assert_eq!(without, Ok("done".into()));
    assert!(with.unwrap_err().starts_with("TooManyBytes("));
    let scene = Scene::new(ROOT, "files", 200).with_limits(|it| it.scratch_files = 100);
    let (without, with) = compare(scene, only);
    assert_eq!((without, with), (Ok("done".into()), Err("TooManyFiles(101)".into())));
}
