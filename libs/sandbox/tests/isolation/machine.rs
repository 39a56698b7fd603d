//! The other tests in a virtual machine with an older kernel, whose control groups are of version 2.

use std::path::Path;
use std::process::Command;

/// Maximum time of the machine, in seconds.
const TIMEOUT_SECONDS: &str = "3000";
/// The kernel does not stop if the host is too busy for its timer.
const KERNEL_ARGUMENTS: &str = "console=ttyS0 loglevel=5 no_timer_check panic=-1 mitigations=off";

/// Runs `command`, and returns what it printed.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}: {text}{errors}", output.status);
    text
}

/// Boots the machine. Returns the lines of its console.
fn boot(folder: &Path) -> Vec<String> {
    let script = |path| Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let disk = folder.join("disk");
    let mut write = Command::new(script("tests/isolation/machine/disk.sh"));
    write.arg(&disk).arg(std::env::current_exe().unwrap());
    run(write.arg(env!("CARGO_BIN_EXE_sandbox-helper")));
    let mut kernel = Command::new(script("../store/tests/power_cut/kernel.sh"));
    let kernel = run(kernel.arg(script("../../target/peers")));
    let mut qemu = Command::new("timeout");
    qemu.args([TIMEOUT_SECONDS, "qemu-system-x86_64"]);
    qemu.args("-accel tcg,thread=single -cpu max -m 1024 -nodefaults -no-reboot".split(' '));
    qemu.args(["-display", "none", "-serial", "stdio", "-kernel", kernel.trim()]);
    qemu.arg("-append").arg(format!("{KERNEL_ARGUMENTS} root=/dev/nvme0n1 rw init=/init"));
    qemu.arg("-drive").arg(format!("id=d,if=none,format=raw,cache=unsafe,file={}", disk.display()));
    let console = run(qemu.args(["-device", "nvme,drive=d,serial=d"]));
    console.lines().map(|line| line.trim().to_owned()).collect()
}

/// Returns the names of the tests that are not ignored.
fn names() -> Vec<String> {
    let list = |ignored: &[&str]| {
        let text = run(Command::new(std::env::current_exe().unwrap()).arg("--list").args(ignored));
        let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
        names.map(str::to_owned).collect::<Vec<_>>()
    };
    let ignored = list(&["--ignored"]);
    list(&[]).into_iter().filter(|name| !ignored.contains(name)).collect()
}

#[test]
#[ignore = "long: cargo rack test --long"]
fn every_test_passes_with_control_groups_of_version_2() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let lines = boot(folder.path());
    println!("{}", lines.join("\n"));
    assert!(lines.contains(&"machine: hierarchies: cgroup2".to_owned()));
    for group in ["root", "delegated"] {
        let begin = format!("machine: begin {group}");
        let results = lines.iter().skip_while(|line| **line != begin);
        let end = format!("machine: end {group}: 0");
        let results: Vec<_> = results.take_while(|line| **line != end).collect();
        let has_passed = |name: &String| results.contains(&&format!("test {name} ... ok"));
        let failed: Vec<_> = names().into_iter().filter(|name| !has_passed(name)).collect();
        assert!(failed.is_empty() && lines.contains(&end), "{group}: {failed:?}");
    }
}
