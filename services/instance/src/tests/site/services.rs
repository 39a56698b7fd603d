//! The services of the test site, as far as instances need them.

use std::pin::Pin;

use futures_util::{Stream, StreamExt as _, stream};
use tinwright::hardware::v1 as hw;
use tinwright::hardware::v1::hardware_service_server::HardwareService;
use tinwright::identity::v1 as id;
use tinwright::identity::v1::tenant_service_server::TenantService;
use tinwright::power::v1 as power;
use tinwright::power::v1::power_service_server::PowerService;
use tinwright::watch::WatchEvent;
use tinwright::workflow::v1 as wf;
use tinwright::workflow::v1::workflow_service_server::WorkflowService;
use tinwright::{PowerJobId, WorkflowId};
use tokio_stream::wrappers::BroadcastStream;
use tonic::{Request, Response, Status};

use super::{FakeState, FoundTenant, Site, ended};

pub(super) type EventStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl Site {
    /// Carries out `call`, and responds unless the response is to be lost.
    pub(super) fn carry_out<T>(
        &self,
        call: impl FnOnce(&mut FakeState) -> Result<T, Status>,
    ) -> Result<Response<T>, Status> {
        let mut state = self.state();
        let is_delivered = state.call()?;
        let answer = call(&mut state)?;
        if is_delivered {
            Ok(Response::new(answer))
        } else {
            Err(Status::unavailable("response lost"))
        }
    }

    /// Waits at the gate, if there is one. Only one call does.
    async fn pass_gate(&self) {
        let gate = self.state().gate.take();
        if let Some(gate) = gate {
            gate.reached.notify_one();
            gate.opened.notified().await;
        }
    }
}

/// Implements calls that the instance service never makes.
macro_rules! never_called {
    ($($name:ident($request:ty) -> $response:ty;)*) => {$(
        async fn $name(&self, _: Request<$request>) -> Result<Response<$response>, Status> {
            Err(Status::unimplemented(stringify!($name)))
        }
    )*};
}

pub(super) use never_called;

pub(super) fn missing() -> Status {
    Status::not_found("not found")
}

impl HardwareService for Site {
    async fn get_hardware(
        &self,
        request: Request<hw::GetHardwareRequest>,
    ) -> Result<Response<hw::GetHardwareResponse>, Status> {
        let by = request.into_inner().by;
        self.carry_out(|state| {
            let wanted = |machine: &&hw::Hardware| {
                by == Some(hw::get_hardware_request::By::Id(machine.id.clone()))
            };
            let machine = state.machine.iter().chain(&state.rack).find(wanted).cloned();
            let any = match by.clone() {
                Some(hw::get_hardware_request::By::Id(id)) if state.has_every_machine => {
                    let state = hw::State::Provisionable.into();
                    Some(hw::Hardware { id, state, ..hw::Hardware::default() })
                }
                Some(_) | None => None,
            };
            let hardware = Some(machine.or(any).ok_or_else(missing)?);
            Ok(hw::GetHardwareResponse { hardware })
        })
    }

    async fn list_hardware(
        &self,
        request: Request<hw::ListHardwareRequest>,
    ) -> Result<Response<hw::ListHardwareResponse>, Status> {
        let request = request.into_inner();
        self.carry_out(|state| Ok(state.list_machines(&request)))
    }

    async fn set_hardware_state(
        &self,
        request: Request<hw::SetHardwareStateRequest>,
    ) -> Result<Response<hw::SetHardwareStateResponse>, Status> {
        let request = request.into_inner();
        self.carry_out(|state| {
            let machine = state.machine.as_mut().ok_or_else(missing)?;
            (machine.state, machine.state_reason) = (request.state, request.reason);
            Ok(hw::SetHardwareStateResponse { hardware: Some(machine.clone()) })
        })
    }

    type WatchHardwareStream = EventStream<hw::WatchHardwareResponse>;

    never_called! {
        create_hardware(hw::CreateHardwareRequest) -> hw::CreateHardwareResponse;
        update_hardware(hw::UpdateHardwareRequest) -> hw::UpdateHardwareResponse;
        delete_hardware(hw::DeleteHardwareRequest) -> hw::DeleteHardwareResponse;
        record_inventory(hw::RecordInventoryRequest) -> hw::RecordInventoryResponse;
        record_bmc_inventory(hw::RecordBmcInventoryRequest) -> hw::RecordBmcInventoryResponse;
        check_bmc_identity(hw::CheckBmcIdentityRequest) -> hw::CheckBmcIdentityResponse;
        enrol_machine(hw::EnrolMachineRequest) -> hw::EnrolMachineResponse;
        watch_hardware(hw::WatchHardwareRequest) -> Self::WatchHardwareStream;
    }
}

impl TenantService for Site {
    async fn get_tenant(
        &self,
        _request: Request<id::GetTenantRequest>,
    ) -> Result<Response<id::GetTenantResponse>, Status> {
        let found = self.state().tenants.pop_front().unwrap_or(FoundTenant::Existing);
        let deleting = match found {
            FoundTenant::Existing => false,
            FoundTenant::BeingDeleted => true,
            FoundTenant::Missing => return Err(missing()),
            FoundTenant::NoAnswer => return Err(Status::unavailable("unavailable")),
        };
        let tenant = Some(id::Tenant { deleting, ..id::Tenant::default() });
        Ok(Response::new(id::GetTenantResponse { tenant }))
    }

    type WatchTenantsStream = EventStream<id::WatchTenantsResponse>;

    never_called! {
        create_tenant(id::CreateTenantRequest) -> id::CreateTenantResponse;
        list_tenants(id::ListTenantsRequest) -> id::ListTenantsResponse;
        update_tenant(id::UpdateTenantRequest) -> id::UpdateTenantResponse;
        delete_tenant(id::DeleteTenantRequest) -> id::DeleteTenantResponse;
        watch_tenants(id::WatchTenantsRequest) -> Self::WatchTenantsStream;
    }
}

impl WorkflowService for Site {
    async fn create_workflow(
        &self,
        request: Request<wf::CreateWorkflowRequest>,
    ) -> Result<Response<wf::CreateWorkflowResponse>, Status> {
        let request = request.into_inner();
        self.state().held_request = Some(request.clone());
        self.pass_gate().await;
        self.carry_out(|state| {
            if let Some(refusal) = &state.refusal {
                return Err(refusal.clone());
            }
            if let Some(id) = state.previous_result(&request.request_id, &request)? {
                let made = state.workflows.iter().find(|made| made.id == id);
                return made.cloned().ok_or_else(missing);
            }
            let workflow = wf::Workflow {
                id: WorkflowId::new().to_string(),
                labels: request.labels.clone(),
                hardware_id: request.hardware_id.clone(),
                instance_id: request.instance_id.clone(),
                state: wf::WorkflowState::Pending.into(),
                held: request.held,
                ..wf::Workflow::default()
            };
            state.record(&request.request_id, &request, &workflow.id);
            state.created.push(request);
            state.workflows.push(workflow.clone());
            Ok(workflow)
        })
        .map(|made| made.map(|made| wf::CreateWorkflowResponse { workflow: Some(made) }))
    }

    async fn plan_workflow(
        &self,
        request: Request<wf::PlanWorkflowRequest>,
    ) -> Result<Response<wf::PlanWorkflowResponse>, Status> {
        let request = request.into_inner();
        self.carry_out(|state| {
            state.planned.push(request.clone());
            match &state.refusal {
                Some(refusal) => Err(refusal.clone()),
                None => Ok(wf::PlanWorkflowResponse {
                    template_id: request.template_id.clone(),
                    disk: format!("/dev/disk/by-id/of-{}", request.hardware_id),
                    unused_values: state.unused_values.clone(),
                    images: state.images.clone(),
                    ..wf::PlanWorkflowResponse::default()
                }),
            }
        })
    }

    async fn get_workflow(
        &self,
        request: Request<wf::GetWorkflowRequest>,
    ) -> Result<Response<wf::GetWorkflowResponse>, Status> {
        let id = request.into_inner().id;
        self.carry_out(|state| {
            let workflow = state.workflows.iter().find(|each| each.id == id);
            let workflow = Some(workflow.ok_or_else(missing)?.clone());
            Ok(wf::GetWorkflowResponse { workflow })
        })
    }

    async fn list_workflows(
        &self,
        request: Request<wf::ListWorkflowsRequest>,
    ) -> Result<Response<wf::ListWorkflowsResponse>, Status> {
        let request = request.into_inner();
        // One a page, so that a caller that reads only the first page fails the test.
        self.carry_out(|state| {
            let all = state.workflows.iter().filter(|each| each.hardware_id == request.hardware_id);
            let mut after = all.filter(|each| each.id > request.page_token).cloned();
            let workflows: Vec<_> = after.next().into_iter().collect();
            let last = workflows.last().map(|each| each.id.clone()).unwrap_or_default();
            let next_page_token = after.next().map(|_| last).unwrap_or_default();
            Ok(wf::ListWorkflowsResponse { workflows, next_page_token })
        })
    }

    async fn cancel_workflow(
        &self,
        request: Request<wf::CancelWorkflowRequest>,
    ) -> Result<Response<wf::CancelWorkflowResponse>, Status> {
        let id = request.into_inner().id;
        self.carry_out(|state| {
            let found = state.workflows.iter_mut().find(|each| each.id == id);
            let workflow = found.ok_or_else(missing)?;
            // The worker stops its action first.
            let is_stopping = std::mem::take(&mut state.is_stopping);
            if !ended(workflow) && !is_stopping {
                workflow.set_state(wf::WorkflowState::Cancelled);
            }
            Ok(wf::CancelWorkflowResponse { workflow: Some(workflow.clone()) })
        })
    }

    async fn release_workflow(
        &self,
        request: Request<wf::ReleaseWorkflowRequest>,
    ) -> Result<Response<wf::ReleaseWorkflowResponse>, Status> {
        let id = request.into_inner().id;
        self.carry_out(|state| {
            let found = state.workflows.iter_mut().find(|each| each.id == id);
            let workflow = found.ok_or_else(missing)?;
            workflow.held &= ended(workflow);
            if !state.is_never_switched_on {
                workflow.start_time = Some(prost_types::Timestamp::default());
            }
            Ok(wf::ReleaseWorkflowResponse { workflow: Some(workflow.clone()) })
        })
    }

    async fn note_boot(
        &self,
        _request: Request<wf::NoteBootRequest>,
    ) -> Result<Response<wf::NoteBootResponse>, Status> {
        self.carry_out(|state| {
            let is_leaving = std::mem::take(&mut state.is_leaving);
            if let Some(newest) = state.workflows.last_mut().filter(|_| is_leaving) {
                newest.set_state(wf::WorkflowState::Success);
            }
            Ok(wf::NoteBootResponse {})
        })
    }

    async fn get_boot_epoch(
        &self,
        _request: Request<wf::GetBootEpochRequest>,
    ) -> Result<Response<wf::GetBootEpochResponse>, Status> {
        self.carry_out(|state| {
            let restart_time = state.restart_time.map(Into::into);
            Ok(wf::GetBootEpochResponse { number: 1, restart_time })
        })
    }

    type WatchWorkflowsStream = EventStream<wf::WatchWorkflowsResponse>;

    async fn watch_workflows(
        &self,
        _request: Request<wf::WatchWorkflowsRequest>,
    ) -> Result<Response<Self::WatchWorkflowsStream>, Status> {
        let changes = BroadcastStream::new(self.changes.subscribe())
            .filter_map(|change| std::future::ready(change.ok()))
            .map(WatchEvent::Put);
        let all: Vec<_> = self.state().workflows.iter().cloned().map(WatchEvent::Put).collect();
        let events = stream::iter(all.into_iter().chain([WatchEvent::Synced])).chain(changes);
        Ok(Response::new(Box::pin(events.map(|event| Ok(event.into())))))
    }

    type ReadLogStream = EventStream<wf::ReadLogResponse>;

    never_called! {
        delete_workflow(wf::DeleteWorkflowRequest) -> wf::DeleteWorkflowResponse;
        read_log(wf::ReadLogRequest) -> Self::ReadLogStream;
        confirm_restart(wf::ConfirmRestartRequest) -> wf::ConfirmRestartResponse;
    }
}

impl PowerService for Site {
    async fn create_power_job(
        &self,
        request: Request<power::CreatePowerJobRequest>,
    ) -> Result<Response<power::CreatePowerJobResponse>, Status> {
        let request = request.into_inner();
        self.pass_gate().await;
        self.carry_out(|state| {
            if !state.has_bmc {
                return Err(missing());
            }
            let id = match state.previous_result(&request.request_id, &request)? {
                Some(id) => id,
                None => {
                    let id = PowerJobId::new().to_string();
                    state.record(&request.request_id, &request, &id);
                    state.jobs.push(request);
                    id
                }
            };
            let power_job = Some(state.power_job(id));
            Ok(power::CreatePowerJobResponse { power_job })
        })
    }

    async fn get_bmc(
        &self,
        request: Request<power::GetBmcRequest>,
    ) -> Result<Response<power::GetBmcResponse>, Status> {
        use power::get_bmc_request::By;
        let by = request.into_inner().by;
        self.carry_out(|state| match by {
            Some(By::HardwareId(id)) if state.has_bmc && !state.without_bmc.contains(&id) => {
                Ok(power::GetBmcResponse { bmc: Some(power::Bmc::default()) })
            }
            _ => Err(missing()),
        })
    }

    async fn release_power_job(
        &self,
        request: Request<power::ReleasePowerJobRequest>,
    ) -> Result<Response<power::ReleasePowerJobResponse>, Status> {
        let id = request.into_inner().id;
        self.carry_out(|state| {
            if !state.cancelled_jobs.contains(&id) {
                state.released_jobs.insert(id.clone());
            }
            let power_job = Some(state.power_job(id));
            Ok(power::ReleasePowerJobResponse { power_job })
        })
    }

    async fn cancel_power_job(
        &self,
        request: Request<power::CancelPowerJobRequest>,
    ) -> Result<Response<power::CancelPowerJobResponse>, Status> {
        let id = request.into_inner().id;
        self.carry_out(|state| {
            state.cancelled_jobs.insert(id);
            Ok(power::CancelPowerJobResponse::default())
        })
    }

    type WatchBmcsStream = EventStream<power::WatchBmcsResponse>;
    type WatchPowerJobsStream = EventStream<power::WatchPowerJobsResponse>;

    never_called! {
        create_bmc(power::CreateBmcRequest) -> power::CreateBmcResponse;
        list_bmcs(power::ListBmcsRequest) -> power::ListBmcsResponse;
        update_bmc(power::UpdateBmcRequest) -> power::UpdateBmcResponse;
        delete_bmc(power::DeleteBmcRequest) -> power::DeleteBmcResponse;
        watch_bmcs(power::WatchBmcsRequest) -> Self::WatchBmcsStream;
        get_power_state(power::GetPowerStateRequest) -> power::GetPowerStateResponse;
        read_bmc_inventory(power::ReadBmcInventoryRequest) -> power::ReadBmcInventoryResponse;
        enrol_bmc(power::EnrolBmcRequest) -> power::EnrolBmcResponse;
        get_power_job(power::GetPowerJobRequest) -> power::GetPowerJobResponse;
        list_power_jobs(power::ListPowerJobsRequest) -> power::ListPowerJobsResponse;
        watch_power_jobs(power::WatchPowerJobsRequest) -> Self::WatchPowerJobsStream;
    }
}
