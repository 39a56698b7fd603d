//! Crashes of servers and workers: no result and no log is lost, and no action runs twice.

use std::fs;

use tempfile::NamedTempFile;
use tinwright::workflow::v1::ActionState;
use tonic::Status;

use crate::disk::LoopDisk;
use crate::files::Files;
use crate::machine::{Machine, assignment, until};
use crate::plane::ControlPlane;
use crate::work::{image, reacting, shell};

/// Returns the output of `seq 1 20000`: 106 KiB, which are seven pieces of the log.
fn numbers() -> String {
    (1..=20_000).map(|number| format!("{number}\n")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_written_to_its_end_while_the_server_is_away() {
    let mut plane = ControlPlane::serve([]).await;
    let (image, disk) = (image(12), NamedTempFile::new().unwrap());
    let files = Files::serve(plane.ca(), image.clone()).await;
    let (url, path) = (files.image_url(), disk.path().display().to_string());
    let variables = [("IMG_URL", url.as_str()), ("DEST_DISK", &path)];
    plane.update(|state| state.queue.push_back(assignment("l1", "image2disk", &variables)));
    let machine = Machine::boot(&plane, &files);
    plane.until(|state| !state.progress.is_empty()).await;
    plane.kill().await;
    files.open();
    machine.until_logged("failed; trying again").await;
    until(|| fs::read(&disk).unwrap() == image).await;
    until(|| machine.attempt().unwrap().contains("\"ended\"")).await;
    plane.start().await;
    assert_eq!(plane.result("l1").await.state(), ActionState::Success);
    let state = plane.state();
    assert_eq!((state.starts.len(), state.redeems.len()), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_whole_log_arrives_although_the_server_was_killed() {
    let disk = LoopDisk::ext4();
    let gate = tempfile::tempdir().unwrap();
    let open = gate.path().join("open");
    let wait = format!("until [ -e {} ]; do sleep 0.1; done", open.display());
    let mut plane =
        ControlPlane::serve([shell("l1", &disk, &format!("echo begun; {wait}; seq 1 20000"))])
            .await;
    let files = Files::serve(plane.ca(), Vec::new()).await;
    let machine = Machine::boot(&plane, &files);
    plane.until(|state| state.log("l1") == "begun\n").await;
    plane.kill().await;
    fs::write(&open, "").unwrap();
    until(|| machine.attempt().unwrap().contains("\"ended\"")).await;
    plane.start().await;
    let result = plane.result("l1").await;
    assert_eq!(result.state(), ActionState::Success, "{result:?}");
    assert!(plane.state().log("l1") == format!("begun\n{}", numbers()));
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_parts_of_a_log_are_sent_again() {
    let disk = LoopDisk::ext4();
    let gate = tempfile::tempdir().unwrap();
    let open = gate.path().join("open");
    let wait = format!("until [ -e {} ]; do sleep 0.1; done", open.display());
    let plane =
        ControlPlane::serve([shell("l1", &disk, &format!("seq 1 20000; {wait}; echo end"))]).await;
    let files = Files::serve(plane.ca(), Vec::new()).await;
    let _machine = Machine::boot(&plane, &files);
    plane.until(|state| state.log("l1").len() > 20_000).await;
    plane.update(|state| state.logs.get_mut("l1").unwrap().truncate(5000));
    fs::write(&open, "").unwrap();
    let result = plane.result("l1").await;
    assert_eq!(result.state(), ActionState::Success, "{result:?}");
    let state = plane.state();
    assert!(state.resumptions > 0 && state.log("l1") == format!("{}end\n", numbers()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_is_reported_by_the_next_worker_after_a_crash() {
    let disk = LoopDisk::ext4();
    let plane = ControlPlane::serve([shell("l1", &disk, "echo once; exit 4")]).await;
    plane.update(|state| state.refuse_result = Some(|_| Some(Status::unavailable("away"))));
    let files = Files::serve(plane.ca(), Vec::new()).await;
    let mut machine = Machine::boot(&plane, &files);
    plane.until(|state| !state.sent.is_empty()).await;
    machine.kill().await;
    plane.update(|state| state.refuse_result = None);
    machine.start();
    let result = plane.result("l1").await;
    assert_eq!((result.state(), result.tail.as_str()), (ActionState::Failed, "once\n"));
    let state = plane.until(|state| state.polls.len() == 2).await;
    assert_eq!((state.starts.len(), state.redeems.len()), (1, 1));
    let [first, second] = [0, 1].map(|at: usize| state.polls[at].0.holder.clone().unwrap());
    assert_eq!(first.boot_id, second.boot_id);
    assert_ne!(first.process_id, second.process_id);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_action_whose_result_is_refused_runs_once() {
    let disk = LoopDisk::ext4();
    let mark = NamedTempFile::new().unwrap();
    let line = format!("echo run | tee -a {}", mark.path().display());
    let plane = ControlPlane::serve([shell("l1", &disk, &line)]).await;
    plane.update(|state| {
        state.refuse_result = Some(|_| Some(Status::invalid_argument("the record is full")));
    });
    let files = Files::serve(plane.ca(), Vec::new()).await;
    let mut machine = Machine::boot(&plane, &files);
    // As it is, shortened, and again because the same lease is assigned.
    let state = plane.until(|state| state.sent.len() == 3).await;
    assert_eq!(state.starts.len(), 1);
    assert_eq!([0, 1, 2].map(|at: usize| &*state.sent[at].tail), ["run\n", "", ""]);
    machine.kill().await;
    plane.update(|state| state.refuse_result = None);
    machine.start();
    assert_eq!(plane.result("l1").await.state(), ActionState::Success);
    until(|| machine.attempt().is_none()).await;
    assert_eq!(fs::read(mark.path()).unwrap(), b"run\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_whose_output_is_refused_is_accepted_without_it() {
    let disk = LoopDisk::ext4();
    let queue = [shell("l1", &disk, "echo output; exit 3"), shell("l2", &disk, "true")];
    let plane = ControlPlane::serve(queue).await;
    plane.update(|state| {
        state.refuse_result = Some(|result| {
            (!result.tail.is_empty()).then(|| Status::invalid_argument("the record is full"))
        });
    });
    let files = Files::serve(plane.ca(), Vec::new()).await;
    let _machine = Machine::boot(&plane, &files);
    let result = plane.result("l1").await;
    assert_eq!((result.state(), &*result.tail), (ActionState::Failed, ""));
    assert!(result.reason.ends_with("ended with exit code 3"), "{}", result.reason);
    assert_eq!(plane.result("l2").await.state(), ActionState::Success);
    assert_eq!(plane.state().starts.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_starts_again_without_the_boot_server() {
    let plane = ControlPlane::serve([]).await;
    let files = Files::serve(plane.ca(), Vec::new()).await;
    let mut machine = Machine::boot(&plane, &files);
    plane.until(|state| !state.polls.is_empty()).await;
    machine.kill().await;
    drop(files);
    let first = plane.state().polls.len();
    machine.start();
    let state = plane.until(|state| state.polls.len() > first).await;
    assert_eq!(state.redeems.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_action_interrupted_by_a_crash_is_not_reported_and_its_processes_are_killed() {
    let disk = LoopDisk::ext4();
    let plane = ControlPlane::serve([shell("l1", &disk, "echo $$; exec sleep 100")]).await;
    let files = Files::serve(plane.ca(), Vec::new()).await;
    let mut machine = Machine::boot(&plane, &files);
    let begun = plane.until(|state| state.log("l1").ends_with('\n')).await;
    machine.kill().await;
    let command = format!("/proc/{}/cmdline", begun.log("l1").trim());
    assert!(fs::read_to_string(&command).unwrap().starts_with("sleep"));
    plane.update(|state| state.queue.clear());
    machine.start();
    let state = plane.until(|state| state.polls.len() > 1).await;
    assert!(state.sent.is_empty() && state.polls[1].0.running_lease_id.is_empty());
    assert!(fs::read(&command).unwrap_or_default().is_empty());
    machine.until_logged("action was interrupted by a crash of the worker").await;
    assert_eq!(machine.attempt(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_crash_during_a_reaction_the_same_result_is_reported_again() {
    let disk = LoopDisk::ext4();
    let failing = shell("l1", &disk, "exit 4");
    let plane =
        ControlPlane::serve([reacting(failing, &["sh", "-c", "echo $$; exec sleep 100"], &[])])
            .await;
    let files = Files::serve(plane.ca(), Vec::new()).await;
    let mut machine = Machine::boot(&plane, &files);
    let head = "on-failure:\n";
    let begun = plane.until(|state| state.log("l1").len() > head.len()).await;
    machine.kill().await;
    let command = format!("/proc/{}/cmdline", begun.log("l1").trim_start_matches(head).trim());
    assert!(fs::read_to_string(&command).unwrap().starts_with("sleep"));
    machine.start();
    let state = plane.until(|state| state.polls.len() > 1).await;
    assert!(fs::read(&command).unwrap_or_default().is_empty());
    assert_eq!(state.sent.len(), 2);
    assert!(state.sent[0] == state.sent[1] && machine.attempt().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_goes_on_with_the_next_server() {
    let (disk, gate) = (LoopDisk::ext4(), tempfile::tempdir().unwrap());
    let [open, mark] = ["open", "mark"].map(|name| gate.path().join(name));
    let wait = format!("until [ -e {} ]; do sleep 0.1; done", open.display());
    let line = format!("echo run >> {}; {wait}; echo end", mark.display());
    let mut plane = ControlPlane::serve([shell("l1", &disk, &line)]).await;
    let replica = plane.replica().await;
    let files = Files::serve(plane.ca(), Vec::new()).await;
    let _machine = Machine::boot_with(&format!(
        "boot_url={} grpc_authority={} grpc_servers={},{} boot_token=TOKEN ca_sha256={}",
        files.boot_url(),
        plane.address,
        plane.address,
        replica.address,
        plane.ca_sha256()
    ));
    // Once the action runs, the response of StartAction has arrived.
    until(|| mark.exists()).await;
    plane.kill().await;
    fs::write(&open, "").unwrap();
    let result = replica.result("l1").await;
    assert_eq!((result.state(), result.tail.as_str()), (ActionState::Success, "end\n"));
    let state = replica.state();
    assert_eq!((state.redeems.len(), state.starts.len()), (1, 1));
    assert_eq!(fs::read_to_string(&mark).unwrap(), "run\n");
}
