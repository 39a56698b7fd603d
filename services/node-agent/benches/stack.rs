//! The time of a whole stack, by the program and by a shell script with the same steps: `cargo bench --package node-agent`.
//!
//! A stack is a squashfs file on a loop device under an overlay, with a container that runs one program to its end; then everything is
//! removed. Both do it in turn in the same place. The program also writes its journal, puts the container into a control group, supervises
//! it, and writes its log.
#![allow(clippy::unwrap_used, dead_code, missing_docs)]

#[path = "../tests/program/agent.rs"]
mod agent;
#[path = "../tests/program/bodies.rs"]
mod bodies;
#[path = "../tests/program/client.rs"]
mod client;
#[path = "../tests/program/host.rs"]
mod host;

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use agent::Agent;
use bodies::{device_mount, loopback, overlay, running};
use host::{Host, on_host};

/// The stacks by each way. The median counts.
const ROUNDS: usize = 41;
/// The most that the program may take, as a multiple of the script's time.
const GOAL: f64 = 1.2;

/// The steps in the order of the program's.
const SCRIPT: &str = "set -e
cd \"$1\"
device=$(losetup --find --show --read-only files/image.sqsh)
mkdir lower upper work root
mount -t squashfs -o ro \"$device\" lower
mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work overlay root
unshare --mount --pid --ipc --uts --fork chroot root /bin/sh -c exit
umount root
umount lower
losetup --detach \"$device\"
rm -rf lower upper work root
";

fn main() {
    on_host(|host| {
        for directory in ["image/proc", "image/dev", "image/sys", "files"] {
            fs::create_dir_all(host.path(directory)).unwrap();
        }
        host.squashfs("image", "files/image.sqsh");
        // Nodes without disks have everything in memory; elsewhere the journal is synchronized with a disk.
        compare(host, "in memory");
        let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        fs::rename(host.path("state"), host.path("state-in-memory")).unwrap();
        std::os::unix::fs::symlink(disk.path(), host.path("state")).unwrap();
        compare(host, "on a disk");
    });
}

/// Measures both ways in turn, and prints the result.
fn compare(host: &Host, place: &str) {
    let agent = Agent::start(host);
    let (mut scripts, mut programs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        scripts.push(timed(|| by_script(host)));
        programs.push(timed(|| by_program(host, &agent)));
    }
    let (script, program) = (median(scripts), median(programs));
    let ratio = program.as_secs_f64() / script.as_secs_f64();
    println!(
        "a stack of loop device, squashfs, overlay and container, created, run and removed: median of {ROUNDS}"
    );
    println!("  shell script                        {:6.1} ms", script.as_secs_f64() * 1e3);
    let program = program.as_secs_f64() * 1e3;
    println!(
        "  tinwright-node, journal {place:<11} {program:6.1} ms   {ratio:.2} times (goal: {GOAL})"
    );
    assert!(agent.stop().success());
}

fn timed(work: impl FnOnce()) -> Duration {
    let started = Instant::now();
    work();
    started.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn by_script(host: &Host) {
    let status = Command::new("sh").args(["-c", SCRIPT, "stack"]).arg(&host.root).status().unwrap();
    assert!(status.success());
}

fn by_program(host: &Host, agent: &Agent) {
    let client = &agent.client;
    let image = loopback(&host.text("files/image.sqsh"));
    let stack = overlay(vec![device_mount("squashfs", &["ro"], image)]);
    let created = client.post("/container", &running("c", "/bin/sh -c exit", stack));
    let pause = || std::thread::sleep(Duration::from_micros(500));
    while client.state(&created["id"]) != "exited" {
        pause();
    }
    client.send("DELETE", "/container?name=c");
    while !client.list("/attach").is_empty() || !client.list("/mount").is_empty() {
        pause();
    }
}
