//! Workflows on machines that instances occupy, and the fake of the instance service.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use futures_util::Stream;
use runtime::Role;
use tinwright::HardwareId;
use tinwright::instance::v1 as inst;
use tinwright::instance::v1::get_instance_request::By;
use tinwright::instance::v1::instance_service_server::InstanceService;
use tinwright::workflow::v1::CreateWorkflowRequest;
use tinwright::workflow::v1::workflow_service_client::WorkflowServiceClient;
use tonic::{Code, Request, Response, Status};
use tonic_types::StatusExt as _;

use crate::site::{Site, TWO, request};

/// The instances that occupy machines, by the machines' ids.
#[derive(Clone, Debug, Default)]
pub(crate) struct FakeInstances(Arc<Mutex<BTreeMap<String, inst::Instance>>>);

impl FakeInstances {
    /// Lets the instance `id` occupy `machine`.
    pub(crate) fn occupy(&self, machine: HardwareId, id: &str) {
        self.set(machine, inst::Instance { id: id.into(), ..inst::Instance::default() });
    }

    /// Returns the id of the instance on `machine`; empty if there is none.
    pub(crate) fn occupant(&self, machine: HardwareId) -> String {
        let instances = self.0.lock().unwrap();
        instances.get(&machine.to_string()).map_or_else(String::new, |it| it.id.clone())
    }

    pub(crate) fn set(&self, machine: HardwareId, instance: inst::Instance) {
        self.0.lock().unwrap().insert(machine.to_string(), instance);
    }
}

/// Implements calls that the workflow service never makes.
macro_rules! never_called {
    ($($name:ident($request:ty) -> $response:ty;)*) => {$(
        async fn $name(&self, _: Request<$request>) -> Result<Response<$response>, Status> {
            Err(Status::unimplemented(stringify!($name)))
        }
    )*};
}

impl InstanceService for FakeInstances {
    async fn get_instance(
        &self,
        request: Request<inst::GetInstanceRequest>,
    ) -> Result<Response<inst::GetInstanceResponse>, Status> {
        let Some(By::HardwareId(machine)) = request.into_inner().by else {
            return Err(Status::unimplemented("by"));
        };
        match self.0.lock().unwrap().get(&machine) {
            Some(found) => {
                Ok(Response::new(inst::GetInstanceResponse { instance: Some(found.clone()) }))
            }
            None => Err(Status::not_found("no instance")),
        }
    }

    async fn list_instances(
        &self,
        _: Request<inst::ListInstancesRequest>,
    ) -> Result<Response<inst::ListInstancesResponse>, Status> {
        let instances = self.0.lock().unwrap().values().cloned().collect();
        Ok(Response::new(inst::ListInstancesResponse { instances, ..Default::default() }))
    }

    type WatchInstancesStream =
        Pin<Box<dyn Stream<Item = Result<inst::WatchInstancesResponse, Status>> + Send>>;

    never_called! {
        create_instance(inst::CreateInstanceRequest) -> inst::CreateInstanceResponse;
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

/// Requests a workflow on `machine` that names these instances, as the instance service. Returns the reason of a refusal.
async fn create(site: &mut Site, machine: HardwareId, of: &str, by: &str) -> Result<(), String> {
    let request = CreateWorkflowRequest {
        template_data: TWO.into(),
        instance_id: of.into(),
        occupied_by: by.into(),
        ..request(machine)
    };
    match site.workflows_of_instances().create_workflow(request).await {
        Ok(_) => Ok(()),
        Err(refused) => {
            assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
            Err(refused.get_details_error_info().unwrap().reason)
        }
    }
}

#[tokio::test]
async fn a_workflow_on_an_occupied_machine_has_to_name_the_occupant() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    site.instances.occupy(machine, "i");
    for (of, by, result) in [
        ("", "", Err("OCCUPIED".to_owned())),
        ("j", "", Err("OCCUPANT".to_owned())),
        ("", "j", Err("OCCUPANT".to_owned())),
        ("i", "j", Err("OCCUPANT".to_owned())),
        ("", "i", Ok(())),
        ("i", "", Ok(())),
    ] {
        assert_eq!(create(&mut site, machine, of, by).await, result, "{of} {by}");
    }
}

#[tokio::test]
async fn a_workflow_on_a_free_machine_names_no_occupant() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    for (of, by) in [("i", ""), ("", "i")] {
        assert_eq!(create(&mut site, machine, of, by).await, Err("OCCUPANT".to_owned()));
    }
    assert_eq!(create(&mut site, machine, "", "").await, Ok(()));
}

#[tokio::test]
async fn a_machine_that_was_changed_for_a_protected_instance_gets_no_workflow() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    let queued = inst::Instance { id: "i".into(), protect: true, ..inst::Instance::default() };
    site.instances.set(machine, queued.clone());
    assert_eq!(create(&mut site, machine, "i", "").await, Ok(()), "its first installation");
    let begin_time = Some(prost_types::Timestamp::default());
    site.instances.set(machine, inst::Instance { begin_time, ..queued });
    for (of, by) in [("i", ""), ("", "i")] {
        assert_eq!(create(&mut site, machine, of, by).await, Err("PROTECTED".to_owned()));
    }
}

#[tokio::test]
async fn only_services_create_workflows_of_instances_and_others_name_the_occupant() {
    let (mut site, machine) = (Site::new().await, HardwareId::new());
    site.instances.occupy(machine, "i");
    for role in [Role::Operator, Role::Admin] {
        let mut client = WorkflowServiceClient::new(site.channel(Some(role)));
        let naming = |instance_id: &str| CreateWorkflowRequest {
            template_data: TWO.into(),
            instance_id: instance_id.into(),
            occupied_by: "i".into(),
            ..request(machine)
        };
        let refused = client.create_workflow(naming("i")).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{role}: {refused}");
        let text = "instance_id: is for services: name the occupant of the machine in occupied_by";
        assert_eq!(refused.message(), text);
        client.create_workflow(naming("")).await.unwrap();
    }
}
