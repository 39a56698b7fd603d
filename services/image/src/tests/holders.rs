//! A fake of the services whose objects name images, and deletions of images in use.

use std::sync::{Arc, Mutex};

use http::{Method, StatusCode};
use runtime::{Caller, Channel, Role};
use tinwright::instance::v1 as inst;
use tinwright::instance::v1::instance_service_server::{InstanceService, InstanceServiceServer};
use tinwright::workflow::v1 as wf;
use tinwright::workflow::v1::workflow_service_server::{WorkflowService, WorkflowServiceServer};
use tonic::codegen::BoxStream;
use tonic::service::Routes;
use tonic::{Code, Request, Response, Status};

use super::site::{Site, download, never_called, reason};
use crate::holders::Holders;

/// The services, with the objects that the test gives them.
#[derive(Clone, Debug, Default)]
pub(super) struct FakeHolders {
    pub(super) instances: Arc<Mutex<Vec<inst::Instance>>>,
    pub(super) workflows: Arc<Mutex<Vec<wf::Workflow>>>,
}

impl FakeHolders {
    pub(super) fn holders(&self) -> Holders {
        let instance = Routes::new(InstanceServiceServer::new(self.clone()));
        let workflow = Routes::new(WorkflowServiceServer::new(self.clone()));
        Holders { instance: Channel::to(instance), workflow: Channel::to(workflow) }
    }
}

impl InstanceService for FakeHolders {
    async fn list_instances(
        &self,
        request: Request<inst::ListInstancesRequest>,
    ) -> Result<Response<inst::ListInstancesResponse>, Status> {
        let image = request.into_inner().image_id;
        let mut instances = self.instances.lock().unwrap().clone();
        instances.retain(|it| it.image_id == image);
        Ok(Response::new(inst::ListInstancesResponse { instances, ..Default::default() }))
    }

    type WatchInstancesStream = BoxStream<inst::WatchInstancesResponse>;

    never_called! {
        create_instance(inst::CreateInstanceRequest) -> inst::CreateInstanceResponse;
        get_instance(inst::GetInstanceRequest) -> inst::GetInstanceResponse;
        update_instance(inst::UpdateInstanceRequest) -> inst::UpdateInstanceResponse;
        delete_instance(inst::DeleteInstanceRequest) -> inst::DeleteInstanceResponse;
        retry_instance(inst::RetryInstanceRequest) -> inst::RetryInstanceResponse;
        reinstall_instance(inst::ReinstallInstanceRequest) -> inst::ReinstallInstanceResponse;
        restart_instance(inst::RestartInstanceRequest) -> inst::RestartInstanceResponse;
        report_phone_home(inst::ReportPhoneHomeRequest) -> inst::ReportPhoneHomeResponse;
        report_script(inst::ReportScriptRequest) -> inst::ReportScriptResponse;
        report_stack_running(inst::ReportStackRunningRequest) -> inst::ReportStackRunningResponse;
        watch_instances(inst::WatchInstancesRequest) -> Self::WatchInstancesStream;
    }
}

impl WorkflowService for FakeHolders {
    async fn list_workflows(
        &self,
        request: Request<wf::ListWorkflowsRequest>,
    ) -> Result<Response<wf::ListWorkflowsResponse>, Status> {
        let image = request.into_inner().image_id;
        let mut workflows = self.workflows.lock().unwrap().clone();
        workflows.retain(|it| it.image.as_ref().is_some_and(|it| it.id == image));
        Ok(Response::new(wf::ListWorkflowsResponse { workflows, ..Default::default() }))
    }

    async fn get_workflow(
        &self,
        request: Request<wf::GetWorkflowRequest>,
    ) -> Result<Response<wf::GetWorkflowResponse>, Status> {
        let id = request.into_inner().id;
        let found = self.workflows.lock().unwrap().iter().find(|it| it.id == id).cloned();
        let workflow = Some(found.ok_or_else(|| Status::not_found("workflow"))?);
        Ok(Response::new(wf::GetWorkflowResponse { workflow }))
    }

    type WatchWorkflowsStream = BoxStream<wf::WatchWorkflowsResponse>;
    type ReadLogStream = BoxStream<wf::ReadLogResponse>;

    never_called! {
        create_workflow(wf::CreateWorkflowRequest) -> wf::CreateWorkflowResponse;
        plan_workflow(wf::PlanWorkflowRequest) -> wf::PlanWorkflowResponse;
        cancel_workflow(wf::CancelWorkflowRequest) -> wf::CancelWorkflowResponse;
        release_workflow(wf::ReleaseWorkflowRequest) -> wf::ReleaseWorkflowResponse;
        delete_workflow(wf::DeleteWorkflowRequest) -> wf::DeleteWorkflowResponse;
        watch_workflows(wf::WatchWorkflowsRequest) -> Self::WatchWorkflowsStream;
        read_log(wf::ReadLogRequest) -> Self::ReadLogStream;
        confirm_restart(wf::ConfirmRestartRequest) -> wf::ConfirmRestartResponse;
        note_boot(wf::NoteBootRequest) -> wf::NoteBootResponse;
        get_boot_epoch(wf::GetBootEpochRequest) -> wf::GetBootEpochResponse;
    }
}

fn instance(image: &str, state: inst::State, tenant: &str) -> inst::Instance {
    let mut instance = inst::Instance {
        hostname: "web-1".into(),
        image_id: image.into(),
        tenant: tenant.into(),
        ..inst::Instance::default()
    };
    instance.set_state(state);
    instance
}

pub(super) fn workflow(image: &str, state: wf::WorkflowState) -> wf::Workflow {
    let image = Some(wf::WorkflowImage { id: image.into(), ..wf::WorkflowImage::default() });
    let mut workflow = wf::Workflow { id: "w-1".into(), image, ..wf::Workflow::default() };
    workflow.set_state(state);
    workflow
}

#[tokio::test]
async fn an_image_that_machines_are_about_to_be_installed_with_is_not_deleted() {
    use inst::State::{Active, Deprovisioning, Failed, Provisioning, Queued, Reinstalling};
    let site = Site::new();
    let mut image = site.import(download("", "debian-12"), "disk").await;
    for (state, holds) in [
        (Queued, true),
        (Provisioning, true),
        (Reinstalling, true),
        (Active, false),
        (Failed, false),
        (Deprovisioning, false),
    ] {
        *site.holders.instances.lock().unwrap() = vec![instance(&image.id, state, "acme")];
        let refused = site.delete("", &image.id).await;
        if !holds {
            refused.unwrap();
            image = site.import(download("", "debian-12"), "disk").await;
            continue;
        }
        let refused = refused.unwrap_err();
        assert_eq!(reason(&refused), "IN_USE");
        assert_eq!(refused.message(), "image debian-12 is in use by instance web-1");
        assert!(!site.image(&image.id).await.deleting, "a refused deletion leaves no mark");
    }
}

#[tokio::test]
async fn an_image_of_a_live_workflow_is_not_deleted_and_a_service_that_is_away_refuses() {
    let site = Site::new();
    let image = site.import(download("", "debian-12"), "disk").await;
    // Also that of an instance which is not installed any more.
    for instance_id in ["", "i-1"] {
        let running = workflow(&image.id, wf::WorkflowState::Running);
        *site.holders.workflows.lock().unwrap() =
            vec![wf::Workflow { instance_id: instance_id.into(), ..running }];
        let refused = site.delete("", &image.id).await.unwrap_err();
        assert_eq!(refused.message(), "image debian-12 is in use by workflow w-1");
    }
    *site.holders.workflows.lock().unwrap() = vec![workflow(&image.id, wf::WorkflowState::Success)];
    site.delete("", &image.id).await.unwrap();
}

#[tokio::test]
async fn a_tenant_does_not_learn_who_uses_its_public_image() {
    let site = Site::new();
    let image = site.import(download("acme", "debian-12"), "disk").await;
    *site.holders.instances.lock().unwrap() =
        vec![instance(&image.id, inst::State::Queued, "other")];
    let refused = site.delete("acme", &image.id).await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::FailedPrecondition, "image debian-12 is in use")
    );
}

#[tokio::test]
async fn a_boot_server_reads_for_a_live_workflow_what_it_may_not_read_for_everybody() {
    let site = Site::new();
    let image = site.import(download("acme", "debian-12"), "disk").await;
    let running = |digest: &str| {
        let mut running = workflow(&image.id, wf::WorkflowState::Running);
        running.image.as_mut().unwrap().stored_sha256 = digest.into();
        running
    };
    let read = async |query: &str| {
        let caller = Some(Caller::new(Role::Service, "service:netboot").unwrap());
        let path = format!("/images/{}.raw.zst{query}", image.stored_sha256);
        site.send(caller, Method::GET, &path, &[], "").await.status
    };
    assert_eq!(read("").await, StatusCode::NOT_FOUND, "it is a tenant's");
    assert_eq!(read("?workflow=w-1").await, StatusCode::NOT_FOUND, "there is no such workflow");
    for (workflow, expected) in [
        (running(&image.stored_sha256), StatusCode::OK),
        (running("of another image"), StatusCode::NOT_FOUND),
        (
            wf::Workflow {
                state: wf::WorkflowState::Success.into(),
                ..running(&image.stored_sha256)
            },
            StatusCode::NOT_FOUND,
        ),
    ] {
        *site.holders.workflows.lock().unwrap() = vec![workflow];
        assert_eq!(read("?workflow=w-1").await, expected);
    }
}
