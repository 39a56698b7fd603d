//! Machines in maintenance: no step begins, a running action goes on.

use std::time::Duration;

use tinwright::HardwareId;
use tinwright::hardware::v1::State as HardwareState;
use tinwright::workflow::v1 as pb;

use crate::bmc::{PREPARED, netboot};
use crate::site::{Site, TWO};
use crate::worker::Worker;

use pb::WorkflowState as State;

const WAITS: &str = "waits: the machine is in maintenance";

/// Passes the time after which machines are read again.
async fn pass_poll_interval() {
    tokio::time::sleep(Duration::from_secs(31)).await;
}

/// A workflow after more time than any of its steps may take.
async fn after_an_hour(site: &mut Site, id: &str) -> (State, String) {
    tokio::time::sleep(Duration::from_secs(60 * 60)).await;
    let found = site.get(id).await;
    (found.state(), found.state_reason)
}

/// The response to a request for an action, which may be held.
async fn instruction(worker: &Worker) -> pb::NextActionResponse {
    worker.client.clone().next_action(worker.request("")).await.unwrap().into_inner()
}

#[tokio::test(start_paused = true)]
async fn no_turn_begins_in_maintenance() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    site.hardware.set_state(machine, HardwareState::Maintenance);
    let made = site.workflow_with(machine, TWO, netboot(false)).await;
    assert_eq!(after_an_hour(&mut site, &made.id).await, (State::Pending, WAITS.to_owned()));
    assert!(site.power.jobs().is_empty(), "{:?}", site.power.jobs());
    site.hardware.set_state(machine, HardwareState::Provisionable);
    pass_poll_interval().await;
    site.booted(&made.id).await.begin().await;
    assert_eq!(site.power.jobs(), [PREPARED]);
    assert_eq!(site.get(&made.id).await.state_reason, "");
}

#[tokio::test(start_paused = true)]
async fn a_preparation_that_could_not_begin_waits_for_the_end_of_maintenance() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    site.power.set_away(true);
    let made = site.workflow_with(machine, TWO, netboot(false)).await;
    site.until(&made.id, |found| found.state() == State::Preparing).await;
    site.hardware.set_state(machine, HardwareState::Maintenance);
    pass_poll_interval().await;
    site.power.set_away(false);
    assert_eq!(after_an_hour(&mut site, &made.id).await, (State::Preparing, WAITS.to_owned()));
    assert!(site.power.jobs().is_empty(), "{:?}", site.power.jobs());
    site.hardware.set_state(machine, HardwareState::Provisionable);
    pass_poll_interval().await;
    site.booted(&made.id).await.begin().await;
    assert_eq!(site.power.jobs(), [PREPARED]);
}

#[tokio::test(start_paused = true)]
async fn a_running_action_goes_on_in_maintenance_and_none_follows_it() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    site.workflow(machine, TWO).await;
    let worker = site.worker(machine);
    let it = worker.begin().await;
    site.hardware.set_state(machine, HardwareState::Maintenance);
    let restarted = worker.again("b1", "p2");
    let request = restarted.request(&it.lease_id);
    let next = restarted.client.clone().next_action(request).await.unwrap().into_inner();
    assert_eq!(next.assignment.unwrap().lease_id, it.lease_id);
    assert!(!restarted.progress(&it, 1).await.unwrap());
    restarted.succeed(&it).await;
    assert_eq!(instruction(&restarted).await, pb::NextActionResponse::default());
    assert_eq!(site.get(&it.workflow_id).await.state_reason, WAITS);
    site.hardware.set_state(machine, HardwareState::Provisionable);
    let next = instruction(&restarted).await.assignment.unwrap();
    assert_eq!(next.action.unwrap().name, "configure");
}

#[tokio::test(start_paused = true)]
async fn neither_the_clean_up_nor_the_next_workflow_begins_in_maintenance() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    let first = site.workflow_with(machine, TWO, netboot(true)).await;
    let second = site.workflow_with(machine, TWO, netboot(false)).await;
    let worker = site.booted(&first.id).await;
    let it = worker.begin().await;
    worker.succeed(&it).await;
    let it = worker.begin().await;
    site.hardware.set_state(machine, HardwareState::Maintenance);
    worker.succeed(&it).await;
    assert_eq!(after_an_hour(&mut site, &first.id).await, (State::Post, WAITS.to_owned()));
    assert_eq!(site.power.jobs(), [PREPARED]);
    assert_eq!(site.get(&second.id).await.blocked_by, first.id);
    site.hardware.set_state(machine, HardwareState::Provisionable);
    pass_poll_interval().await;
    assert_eq!(site.ended(&first.id).await.state(), State::Success);
    assert_eq!(site.booted(&second.id).await.begin().await.workflow_id, second.id);
}

#[tokio::test(start_paused = true)]
async fn the_workflows_of_a_deleted_machine_are_cancelled() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    site.hardware.set_state(machine, HardwareState::Deleting);
    let made = site.workflow_with(machine, TWO, netboot(false)).await;
    let (state, reason) = after_an_hour(&mut site, &made.id).await;
    assert_eq!((state, reason.as_str()), (State::Pending, "waits: the machine is being deleted"));
    site.hardware.delete(machine);
    pass_poll_interval().await;
    assert_eq!(site.ended(&made.id).await.state(), State::Cancelled);
    assert!(site.power.jobs().is_empty(), "{:?}", site.power.jobs());
}

#[tokio::test(start_paused = true)]
async fn a_worker_is_not_told_to_reboot_in_maintenance() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    site.instances.occupy(machine, "i");
    let request = pb::CreateWorkflowRequest {
        template_data: TWO.into(),
        instance_id: "i".into(),
        ..crate::site::request(machine)
    };
    site.workflows_of_instances().create_workflow(request).await.unwrap();
    let worker = site.worker(machine);
    for _ in 0..2 {
        let it = worker.begin().await;
        worker.succeed(&it).await;
    }
    site.hardware.set_state(machine, HardwareState::Maintenance);
    assert_eq!(instruction(&worker).await, pb::NextActionResponse::default());
    site.hardware.set_state(machine, HardwareState::Provisionable);
    assert!(instruction(&worker).await.reboot);
}
