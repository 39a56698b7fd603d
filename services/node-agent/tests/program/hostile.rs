//! Hostile images. A container has the capabilities of root, as in the original: what is tested is that the image's programs have no
//! way to the host's mounts and processes by accident, and that everything of them ends.

use std::fs;
use std::os::unix::fs::symlink;

use crate::agent::Agent;
use crate::bodies::{bind, overlay, running};
use crate::host::{Host, on_host, own_mounts, until};

fn image(host: &Host) -> serde_json::Value {
    overlay(vec![bind(&host.text("image"))])
}

#[test]
fn a_symlinked_init_that_leads_out_of_the_image_is_not_found() {
    on_host(|host| {
        let program = std::env::current_exe().unwrap();
        let up = format!("../../../../../../..{}", program.display());
        symlink(&program, host.path("image/absolute")).unwrap();
        symlink(up, host.path("image/relative")).unwrap();
        symlink("/proc/self/exe", host.path("image/magic")).unwrap();
        symlink("/proc/1/root/bin/sh", host.path("image/root")).unwrap();
        let agent = Agent::start(host);
        for command in ["/absolute", "/relative", "/magic", "/root", "../../../bin/true"] {
            let created = agent.client.post("/container", &running("c", command, image(host)));
            assert_eq!(created["state"], "dead", "{command}");
            agent.client.send("DELETE", "/container?name=c");
        }
        agent.client.until_empty();
    });
}

#[test]
fn links_in_place_of_the_containers_directories_lead_nowhere_outside() {
    on_host(|host| {
        fs::create_dir(host.path("victim")).unwrap();
        for directory in ["dev", "proc", "sys"] {
            symlink(host.path("victim"), host.path("image").join(directory)).unwrap();
        }
        let agent = Agent::start(host);
        let created =
            agent.client.post("/container", &running("c", "/bin/sleep 1000", image(host)));
        assert_eq!(host.entries("victim"), [""; 0], "{created}");
        agent.client.send("DELETE", "/container?name=c&force=true");
        agent.client.until_empty();
        assert_eq!(host.entries("victim"), [""; 0]);
    });
}

#[test]
fn an_init_that_mounts_and_unmounts_changes_nothing_on_the_host() {
    on_host(|host| {
        let script = "#!/bin/sh\nmkdir /m\nmount -t tmpfs none /m && echo mounted\nmount -t tmpfs none /bin/.. \numount -l /sys\n\
            mount -t proc none /proc\nmount --bind / /m\numount -l /\nls /..\necho ready\nexec /bin/busybox sleep 1000\n";
        host.script("image", "init", script);
        fs::write(host.path("secret"), "of the host").unwrap();
        let agent = Agent::start(host);
        let created = agent.client.post("/container", &running("c", "/init", image(host)));
        let mounts = own_mounts();
        let log = || fs::read_to_string(created["logfile"].as_str().unwrap()).unwrap();
        until("the init is ready", || log().contains("\nready\n") || !log().contains("executing"));
        assert!(log().contains("mounted") && !log().contains("secret"), "{}", log());
        assert_eq!(host.other_mounts(&mounts), [""; 0]);
        agent.client.send("DELETE", "/container?name=c&force=true");
        agent.client.until_empty();
    });
}

#[test]
fn an_init_that_kills_everything_reaches_its_own_processes_only() {
    on_host(|host| {
        let script = "#!/bin/sh\nsleep 1000 &\nkill -9 -1\nfor i in 2 3 4 5 6 7 8 9; do kill -9 $i; done 2>/dev/null\necho ready\n\
            while :; do busybox sleep 1; done\n";
        host.script("image", "init", script);
        let agent = Agent::start(host);
        let quiet =
            agent.client.post("/container", &running("quiet", "/bin/sleep 1000", image(host)));
        let created = agent.client.post("/container", &running("c", "/init", image(host)));
        let log = || fs::read_to_string(created["logfile"].as_str().unwrap()).unwrap();
        until("the init is ready", || log().contains("\nready\n"));
        assert_eq!(agent.client.state(&quiet["id"]), "running");
        assert_eq!(agent.client.state(&created["id"]), "running");
        for name in ["c", "quiet"] {
            agent.client.send("DELETE", &format!("/container?name={name}&force=true"));
        }
        agent.client.until_empty();
    });
}

#[test]
fn a_fork_bomb_meets_the_limit_and_ends_with_its_container() {
    on_host(|host| {
        let script = "#!/bin/sh\nbomb() { while :; do bomb & done; }\nbomb 2>/dev/null &\nexec /bin/busybox sleep 1000\n";
        host.script("image", "init", script);
        let agent = Agent::with_flags(host, &["--scheme", "unix", "--container-processes", "64"]);
        agent.client.post("/container", &running("bomb", "/init", image(host)));
        let group = format!("tinwright-node/{}", host.entries("state/runs")[0]);
        let roots = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"];
        let read = |file: &str| {
            let texts =
                roots.iter().map(|root| fs::read_to_string(format!("{root}/{group}/{file}")));
            texts.filter_map(Result::ok).next().unwrap_or_default()
        };
        assert_eq!(read("pids.max").trim(), "64");
        until("the limit was met", || !["", "max 0"].contains(&read("pids.events").trim()));
        // The program still works.
        let other =
            agent.client.post("/container", &running("other", "/bin/sh -c exit", image(host)));
        agent.client.until_state(&other["id"], "exited");
        for name in ["bomb", "other"] {
            agent.client.send("DELETE", &format!("/container?name={name}&force=true"));
        }
        assert_eq!(read("pids.max"), "");
        agent.client.until_empty();
    });
}

#[test]
fn a_hostile_log_volume_is_cut_and_the_node_works_on() {
    on_host(|host| {
        host.script(
            "image",
            "init",
            "#!/bin/sh\nyes | head -c 100000000\necho done > /done\nexit 7\n",
        );
        let agent = Agent::with_flags(host, &["--scheme", "unix", "--log-size", "64KiB"]);
        let created = agent.client.post("/container", &running("c", "/init", image(host)));
        agent.client.until_state(&created["id"], "dead");
        let path = created["logfile"].as_str().unwrap();
        let size = |path: &str| fs::metadata(path).map_or(0, |file| file.len());
        assert!(size(path) <= 64 << 10 && size(&format!("{path}.1")) <= 64 << 10);
        let log = fs::read_to_string(path).unwrap();
        assert!(log.contains(" bytes over the limit") && log.contains("status 7"), "{log}");
        agent.client.send("DELETE", "/container?name=c");
        agent.client.until_empty();
    });
}
