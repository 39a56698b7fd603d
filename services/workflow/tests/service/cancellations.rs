//! Cancellations that come too late, and the end of a power-off.

use std::time::{Duration, SystemTime};

use runtime::{Caller, Clock, Role};
use tinwright::HardwareId;
use tinwright::power::v1::get_power_state_response::PowerState;
use tinwright::workflow::v1 as pb;
use tinwright::workflow::v1::workflow_service_client::WorkflowServiceClient;
use tonic::Code;
use tonic_types::StatusExt as _;

use crate::bmc::netboot;
use crate::power::JobEnd;
use crate::site::{Site, TWO};

use pb::WorkflowState as State;

const POWERS_OFF: &str = r#"
name: off
tasks:
- name: os
  worker: "{{ .device_1 }}"
  actions: [{name: off, image: poweroff}]
"#;

impl Site {
    /// Cancels a workflow as `caller`. Returns the reason of a refusal.
    async fn cancel(&mut self, id: &str, caller: Caller) -> Result<pb::Workflow, String> {
        let mut client = WorkflowServiceClient::new(self.channel_of(Some(caller)));
        let request = pb::CancelWorkflowRequest { id: id.into() };
        match client.cancel_workflow(request).await {
            Ok(cancelled) => Ok(cancelled.into_inner().workflow.unwrap()),
            Err(refused) => {
                assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
                Err(refused.get_details_error_info().unwrap().reason)
            }
        }
    }

    /// Asserts that a cancellation by a person is too late.
    async fn assert_too_late(&mut self, id: &str) {
        for role in [Role::Operator, Role::Admin] {
            assert_eq!(self.cancel(id, role.into()).await, Err("TOO_LATE".to_owned()), "{role}");
        }
    }
}

fn service(subject: &str) -> Caller {
    Caller::new(Role::Service, subject).unwrap()
}

#[tokio::test]
async fn a_cancellation_after_the_start_of_the_last_restart_is_too_late_but_not_for_services() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    let made = site.workflow(machine, &POWERS_OFF.replace("poweroff", "reboot")).await;
    let worker = site.worker(machine);
    let it = worker.next().await;
    worker.start(&it, true).await.unwrap();
    site.assert_too_late(&made.id).await;
    let leaving = site.get(&made.id).await;
    assert_eq!((leaving.state(), leaving.stop_time), (State::Running, None));
    for subject in ["service:instance", "service:hardware"] {
        let cancelled = site.cancel(&made.id, service(subject)).await.unwrap();
        assert!(cancelled.stop_time.is_some(), "{cancelled:?}");
    }
}

#[tokio::test]
async fn a_cancellation_in_post_is_too_late_and_changes_nothing_for_services() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    let made = site.workflow_with(machine, TWO, netboot(false)).await;
    let worker = site.booted(&made.id).await;
    site.power.set_end(JobEnd::Never);
    for _ in 0..2 {
        let it = worker.begin().await;
        worker.succeed(&it).await;
    }
    site.until(&made.id, |found| found.state() == State::Post).await;
    site.assert_too_late(&made.id).await;
    let unchanged = site.cancel(&made.id, service("service:instance")).await.unwrap();
    assert_eq!((unchanged.state(), unchanged.outcome()), (State::Post, State::Success));
    while site.power.jobs().len() < 2 {
        tokio::task::yield_now().await;
    }
    site.power.finish();
    assert_eq!(site.ended(&made.id).await.state(), State::Success);
    let ended = site.cancel(&made.id, Role::Operator.into()).await.unwrap();
    assert_eq!(ended.state(), State::Success, "an ended workflow does not change");
}

#[tokio::test(start_paused = true)]
async fn a_power_off_succeeds_once_the_bmc_reports_the_machine_as_off() {
    // The clock stands: no time limit ends the action.
    let clock = Clock::manual(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000));
    let (mut site, machine) = (Site::with_clock(clock).await, HardwareId::new());
    site.power.set_power_state(PowerState::On);
    let made = site.workflow(machine, POWERS_OFF).await;
    let worker = site.worker(machine);
    let it = worker.next().await;
    worker.start(&it, true).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(site.get(&made.id).await.state(), State::Running);
    site.power.set_power_state(PowerState::Off);
    let ended = site.ended(&made.id).await;
    assert_eq!(
        (ended.state(), ended.actions[0].state()),
        (State::Success, pb::ActionState::Success)
    );
}
