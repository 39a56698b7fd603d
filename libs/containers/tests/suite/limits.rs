//! Hostile images.

use std::fs;

use containers::cgroup::Cgroup;
use containers::{End, Limits, Spec};

use crate::host::{Host, on_host, until};

/// The greatest number of processes, the number now, and how often the limit was met.
fn pids(spec: &Spec) -> Option<(u64, u64, u64)> {
    let cgroup = Cgroup::find(&spec.cgroup).ok()?;
    let directory =
        cgroup.directories().iter().find(|directory| directory.join("pids.max").exists())?;
    let number = |file: &str| {
        fs::read_to_string(directory.join(file))
            .ok()?
            .trim()
            .trim_start_matches("max ")
            .parse()
            .ok()
    };
    Some((number("pids.max")?, number("pids.current")?, number("pids.events")?))
}

#[test]
fn a_fork_bomb_is_contained_and_nothing_of_it_is_left() {
    on_host(async |host| {
        host.script(
            "init",
            "#!/bin/sh\nbomb() { while :; do bomb & done; }\nbomb 2>/dev/null &\nexec sleep 1000\n",
        );
        let limits = Limits { max_processes: Some(64), max_memory_bytes: Some(256 << 20) };
        let spec = Spec { limits, ..host.spec("/init") };
        let run = host.start(&spec).await;
        until("the limit was met", || pids(&spec).is_some_and(|(_, _, met)| met > 0));
        let (max, current, _) = pids(&spec).unwrap();
        assert!(max == 64 && current <= 64, "{current} of {max}");
        run.kill().await.unwrap();
        assert_eq!(run.wait().await.unwrap().end, End::Signaled(9));
        assert_eq!(pids(&spec), None);
    });
}

#[test]
fn a_hostile_log_volume_neither_fills_the_disk_nor_blocks_the_image() {
    on_host(async |host| {
        host.script("init", "#!/bin/sh\nyes | head -c 30000000\nexit 7\n");
        let mut spec = host.spec("/init");
        let limits = (32 << 10, 16 << 10, 64 << 10);
        (spec.log.max_bytes, spec.log.bytes_per_second, spec.log.burst_bytes) = limits;
        let (outcome, _) = host.run(&spec).await;
        assert_eq!(outcome.end, End::Exited(7));
        let size = |path: &std::path::Path| fs::metadata(path).unwrap().len();
        let older = host.root.join("logs/0-1.log.1");
        assert!(size(&older) <= 32 << 10 && size(&spec.log.path) <= 32 << 10);
        let log = Host::log(&spec);
        let dropped = log.lines().find(|line| line.contains("output dropped: ")).unwrap();
        assert!(dropped.ends_with(" bytes over the limit"), "{dropped}");
        assert!(log.ends_with("container state: dead\n"), "{log}");
    });
}

#[test]
fn a_log_that_cannot_be_written_does_not_block_the_image() {
    on_host(async |host| {
        let mut spec = host.spec("/bin/sh -c \"echo a; exit 7\"");
        spec.log.path = host.root.join("image/bin/busybox/1-1.log");
        assert_eq!(host.run(&spec).await.0.end, End::Exited(7));
    });
}
