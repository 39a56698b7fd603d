//! The calls on workflows.

mod view;

use std::time::SystemTime;

use nouns::Viewer;
use prost_types::Timestamp;
use runtime::access;
use runtime::identity::{Caller, Role};
use store::serving;
use tinwright::Stored as _;
use tinwright::common::v1::View;
use tinwright::status::{self, Violations};
use tinwright::workflow::v1 as pb;
use tinwright::workflow::v1::workflow_service_server::WorkflowService;
use tinwright::{HardwareId, TenantName, WorkflowId};
use tonic::{Request, Response, Status};

use super::Api;
use crate::lifecycle::{BootStep, Event, EventRefused};
use crate::log_reader::{LogGrowth, LogReader};
use crate::logs::LogKey;
use crate::turn::QueueState;
use crate::workflows::{Error, WorkflowKind};
use crate::{create, record};

/// The most bytes of a boot step that are stored.
const MAX_BOOT_STEP_BYTES: usize = 256;
/// The call that releases a workflow that was created held back.
const RELEASE_CALL: &str = "/tinwright.workflow.v1.WorkflowService/ReleaseWorkflow";

impl WorkflowService for Api {
    #[tracing::instrument(skip_all, fields(hardware.id = request.get_ref().hardware_id))]
    async fn create_workflow(
        &self,
        request: Request<pb::CreateWorkflowRequest>,
    ) -> Result<Response<pb::CreateWorkflowResponse>, Status> {
        // A workflow shows parts of what its template saw.
        let view = access::largest_view(&request);
        let caller = access::request_scope(&request);
        check_hold(&request)?;
        check_instance(&request)?;
        let request = request.into_inner();
        create::check(&request)?;
        let idempotent = serving::idempotent(&caller, &request.request_id, &request)?;
        let created = self.order(request, view, idempotent).await?;
        let workflow = Some(self.visible(created, View::Basic));
        Ok(Response::new(pb::CreateWorkflowResponse { workflow }))
    }

    #[tracing::instrument(skip_all, fields(hardware.id = request.get_ref().hardware_id))]
    async fn plan_workflow(
        &self,
        request: Request<pb::PlanWorkflowRequest>,
    ) -> Result<Response<pb::PlanWorkflowResponse>, Status> {
        let view = access::largest_view(&request);
        self.plan(request.into_inner(), view).await.map(Response::new)
    }

    #[tracing::instrument(skip_all, fields(workflow.id = request.get_ref().id))]
    async fn get_workflow(
        &self,
        request: Request<pb::GetWorkflowRequest>,
    ) -> Result<Response<pb::GetWorkflowResponse>, Status> {
        let viewer = Viewer::of(&request, request.get_ref().view())?;
        let id = Violations::parse("id", &request.get_ref().id)?;
        let mut found = self.workflow_of(id, viewer.tenant.as_ref()).await?;
        self.add_tails(&mut found).await?;
        let workflow = Some(self.visible_to(&viewer, found));
        Ok(Response::new(pb::GetWorkflowResponse { workflow }))
    }

    async fn list_workflows(
        &self,
        request: Request<pb::ListWorkflowsRequest>,
    ) -> Result<Response<pb::ListWorkflowsResponse>, Status> {
        let viewer = Viewer::of(&request, request.get_ref().view())?;
        let has_image = |request: &pb::ListWorkflowsRequest, workflow: &pb::Workflow| {
            let image = workflow.image.as_ref().map_or("", |image| &image.id);
            request.image_id.is_empty() || request.image_id == image
        };
        let records = &self.workflows.records;
        let mut response = nouns::list_where(records, request, has_image).await?;
        for workflow in &mut response.get_mut().workflows {
            *workflow = self.visible_to(&viewer, std::mem::take(workflow));
        }
        Ok(response)
    }

    #[tracing::instrument(skip_all, fields(workflow.id = request.get_ref().id))]
    async fn cancel_workflow(
        &self,
        request: Request<pb::CancelWorkflowRequest>,
    ) -> Result<Response<pb::CancelWorkflowResponse>, Status> {
        let id = Violations::parse("id", &request.get_ref().id)?;
        let workflow = match self.workflows.apply(id, &cancellation(&request)).await {
            // Its outcome is decided already.
            Err(Error::Refused(EventRefused::WrongState { .. })) => self.workflows.get(id).await?,
            cancelled => cancelled?,
        };
        let workflow = Some(self.visible(workflow, View::Basic));
        Ok(Response::new(pb::CancelWorkflowResponse { workflow }))
    }

    #[tracing::instrument(skip_all, fields(workflow.id = request.get_ref().id))]
    async fn release_workflow(
        &self,
        request: Request<pb::ReleaseWorkflowRequest>,
    ) -> Result<Response<pb::ReleaseWorkflowResponse>, Status> {
        let id = Violations::parse("id", &request.get_ref().id)?;
        let released = self.workflows.apply(id, &Event::Release).await?;
        let workflow = Some(self.visible(released, View::Basic));
        Ok(Response::new(pb::ReleaseWorkflowResponse { workflow }))
    }

    #[tracing::instrument(skip_all, fields(workflow.id = request.get_ref().id))]
    async fn delete_workflow(
        &self,
        request: Request<pb::DeleteWorkflowRequest>,
    ) -> Result<Response<pb::DeleteWorkflowResponse>, Status> {
        let pb::DeleteWorkflowRequest { id, revision } = request.into_inner();
        let id: WorkflowId = Violations::parse("id", &id)?;
        let found = self.workflows.records.at(&id.to_string(), revision).await?;
        if record::queue_state(&found) != QueueState::Ended {
            let text = format!("workflow {} has not ended: cancel it first", found.id);
            return Err(status::failed_precondition("STATE", "workflow", text));
        }
        self.workflows.delete(&found, &self.logs).await?;
        Ok(Response::new(pb::DeleteWorkflowResponse {}))
    }

    type WatchWorkflowsStream = serving::Events<pb::WatchWorkflowsResponse>;

    async fn watch_workflows(
        &self,
        request: Request<pb::WatchWorkflowsRequest>,
    ) -> Result<Response<Self::WatchWorkflowsStream>, Status> {
        let viewer = Viewer::of(&request, request.get_ref().view())?;
        nouns::check_filter(request.get_ref())?;
        let filter = nouns::filter::<WorkflowKind>(&viewer, request.get_ref());
        let api = self.clone();
        let show = move |found| api.visible_to(&viewer, found);
        let pb::WatchWorkflowsRequest { id, only_live, .. } = request.into_inner();
        match only_live {
            true => serving::watch_filtered(&self.mirrors.1, &id, &self.stop, filter, show),
            false => serving::watch_stored(&self.mirrors.1, &id, &self.stop, filter, show),
        }
    }

    type ReadLogStream = serving::Events<pb::ReadLogResponse>;

    #[tracing::instrument(skip_all, fields(workflow.id = request.get_ref().workflow_id))]
    async fn read_log(
        &self,
        request: Request<pb::ReadLogRequest>,
    ) -> Result<Response<Self::ReadLogStream>, Status> {
        let tenant = access::tenant(&request).cloned();
        let pb::ReadLogRequest { workflow_id, action_id, attempt, follow } = request.into_inner();
        let id = Violations::parse("workflow_id", &workflow_id)?;
        let workflow = self.workflow_of(id, tenant.as_ref()).await?;
        let action = workflow.actions.iter().find(|action| action.id == action_id);
        let action = action.ok_or_else(|| status::not_found("action", &action_id))?;
        // Nothing is appended to the logs of an ended workflow, which the mirror does not hold.
        let follow = follow && !workflow.is_terminal();
        let reader = self.log_reader(LogKey::of(&workflow, action), attempt, follow);
        Ok(Response::new(Box::pin(reader.into_stream(self.stop.clone()))))
    }

    #[tracing::instrument(skip_all, fields(hardware.id = request.get_ref().hardware_id))]
    async fn confirm_restart(
        &self,
        request: Request<pb::ConfirmRestartRequest>,
    ) -> Result<Response<pb::ConfirmRestartResponse>, Status> {
        let id = machine_id(&request.get_ref().hardware_id)?;
        self.machine(id, View::Basic).await?;
        let (boot_epoch, holder) = self.workflows.confirm_restart(id).await?;
        tracing::info!(boot_epoch, "restart confirmed: boot epoch began");
        let workflow = holder.map(|holder| self.visible(holder, View::Basic));
        Ok(Response::new(pb::ConfirmRestartResponse { boot_epoch, workflow }))
    }

    #[tracing::instrument(skip_all, fields(hardware.id = request.get_ref().hardware_id))]
    async fn note_boot(
        &self,
        request: Request<pb::NoteBootRequest>,
    ) -> Result<Response<pb::NoteBootResponse>, Status> {
        let pb::NoteBootRequest { hardware_id, step, time, refused } = request.into_inner();
        let machine = machine_id(&hardware_id)?;
        match refused {
            true => self.workflows.record_refused_boot(machine, boot_time(time)?).await?,
            false => {
                self.workflows.apply_to_holder(machine, &self.boot_event(&step, time)?).await?;
            }
        }
        Ok(Response::new(pb::NoteBootResponse {}))
    }

    #[tracing::instrument(skip_all, fields(hardware.id = request.get_ref().hardware_id))]
    async fn get_boot_epoch(
        &self,
        request: Request<pb::GetBootEpochRequest>,
    ) -> Result<Response<pb::GetBootEpochResponse>, Status> {
        let machine = machine_id(&request.get_ref().hardware_id)?;
        let epoch = self.workflows.epochs.present(&machine.to_string()).await?;
        let restart_time = epoch.begin_time.filter(|_| epoch.boot_id.is_empty());
        Ok(Response::new(pb::GetBootEpochResponse { number: epoch.number, restart_time }))
    }
}

impl Api {
    /// Returns the event that a report of a boot is: a new boot, or a `step` of one. A long step is cut.
    fn boot_event(&self, step: &str, time: Option<Timestamp>) -> Result<Event, Violations> {
        let mut text = step.split_whitespace().collect::<Vec<_>>().join(" ");
        if text.is_empty() {
            return Ok(Event::Booted);
        }
        text.truncate(text.floor_char_boundary(MAX_BOOT_STEP_BYTES));
        let at = boot_time(time)?.unwrap_or_else(|| self.clock.wall());
        Ok(Event::BootStep(BootStep { at, text }))
    }

    /// Returns the workflow `id`, if a caller limited to `tenant` may see it.
    async fn workflow_of(
        &self,
        id: WorkflowId,
        tenant: Option<&TenantName>,
    ) -> Result<pb::Workflow, Status> {
        let found = self.workflows.get(id).await?;
        match found.is_visible_to(tenant) {
            true => Ok(found),
            false => Err(status::not_found("workflow", &id.to_string())),
        }
    }

    /// Returns the reader of a log: up to its present end, or with `follow` until its action has
    /// ended.
    fn log_reader(&self, key: LogKey, attempt: i32, follow: bool) -> LogReader {
        let growth = follow.then(|| LogGrowth {
            log: self.mirrors.2.watch_one(&key.id()),
            workflow: self.mirrors.1.watch_one(&key.workflow),
            stored: self.workflows.records.clone(),
        });
        LogReader::new(self.logs.clone(), key, attempt.max(0), growth)
    }

    /// Adds the last lines of the actions, which are stored beside their logs.
    async fn add_tails(&self, workflow: &mut pb::Workflow) -> Result<(), Error> {
        let was_leased = |action: &&mut pb::Action| action.lease.is_some();
        for action in workflow.actions.iter_mut().filter(was_leased) {
            let key = LogKey { workflow: workflow.id.clone(), action: action.id.clone() };
            let tail = self.logs.tail(&key).await?;
            if !tail.is_empty() {
                action.tail = tail;
            }
        }
        Ok(())
    }
}

/// Passes unless the workflow is to be held back for a caller that cannot release it.
fn check_hold(request: &Request<pb::CreateWorkflowRequest>) -> Result<(), Status> {
    let may_release = access::admits(RELEASE_CALL, request.extensions().get::<Caller>());
    if request.get_ref().held && !may_release {
        return Err(Status::permission_denied("held is for services: others cannot release it"));
    }
    Ok(())
}

/// Passes unless the workflow is to be one of an instance, for a caller that is not a service. Of the services only `instance` may make
/// the call.
fn check_instance(request: &Request<pb::CreateWorkflowRequest>) -> Result<(), Violations> {
    if request.get_ref().instance_id.is_empty() || is_from_service(request) {
        return Ok(());
    }
    let text = "is for services: name the occupant of the machine in occupied_by";
    Err(Violations::single("instance_id", text))
}

/// Returns the event of a cancellation. Services have to end the workflows of deleted instances and machines, even if that is too late
/// for an effect.
fn cancellation(request: &Request<pb::CancelWorkflowRequest>) -> Event {
    if is_from_service(request) { Event::Cancel } else { Event::CancelInTime }
}

/// True if the caller of `request` is a service, and not a person.
fn is_from_service<T>(request: &Request<T>) -> bool {
    Caller::role_in(request.extensions()) == Some(Role::Service)
}

/// Reads the time of a boot.
fn boot_time(time: Option<Timestamp>) -> Result<Option<SystemTime>, Violations> {
    let time = time.map(SystemTime::try_from).transpose();
    time.map_err(|error| Violations::single("time", error))
}

pub(super) fn machine_id(text: &str) -> Result<HardwareId, Violations> {
    Violations::parse("hardware_id", text)
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        match error {
            Error::Refused(EventRefused::WrongState { .. }) => {
                status::failed_precondition("STATE", "workflow", text)
            }
            Error::Refused(EventRefused::TooLate(_)) => {
                status::failed_precondition("TOO_LATE", "workflow", text)
            }
            Error::Refused(EventRefused::Superseded(_)) => {
                status::failed_precondition("LEASE", "action", text)
            }
            Error::Refused(EventRefused::OtherEpoch { .. } | EventRefused::TwoBoots) => {
                Self::permission_denied(text)
            }
            Error::MachineHeld(_) => status::failed_precondition("QUEUE", "workflow", text),
            Error::Damaged(damaged) => {
                let error = &damaged as &dyn std::error::Error;
                tracing::error!(error, "damaged record: check the store");
                Self::data_loss(text)
            }
            Error::Hardware(_) => Self::unavailable(text),
            Error::Records(error) => error.into(),
        }
    }
}
