//! Containers over HTTP (contract, section 14, check 7).

use std::fs;

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::bodies::{bind, container, overlay, running};
use crate::client::Client;
use crate::host::{Host, on_host, until};

fn image(host: &Host) -> Value {
    overlay(vec![bind(&host.text("image"))])
}

/// Creates and starts a container, and waits for its end. Returns its state and its log.
fn run(client: &Client, body: &Value) -> (String, String) {
    let created = client.post("/container", body);
    let id = &created["id"];
    until("the container has ended", || client.state(id) != "running");
    let (state, log) = (client.state(id), created["logfile"].as_str().unwrap());
    let log = fs::read_to_string(log).unwrap();
    client.send("DELETE", &format!("/container?id={id}"));
    (state, log)
}

#[test]
fn the_status_of_the_program_decides_between_exited_and_dead() {
    on_host(|host| {
        host.script("image", "three", "#!/bin/sh\nexit 3\n");
        host.script(
            "image",
            "signal",
            "#!/bin/sh\ncat /dev/full & kill -SEGV $!; wait $!; exit $?\n",
        );
        let agent = Agent::start(host);
        for (command, state, line) in [
            ("/bin/sh -c exit", "exited", "process ended with status 0"),
            ("/three", "dead", "process ended with status 3"),
            ("/signal", "dead", "process ended with status 139"),
        ] {
            let (found, log) = run(&agent.client, &running("c", command, image(host)));
            assert_eq!(found, state, "{log}");
            assert!(
                log.contains(line) && log.contains(&format!("container state: {state}")),
                "{log}"
            );
            for line in
                ["container created", "starting container", "validating init", "process ended"]
            {
                assert_eq!(log.matches(line).count(), 1, "{line}: {log}");
            }
        }
        agent.client.until_empty();
    });
}

#[test]
fn starts_that_fail_leave_a_dead_container_with_the_cause_in_its_log() {
    on_host(|host| {
        host.script("image", "format", "no interpreter line\n");
        fs::write(host.path("image/plain"), "").unwrap();
        std::os::unix::fs::symlink("/bin/missing", host.path("image/dangling")).unwrap();
        let agent = Agent::start(host);
        let client = &agent.client;
        for (command, cause) in [
            ("/format", "ENOEXEC"),
            ("/missing", "No such file"),
            ("/dangling", "No such file"),
            ("/plain", "not executable"),
            ("/bin", "not a regular file"),
            (" ", "the command is empty"),
        ] {
            let body = running("c", command, image(host));
            let created = client.post("/container", &body);
            assert_eq!(created["state"], "dead", "{command}");
            let log = fs::read_to_string(created["logfile"].as_str().unwrap()).unwrap();
            assert!(log.contains(cause), "{command}: {log}");
            assert_eq!(log.matches("start failed").count(), 1, "{command}: {log}");
            let patched = client.call("PATCH", "/container?name=c&state=running", None);
            assert_eq!(
                (patched.status, patched.json()["code"].as_i64()),
                (500, Some(500)),
                "{command}"
            );
            assert_eq!(client.state(&created["id"]), "dead");
            client.send("DELETE", "/container?name=c");
        }
        client.until_empty();
    });
}

#[test]
fn a_symlinked_and_a_relative_init_are_found_inside_the_image() {
    on_host(|host| {
        std::os::unix::fs::symlink("/bin/../../../bin/sh", host.path("image/sh")).unwrap();
        let agent = Agent::start(host);
        for command in ["/sh -c exit", "bin/sh -c exit"] {
            assert_eq!(run(&agent.client, &running("", command, image(host))).0, "exited");
        }
        agent.client.until_empty();
    });
}

#[test]
fn quotes_are_kept_unless_they_are_stripped() {
    on_host(|host| {
        host.script("image", "show", "#!/bin/sh\nfor word; do echo \"<$word>\"; done\n");
        for (flag, shown) in [("keep", "<\"a b\">\n<[c d]>\n<e>"), ("strip", "<a b>\n<[c d]>\n<e>")]
        {
            let flags = ["--scheme", "unix", "--command-quotes", flag];
            let agent = Agent::with_flags(host, &flags);
            let (_, log) = run(&agent.client, &running("", "/show \"a b\" [c d] e", image(host)));
            // The agent's own lines may come in between.
            let words: Vec<_> = log.lines().filter(|line| line.starts_with('<')).collect();
            assert_eq!(words.join("\n"), shown, "{log}");
            agent.client.until_empty();
            agent.stop();
        }
    });
}

#[test]
fn systemd_mode_has_its_mounts_and_its_own_stop_signal() {
    on_host(|host| {
        let script = "#!/bin/sh\ntrap 'echo halted; exit 5' 37\ncat /proc/mounts\nenv\necho ready\nwhile :; do sleep 1 & wait $!; done\n";
        host.script("image", "init", script);
        let agent = Agent::start(host);
        let mut body = running("s", "/init", image(host));
        body["systemd"] = json!(true);
        let created = agent.client.post("/container", &body);
        let file = created["logfile"].as_str().unwrap();
        until("systemd is ready", || fs::read_to_string(file).unwrap().contains("\nready\n"));
        assert_eq!(
            agent.client.send("PATCH", "/container?name=s&state=exited")["state"],
            "stopping"
        );
        agent.client.until_state(&created["id"], "exited");
        let log = fs::read_to_string(file).unwrap();
        for text in [
            " /run tmpfs ",
            " /tmp tmpfs ",
            " /sys/fs/cgroup tmpfs ",
            "container=other",
            "\nhalted\n",
        ] {
            assert!(log.contains(text), "{text}: {log}");
        }
        agent.client.send("DELETE", "/container?name=s");
        agent.client.until_empty();
    });
}

#[test]
fn a_program_that_ignores_signals_is_killed_and_no_process_is_left_after_the_deletion() {
    on_host(|host| {
        let script = "#!/bin/sh\ntrap '' 1 2 15\n(trap '' 15; while :; do sleep 1; done) &\necho ready\nwhile :; do sleep 1; done\n";
        host.script("image", "init", script);
        let agent = Agent::with_flags(host, &["--scheme", "unix", "--stop-grace", "300ms"]);
        let client = &agent.client;
        let created = client.post("/container", &running("c", "/init", image(host)));
        let file = created["logfile"].as_str().unwrap();
        until("the container is ready", || fs::read_to_string(file).unwrap().contains("\nready\n"));
        let group = control_group(host);
        until("all of its processes run", || members(&group) >= 3);
        assert_eq!(client.send("PATCH", "/container?name=c&state=exited")["state"], "stopping");
        assert_eq!(client.status("DELETE", "/container?name=c"), 409);
        client.until_state(&created["id"], "exited");
        assert_eq!(members(&group), 0);
        client.send("DELETE", "/container?name=c");
        client.until_empty();
    });
}

#[test]
fn force_kills_a_running_container_and_deletes_it() {
    on_host(|host| {
        let agent = Agent::start(host);
        let body = running("c", "/bin/sleep 1000", image(host));
        agent.client.post("/container", &body);
        assert_eq!(agent.client.status("DELETE", "/container?name=c"), 409);
        let group = control_group(host);
        let deleted = agent.client.send("DELETE", "/container?name=c&force=true");
        assert_eq!(deleted["state"], "exited");
        assert_eq!(members(&group), 0);
        agent.client.until_empty();
    });
}

#[test]
fn the_state_table_over_http() {
    on_host(|host| {
        let agent = Agent::start(host);
        let client = &agent.client;
        let body = container("c", "/bin/sleep 1000", image(host));
        let created = client.post("/container", &body);
        assert_eq!(created["state"], "created");
        assert_eq!(client.refused("/container", &body).0, 409);
        assert_eq!(client.send("PATCH", "/container?name=c&state=exited")["state"], "created");
        assert_eq!(client.status("PATCH", "/container?name=c&state=paused"), 400);
        for _ in 0..2 {
            assert_eq!(client.send("PATCH", "/container?name=c&state=running")["state"], "running");
        }
        client.send("PATCH", "/container?name=c&state=exited");
        client.until_state(&created["id"], "exited");
        assert_eq!(client.send("PATCH", "/container?name=c&state=running")["state"], "running");
        let log = fs::read_to_string(created["logfile"].as_str().unwrap()).unwrap();
        assert_eq!(log.matches("starting container").count(), 2, "{log}");
        client.send("DELETE", "/container?name=c&force=yes");
        client.until_empty();
    });
}

#[test]
fn namespaces_are_honoured_only_if_that_is_asked_for() {
    on_host(|host| {
        for (flags, own) in [
            (&["--scheme", "unix"][..], false),
            (&["--scheme", "unix", "--honour-namespaces"], true),
        ] {
            let agent = Agent::with_flags(host, flags);
            let mut body = running("", "/bin/ls /sys/class/net", image(host));
            body["namespaces"] = json!(["net"]);
            let created = agent.client.post("/container", &body);
            assert_eq!(created["namespaces"], json!(["net"]));
            agent.client.until_state(&created["id"], "exited");
            let link = |path: &str| fs::read_dir(path).unwrap().count();
            let log = fs::read_to_string(created["logfile"].as_str().unwrap()).unwrap();
            let shown = log.lines().filter(|line| !line.contains(": ")).count();
            let expected = if own { 1 } else { link("/sys/class/net") };
            assert_eq!(shown, expected, "{log}");
            agent.client.send("DELETE", &format!("/container?id={}", created["id"]));
            agent.client.until_empty();
            agent.stop();
        }
    });
}

/// Returns the control group of the place's container, relative to the hierarchies' roots.
fn control_group(host: &Host) -> String {
    let runs = host.entries("state/runs");
    let [run] = &runs[..] else { panic!("{runs:?}") };
    format!("tinwright-node/{run}")
}

/// Returns the number of processes in a control group of the hierarchy `pids`.
fn members(group: &str) -> usize {
    let hierarchies = fs::read_dir("/sys/fs/cgroup").unwrap().map(|entry| entry.unwrap().path());
    let roots = hierarchies.chain(["/sys/fs/cgroup".into()]);
    let groups = roots.map(|root| root.join(group).join("cgroup.procs"));
    let counts = groups.filter_map(|file| Some(fs::read_to_string(file).ok()?.lines().count()));
    counts.max().unwrap_or(0)
}
