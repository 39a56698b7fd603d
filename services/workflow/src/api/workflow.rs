//! The calls on workflows.

mod view;

use std::time::SystemTime;

use futures_util::stream;
use nouns::{Noun as _, Viewer};
use prost_types::Timestamp;
use runtime::access;
use runtime::identity::Caller;
use store::serving;
use tinwright::common::v1::View;
use tinwright::hardware::v1 as hw;
use tinwright::requests::Page;
use tinwright::status::{self, Violations};
use tinwright::tenant::OfTenant as _;
use tinwright::workflow::v1 as pb;
use tinwright::workflow::v1::workflow_service_server::WorkflowService;
use tinwright::{HardwareId, TemplateId, TenantName, WorkflowId};
use tonic::{Request, Response, Status};

use super::Api;
use crate::create::BootTimes;
use crate::lifecycle::{BootStep, Event, EventRefused};
use crate::log_reader::{LogGrowth, LogReader};
use crate::logs::LogKey;
use crate::turn::QueueState;
use crate::workflows::{Error, WorkflowKind};
use crate::{create, occupancy, record};

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
        let (view, caller) = (access::largest_view(&request), access::request_scope(&request));
        check_hold(&request)?;
        let request = request.into_inner();
        create::check(&request)?;
        let idempotent = serving::idempotent(&caller, &request.request_id, &request)?;
        let created = match self.workflows.records().previous_result(idempotent.as_ref()).await? {
            Some(created) => created,
            None => {
                let template = self.template(&request).await?;
                create::check_values(&request, &template)?;
                // A tenant may have written the template, whoever orders the workflow.
                let view = if template.tenant.is_empty() { view } else { View::Basic };
                let mut machine = self.machine(&request.hardware_id, view).await?;
                check_protection(&machine)?;
                let occupant = self.occupancy.check(&machine, &request).await?;
                let occupant = occupant.unwrap_or_default();
                machine.root_disk = occupancy::root_disk(&occupant).or(machine.root_disk);
                let tenant = occupant.tenant;
                if !template.tenant.is_empty() && template.tenant != tenant {
                    return Err(status::not_found("template", &template.id));
                }
                let (now, times) = (self.clock.wall(), self.boot_times(&machine.id).await?);
                let render = move || create::new_workflow(&request, &template, &machine, now);
                let workflow = self.renderings.run(render).await??;
                let workflow = pb::Workflow { tenant, ..times.write(workflow) };
                self.workflows.create(&workflow, idempotent).await?
            }
        };
        let workflow = Some(self.visible(created, View::Basic));
        Ok(Response::new(pb::CreateWorkflowResponse { workflow }))
    }

    #[tracing::instrument(skip_all, fields(hardware.id = request.get_ref().hardware_id))]
    async fn plan_workflow(
        &self,
        request: Request<pb::PlanWorkflowRequest>,
    ) -> Result<Response<pb::PlanWorkflowResponse>, Status> {
        let view = access::largest_view(&request);
        let pb::PlanWorkflowRequest { template_id, hardware_id, values, tenant, root_disk, .. } =
            request.get_ref().clone();
        let template = self.template_of(&template_id, &tenant).await?;
        let later = self.template_of(&request.get_ref().deprovision_template_id, &tenant).await?;
        // As for a creation.
        let view = if template.tenant.is_empty() { view } else { View::Basic };
        let mut machine = self.machine(&hardware_id, view).await?;
        check_protection(&machine)?;
        machine.root_disk = root_disk.map(Box::new).or(machine.root_disk);
        let now = self.clock.wall();
        let plan = move || create::plan(values, &template, &later, &machine, now);
        Ok(Response::new(self.renderings.run(plan).await??))
    }

    #[tracing::instrument(skip_all, fields(workflow.id = request.get_ref().id))]
    async fn get_workflow(
        &self,
        request: Request<pb::GetWorkflowRequest>,
    ) -> Result<Response<pb::GetWorkflowResponse>, Status> {
        let view = access::effective_view(&request, request.get_ref().view())?;
        let id = Violations::parse("id", &request.get_ref().id)?;
        let tenant = access::tenant(&request);
        let mut found = self.workflow_of(id, tenant).await?;
        self.add_tails(&mut found).await?;
        let workflow = Some(self.visible_to(tenant, found, view));
        Ok(Response::new(pb::GetWorkflowResponse { workflow }))
    }

    async fn list_workflows(
        &self,
        request: Request<pb::ListWorkflowsRequest>,
    ) -> Result<Response<pb::ListWorkflowsResponse>, Status> {
        let viewer = Viewer::of(&request, request.get_ref().view())?;
        let request = request.into_inner();
        let keep = |it: &pb::Workflow| nouns::passes::<WorkflowKind>(&viewer, &request, it);
        let size = serving::page_size(request.page_size)?;
        let token = &request.page_token;
        let listing = match request.hardware_id.as_str() {
            "" => self.workflows.records().list(token, size, keep).await?,
            one => self.workflows.list_of(machine_id(one)?, token, size, keep).await?,
        };
        let show = |found| self.visible_to(viewer.tenant.as_ref(), found, viewer.view);
        let objects = listing.records.into_iter().map(show).collect();
        let next_page_token = listing.next.unwrap_or_default();
        Ok(Response::new(Page { objects, next_page_token }.into()))
    }

    #[tracing::instrument(skip_all, fields(workflow.id = request.get_ref().id))]
    async fn cancel_workflow(
        &self,
        request: Request<pb::CancelWorkflowRequest>,
    ) -> Result<Response<pb::CancelWorkflowResponse>, Status> {
        let id = Violations::parse("id", &request.get_ref().id)?;
        let workflow = match self.workflows.apply(id, &Event::Cancel).await {
            // Its outcome is decided already.
            Err(Error::Refused(_)) => self.workflows.get(id).await?,
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
        let found = self.workflows.records().at(&id.to_string(), revision).await?;
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
        let show = move |found| api.visible_to(viewer.tenant.as_ref(), found, viewer.view);
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
        if !workflow.actions.iter().any(|action| action.id == action_id) {
            return Err(status::not_found("action", &action_id));
        }
        // Nothing is appended to the logs of an ended workflow, which the mirror does not hold.
        let follow = follow && !workflow.is_terminal();
        let key = LogKey { workflow: workflow.id, action: action_id };
        let (log, workflow) =
            (self.mirrors.2.watch_one(&key.id()), self.mirrors.1.watch_one(&key.workflow));
        let stored = self.workflows.records().clone();
        let growth = follow.then_some(LogGrowth { log, workflow, stored });
        let reader = LogReader::new(self.logs.clone(), key, attempt.max(0), growth);
        let chunks =
            stream::try_unfold((reader, self.stop.clone()), |(mut reader, stop)| async move {
                match stop.run_until_cancelled(reader.next()).await {
                    Some(next) => Ok(next?.map(|chunk| (chunk, (reader, stop)))),
                    None => Err(Status::unavailable("the server is stopping")),
                }
            });
        Ok(Response::new(Box::pin(chunks)))
    }

    #[tracing::instrument(skip_all, fields(hardware.id = request.get_ref().hardware_id))]
    async fn confirm_restart(
        &self,
        request: Request<pb::ConfirmRestartRequest>,
    ) -> Result<Response<pb::ConfirmRestartResponse>, Status> {
        let machine = self.machine(&request.get_ref().hardware_id, View::Basic).await?;
        let id = machine_id(&machine.id)?;
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
        if refused {
            let time = time.map(SystemTime::try_from).transpose();
            let time = time.map_err(|error| Violations::single("time", error))?;
            self.workflows.record_refused_boot(machine, time).await?;
            return Ok(Response::new(pb::NoteBootResponse {}));
        }
        let event = self.boot_event(&step, time)?;
        if let Some(holder) = self.workflows.holder(machine).await? {
            self.workflows.apply(Violations::parse("id", &holder.id)?, &event).await?;
        }
        Ok(Response::new(pb::NoteBootResponse {}))
    }

    #[tracing::instrument(skip_all, fields(hardware.id = request.get_ref().hardware_id))]
    async fn get_boot_epoch(
        &self,
        request: Request<pb::GetBootEpochRequest>,
    ) -> Result<Response<pb::GetBootEpochResponse>, Status> {
        let machine = machine_id(&request.get_ref().hardware_id)?;
        let epoch = self.workflows.epochs().present(&machine.to_string()).await?;
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
        let at = match time {
            Some(time) => {
                SystemTime::try_from(time).map_err(|error| Violations::single("time", error))?
            }
            None => self.clock.wall(),
        };
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

    /// Returns the template `id`, if a workflow of `tenant` may be made from it; an empty one if `id` is empty.
    async fn template_of(&self, id: &str, tenant: &str) -> Result<pb::Template, Status> {
        if id.is_empty() {
            return Ok(pb::Template::default());
        }
        let template = self.stored_template(id).await?;
        match template.tenant.is_empty() || template.tenant == tenant {
            true => Ok(template),
            false => Err(status::not_found("template", &template.id)),
        }
    }

    /// Returns the template of a request: a stored one, or the request's own.
    pub(super) async fn template(
        &self,
        request: &pb::CreateWorkflowRequest,
    ) -> Result<pb::Template, Status> {
        match request.template_id.as_str() {
            "" => {
                Ok(pb::Template { data: request.template_data.clone(), ..pb::Template::default() })
            }
            id => self.stored_template(id).await,
        }
    }

    async fn stored_template(&self, id: &str) -> Result<pb::Template, Status> {
        let id: TemplateId = Violations::parse("template_id", id)?;
        Ok(self.templates.records().require(&id.to_string()).await?)
    }

    /// Returns the times of the machine `id`, from its models.
    async fn boot_times(&self, id: &str) -> Result<BootTimes, Status> {
        let mut client = self.models.clone();
        let (mut times, mut page_token) = (BootTimes::default(), String::new());
        loop {
            let hardware_id = id.to_owned();
            let request = hw::ListModelsRequest {
                hardware_id,
                page_token,
                ..hw::ListModelsRequest::default()
            };
            let page = client.list_models(request).await?.into_inner();
            page.models.iter().for_each(|model| times.add(model));
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return Ok(times);
            }
        }
    }

    /// Reads a machine from the hardware service, as `view` shows it.
    pub(super) async fn machine(&self, id: &str, view: View) -> Result<hw::Hardware, Status> {
        let by = hw::get_hardware_request::By::Id(machine_id(id)?.to_string());
        let request = hw::GetHardwareRequest { by: Some(by), view: view.into() };
        let found = self.hardware.clone().get_hardware(request).await?;
        found.into_inner().hardware.ok_or_else(|| status::not_found("hardware", id))
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

/// Passes unless `machine` is protected: an action of any workflow may change its disks.
fn check_protection(machine: &hw::Hardware) -> Result<(), Status> {
    if !machine.protect {
        return Ok(());
    }
    let subject = format!("hardware/{}", machine.id);
    let name = if machine.name.is_empty() { &machine.id } else { &machine.name };
    let text = format!("{name} is protected: tinwright hardware unprotect {name}");
    Err(status::failed_precondition("PROTECTED", &subject, text))
}

fn machine_id(text: &str) -> Result<HardwareId, Violations> {
    Violations::parse("hardware_id", text)
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        match error {
            Error::Refused(refused @ EventRefused::WrongState { .. }) => {
                status::failed_precondition("STATE", "workflow", refused.to_string())
            }
            Error::Refused(refused @ EventRefused::Superseded(_)) => {
                status::failed_precondition("LEASE", "action", refused.to_string())
            }
            Error::Refused(
                refused @ (EventRefused::OtherEpoch { .. } | EventRefused::TwoBoots),
            ) => Self::permission_denied(refused.to_string()),
            Error::MachineHeld(_) => {
                status::failed_precondition("QUEUE", "workflow", error.to_string())
            }
            Error::Damaged(damaged) => {
                tracing::error!(
                    error = &damaged as &dyn std::error::Error,
                    "damaged record: check the store"
                );
                Self::data_loss(damaged.to_string())
            }
            Error::Hardware(_) => Self::unavailable(error.to_string()),
            Error::Records(error) => error.into(),
        }
    }
}
