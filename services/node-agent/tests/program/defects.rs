//! Defects of the original that need a kernel to be seen; each test is named after one.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::mount::{UnmountFlags, unmount};
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::bodies::{
    bind, bind_in, bind_ro, container, device_mount, loopback, loopback_in, overlay, running,
};
use crate::client::Client;
use crate::host::{Host, on_host, until};

fn images(host: &Host) {
    fs::create_dir(host.path("files")).unwrap();
    host.ext4("image", "files/image.ext4");
}

fn force(client: &Client, path: &str, object: &Value) -> Value {
    client.send("DELETE", &format!("{path}?id={}&force=true", object["id"]))
}

#[test]
fn d4_reads_change_no_count() {
    on_host(|host| {
        let agent = Agent::start(host);
        let client = &agent.client;
        let mount = client.post("/mount", &bind(&host.text("image")));
        client.post("/container", &container("c", "/bin/sh", json!({"id": mount["id"]})));
        for _ in 0..100 {
            assert_eq!(client.list(&format!("/mount?id={}", mount["id"]))[0]["refs"], 2);
            assert_eq!(client.status("GET", &format!("/attach?id={}", mount["id"])), 404);
            client.list("/container?name=c");
        }
        assert_eq!(client.list("/container")[0]["refs"], 1);
        client.send("DELETE", "/container?name=c");
        force(client, "/mount", &mount);
        client.until_empty();
    });
}

#[test]
fn d5_a_failed_loopback_or_bind_leaves_no_nested_base() {
    on_host(|host| {
        images(host);
        let agent = Agent::start(host);
        let base = || device_mount("ext4", &["ro"], loopback(&host.text("files/image.ext4")));
        assert_eq!(agent.client.refused("/attach", &loopback_in(base(), "/missing")).0, 400);
        assert_eq!(agent.client.refused("/mount", &bind_in(base(), "/missing")).0, 400);
        let wrong = device_mount("squashfs", &["ro"], loopback(&host.text("files/image.ext4")));
        assert_eq!(agent.client.refused("/mount", &overlay(vec![base(), wrong])).0, 500);
        agent.client.until_empty();
        assert_eq!((host.mounts(), host.loop_devices().len()), (vec![], 0));
        assert_eq!(host.entries("mounts"), [""; 0]);
    });
}

#[test]
fn d8_a_bind_for_reading_refuses_writes() {
    on_host(|host| {
        let agent = Agent::start(host);
        for (body, written) in
            [(bind_ro(&host.text("image")), false), (bind(&host.text("image")), true)]
        {
            let mount = agent.client.post("/mount", &body);
            let file = Path::new(mount["mountpoint"].as_str().unwrap()).join("file");
            let result = fs::write(&file, "text");
            assert_eq!(result.is_ok(), written, "{result:?}");
            force(&agent.client, "/mount", &mount);
        }
        agent.client.until_empty();
    });
}

#[test]
fn d10_a_bind_of_the_same_file_system_is_unmounted_and_answered_with_the_object() {
    on_host(|host| {
        let agent = Agent::start(host);
        let mount = agent.client.post("/mount", &bind(&host.text("image")));
        assert_eq!(host.mounts().len(), 1);
        let deleted = force(&agent.client, "/mount", &mount);
        assert_eq!(deleted, mount);
        assert_eq!((host.mounts(), host.entries("mounts")), (vec![], vec![]));
        agent.client.until_empty();
    });
}

#[test]
fn d12_a_file_system_in_use_is_busy_and_stays_also_by_force() {
    on_host(|host| {
        let agent = Agent::start(host);
        let mount = agent.client.post("/mount", &overlay(vec![bind(&host.text("image"))]));
        let directory = Path::new(mount["mountpoint"].as_str().unwrap());
        let open = File::create(directory.join("open")).unwrap();
        let delete = format!("/mount?id={}&force=true", mount["id"]);
        assert_eq!(agent.client.status("DELETE", &delete), 409);
        assert_eq!(agent.client.list("/mount").len(), 2);
        fs::write(directory.join("more"), "still works").unwrap();
        drop(open);
        agent.client.send("DELETE", &delete);
        agent.client.until_empty();
    });
}

#[test]
fn d12_a_file_system_in_use_is_detached_lazily_if_that_is_asked_for() {
    on_host(|host| {
        let agent = Agent::with_flags(host, &["--scheme", "unix", "--lazy-unmount"]);
        let mount = agent.client.post("/mount", &bind(&host.text("image")));
        let open =
            File::open(Path::new(mount["mountpoint"].as_str().unwrap()).join("bin/sh")).unwrap();
        force(&agent.client, "/mount", &mount);
        assert_eq!(host.mounts(), [""; 0]);
        drop(open);
    });
}

#[test]
fn d13_a_device_with_a_file_system_is_busy_and_stays_also_by_force() {
    on_host(|host| {
        images(host);
        let agent = Agent::start(host);
        let client = &agent.client;
        let attach = client.post("/attach", &loopback(&host.text("files/image.ext4")));
        let mount = client.post("/mount", &device_mount("ext4", &[], json!({"id": attach["id"]})));
        let delete = format!("/attach?id={}&force=true", attach["id"]);
        assert_eq!(client.status("DELETE", &delete), 409);
        let directory = Path::new(mount["mountpoint"].as_str().unwrap());
        fs::write(directory.join("file"), "still works").unwrap();
        assert_eq!(host.loop_devices().len(), 1);
        force(client, "/mount", &mount);
        client.send("DELETE", &delete);
        client.until_empty();
    });
}

#[test]
fn d15_parallel_starts_start_one_run() {
    on_host(|host| {
        let agent = Agent::start(host);
        let client = &agent.client;
        let created = client
            .post("/container", &container("c", "/bin/sleep 1000", bind(&host.text("image"))));
        std::thread::scope(|threads| {
            for _ in 0..8 {
                threads.spawn(|| client.send("PATCH", "/container?name=c&state=running"));
            }
        });
        let log = fs::read_to_string(created["logfile"].as_str().unwrap()).unwrap();
        assert_eq!(log.matches("starting container").count(), 1, "{log}");
        assert_eq!(host.entries("state/runs").len(), 1);
        client.send("DELETE", "/container?name=c&force=true");
        client.until_empty();
    });
}

#[test]
fn d18_d19_a_refused_container_leaves_no_log_and_unnamed_ones_have_no_name() {
    on_host(|host| {
        let agent = Agent::start(host);
        let client = &agent.client;
        let unnamed = || container("", "/bin/sh", bind(&host.text("image")));
        let first = client.post("/container", &unnamed());
        let second = client.post("/container", &unnamed());
        client.post("/container", &container("n2", "/bin/sh", json!({"id": first["mount"]["id"]})));
        let logs = host.entries("logs");
        assert_eq!(client.refused("/container", &container("n2", "/bin/sh", bind("/"))).0, 409);
        assert_eq!(
            client.refused("/container", &container("x", "/bin/sh", bind("/missing"))).0,
            400
        );
        assert_eq!(host.entries("logs"), logs);
        let ids: Vec<_> = client.list("/container").iter().map(|it| it["id"].clone()).collect();
        // D33: in ascending order.
        assert_eq!(ids[..2], [first["id"].clone(), second["id"].clone()]);
        for id in ids {
            client.send("DELETE", &format!("/container?id={id}"));
        }
        client.until_empty();
        assert_eq!(host.entries("logs").len(), 3, "logs stay after the deletion");
    });
}

#[test]
fn d21_a_mount_that_vanished_is_dropped_with_what_only_it_used() {
    on_host(|host| {
        images(host);
        let agent = Agent::start(host);
        let body = device_mount("ext4", &["ro"], loopback(&host.text("files/image.ext4")));
        let mount = agent.client.post("/mount", &body);
        unmount(mount["mountpoint"].as_str().unwrap(), UnmountFlags::empty()).unwrap();
        assert_eq!(force(&agent.client, "/mount", &mount)["id"], mount["id"]);
        agent.client.until_empty();
        assert_eq!(host.loop_devices().len(), 0);
    });
}

#[test]
fn d9_paths_with_parents_and_symbolic_links_stay_in_the_base() {
    on_host(|host| {
        images(host);
        fs::create_dir_all(host.path("base/etc/deep")).unwrap();
        fs::write(host.path("base/etc/passwd"), "of the image").unwrap();
        fs::create_dir(host.path("base/etc/directory")).unwrap();
        fs::write(host.path("base/etc/directory/mark"), "").unwrap();
        symlink("/etc/passwd", host.path("base/absolute")).unwrap();
        symlink("../../../../../../etc/passwd", host.path("base/etc/deep/relative")).unwrap();
        symlink("/etc/directory", host.path("base/directory")).unwrap();
        symlink("/root", host.path("base/outside")).unwrap();
        let agent = Agent::start(host);
        let client = &agent.client;
        let base = client.post("/mount", &bind(&host.text("base")));
        let reference = || json!({"id": base["id"]});
        for path in ["../../etc", "etc/../../etc", "/..", "etc/.."] {
            for (kind, body) in [
                ("/mount", bind(path)),
                ("/mount", bind_in(reference(), path)),
                ("/attach", loopback(path)),
                ("/attach", loopback_in(reference(), path)),
            ] {
                assert_eq!(client.refused(kind, &body).0, 400, "{body}");
            }
        }
        // What a link leads to outside is looked for inside.
        assert_eq!(client.refused("/mount", &bind_in(reference(), "/outside")).0, 400);
        let bound = client.post("/mount", &bind_in(reference(), "/directory"));
        assert!(Path::new(bound["mountpoint"].as_str().unwrap()).join("mark").exists());
        for path in ["/absolute", "/etc/deep/relative"] {
            let attach = client.post("/attach", &loopback_in(reference(), path));
            let device = attach["device_file"].as_str().unwrap().trim_start_matches("/dev/");
            let file =
                fs::read_to_string(format!("/sys/block/{device}/loop/backing_file")).unwrap();
            assert!(file.trim_end().ends_with("/etc/passwd") && file.contains("mount_"), "{file}");
            force(client, "/attach", &attach);
        }
        force(client, "/mount", &bound);
        force(client, "/mount", &base);
        client.until_empty();
    });
}

#[test]
fn a_recursive_bind_comes_with_what_is_mounted_below_and_goes_with_it() {
    on_host(|host| {
        fs::create_dir_all(host.path("tree/below")).unwrap();
        let agent = Agent::start(host);
        let client = &agent.client;
        rustix::mount::mount_bind(host.path("image"), host.path("tree/below")).unwrap();
        let body = json!({"kind": "bind", "bind": {"base": "root", "path": host.text("tree"), "recursive": true}});
        let mount = client.post("/mount", &body);
        assert_eq!(host.mounts().len(), 2);
        agent.kill();
        // A new process leaves the mounts below alone.
        let agent = Agent::start(host);
        std::thread::sleep(std::time::Duration::from_millis(300));
        assert_eq!(host.mounts().len(), 2);
        force(&agent.client, "/mount", &mount);
        assert_eq!(host.mounts(), [""; 0]);
        unmount(host.path("tree/below"), UnmountFlags::empty()).unwrap();
    });
}

#[test]
fn d7_a_teardown_that_fails_is_repeated_with_pauses_until_it_succeeds() {
    on_host(|host| {
        let agent = Agent::start(host);
        let client = &agent.client;
        let body = running("c", "/bin/sleep 1000", overlay(vec![bind(&host.text("image"))]));
        let created = client.post("/container", &body);
        let directory = Path::new(created["mount"]["mountpoint"].as_str().unwrap());
        let open = File::open(directory.join("bin/sh")).unwrap();
        client.send("DELETE", "/container?name=c&force=true");
        let tries = || agent.own_log().matches("is in use").count();
        until("the teardown was tried twice", || tries() >= 2);
        assert!(tries() < 10, "{}", agent.own_log());
        assert_eq!(client.list("/mount").len(), 2);
        drop(open);
        client.until_empty();
    });
}

#[test]
fn d37_what_overlays_write_is_in_a_directory_of_its_own_with_a_limit() {
    on_host(|host| {
        let upper = host.text("upper");
        let flags = ["--scheme", "unix", "--upper-directory", &upper, "--upper-size", "1MiB"];
        let agent = Agent::with_flags(host, &flags);
        let mount = agent.client.post("/mount", &overlay(vec![bind(&host.text("image"))]));
        assert!(mount["overlay"]["upperdir"].as_str().unwrap().starts_with(&upper), "{mount}");
        let file = Path::new(mount["mountpoint"].as_str().unwrap()).join("file");
        fs::write(&file, vec![7; 500_000]).unwrap();
        assert_eq!(fs::write(&file, vec![7; 2_000_000]).unwrap_err().raw_os_error(), Some(28)); // ENOSPC
        agent.kill();
        // What nobody knows of is removed at the start, and what is not of a node stays.
        fs::create_dir_all(host.path("upper/upper_7/a")).unwrap();
        fs::create_dir(host.path("upper/other")).unwrap();
        let agent = Agent::with_flags(host, &flags);
        until("the unknown directory is removed", || !host.path("upper/upper_7").exists());
        assert_eq!(host.entries("upper").len(), 3);
        force(&agent.client, "/mount", &mount);
        agent.client.until_empty();
        assert_eq!(host.entries("upper"), ["other"]);
        agent.stop();
        unmount(host.path("upper"), UnmountFlags::empty()).unwrap();
    });
}

#[test]
fn two_nodes_cannot_share_a_mount_directory() {
    on_host(|host| {
        let agent = Agent::start(host);
        let (state, socket) = (host.text("state2"), host.text("socket2"));
        let mut second = crate::agent::program();
        second.args(["--scheme", "unix", "--state-directory", &state, "--socket-path", &socket]);
        let directories = [host.text("mounts"), host.text("logs2")];
        second.args(["--mount-directory", &directories[0], "--log-directory", &directories[1]]);
        let output = second.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains("another process uses"), "{text}");
        assert_eq!(agent.client.list("/mount").len(), 0);
    });
}
