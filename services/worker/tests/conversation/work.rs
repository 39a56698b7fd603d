//! Actions: leased, run and reported.

use std::fs;
use std::path::Path;

use tempfile::NamedTempFile;
use tinwright::workflow::v1::progress::Phase;
use tinwright::workflow::v1::{ActionState, Assignment, ReportInventoryRequest};

use crate::disk::LoopDisk;
use crate::files::Files;
use crate::machine::{Machine, assignment, until};
use crate::plane::ControlPlane;

/// Returns an image of `mebibytes`, without runs of equal bytes behind its boot sector, which has no partitions.
pub(crate) fn image(mebibytes: usize) -> Vec<u8> {
    let mut image: Vec<u8> = (0..mebibytes << 20).map(|at| (at * 31 % 251) as u8).collect();
    image[446..510].fill(0);
    image[510..512].copy_from_slice(&[0x55, 0xaa]);
    image
}

/// Returns a cexec action that runs `line` in a shell, with the file system on `disk` mounted aside.
pub(crate) fn shell(lease: &str, disk: &LoopDisk, line: &str) -> Assignment {
    let variables = [
        ("BLOCK_DEVICE", disk.path.as_str()),
        ("FS_TYPE", "ext4"),
        ("DEFAULT_INTERPRETER", "/bin/sh -c"),
        ("CMD_LINE", line),
    ];
    assignment(lease, "quay.io/tinkerbell/actions/cexec:latest", &variables)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_written_and_its_progress_reported() {
    let plane = ControlPlane::serve([]).await;
    let (image, disk) = (image(12), NamedTempFile::new().unwrap());
    let files = Files::serve(plane.ca(), image.clone()).await;
    let (url, path) = (files.image_url(), disk.path().display().to_string());
    let variables = [("IMG_URL", url.as_str()), ("DEST_DISK", &path)];
    plane.update(|state| state.queue.push_back(assignment("l1", "image2disk:v1.0.0", &variables)));
    let machine = Machine::boot(&plane, &files);
    let state = plane.until(|state| !state.progress.is_empty()).await;
    assert_eq!((state.starts[0].lease_id.as_str(), state.starts[0].terminal), ("l1", false));
    let progress = state.progress[0].progress.unwrap();
    assert_eq!((progress.phase(), progress.total_bytes), (Phase::Writing, 12 << 20));
    files.open();
    let result = plane.result("l1").await;
    assert_eq!((result.state(), result.reason.as_str()), (ActionState::Success, ""));
    assert!(result.duration.is_some() && fs::read(&disk).unwrap() == image);
    assert!(plane.state().log("l1").starts_with("writing\n"));
    until(|| machine.attempt().is_none()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_is_reported_with_reason_and_output() {
    let disk = LoopDisk::ext4();
    let plane =
        ControlPlane::serve([shell("l1", &disk, "echo $TINK_ACTION_ID; echo no grub >&2; exit 3")])
            .await;
    let files = Files::serve(plane.ca(), Vec::new()).await;
    let _machine = Machine::boot(&plane, &files);
    let result = plane.result("l1").await;
    assert_eq!(result.state(), ActionState::Failed);
    assert!(result.reason.ends_with("ended with exit code 3"), "{}", result.reason);
    let mut lines: Vec<_> = result.tail.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["7", "no grub"]);
    assert_eq!(plane.state().log("l1"), result.tail);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unsupported_image_fails_in_one_line_and_the_next_action_runs() {
    let disk = LoopDisk::ext4();
    let queue = [assignment("l1", "alpine:3", &[]), shell("l2", &disk, "true")];
    let plane = ControlPlane::serve(queue).await;
    let files = Files::serve(plane.ca(), Vec::new()).await;
    let _machine = Machine::boot(&plane, &files);
    let result = plane.result("l1").await;
    assert_eq!(result.state(), ActionState::Failed);
    assert!(
        result.reason.starts_with("\"alpine:3\" is not a built-in action"),
        "{}",
        result.reason
    );
    assert_eq!(plane.result("l2").await.state(), ActionState::Success);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_action_is_reported_as_failed() {
    let (disk, marks) = (LoopDisk::ext4(), tempfile::tempdir().unwrap());
    let begun = marks.path().join("begun");
    let line = format!("echo begun; : > {}; exec sleep 3600", begun.display());
    let endless = shell("l1", &disk, &line);
    let plane = ControlPlane::serve([reacting(endless, &["echo", "not run"], &[])]).await;
    let files = Files::serve(plane.ca(), Vec::new()).await;
    let machine = Machine::boot(&plane, &files);
    until(|| begun.exists()).await;
    plane.update(|state| state.stop = true);
    let result = plane.result("l1").await;
    assert_eq!(result.state(), ActionState::Failed);
    assert_eq!(
        (result.reason.as_str(), result.tail.as_str()),
        ("cexec: cancelled as requested", "begun\n")
    );
    until(|| machine.attempt().is_none()).await;
    assert_eq!(plane.state().log("l1"), "begun\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_action_beyond_its_time_limit_is_reported_as_a_timeout() {
    let disk = LoopDisk::ext4();
    let mut slow = shell("l1", &disk, "exec sleep 3600");
    let second = prost_types::Duration { seconds: 1, nanos: 0 };
    slow.action.as_mut().unwrap().timeout = Some(second);
    let plane = ControlPlane::serve([slow]).await;
    let files = Files::serve(plane.ca(), Vec::new()).await;
    let _machine = Machine::boot(&plane, &files);
    let result = plane.result("l1").await;
    assert_eq!(result.state(), ActionState::Timeout);
    assert_eq!(result.reason, "cexec: not done within 1s");
}

/// Adds reactions to `assignment`.
pub(crate) fn reacting(
    mut assignment: Assignment,
    on_failure: &[&str],
    on_timeout: &[&str],
) -> Assignment {
    let words = |words: &[&str]| words.iter().copied().map(String::from).collect();
    let action = assignment.action.as_mut().unwrap();
    (action.on_failure, action.on_timeout) = (words(on_failure), words(on_timeout));
    assignment
}

#[tokio::test(flavor = "multi_thread")]
async fn on_failure_runs_in_the_same_environment_and_does_not_change_the_result() {
    let disk = LoopDisk::ext4();
    let failing = shell("l1", &disk, "echo broken; exit 3");
    let command = ["/bin/sh", "-c", "echo again $TINK_ACTION_ID; ls -d /mountAction; exit 4"];
    let plane = ControlPlane::serve([reacting(failing, &command, &["false"])]).await;
    let files = Files::serve(plane.ca(), Vec::new()).await;
    let machine = Machine::boot(&plane, &files);
    let ended = "on-failure: `/bin/sh -c";
    let state = plane.until(|state| state.log("l1").contains(ended)).await;
    let log = state.log("l1");
    assert!(log.starts_with("broken\non-failure:\nagain 7\n/mountAction\n"), "{log}");
    assert!(log.ends_with("ended with exit code 4\n"), "{log}");
    let result = plane.result("l1").await;
    assert_eq!((result.state(), result.tail.as_str()), (ActionState::Failed, "broken\n"));
    assert!(result.reason.ends_with("ended with exit code 3"), "{}", result.reason);
    until(|| machine.attempt().is_none()).await;
    assert_eq!(plane.state().sent.len(), 1, "one result");
}

#[tokio::test(flavor = "multi_thread")]
async fn on_timeout_has_the_time_limit_of_the_action() {
    let disk = LoopDisk::ext4();
    let mut slow = reacting(shell("l1", &disk, "exec sleep 3600"), &["false"], &["sleep", "3600"]);
    let second = prost_types::Duration { seconds: 1, nanos: 0 };
    slow.action.as_mut().unwrap().timeout = Some(second);
    let plane = ControlPlane::serve([slow, shell("l2", &disk, "true")]).await;
    let files = Files::serve(plane.ca(), Vec::new()).await;
    let _machine = Machine::boot(&plane, &files);
    assert_eq!(plane.result("l1").await.state(), ActionState::Timeout);
    assert_eq!(plane.result("l2").await.state(), ActionState::Success);
    let log = plane.state().log("l1");
    assert_eq!(log, "on-timeout:\non-timeout: not done within 1s\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn other_commands_run_in_the_installation_environment() {
    let broken = assignment("l1", "quay.io/tinkerbell/actions/image2disk:latest", &[("A", "b")]);
    let plane = ControlPlane::serve([reacting(broken, &["sh", "-c", "echo $A"], &[])]).await;
    let files = Files::serve(plane.ca(), Vec::new()).await;
    let _machine = Machine::boot(&plane, &files);
    let state = plane.until(|state| state.log("l1").contains("on-failure: ")).await;
    assert_eq!(state.log("l1"), "on-failure:\nb\non-failure: done\n");
    assert_eq!(plane.result("l1").await.state(), ActionState::Failed);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_valid_lease_an_action_does_not_start() {
    let disk = LoopDisk::ext4();
    let mark = NamedTempFile::new().unwrap();
    let line = format!("echo run > {}", mark.path().display());
    let plane = ControlPlane::serve([shell("l1", &disk, &line)]).await;
    plane.update(|state| state.refuse_start = true);
    let files = Files::serve(plane.ca(), Vec::new()).await;
    let _machine = Machine::boot(&plane, &files);
    let state = plane.until(|state| state.polls.len() > 2).await;
    assert_eq!((state.starts.len(), state.sent.len()), (1, 0));
    assert_eq!(fs::read(mark.path()).unwrap(), b"");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reboot_is_reported_as_terminal_and_no_result_is_reported() {
    let plane = ControlPlane::serve([assignment("l1", "reboot", &[])]).await;
    let files = Files::serve(plane.ca(), Vec::new()).await;
    let mut machine = Machine::boot(&plane, &files);
    assert!(machine.ended().await);
    assert!(machine.console().contains("would reboot"));
    let state = plane.state();
    assert_eq!((state.starts.len(), state.starts[0].terminal), (1, true));
    assert_eq!((state.sent.len(), state.polls.len()), (0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_kexec_is_reported_and_the_boot_continues() {
    let disk = LoopDisk::ext4();
    let variables = [("BLOCK_DEVICE", disk.path.as_str()), ("KERNEL_PATH", "/boot/vmlinuz")];
    let plane = ControlPlane::serve([assignment("l1", "kexec", &variables)]).await;
    let files = Files::serve(plane.ca(), Vec::new()).await;
    let machine = Machine::boot(&plane, &files);
    let result = plane.result("l1").await;
    let reason = "kexec: cannot copy /boot/vmlinuz: No such file or directory (os error 2)";
    assert_eq!((result.state(), result.reason.as_str()), (ActionState::Failed, reason));
    let starts: Vec<_> = plane.state().starts.iter().map(|start| start.terminal).collect();
    assert_eq!(starts, [false]);
    assert!(!machine.console().contains("would "));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_machine_reboots_on_request() {
    let plane = ControlPlane::serve([]).await;
    let files = Files::serve(plane.ca(), Vec::new()).await;
    let mut machine = Machine::boot(&plane, &files);
    plane.until(|state| state.polls.len() > 1).await;
    plane.update(|state| state.reboot = true);
    assert!(machine.ended().await);
    assert!(machine.console().contains("would reboot"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_inventory_is_reported_before_the_first_action_and_a_refusal_blocks_nothing() {
    let disk = LoopDisk::ext4();
    let plane = ControlPlane::serve([shell("l1", &disk, "true")]).await;
    plane.update(|state| state.refuse_inventory = true);
    let files = Files::serve(plane.ca(), Vec::new()).await;
    let machine = Machine::boot(&plane, &files);
    assert_eq!(plane.result("l1").await.state(), ActionState::Success);
    let reported = plane.state().inventories;
    let [(ReportInventoryRequest { inventory: Some(inventory) }, 0)] = &reported[..] else {
        panic!("{reported:?}");
    };
    let serials: Vec<_> = inventory.disks.iter().map(|disk| disk.serial.as_str()).collect();
    assert_eq!(serials, ["ROOT1"]);
    machine.until_logged("inventory not reported").await;
    assert_eq!(machine.disk_link("virtio-ROOT1"), Path::new("../../vda"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_without_a_record_reports_itself_and_powers_off() {
    let plane = ControlPlane::serve([]).await;
    plane.update(|state| state.enrols = true);
    let files = Files::serve(plane.ca(), Vec::new()).await;
    let mut machine = Machine::boot(&plane, &files);
    assert!(machine.ended().await);
    assert!(machine.console().contains("would power off"), "{}", machine.console());
    let state = plane.state();
    assert_eq!((state.inventories.len(), state.polls.len()), (1, 0), "it asks for no action");
    let architecture = state.inventories[0].0.inventory.as_ref().unwrap().architecture.clone();
    assert_eq!(architecture, std::env::consts::ARCH);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_may_not_enrol_says_so_and_powers_off() {
    let plane = ControlPlane::serve([]).await;
    plane.update(|state| (state.enrols, state.refuse_inventory) = (true, true));
    let files = Files::serve(plane.ca(), Vec::new()).await;
    let mut machine = Machine::boot(&plane, &files);
    assert!(machine.ended().await);
    assert!(machine.console().contains("not enrolled"), "{}", machine.console());
    assert!(machine.console().contains("would power off"));
}
