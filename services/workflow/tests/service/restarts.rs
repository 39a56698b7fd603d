//! Restarts of workers and machines, and late or repeated reports.

use std::time::{Duration, SystemTime};

use runtime::Clock;
use tinwright::HardwareId;
use tinwright::workflow::v1 as pb;
use tonic::Code;

use crate::site::{Site, TWO, soon};

use pb::WorkflowState as State;

const LEAVES: &str = r#"
name: leaves
tasks:
- name: os
  worker: "{{ .device_1 }}"
  actions: [{name: reboot, image: reboot}]
"#;

#[tokio::test]
async fn a_restarted_worker_that_still_runs_its_action_keeps_the_lease() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    site.workflow(machine, TWO).await;
    let worker = site.worker(machine);
    let it = worker.begin().await;
    let new = worker.again("b1", "p2");
    let next =
        soon(new.client.clone().next_action(new.request(&it.lease_id))).await.unwrap().into_inner();
    assert_eq!(next.assignment.unwrap().lease_id, it.lease_id);
}

#[tokio::test]
async fn an_interrupted_action_is_run_again_and_its_old_lease_is_refused() {
    for (boot, process) in [("b1", "p2"), ("b2", "p3")] {
        let clock = Clock::manual(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000));
        let (mut site, machine) = (Site::with_clock(clock.clone()).await, HardwareId::new());
        let made = site.workflow(machine, TWO).await;
        let worker = site.worker(machine);
        let it = worker.begin().await;
        clock.advance(Duration::from_secs(90));
        let next = worker.again(boot, process);
        let next = tokio::spawn(async move { next.next().await });
        site.until(&made.id, |found| found.actions[0].lost_attempts == 1).await;
        clock.advance(Duration::from_secs(5));
        assert_eq!(soon(next).await.unwrap().action.unwrap().name, "write");
        assert_eq!(worker.start(&it, false).await.unwrap_err().code(), Code::FailedPrecondition);
        assert_eq!(worker.progress(&it, 1).await.unwrap_err().code(), Code::FailedPrecondition);
        let before = site.get(&made.id).await;
        for _ in 0..2 {
            worker.succeed(&it).await;
        }
        let mut after = site.get(&made.id).await;
        let late = std::mem::take(&mut after.actions[0].late_results);
        let recorded: Vec<_> =
            late.iter().map(|it| (&it.lease_id, it.attempt, it.state())).collect();
        assert_eq!(recorded, [(&it.lease_id, 1, pb::ActionState::Success)], "recorded once");
        (after.revision, after.update_time) = (before.revision, before.update_time);
        assert_eq!(after, before, "a late result changes nothing else");
    }
}

#[tokio::test]
async fn a_repeated_failure_is_not_a_late_result_though_a_new_attempt_has_begun() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    let made = site.workflow(machine, TWO).await;
    let worker = site.worker(machine);
    let it = worker.begin().await;
    let fails = async || worker.finish(&it, pb::ActionState::Failed, "cut off", "").await.unwrap();
    fails().await;
    fails().await;
    worker.begin().await;
    fails().await;
    let action = &site.get(&made.id).await.actions[0];
    assert_eq!((action.past_leases.len(), action.past_leases[0].reported), (1, true));
    assert!(action.late_results.is_empty(), "{:?}", action.late_results);
}

#[tokio::test]
async fn a_report_after_the_server_ended_the_action_is_recorded_as_late() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    let text = TWO.replace("name: two", "name: two\nglobal_timeout: 1");
    let made = site.workflow(machine, &text).await;
    let worker = site.worker(machine);
    let it = worker.begin().await;
    site.ended(&made.id).await;
    worker.finish(&it, pb::ActionState::Failed, "no\nspace", "").await.unwrap();
    let action = &site.get(&made.id).await.actions[0];
    assert_eq!(action.state(), pb::ActionState::Timeout);
    let late: Vec<_> =
        action.late_results.iter().map(|it| (it.state(), it.reason.as_str())).collect();
    assert_eq!(late, [(pb::ActionState::Failed, "no space")]);
}

#[tokio::test]
async fn a_repeated_result_changes_nothing() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    let made = site.workflow(machine, TWO).await;
    let worker = site.worker(machine);
    let it = worker.begin().await;
    worker.finish(&it, pb::ActionState::Success, "", "first").await.unwrap();
    let before = site.get(&made.id).await;
    worker.finish(&it, pb::ActionState::Success, "", "second").await.unwrap();
    worker.finish(&it, pb::ActionState::Failed, "x", "third").await.unwrap();
    assert_eq!(site.get(&made.id).await, before);
}

#[tokio::test]
async fn the_machine_boots_its_disk_after_the_start_of_the_last_reboot_which_ends_with_that_boot() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    let made = site.workflow(machine, LEAVES).await;
    let worker = site.worker(machine);
    let it = worker.next().await;
    worker.start(&it, true).await.unwrap();
    let leaving = site.get(&made.id).await;
    assert_eq!((leaving.state(), leaving.wants_machine), (State::Running, false));
    let boot = pb::NoteBootRequest { hardware_id: machine.to_string(), ..Default::default() };
    site.workflows().note_boot(boot.clone()).await.unwrap();
    assert_eq!(site.ended(&made.id).await.state(), State::Success);
    site.workflows().note_boot(boot).await.unwrap();
}
