//! Stacks of attachments and mounts with containers (contract, section 14, check 6).

use std::fs;

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::bodies::{
    bind, bind_in, bind_ro, device_mount, loopback, loopback_in, overlay, running, squashfs_stack,
};
use crate::client::Client;
use crate::host::{Host, on_host};

/// Runs a container over `mount` to its end, and deletes it. Its log is returned.
fn run_and_delete(host: &Host, client: &Client, mount: Value) -> String {
    let body = running("journey", "/bin/cat /greeting", mount);
    let created = client.post("/container", &body);
    client.until_state(&created["id"], "exited");
    let deleted = client.send("DELETE", "/container?name=journey");
    assert_eq!(deleted["state"], "exited");
    client.until_empty();
    assert_eq!((host.mounts(), host.loop_devices().len()), (vec![], 0));
    fs::read_to_string(created["logfile"].as_str().unwrap()).unwrap()
}

/// Makes an image with a greeting, also as squashfs and as ext4.
fn images(host: &Host) {
    fs::write(host.path("image/greeting"), "hello\n").unwrap();
    // Directories for what is mounted in the container cannot be made in a file system that is read-only.
    for directory in ["image/proc", "image/dev", "image/sys", "files"] {
        fs::create_dir(host.path(directory)).unwrap();
    }
    host.squashfs("image", "files/image.sqsh");
    host.ext4("image", "files/image.ext4");
}

#[test]
fn a_container_runs_from_each_kind_of_mount_and_nothing_is_left() {
    on_host(|host| {
        images(host);
        let agent = Agent::start(host);
        let (squashfs, ext4) = (host.text("files/image.sqsh"), host.text("files/image.ext4"));
        let mounts = [
            bind(&host.text("image")),
            bind_ro(&host.text("image")),
            overlay(vec![bind(&host.text("image"))]),
            device_mount("squashfs", &["ro"], loopback(&squashfs)),
            device_mount("ext4", &["rw", "noatime"], loopback(&ext4)),
            overlay(vec![device_mount("ext4", &["ro"], loopback(&ext4))]),
            bind_in(bind(&host.root.to_string_lossy()), "/image"),
        ];
        for mount in mounts {
            let log = run_and_delete(host, &agent.client, mount.clone());
            assert!(log.contains("\nhello\n"), "{mount}: {log}");
        }
        assert!(agent.stop().success());
        assert!(!host.path("socket").exists());
    });
}

#[test]
fn the_nested_chain_of_a_squashfs_in_a_directory_under_an_overlay() {
    on_host(|host| {
        images(host);
        let agent = Agent::start(host);
        let client = &agent.client;
        let stack = squashfs_stack(&host.text("files"), "/image.sqsh");
        let body = running("compute", "/bin/sh /init", stack);
        let created = client.post("/container", &body);
        // /init is not in the image, so the shell ends with an error.
        client.until_state(&created["id"], "dead");
        let counts = |path: &str| -> Vec<_> {
            client.list(path).iter().map(|object| object["refs"].as_i64()).collect()
        };
        assert_eq!(counts("/attach"), [Some(1)]);
        assert_eq!(counts("/mount"), [Some(1), Some(1), Some(1)]);
        assert_eq!(counts("/container"), [Some(1)]);
        assert_eq!((host.mounts().len(), host.loop_devices().len()), (3, 1));
        client.send("DELETE", "/container?name=compute");
        client.until_empty();
        let stack = squashfs_stack(&host.text("files"), "/image.sqsh");
        assert!(run_and_delete(host, client, stack).contains("\nhello\n"));
    });
}

#[test]
fn what_is_written_to_a_device_stays_and_what_is_written_to_an_overlay_does_not() {
    on_host(|host| {
        images(host);
        let agent = Agent::start(host);
        let client = &agent.client;
        let ext4 = || device_mount("ext4", &["rw"], loopback(&host.text("files/image.ext4")));
        let run = |command: &str, mount| {
            let created = client.post("/container", &running("c", command, mount));
            client.until_state(&created["id"], "exited");
            client.send("DELETE", "/container?name=c");
            client.until_empty();
            fs::read_to_string(created["logfile"].as_str().unwrap()).unwrap()
        };
        run("/bin/mkdir /kept", ext4());
        run("/bin/mkdir /lost", overlay(vec![ext4()]));
        let log = run("/bin/ls /", ext4());
        assert!(log.contains("\nkept\n") && !log.contains("\nlost\n"), "{log}");
    });
}

#[test]
fn references_are_counted_as_in_the_worked_example_and_the_layered_example_works() {
    on_host(|host| {
        images(host);
        fs::create_dir(host.path("layer")).unwrap();
        fs::write(host.path("layer/greeting"), "of the layer\n").unwrap();
        let agent = Agent::start(host);
        let client = &agent.client;
        let attach = client.post("/attach", &loopback(&host.text("files/image.sqsh")));
        assert_eq!((&attach["refs"], attach["id"].as_i64()), (&json!(1), Some(1)));
        assert!(fs::metadata(attach["device_file"].as_str().unwrap()).is_ok());
        let by_reference = device_mount("squashfs", &["ro"], json!({"id": 1}));
        let lower = vec![bind_ro(&host.text("layer")), by_reference];
        let mount = client.post("/mount", &overlay(lower));
        let id = &mount["id"];
        assert_eq!(mount["overlay"]["lower"][1]["attach"]["attach"]["refs"], 2);
        let reference = json!({"id": id});
        let body = running("svc", "/bin/cat /greeting", reference);
        let created = client.post("/container", &body);
        assert_eq!(created["mount"]["refs"], 2);
        client.until_state(&created["id"], "exited");
        let log = fs::read_to_string(created["logfile"].as_str().unwrap()).unwrap();
        assert!(log.contains("\nof the layer\n"), "{log}");
        assert_eq!(client.status("DELETE", &format!("/mount?id={id}")), 409);
        client.send("DELETE", "/container?name=svc");
        assert_eq!(client.list(&format!("/mount?id={id}"))[0]["refs"], 1);
        client.send("DELETE", &format!("/mount?id={id}&force=true"));
        crate::host::until("the layers are collected", || client.list("/mount").is_empty());
        assert_eq!(client.list("/attach")[0]["refs"], 1);
        client.send("DELETE", "/attach?id=1&force=true");
        client.until_empty();
    });
}

#[test]
fn a_deep_chain_of_images_in_images_is_built_and_collected() {
    on_host(|host| {
        images(host);
        fs::create_dir_all(host.path("outer/img")).unwrap();
        fs::create_dir_all(host.path("outer/img/rootfs")).unwrap();
        fs::create_dir_all(host.path("inner")).unwrap();
        fs::rename(host.path("image"), host.path("inner/rootfs")).unwrap();
        host.squashfs("inner", "outer/img/a.sqsh");
        host.ext4("outer", "files/outer.ext4");
        let agent = Agent::start(host);
        let disk = device_mount("ext4", &["ro"], loopback(&host.text("files/outer.ext4")));
        let squashfs = device_mount("squashfs", &["ro"], loopback_in(disk, "/img/a.sqsh"));
        let log = run_and_delete(host, &agent.client, overlay(vec![bind_in(squashfs, "/rootfs")]));
        assert!(log.contains("\nhello\n"), "{log}");
    });
}
