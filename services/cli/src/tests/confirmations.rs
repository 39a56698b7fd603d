//! Commands that lose data of a machine in use: without a terminal they need `--yes`, and send nothing before.

use std::sync::{Arc, Mutex};

use tinwright::hardware::v1::hardware_service_server::{HardwareService, HardwareServiceServer};
use tinwright::instance::v1::instance_service_server::{InstanceService, InstanceServiceServer};
use tinwright::workflow::v1::template_service_server::{TemplateService, TemplateServiceServer};
use tinwright::workflow::v1::workflow_service_server::{WorkflowService, WorkflowServiceServer};
use tokio_stream::Empty;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use super::apply::file;
use super::{fake, tinwright};

type Stream<T> = Empty<Result<T, Status>>;

const MACHINE: &str = "01990000-0000-7000-8000-00000000000a";
const INSTANCE: &str = "01990000-0000-7000-8000-00000000000b";
const TEMPLATE: &str = "01990000-0000-7000-8000-00000000000c";
const WORKFLOW: &str = "01990000-0000-7000-8000-00000000000d";

/// The root disk of the machine, that of its occupant, and that of its next installation.
const DISKS: [&str; 3] = ["/dev/sda", "/dev/sdb", "/dev/sdc"];

/// A site with the machine `node-1`, which the instance `web-1` occupies unless it `is_released`, and a template that erases the root
/// disk. Changes are recorded.
#[derive(Clone, Default)]
struct Site {
    changes: Arc<Mutex<Vec<&'static str>>>,
    is_released: bool,
}

impl Site {
    /// Runs a command. Returns its output, its result, and the changes that it asked for.
    async fn run(&self, arguments: &str) -> (String, Result<(), String>, Vec<&'static str>) {
        let server = Server::builder()
            .add_service(HardwareServiceServer::new(self.clone()))
            .add_service(InstanceServiceServer::new(self.clone()))
            .add_service(TemplateServiceServer::new(self.clone()))
            .add_service(WorkflowServiceServer::new(self.clone()));
        let (printed, result) = Box::pin(tinwright(arguments, server)).await;
        (printed, result, std::mem::take(&mut *self.changes.lock().unwrap()))
    }

    fn record(&self, change: &'static str) {
        self.changes.lock().unwrap().push(change);
    }
}

mod machines {
    use tinwright::hardware::v1 as pb;

    use super::*;

    fake! {
        impl HardwareService for Site {
            type WatchHardwareStream = Stream<pb::WatchHardwareResponse>;

            async fn get_hardware(
                &self,
                _: Request<pb::GetHardwareRequest>,
            ) -> Result<Response<pb::GetHardwareResponse>, Status> {
                let (id, name) = (MACHINE.into(), "node-1".into());
                let hardware = Some(pb::Hardware { id, name, ..pb::Hardware::default() });
                Ok(Response::new(pb::GetHardwareResponse { hardware }))
            }

            async fn watch_hardware(
                &self,
                _: Request<pb::WatchHardwareRequest>,
            ) -> Result<Response<Self::WatchHardwareStream>, Status> {
                Err(Status::unimplemented("watch"))
            }
        }
        refuses {
            create_hardware: CreateHardwareRequest => CreateHardwareResponse,
            list_hardware: ListHardwareRequest => ListHardwareResponse,
            update_hardware: UpdateHardwareRequest => UpdateHardwareResponse,
            set_hardware_state: SetHardwareStateRequest => SetHardwareStateResponse,
            delete_hardware: DeleteHardwareRequest => DeleteHardwareResponse,
            record_inventory: RecordInventoryRequest => RecordInventoryResponse,
            record_bmc_inventory: RecordBmcInventoryRequest => RecordBmcInventoryResponse,
            check_bmc_identity: CheckBmcIdentityRequest => CheckBmcIdentityResponse,
            enrol_machine: EnrolMachineRequest => EnrolMachineResponse,
        }
    }
}

mod instances {
    use tinwright::instance::v1 as pb;

    use super::*;

    fn instance(site: &Site) -> pb::Instance {
        let state = if site.is_released { pb::State::Failed } else { pb::State::Active };
        pb::Instance {
            id: INSTANCE.into(),
            hostname: "web-1".into(),
            hardware_id: MACHINE.into(),
            state: state.into(),
            released: site.is_released,
            create_time: Some(prost_types::Timestamp::default()),
            ..pb::Instance::default()
        }
    }

    fake! {
        impl InstanceService for Site {
            type WatchInstancesStream = Stream<pb::WatchInstancesResponse>;

            async fn get_instance(
                &self,
                _: Request<pb::GetInstanceRequest>,
            ) -> Result<Response<pb::GetInstanceResponse>, Status> {
                Ok(Response::new(pb::GetInstanceResponse { instance: Some(instance(self)) }))
            }

            async fn delete_instance(
                &self,
                _: Request<pb::DeleteInstanceRequest>,
            ) -> Result<Response<pb::DeleteInstanceResponse>, Status> {
                self.record("delete");
                Ok(Response::new(pb::DeleteInstanceResponse { instance: Some(instance(self)) }))
            }

            async fn reinstall_instance(
                &self,
                request: Request<pb::ReinstallInstanceRequest>,
            ) -> Result<Response<pb::ReinstallInstanceResponse>, Status> {
                if !request.get_ref().validate_only {
                    self.record("reinstall");
                    let instance = Some(instance(self));
                    return Ok(Response::new(pb::ReinstallInstanceResponse { instance, plan: None }));
                }
                let plan = Some(pb::InstancePlan {
                    hardware_name: "node-1".into(),
                    erasures: vec![super::workflows::erasure(DISKS[2])],
                    ..pb::InstancePlan::default()
                });
                Ok(Response::new(pb::ReinstallInstanceResponse { instance: None, plan }))
            }

            async fn watch_instances(
                &self,
                _: Request<pb::WatchInstancesRequest>,
            ) -> Result<Response<Self::WatchInstancesStream>, Status> {
                Err(Status::unimplemented("watch"))
            }
        }
        refuses {
            create_instance: CreateInstanceRequest => CreateInstanceResponse,
            list_instances: ListInstancesRequest => ListInstancesResponse,
            update_instance: UpdateInstanceRequest => UpdateInstanceResponse,
            retry_instance: RetryInstanceRequest => RetryInstanceResponse,
            restart_instance: RestartInstanceRequest => RestartInstanceResponse,
            report_phone_home: ReportPhoneHomeRequest => ReportPhoneHomeResponse,
            report_script: ReportScriptRequest => ReportScriptResponse,
            report_stack_running: ReportStackRunningRequest => ReportStackRunningResponse,
        }
    }
}

mod workflows {
    use tinwright::workflow::v1 as pb;

    use super::*;

    /// An action that erases `disk`.
    pub(super) fn erasure(disk: &str) -> pb::PlannedErasure {
        pb::PlannedErasure { disks: vec![disk.into()], ..pb::PlannedErasure::default() }
    }

    fake! {
        impl TemplateService for Site {
            type WatchTemplatesStream = Stream<pb::WatchTemplatesResponse>;

            async fn get_template(
                &self,
                _: Request<pb::GetTemplateRequest>,
            ) -> Result<Response<pb::GetTemplateResponse>, Status> {
                let (id, name) = (TEMPLATE.into(), "debian".into());
                let template = Some(pb::Template { id, name, ..pb::Template::default() });
                Ok(Response::new(pb::GetTemplateResponse { template }))
            }

            async fn render_template(
                &self,
                request: Request<pb::RenderTemplateRequest>,
            ) -> Result<Response<pb::RenderTemplateResponse>, Status> {
                let is_of_occupant = request.get_ref().occupied_by == INSTANCE;
                let action = pb::Action { image: "image2disk".into(), ..pb::Action::default() };
                Ok(Response::new(pb::RenderTemplateResponse {
                    actions: vec![action],
                    erasures: vec![erasure(DISKS[usize::from(is_of_occupant)])],
                    ..pb::RenderTemplateResponse::default()
                }))
            }

            async fn watch_templates(
                &self,
                _: Request<pb::WatchTemplatesRequest>,
            ) -> Result<Response<Self::WatchTemplatesStream>, Status> {
                Err(Status::unimplemented("watch"))
            }
        }
        refuses {
            create_template: CreateTemplateRequest => CreateTemplateResponse,
            list_templates: ListTemplatesRequest => ListTemplatesResponse,
            update_template: UpdateTemplateRequest => UpdateTemplateResponse,
            delete_template: DeleteTemplateRequest => DeleteTemplateResponse,
        }
    }

    fake! {
        impl WorkflowService for Site {
            type WatchWorkflowsStream = Stream<pb::WatchWorkflowsResponse>;
            type ReadLogStream = Stream<pb::ReadLogResponse>;

            async fn create_workflow(
                &self,
                request: Request<pb::CreateWorkflowRequest>,
            ) -> Result<Response<pb::CreateWorkflowResponse>, Status> {
                assert_eq!(request.get_ref().occupied_by, INSTANCE);
                self.record("create");
                let workflow = Some(pb::Workflow { id: WORKFLOW.into(), ..pb::Workflow::default() });
                Ok(Response::new(pb::CreateWorkflowResponse { workflow }))
            }

            async fn list_workflows(
                &self,
                _: Request<pb::ListWorkflowsRequest>,
            ) -> Result<Response<pb::ListWorkflowsResponse>, Status> {
                Ok(Response::new(pb::ListWorkflowsResponse::default()))
            }

            async fn watch_workflows(
                &self,
                _: Request<pb::WatchWorkflowsRequest>,
            ) -> Result<Response<Self::WatchWorkflowsStream>, Status> {
                Err(Status::unimplemented("watch"))
            }

            async fn read_log(
                &self,
                _: Request<pb::ReadLogRequest>,
            ) -> Result<Response<Self::ReadLogStream>, Status> {
                Err(Status::unimplemented("read_log"))
            }
        }
        refuses {
            get_workflow: GetWorkflowRequest => GetWorkflowResponse,
            cancel_workflow: CancelWorkflowRequest => CancelWorkflowResponse,
            delete_workflow: DeleteWorkflowRequest => DeleteWorkflowResponse,
            release_workflow: ReleaseWorkflowRequest => ReleaseWorkflowResponse,
            confirm_restart: ConfirmRestartRequest => ConfirmRestartResponse,
            note_boot: NoteBootRequest => NoteBootResponse,
            get_boot_epoch: GetBootEpochRequest => GetBootEpochResponse,
            plan_workflow: PlanWorkflowRequest => PlanWorkflowResponse,
        }
    }
}

/// Asserts that `command` is refused with a question that begins with `question` and sends nothing, and that it asks for `change` with
/// `--yes`.
async fn assert_needs_yes(command: &str, question: &str, change: &'static str) {
    let site = Site::default();
    let (printed, result, changes) = site.run(command).await;
    let refused = result.unwrap_err();
    let question = format!("{question} of node-1 (web-1, in use for ");
    assert!(refused.contains(&question), "{refused}");
    assert!(refused.ends_with("? Confirm it with --yes"), "{refused}");
    assert_eq!((printed.as_str(), changes), ("", Vec::new()), "{command}");
    let (_, result, changes) = site.run(&format!("{command} --yes")).await;
    assert_eq!((result, changes), (Ok(()), vec![change]), "{command}");
}

#[tokio::test]
async fn a_reinstallation_needs_yes() {
    assert_needs_yes("instance reinstall node-1", "Erase /dev/sdc", "reinstall").await;
}

#[tokio::test]
async fn the_deletion_of_an_instance_needs_yes() {
    assert_needs_yes("instance delete node-1", "Erase all disks", "delete").await;
}

#[tokio::test]
async fn a_workflow_on_a_machine_in_use_needs_yes_and_the_question_names_the_occupants_disk() {
    let create = "workflow create --template debian --hardware node-1 --occupied-by node-1";
    assert_needs_yes(create, "Erase /dev/sdb", "create").await;
}

#[tokio::test]
async fn an_applied_workflow_on_a_machine_in_use_needs_yes() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "kind: Workflow\nname: install\ntemplate: debian\nhardware: node-1\noccupied_by: {INSTANCE}\n"
    );
    let path = file(folder.path(), "install.yaml", &text);
    assert_needs_yes(&format!("apply -f {path}"), "Erase /dev/sdb", "create").await;
}

#[tokio::test]
async fn an_instance_that_released_its_machine_is_deleted_without_yes() {
    let site = Site { is_released: true, ..Site::default() };
    for option in ["", " --force"] {
        let (printed, result, changes) =
            site.run(&format!("instance delete {INSTANCE}{option}")).await;
        assert_eq!((result, changes), (Ok(()), vec!["delete"]), "{option}");
        assert_eq!(printed, "instance web-1 deleted: it occupied no machine any more\n");
    }
}
