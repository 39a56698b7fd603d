//! Workflows over gRPC.

mod show;

use std::pin::Pin;
use std::time::SystemTime;

use futures_util::{Stream, stream};
use runtime::access;
use store::records::requests::IdempotentRequest;
use store::serving;
use tinwright::common::v1::View;
use tinwright::hardware::v1 as hw;
use tinwright::status::{self, Violations};
use tinwright::workflow::v1 as pb;
use tinwright::workflow::v1::workflow_service_server::WorkflowService;
use tinwright::{HardwareId, WorkflowId};
use tonic::{Request, Response, Status};

use super::Api;
use crate::lifecycle::{Event, Refused};
use crate::logs::{Growth, Of, Reader};
use crate::queue::Standing;
use crate::workflows::Error;
use crate::{making, record, templates};

#[tonic::async_trait]
impl WorkflowService for Api {
    #[tracing::instrument(skip_all, fields(hardware.id = request.get_ref().hardware_id))]
    async fn create_workflow(
        &self,
        request: Request<pb::CreateWorkflowRequest>,
    ) -> Result<Response<pb::CreateWorkflowResponse>, Status> {
        let asked = request.into_inner();
        making::check(&asked)?;
        let known = IdempotentRequest::new(&asked.request_id, &asked);
        let made = match self.workflows.answered(known.as_ref()).await? {
            Some(made) => made,
            None => {
                let template = self.template(&asked).await?;
                let machine = self.machine(&asked.hardware_id).await?;
                // Rendering may take seconds of computing, which no other call is to wait for.
                let make = move || making::workflow(&asked, &template, &machine, SystemTime::now());
                let made = tokio::task::spawn_blocking(make).await;
                let workflow = made.map_err(|_| Status::internal("rendering broke off"))??;
                self.workflows.create(&workflow, known).await?
            }
        };
        Ok(Response::new(pb::CreateWorkflowResponse {
            workflow: Some(self.shown(made, View::Basic)),
        }))
    }

    #[tracing::instrument(skip_all, fields(workflow.id = request.get_ref().id))]
    async fn get_workflow(
        &self,
        request: Request<pb::GetWorkflowRequest>,
    ) -> Result<Response<pb::GetWorkflowResponse>, Status> {
        let view = access::effective_view(&request, request.get_ref().view())?;
        let found = self.workflows.get(&id("id", &request.get_ref().id)?).await?;
        Ok(Response::new(pb::GetWorkflowResponse { workflow: Some(self.shown(found, view)) }))
    }

    #[tracing::instrument(skip_all)]
    async fn list_workflows(
        &self,
        request: Request<pb::ListWorkflowsRequest>,
    ) -> Result<Response<pb::ListWorkflowsResponse>, Status> {
        let view = access::effective_view(&request, request.get_ref().view())?;
        let pb::ListWorkflowsRequest { page_size, page_token, labels, hardware_id, view: _ } =
            request.into_inner();
        let size = serving::page_size(page_size)?;
        let listing = match hardware_id.as_str() {
            "" => self.workflows.list(&page_token, size, &labels).await?,
            one => {
                let machine = machine_id(one)?.to_string();
                self.workflows.list_of(&machine, &page_token, size, &labels).await?
            }
        };
        let workflows = listing.records.into_iter().map(|found| self.shown(found, view)).collect();
        let next_page_token = listing.next.unwrap_or_default();
        Ok(Response::new(pb::ListWorkflowsResponse { workflows, next_page_token }))
    }

    #[tracing::instrument(skip_all, fields(workflow.id = request.get_ref().id))]
    async fn cancel_workflow(
        &self,
        request: Request<pb::CancelWorkflowRequest>,
    ) -> Result<Response<pb::CancelWorkflowResponse>, Status> {
        let id = id("id", &request.get_ref().id)?;
        let workflow = match self.workflows.apply(&id, &Event::Cancel, |_| {}).await {
            // It ended, or is about to, as it did.
            Err(Error::Refused(_)) => self.workflows.get(&id).await?,
            cancelled => cancelled?,
        };
        let workflow = Some(self.shown(workflow, View::Basic));
        Ok(Response::new(pb::CancelWorkflowResponse { workflow }))
    }

    #[tracing::instrument(skip_all, fields(workflow.id = request.get_ref().id))]
    async fn delete_workflow(
        &self,
        request: Request<pb::DeleteWorkflowRequest>,
    ) -> Result<Response<pb::DeleteWorkflowResponse>, Status> {
        let found = self.workflows.get(&id("id", &request.get_ref().id)?).await?;
        if record::standing(&found) != Standing::Over {
            let text = format!("workflow {} has not ended: cancel it first", found.id);
            return Err(status::failed_precondition("STATE", "workflow", text));
        }
        self.workflows.delete(&found, &self.logs).await?;
        Ok(Response::new(pb::DeleteWorkflowResponse {}))
    }

    type WatchWorkflowsStream =
        Pin<Box<dyn Stream<Item = Result<pb::WatchWorkflowsResponse, Status>> + Send>>;

    #[tracing::instrument(skip_all)]
    async fn watch_workflows(
        &self,
        request: Request<pb::WatchWorkflowsRequest>,
    ) -> Result<Response<Self::WatchWorkflowsStream>, Status> {
        let view = access::effective_view(&request, request.get_ref().view())?;
        let watcher = match request.get_ref().id.as_str() {
            "" => self.mirrors.1.watch(),
            one => self.mirrors.1.watch_one(&id("id", one)?),
        };
        let api = self.clone();
        let told = serving::watch(watcher, self.stop.clone(), move |found| api.shown(found, view));
        Ok(Response::new(Box::pin(told)))
    }

    type ReadLogStream = Pin<Box<dyn Stream<Item = Result<pb::ReadLogResponse, Status>> + Send>>;

    #[tracing::instrument(skip_all, fields(workflow.id = request.get_ref().workflow_id))]
    async fn read_log(
        &self,
        request: Request<pb::ReadLogRequest>,
    ) -> Result<Response<Self::ReadLogStream>, Status> {
        let pb::ReadLogRequest { workflow_id, action_id, attempt, follow } = request.into_inner();
        let workflow = self.workflows.get(&id("workflow_id", &workflow_id)?).await?;
        if !workflow.actions.iter().any(|action| action.id == action_id) {
            return Err(status::not_found("action", &action_id));
        }
        let of = Of { workflow: workflow.id, action: action_id };
        let (log, workflow) =
            (self.mirrors.2.watch_one(&of.id()), self.mirrors.1.watch_one(&of.workflow));
        let growth = follow.then_some(Growth { log, workflow });
        let reader = Reader::new(self.logs.clone(), of, attempt.max(0), growth);
        let told =
            stream::try_unfold((reader, self.stop.clone()), |(mut reader, stop)| async move {
                match stop.run_until_cancelled(reader.next()).await {
                    Some(next) => Ok(next?.map(|chunk| (chunk, (reader, stop)))),
                    None => Err(Status::unavailable("the server is ending")),
                }
            });
        Ok(Response::new(Box::pin(told)))
    }

    #[tracing::instrument(skip_all, fields(hardware.id = request.get_ref().hardware_id))]
    async fn note_boot(
        &self,
        request: Request<pb::NoteBootRequest>,
    ) -> Result<Response<pb::NoteBootResponse>, Status> {
        let machine = machine_id(&request.get_ref().hardware_id)?.to_string();
        if let Some(holder) = self.workflows.holder(&machine).await? {
            let event = Event::Booted(machine.as_str().into());
            self.workflows.apply(&holder.id, &event, |_| {}).await?;
        }
        Ok(Response::new(pb::NoteBootResponse {}))
    }
}

impl Api {
    /// The template that is asked for, or the caller's own.
    async fn template(&self, asked: &pb::CreateWorkflowRequest) -> Result<pb::Template, Status> {
        match asked.template_id.as_str() {
            "" => Ok(pb::Template { data: asked.template_data.clone(), ..pb::Template::default() }),
            text => {
                let id = super::template::id("template_id", text)?;
                Ok(self.templates.get(&templates::By::Id(id)).await?)
            }
        }
    }

    /// The machine, as the hardware service has it now.
    async fn machine(&self, id: &str) -> Result<hw::Hardware, Status> {
        let by = hw::get_hardware_request::By::Id(machine_id(id)?.to_string());
        let request = hw::GetHardwareRequest { by: Some(by), view: View::Full.into() };
        let found = self.hardware.clone().get_hardware(request).await?;
        found.into_inner().hardware.ok_or_else(|| status::not_found("hardware", id))
    }
}

fn id(field: &str, text: &str) -> Result<String, Violations> {
    let id: Result<WorkflowId, _> = text.parse();
    id.map(|id| id.to_string()).map_err(|reason| Violations::single(field, reason))
}

fn machine_id(text: &str) -> Result<HardwareId, Violations> {
    text.parse().map_err(|reason| Violations::single("hardware_id", reason))
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        match error {
            Error::Refused(refused @ Refused::Illegal { .. }) => {
                status::failed_precondition("STATE", "workflow", refused.to_string())
            }
            Error::Refused(refused @ Refused::Superseded(_)) => {
                status::failed_precondition("LEASE", "action", refused.to_string())
            }
            Error::Held(_) => status::failed_precondition("QUEUE", "workflow", error.to_string()),
            Error::Damaged(damaged) => {
                tracing::error!(error = &damaged as &dyn std::error::Error, "check the store");
                Self::data_loss(damaged.to_string())
            }
            Error::Records(error) => error.into(),
        }
    }
}
