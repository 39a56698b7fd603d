//! The calls of workers.
//!
//! - [`identity`]: certificates of machines; [`caller`]: the machine that a certificate is of; [`enrolment`]: machines without a record.

mod caller;
mod enrolment;
mod identity;

use prost_types::Timestamp;
use tinwright::hardware::v1 as hw;
use tinwright::status::Violations;
use tinwright::workflow::v1 as pb;
use tinwright::workflow::v1::worker_service_server::WorkerService;
use tinwright::{HardwareId, LeaseId, WorkflowId, check};
use tonic::{Code, Request, Response, Status};

use self::caller::MachineCaller;
use super::Api;
use crate::abilities::Abilities;
use crate::lifecycle::{ActionEnd, AttemptReport, Event, EventRefused, Holder};
use crate::logs::{LogKey, MAX_CHUNK_BYTES};
use crate::progress::action_under_lease;
use crate::record::size::{MAX_HOLDER_ID_BYTES, MAX_REASON_BYTES};
use crate::workflows::{Error, refuse_two_boots};

/// The most bytes of a tail that are stored.
const MAX_TAIL_BYTES: usize = 4096;

impl WorkerService for Api {
    async fn redeem(
        &self,
        request: Request<pb::RedeemRequest>,
    ) -> Result<Response<pb::RedeemResponse>, Status> {
        let from = identity::peer(&request);
        self.redeem_token(request.into_inner(), from).await.map(Response::new)
    }

    async fn renew(
        &self,
        request: Request<pb::RenewRequest>,
    ) -> Result<Response<pb::RenewResponse>, Status> {
        self.renew_certificate(&request).await.map(Response::new)
    }

    async fn next_action(
        &self,
        request: Request<pb::NextActionRequest>,
    ) -> Result<Response<pb::NextActionResponse>, Status> {
        let MachineCaller { machine, epoch } = self.present_machine(&request).await?;
        self.record(machine).await?;
        let pb::NextActionRequest { holder: caller, running_lease_id: running, abilities } =
            request.into_inner();
        let running = (!running.is_empty()).then_some(LeaseId(running));
        let holder = holder(caller, epoch)?;
        let abilities = Abilities::new(abilities);
        let next = self.dispatcher.next_in_time(machine, &holder, running, &abilities);
        let next = self.stop.run_until_cancelled(next).await;
        let next = next.ok_or_else(|| Status::unavailable("the server is stopping"))?;
        Ok(Response::new(next?))
    }

    #[tracing::instrument(skip_all, fields(workflow.id = request.get_ref().workflow_id, hardware.id))]
    async fn start_action(
        &self,
        request: Request<pb::StartActionRequest>,
    ) -> Result<Response<pb::StartActionResponse>, Status> {
        let (id, _) = self.own_workflow(&request, &request.get_ref().workflow_id).await?;
        let pb::StartActionRequest { workflow_id: _, lease_id, terminal } = request.into_inner();
        self.workflows.apply_call(id, &Event::Start { lease: LeaseId(lease_id), terminal }).await?;
        Ok(Response::new(pb::StartActionResponse {}))
    }

    #[tracing::instrument(skip_all, fields(workflow.id = request.get_ref().workflow_id, hardware.id))]
    async fn report_progress(
        &self,
        request: Request<pb::ReportProgressRequest>,
    ) -> Result<Response<pb::ReportProgressResponse>, Status> {
        let (id, record) = self.own_workflow(&request, &request.get_ref().workflow_id).await?;
        let pb::ReportProgressRequest { workflow_id: _, lease_id, progress } = request.into_inner();
        let progress = progress.unwrap_or_default();
        let record = self.record_progress(id, record, &lease_id, progress).await?;
        let stop = record.state() == pb::WorkflowState::Running && record.stop_time.is_some();
        Ok(Response::new(pb::ReportProgressResponse { stop }))
    }

    #[tracing::instrument(skip_all, fields(workflow.id = request.get_ref().workflow_id, hardware.id))]
    async fn append_log(
        &self,
        request: Request<pb::AppendLogRequest>,
    ) -> Result<Response<pb::AppendLogResponse>, Status> {
        check::length(&request.get_ref().data, MAX_CHUNK_BYTES)
            .map_err(|e| Violations::single("data", e))?;
        let (id, record) = self.own_workflow(&request, &request.get_ref().workflow_id).await?;
        let pb::AppendLogRequest { workflow_id: _, lease_id, offset, data } = request.into_inner();
        let (key, attempt) = self.log_under_lease(id, &record, LeaseId(lease_id)).await?;
        let next_offset = self.logs.append(&key, attempt, offset, &data).await?;
        Ok(Response::new(pb::AppendLogResponse { next_offset }))
    }

    #[tracing::instrument(skip_all, fields(workflow.id = request.get_ref().workflow_id, hardware.id))]
    async fn finish_action(
        &self,
        request: Request<pb::FinishActionRequest>,
    ) -> Result<Response<pb::FinishActionResponse>, Status> {
        let (report, tail) = report(request.get_ref())?;
        let (id, _) = self.own_workflow(&request, &request.get_ref().workflow_id).await?;
        let lease = request.into_inner().lease_id;
        if self.workflows.report_end(id, &lease, report, &tail).await? {
            self.progress.remove(&id.to_string());
        }
        Ok(Response::new(pb::FinishActionResponse {}))
    }

    async fn report_inventory(
        &self,
        request: Request<pb::ReportInventoryRequest>,
    ) -> Result<Response<pb::ReportInventoryResponse>, Status> {
        if let Some(id) = enrolment::enrolling(&request) {
            return self.enrol(id, request.into_inner()).await.map(Response::new);
        }
        let MachineCaller { machine, .. } = self.present_machine(&request).await?;
        let inventory = Violations::require("inventory", request.into_inner().inventory)?;
        self.record_inventory(machine, inventory).await?;
        Ok(Response::new(pb::ReportInventoryResponse::default()))
    }
}

impl Api {
    /// Returns the workflow with the id `text`, which must be one of the calling machine. It may be a moment old.
    async fn own_workflow<T>(
        &self,
        request: &Request<T>,
        text: &str,
    ) -> Result<(WorkflowId, pb::Workflow), Status> {
        let MachineCaller { machine, .. } = self.present_machine(request).await?;
        self.check_not_deleted(machine).await?;
        let id = Violations::parse("workflow_id", text)?;
        let record = match self.mirrors.1.get(&WorkflowId::to_string(&id)) {
            Some(record) => record,
            None => self.workflows.get(id).await?,
        };
        if record.hardware_id != machine.to_string() {
            return Err(Status::permission_denied("the workflow is another machine's"));
        }
        tracing::Span::current().record("hardware.id", &record.hardware_id);
        Ok((id, record))
    }

    /// Records the `progress` of an action under `lease`. It is stored with a renewal of the lease
    /// when that is due. Returns the latest record.
    async fn record_progress(
        &self,
        id: WorkflowId,
        mut record: pb::Workflow,
        lease: &str,
        progress: pb::Progress,
    ) -> Result<pb::Workflow, Error> {
        let time = Some(Timestamp::from(self.clock.wall()));
        let progress = pb::Progress { time, ..progress };
        let is_current = action_under_lease(&mut record, lease).is_some();
        let waits = record.boots.as_ref().is_some_and(|boots| boots.other.is_some());
        // Only the progress of a current lease is cached; another lease is refused by the store.
        let is_cached = is_current && !waits;
        let now = self.clock.monotonic();
        if is_cached && !self.progress.record(&record.id, lease, progress, now) {
            return Ok(record);
        }
        let edit = |new: &mut pb::Workflow| {
            if let Some(action) = action_under_lease(new, lease) {
                action.progress = Some(progress);
            }
        };
        let renewed = self.workflows.apply_and_edit(id, &Event::Renew(lease.into()), edit).await;
        // If it was not stored, the next report stores it.
        let renewed = renewed.and_then(refuse_two_boots);
        renewed.inspect_err(|_| self.progress.remove(&id.to_string()))
    }

    /// Stores what a machine reported of itself in its hardware record.
    async fn record_inventory(
        &self,
        machine: HardwareId,
        inventory: hw::Inventory,
    ) -> Result<(), Status> {
        let (hardware_id, inventory) = (machine.to_string(), Some(inventory));
        let record = hw::RecordInventoryRequest { hardware_id, inventory };
        match runtime::call(self.hardware.clone(), record).await {
            Ok(_) => Ok(()),
            Err(status) if status.code() == Code::NotFound => {
                Err(Status::permission_denied("the machine has no record"))
            }
            Err(status) if status.code() == Code::InvalidArgument => Err(status),
            Err(status) => {
                tracing::warn!(hardware.id = %machine, %status, "inventory not stored");
                Err(Status::unavailable("the inventory cannot be stored now"))
            }
        }
    }

    /// Returns the log that is written under `lease`, and the attempt. Reads the store if `record` is too old to say.
    async fn log_under_lease(
        &self,
        id: WorkflowId,
        record: &pb::Workflow,
        lease: LeaseId,
    ) -> Result<(LogKey, i32), Error> {
        if let Some(found) = log_under_lease(record, &lease) {
            return Ok(found);
        }
        let stored = self.workflows.get(id).await?;
        log_under_lease(&stored, &lease).ok_or_else(|| EventRefused::Superseded(lease).into())
    }
}

fn log_under_lease(workflow: &pb::Workflow, lease: &LeaseId) -> Option<(LogKey, i32)> {
    workflow.actions.iter().find_map(|action| {
        let held = action.lease.as_ref().filter(|held| held.id == lease.0)?;
        Some((LogKey::of(workflow, action), held.attempt))
    })
}

fn holder(holder: Option<pb::Holder>, epoch: u64) -> Result<Holder, Violations> {
    let pb::Holder { boot_id, process_id } = holder.unwrap_or_default();
    let mut wrong = Violations::default();
    for (field, id) in [("holder.boot_id", &boot_id), ("holder.process_id", &process_id)] {
        wrong.take(field, check::length(id, MAX_HOLDER_ID_BYTES));
        if id.is_empty() {
            wrong.add(field, "is empty");
        }
    }
    let (boot, process) = (boot_id.as_str().into(), process_id.as_str().into());
    wrong.into_result(Holder { boot, process, epoch })
}

/// Reads a worker's report, and the last lines of the action. Long texts are cut, not refused: a worker that cannot deliver its result could never go on.
fn report(request: &pb::FinishActionRequest) -> Result<(AttemptReport, String), Violations> {
    use pb::ActionState as State;
    let end = match request.state() {
        State::Success => ActionEnd::Success,
        State::Failed => ActionEnd::Failed,
        State::Timeout => ActionEnd::Timeout,
        State::Unspecified
        | State::Pending
        | State::Leased
        | State::Running
        | State::Skipped
        | State::NotRun => {
            return Err(Violations::single("state", "is neither success, failed nor timeout"));
        }
    };
    let mut reason = request.reason.split_whitespace().collect::<Vec<_>>().join(" ");
    reason.truncate(reason.floor_char_boundary(MAX_REASON_BYTES));
    let tail = &request.tail;
    let tail = tail.get(tail.ceil_char_boundary(tail.len().saturating_sub(MAX_TAIL_BYTES))..);
    Ok((AttemptReport { end, reason }, tail.unwrap_or_default().to_owned()))
}
