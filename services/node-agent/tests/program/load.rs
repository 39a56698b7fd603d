//! Many stacks at the same time (contract, section 14, check 10).

use std::fs;

use serde_json::json;

use crate::agent::Agent;
use crate::bodies::{bind, loopback, overlay, running, squashfs_stack};
use crate::client::Client;
use crate::host::{Host, on_host};

const CYCLES: usize = 200;

fn images(host: &Host) {
    fs::create_dir(host.path("files")).unwrap();
    host.squashfs("image", "files/image.sqsh");
}

/// Creates a nested stack with a running container and deletes it, however often a call has to be repeated.
fn cycle(client: &Client, directory: &str, number: usize) {
    let name = format!("c{number}");
    let body = running(&name, "/bin/sleep 1000", squashfs_stack(directory, "/image.sqsh"));
    let created = loop {
        let answer = client.call("POST", "/container", Some(&body));
        match answer.status {
            201 => break answer.json(),
            // The time of a call may be over on a busy host.
            500 => {}
            status => panic!("{status}: {}", answer.json()),
        }
    };
    assert_eq!(created["state"], "running");
    loop {
        let answer = client.call("DELETE", &format!("/container?name={name}&force=true"), None);
        match answer.status {
            200 => return,
            409 | 500 => {}
            status => panic!("{status}: {}", answer.json()),
        }
    }
}

#[test]
fn parallel_cycles_of_nested_stacks_leak_nothing_and_do_not_deadlock() {
    on_host(|host| {
        images(host);
        let agent = Agent::start(host);
        let directory = host.text("files");
        std::thread::scope(|threads| {
            for number in 0..CYCLES {
                let (client, directory) = (&agent.client, &directory);
                threads.spawn(move || cycle(client, directory, number));
            }
        });
        agent.client.until_empty();
        assert_eq!((host.mounts(), host.loop_devices().len()), (vec![], 0));
        // Ids were never used twice, and are still counted.
        let mount = agent.client.post("/mount", &bind(&host.text("image")));
        assert!(mount["id"].as_i64().unwrap() > 4 * CYCLES as i64);
        agent.client.send("DELETE", &format!("/mount?id={}&force=1", mount["id"]));
    });
}

#[test]
fn d22_parallel_attachments_of_one_file_each_get_a_device() {
    on_host(|host| {
        images(host);
        let agent = Agent::start(host);
        let body = loopback(&host.text("files/image.sqsh"));
        std::thread::scope(|threads| {
            for _ in 0..16 {
                threads.spawn(|| agent.client.post("/attach", &body));
            }
        });
        let ids: Vec<_> =
            agent.client.list("/attach").iter().map(|it| it["id"].as_i64().unwrap()).collect();
        assert_eq!((ids.clone(), host.loop_devices().len()), ((1..=16).collect(), 16));
        std::thread::scope(|threads| {
            for id in ids {
                let client = &agent.client;
                threads
                    .spawn(move || client.send("DELETE", &format!("/attach?id={id}&force=true")));
            }
        });
        agent.client.until_empty();
    });
}

#[test]
fn d2_d3_starts_with_a_missing_init_do_not_change_the_root_of_the_program() {
    on_host(|host| {
        let agent = Agent::start(host);
        let body = running("", "/missing", overlay(vec![bind(&host.text("image"))]));
        let device = fs::read_dir("/sys/block").unwrap().next().unwrap().unwrap().file_name();
        let local = json!({"kind": "local", "local": {"path": format!("/dev/{}", device.to_string_lossy())}});
        std::thread::scope(|threads| {
            for _ in 0..8 {
                threads.spawn(|| {
                    for _ in 0..5 {
                        let created = agent.client.post("/container", &body);
                        assert_eq!(created["state"], "dead");
                        agent.client.send("DELETE", &format!("/container?id={}", created["id"]));
                        let attached = agent.client.post("/attach", &local);
                        agent
                            .client
                            .send("DELETE", &format!("/attach?id={}&force=true", attached["id"]));
                    }
                });
            }
        });
        agent.client.until_empty();
        let root = fs::read_link(format!("/proc/{}/root", agent.pid())).unwrap();
        assert_eq!(root, std::path::Path::new("/"));
    });
}
