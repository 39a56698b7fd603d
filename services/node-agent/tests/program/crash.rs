//! Ends of the program without order (contract, section 14, check 9, and defect D1).

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::bodies::{bind, container, overlay, running, squashfs_stack};
use crate::client::Client;
use crate::host::{Host, on_host, until};

fn images(host: &Host) {
    fs::create_dir(host.path("files")).unwrap();
    host.squashfs("image", "files/image.sqsh");
}

/// Returns all objects.
fn objects(client: &Client) -> Vec<Value> {
    ["/attach", "/mount", "/container"].into_iter().flat_map(|path| client.list(path)).collect()
}

/// Returns the process id of the first program of the only running container.
fn init(host: &Host) -> i64 {
    let runs = host.entries("state/runs");
    let state = host.read(&format!("state/runs/{}/state.json", runs[0]));
    let state: Value = serde_json::from_str(&state).unwrap();
    state["phase"]["running"]["process"]["pid"].as_i64().expect("the container runs")
}

#[test]
fn d1_objects_and_containers_survive_the_program() {
    on_host(|host| {
        images(host);
        let agent = Agent::start(host);
        let stack = squashfs_stack(&host.text("files"), "/image.sqsh");
        agent.client.post("/container", &running("a", "/bin/sleep 1000", stack));
        agent.client.post("/container", &container("b", "/bin/sh", bind(&host.text("image"))));
        let (before, pid) = (objects(&agent.client), init(host));
        assert_eq!(before.len(), 7);
        let second = Agent::launch(host, &["--scheme", "unix"]);
        until("a second process is refused", || second.own_log().contains("another process"));
        drop(second);
        agent.kill();
        let agent = Agent::start(host);
        assert_eq!((objects(&agent.client), init(host)), (before.clone(), pid));
        assert!(agent.stop().success());
        let agent = Agent::start(host);
        assert_eq!((objects(&agent.client), init(host)), (before, pid));
        let next = agent.client.post("/container", &container("c", "/bin/sh", bind("/")));
        assert_eq!(next["id"], 9);
        assert_eq!(
            agent.client.refused("/container", &container("a", "/bin/sh", bind("/"))).0,
            409
        );
        for name in ["a", "b", "c"] {
            agent.client.send("DELETE", &format!("/container?name={name}&force=true"));
        }
        agent.client.until_empty();
    });
}

#[test]
fn the_status_of_a_container_that_ended_without_the_program_is_found_later() {
    on_host(|host| {
        let script = "#!/bin/sh\nuntil [ -e /go ]; do sleep 1; done\nexit $(cat /go)\n";
        host.script("image", "init", script);
        for (status, state) in [("3", "dead"), ("0", "exited")] {
            let agent = Agent::start(host);
            let body = running("c", "/init", bind(&host.text("image")));
            let created = agent.client.post("/container", &body);
            agent.kill();
            fs::write(host.path("image/go"), status).unwrap();
            until("the supervisor has ended", || host.processes().is_empty());
            let agent = Agent::start(host);
            agent.client.until_state(&created["id"], state);
            let log = fs::read_to_string(created["logfile"].as_str().unwrap()).unwrap();
            assert!(log.contains(&format!("process ended with status {status}")), "{log}");
            agent.client.send("DELETE", "/container?name=c");
            agent.client.until_empty();
            agent.stop();
            fs::remove_file(host.path("image/go")).unwrap();
        }
    });
}

#[test]
fn a_stop_that_was_begun_is_finished_although_the_program_ended() {
    on_host(|host| {
        let script = "#!/bin/sh\ntrap '' 15\necho ready\nwhile :; do sleep 1; done\n";
        host.script("image", "init", script);
        let flags = ["--scheme", "unix", "--stop-grace", "1s"];
        let agent = Agent::with_flags(host, &flags);
        let created =
            agent.client.post("/container", &running("c", "/init", bind(&host.text("image"))));
        let log = || fs::read_to_string(created["logfile"].as_str().unwrap()).unwrap();
        until("the container is ready", || log().contains("\nready\n"));
        agent.client.send("PATCH", "/container?name=c&state=exited");
        until("the stop was requested", || log().contains("stop requested"));
        agent.kill();
        until("the supervisor has ended", || host.processes().is_empty());
        assert!(log().contains("process killed by signal 9"), "{}", log());
        let agent = Agent::with_flags(host, &flags);
        agent.client.until_state(&created["id"], "exited");
        agent.client.send("DELETE", "/container?name=c");
        agent.client.until_empty();
    });
}

#[test]
fn a_reboot_loses_mounts_and_the_records_are_removed_by_deletions() {
    on_host(|host| {
        images(host);
        let agent = Agent::start(host);
        let stack = squashfs_stack(&host.text("files"), "/image.sqsh");
        let created = agent.client.post("/container", &running("a", "/bin/sleep 1000", stack));
        agent.kill();
        // As after a reboot: no process, no mount, no device.
        for pid in host.processes() {
            let pid = rustix::process::Pid::from_raw(pid).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        }
        until("the container has ended", || host.processes().is_empty());
        host.remove_control_groups();
        fs::remove_dir_all(host.path("state/runs")).unwrap();
        host.lose_everything();
        let agent = Agent::start(host);
        assert_eq!(agent.client.state(&created["id"]), "dead");
        let patched = agent.client.call("PATCH", "/container?name=a&state=running", None);
        assert_eq!(patched.status, 500);
        agent.client.send("DELETE", "/container?name=a");
        agent.client.until_empty();
    });
}

/// The numbers of a linear congruential generator, so that a failure can be repeated with its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Creates and deletes stacks until `stop`. The program may end at any moment: then requests are not answered.
fn work(client: &Client, directory: &str, number: usize, stop: &AtomicBool) {
    for round in 0.. {
        let name = format!("w{number}-{round}");
        let body = running(&name, "/bin/sleep 1000", squashfs_stack(directory, "/image.sqsh"));
        client.try_call("POST", "/container", Some(&body));
        client.try_call("DELETE", &format!("/container?name={name}&force=true"), None);
        if stop.load(Ordering::SeqCst) {
            return;
        }
    }
}

#[test]
fn kills_at_random_moments_leak_nothing_lose_nothing_and_end_no_container() {
    const KILLS: usize = 25;
    on_host(|host| {
        images(host);
        let seed = u64::from(std::process::id());
        println!("seed {seed}");
        let mut random = Random(seed);
        let agent = Agent::start(host);
        let survivor = overlay(vec![bind(&host.text("image"))]);
        let survivor =
            agent.client.post("/container", &running("survivor", "/bin/sleep 1000", survivor));
        let (pid, directory) = (init(host), host.text("files"));
        agent.kill();
        let mut last_id = 3;
        for _ in 0..KILLS {
            let agent = Agent::launch(host, &["--scheme", "unix"]);
            let stop = AtomicBool::new(false);
            std::thread::scope(|threads| {
                for number in 0..3 {
                    let client = agent.client.clone();
                    let (directory, stop) = (&directory, &stop);
                    threads.spawn(move || work(&client, directory, number, stop));
                }
                std::thread::sleep(Duration::from_millis(5 + random.below(250)));
                stop.store(true, Ordering::SeqCst);
                agent.kill();
            });
            let agent = Agent::start(host);
            assert_eq!(agent.client.state(&survivor["id"]), "running");
            assert!(
                fs::read_link(format!("/proc/{pid}/exe")).is_ok(),
                "the container goes on running"
            );
            let probe = agent.client.post("/mount", &bind("/"));
            let id = probe["id"].as_i64().unwrap();
            assert!(id > last_id, "an id was used again");
            last_id = id;
            agent.client.send("DELETE", &format!("/mount?id={id}&force=true"));
            for left in agent.client.list("/container").iter().filter(|it| it["name"] != "survivor")
            {
                let delete = format!("/container?id={}&force=true", left["id"]);
                until("a container that is left is deleted", || {
                    [200, 404].contains(&agent.client.status("DELETE", &delete))
                });
            }
            until("only the survivor is left", || objects(&agent.client).len() == 3);
            until("only its mounts are left", || host.mounts().len() == 2);
            until("no device is left", || host.loop_devices().is_empty());
            until("only its directories are left", || host.entries("mounts").len() == 4);
            until("only its run is left", || host.entries("state/runs").len() == 1);
            agent.kill();
        }
        let agent = Agent::start(host);
        assert_eq!(agent.client.list("/container")[0]["mount"], json!(survivor["mount"]));
        agent.client.send("DELETE", "/container?name=survivor&force=true");
        agent.client.until_empty();
    });
}
