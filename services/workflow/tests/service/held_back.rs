//! Workflows that their creator holds back.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use runtime::{Clock, Role};
use store::memory::MemoryStore;
use tinwright::HardwareId;
use tinwright::workflow::v1 as pb;
use tinwright::workflow::v1::workflow_service_client::WorkflowServiceClient;
use tonic::Code;

use crate::power::{FakePower, JobEnd};
use crate::site::{Site, TWO, request};

const NETBOOT: pb::BootOptions =
    pb::BootOptions { mode: pb::boot_options::Mode::Netboot as i32, power_off_after: false };
const LIMIT: Duration = Duration::from_secs(600);

fn held_back(machine: HardwareId) -> pb::CreateWorkflowRequest {
    pb::CreateWorkflowRequest {
        template_data: TWO.into(),
        boot_options: Some(NETBOOT),
        held: true,
        ..request(machine)
    }
}

impl Site {
    async fn hold_back(&mut self, machine: HardwareId) -> pb::Workflow {
        let created = self.workflows().create_workflow(held_back(machine)).await.unwrap();
        created.into_inner().workflow.unwrap()
    }

    async fn release(&mut self, id: &str) -> pb::Workflow {
        let request = pb::ReleaseWorkflowRequest { id: id.into() };
        self.workflows().release_workflow(request).await.unwrap().into_inner().workflow.unwrap()
    }
}

#[tokio::test]
async fn a_workflow_that_is_held_back_begins_when_it_is_released() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    let held = site.hold_back(machine).await;
    assert!(held.held && !held.wants_machine);
    assert_eq!(held.state_reason, "held back until its creator releases it");
    // It would have been first: what comes later does not wait for it.
    let other = site.workflow_with(machine, TWO, NETBOOT).await;
    site.prepared(&other.id, 1).await;
    assert_eq!(site.power.jobs().len(), 1, "{:?}", site.power.jobs());
    let released = site.release(&held.id).await;
    assert!(!released.held && released.wants_machine);
    assert_eq!(site.release(&held.id).await.update_time, released.update_time, "repeated");
    let cancel = pb::CancelWorkflowRequest { id: other.id.clone() };
    site.workflows().cancel_workflow(cancel).await.unwrap();
    site.prepared(&held.id, 1).await;
}

#[tokio::test]
async fn a_released_workflow_has_its_place_by_its_creation() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    site.power.set_end(JobEnd::Never);
    let active = site.workflow_with(machine, TWO, NETBOOT).await;
    site.until(&active.id, |found| found.state() == pb::WorkflowState::Preparing).await;
    let held = site.hold_back(machine).await;
    let later = site.workflow(machine, TWO).await;
    let behind = format!("behind workflow {}", active.id);
    assert_eq!(site.waiting(&later.id, &behind).await.blocked_by, active.id);
    site.release(&held.id).await;
    site.waiting(&later.id, &format!("{behind} and 1 more")).await;
}

#[tokio::test]
async fn a_workflow_that_is_not_released_is_cancelled_after_ten_minutes() {
    let clock = Clock::manual(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000));
    let mut site = Site::with_clock(clock.clone()).await;
    let machine = HardwareId::new();
    let held = site.hold_back(machine).await;
    clock.advance(LIMIT);
    let ended = site.ended(&held.id).await;
    assert_eq!(ended.state(), pb::WorkflowState::Cancelled);
    assert_eq!(ended.state_reason, "its creator did not release it within 10 minutes");
    assert!(ended.held, "it has done nothing");
    let late = site.release(&held.id).await;
    assert_eq!((late.state(), late.held), (pb::WorkflowState::Cancelled, true));
    assert!(site.power.jobs().is_empty());
}

#[tokio::test]
async fn a_workflow_is_still_held_back_after_a_restart() {
    let (store, power) = (Arc::new(MemoryStore::default()), FakePower::default());
    let machine = HardwareId::new();
    let held = Site::over(store.clone(), power.clone()).await.hold_back(machine).await;
    let mut site = Site::over(store, power.clone()).await;
    let other = site.workflow_with(machine, TWO, NETBOOT).await;
    site.prepared(&other.id, 1).await;
    assert_eq!((power.jobs().len(), site.get(&held.id).await.held), (1, true));
}

#[tokio::test]
async fn only_services_may_hold_a_workflow_back() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    for role in [Role::Operator, Role::Viewer] {
        let mut client = WorkflowServiceClient::new(site.channel(Some(role)));
        let refused = client.create_workflow(held_back(machine)).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied);
    }
    let mut client = WorkflowServiceClient::new(site.channel(Some(Role::Operator)));
    let plain = pb::CreateWorkflowRequest { held: false, ..held_back(machine) };
    let created = client.create_workflow(plain).await.unwrap().into_inner().workflow.unwrap();
    assert!(!created.held);
}
