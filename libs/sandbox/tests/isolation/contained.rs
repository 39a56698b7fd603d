//! Attempts to reach the host.

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::process::Command;

use crate::scene::{CALLERS, ORDINARY, ROOT, Scene, Victim, create_data};

const DENIED: &str = "Operation not permitted (os error 1)";

fn failed(text: &str) -> Result<String, String> {
    Err(format!("Failed({text:?})"))
}

#[test]
fn a_job_gets_its_input_and_gives_its_result_and_progress() {
    for caller in CALLERS {
        assert_eq!(Scene::new(caller, "echo", "ä\n").run().result, Ok("ä\n".into()));
        assert_eq!(Scene::new(caller, "progress", "").run().progress, ["1", "2", "3"]);
        assert_eq!(Scene::new(caller, "threads", "").run().result, Ok("2997000".into()));
    }
}

#[test]
fn the_check_names_the_protection() {
    let (root, _) = Scene::new(ROOT, "", "").check();
    let (ordinary, _) = Scene::new(ORDINARY, "", "").check();
    assert!(root.contains("user: unprivileged id"), "{root}");
    assert!(ordinary.contains("caller's id"), "{ordinary}");
    for (caller, text) in [(ROOT, root), (ORDINARY, ordinary)] {
        assert_eq!(text.contains("processes: cgroup"), caller.has_cgroup(), "{text}");
        assert_eq!(text.contains("processes: rlimits"), !caller.has_cgroup(), "{text}");
    }
}

#[test]
fn a_job_has_no_identity_of_the_host_and_no_rights() {
    for caller in CALLERS {
        let result = Scene::new(caller, "identity", "").run().result;
        assert_eq!(result, Ok("65534 65534 [] 0 Ok(true)".into()));
    }
}

#[test]
fn a_job_of_root_is_an_unprivileged_process_on_the_host() {
    let scene = Scene::new(ROOT, "write", "/scratch/a");
    scene.run().result.unwrap();
    let file = fs::metadata(scene.job.scratch.join("a")).unwrap();
    let ids =
        (std::os::unix::fs::MetadataExt::uid(&file), std::os::unix::fs::MetadataExt::gid(&file));
    assert_eq!(ids, (65534, 65534));
}

#[test]
fn a_job_sees_neither_the_host_nor_its_environment() {
    for caller in CALLERS {
        let result = Scene::new(caller, "surroundings", "").run().result;
        assert_eq!(result, Ok("[\"PATH\"] [] sandbox /scratch 1".into()));
    }
}

#[test]
fn files_of_the_host_are_not_there() {
    for caller in CALLERS {
        let mut scene = Scene::new(caller, "read", "");
        let planted = scene.plant("planted").display().to_string();
        for path in
            [&planted, "/etc/passwd", "/proc/1/environ", "/scratch/../scratch/../etc/passwd"]
        {
            scene.job.input = path.into();
            assert_eq!(
                scene.run().result,
                failed("No such file or directory (os error 2)"),
                "{path}"
            );
        }
    }
}

#[test]
fn inputs_can_be_read_and_only_scratch_can_be_written() {
    for caller in CALLERS {
        let mut scene = Scene::new(caller, "read", "/in/file");
        let planted = scene.plant("planted");
        fs::set_permissions(&planted, Permissions::from_mode(0o666)).unwrap();
        scene.job.read_only = vec![(planted, "/in/file".into())];
        assert_eq!(scene.run().result, Ok("planted".into()));
        scene.job.name = "write".into();
        for path in ["/in/file", "/file", "/usr/file", "/program", "/dev/file"] {
            scene.job.input = path.into();
            assert!(scene.run().result.is_err(), "{path}");
        }
        scene.job.input = "/scratch/file".into();
        scene.run().result.unwrap();
        assert_eq!(fs::read_to_string(scene.job.scratch.join("file")).unwrap(), "x");
    }
}

#[test]
fn neither_the_host_nor_its_sockets_can_be_reached() {
    for caller in CALLERS {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(Scene::new(caller, "connect", address).run().result, failed(DENIED));
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_err());
        let mut scene = Scene::new(caller, "unix", "/scratch/socket");
        let _listener = UnixListener::bind(scene.job.scratch.join("socket")).unwrap();
        assert_eq!(scene.run().result, failed(DENIED));
        scene.job.input = b"/run/socket".into();
        assert_eq!(scene.run().result, failed(DENIED));
    }
}

#[test]
fn a_process_of_the_same_user_is_out_of_reach() {
    for caller in CALLERS {
        let mut victim = Victim::start(caller);
        let result = Scene::new(caller, "kill", victim.0.id()).run().result;
        assert_eq!(result, failed("ESRCH: No such process"));
        assert!(victim.is_alive());
    }
}

#[test]
fn calls_that_only_an_attack_makes_kill_the_job() {
    for caller in CALLERS {
        for name in ["mount", "unshare", "ptrace"] {
            assert_eq!(Scene::new(caller, name, "").run().result, Err("SyscallRefused".into()));
        }
    }
}

#[test]
fn a_job_cannot_outlive_its_builder() {
    assert_eq!(Scene::new(ROOT, "undying", "").run().result, failed(DENIED));
}

#[test]
fn programs_need_permission() {
    for caller in CALLERS {
        let scene = Scene::new(caller, "program", "/usr/bin/id -u");
        assert_eq!(scene.run().result, failed(DENIED));
        assert_eq!(scene.with_programs().run().result, Ok("65534\n".into()));
    }
}

#[test]
fn a_program_in_scratch_cannot_be_started() {
    for caller in CALLERS {
        let scene = Scene::new(caller, "program", "/scratch/true").with_programs();
        fs::copy("/bin/true", scene.job.scratch.join("true")).unwrap();
        assert_eq!(scene.run().result, failed("Permission denied (os error 13)"));
    }
}

#[test]
fn qemu_img_reads_and_converts_an_image() {
    for caller in CALLERS {
        let line = "qemu-img convert -f qcow2 -O raw /in/image raw";
        let mut scene = Scene::new(caller, "program", line).with_programs();
        let (raw, image) = (scene.plant("raw"), scene.plant("image"));
        create_data(&raw, 3);
        let mut command = Command::new("qemu-img");
        command.args(["convert", "-c", "-f", "raw", "-O", "qcow2"]).args([&raw, &image]);
        assert!(command.status().unwrap().success());
        scene.job.read_only = vec![(image, "/in/image".into())];
        let ended = scene.run();
        assert_eq!((ended.result, ended.log.as_str()), (Ok(String::new()), ""));
        let converted = fs::read(scene.job.scratch.join("raw")).unwrap();
        assert!(converted == fs::read(raw).unwrap());
        scene.job.input = b"qemu-img info --output=json -f qcow2 /in/image".into();
        assert!(scene.run().result.unwrap().contains("\"virtual-size\": 3145728"));
    }
}

#[test]
fn a_backing_file_of_the_host_is_not_found() {
    let line = "qemu-img convert -f qcow2 -O raw /in/image raw";
    let mut scene = Scene::new(ROOT, "program", line).with_programs();
    let (secret, image) = (scene.plant("secret"), scene.plant("image"));
    create_data(&secret, 1);
    let mut command = Command::new("qemu-img");
    command.args(["create", "-q", "-f", "qcow2", "-F", "raw", "-b"]).args([&secret, &image]);
    assert!(command.status().unwrap().success());
    scene.job.read_only = vec![(image, "/in/image".into())];
    let ended = scene.run();
    assert!(
        ended.result.is_err() && ended.log.contains("Could not open backing file"),
        "{ended:?}"
    );
}

#[test]
fn a_program_that_is_private_to_root_runs_as_a_copy() {
    let scene = Scene::new(ROOT, "echo", "a");
    fs::set_permissions(scene.program(), Permissions::from_mode(0o700)).unwrap();
    assert_eq!(scene.run().result, Ok("a".into()));
}

#[test]
fn a_program_that_was_replaced_while_it_runs_starts_itself_not_the_other_one() {
    let scene = Scene::new(ROOT, "echo", "a");
    // An open descriptor keeps the file, which has no name any more when it starts.
    let script = r#"exec 7<"$1"; rm "$1"; cp /bin/false "$1"; exec /proc/self/fd/7 run "$2" "{}""#;
    let mut command = Command::new("bash");
    command.args(["-c", script, "bash"]).arg(scene.program());
    let output = command.arg(serde_json::to_string(&scene.job).unwrap()).output().unwrap();
    assert_eq!(crate::scene::text(&output.stdout), "[[\"ok\",\"a\"],\"\"]\n", "{output:?}");
}

#[test]
fn a_host_without_user_namespaces_runs_nothing_and_says_why() {
    let scene = Scene::new(ORDINARY, "write", "/scratch/a");
    let job = serde_json::to_string(&scene.job).unwrap();
    // The limit holds for the namespaces in the one that sets it.
    let script = r#"echo 0 >/proc/sys/user/max_user_namespaces; "$1" check; exec "$1" run "$2" {}"#;
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "sh", "-c", script, "sh"]);
    let output = command.arg(scene.program()).arg(job).output().unwrap();
    let (result, check) = (crate::scene::text(&output.stdout), crate::scene::text(&output.stderr));
    let reason = "/proc/sys/user/max_user_namespaces is 0";
    assert!(check.contains(reason), "{check}");
    assert!(result.contains("Unavailable") && result.contains(reason), "{result}");
    assert_eq!(fs::read_dir(&scene.job.scratch).unwrap().count(), 0);
}
