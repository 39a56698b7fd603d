//! The calls of workers.

use std::net::IpAddr;
use std::time::Duration;

use prost_types::Timestamp;
use runtime::boot_token::InvalidToken;
use runtime::neighbour::{self, SourceCheck};
use runtime::serve::ConnectionAddresses;
use runtime::{Caller, MachinePurpose, Role};
use store::records;
use tinwright::common::v1::View;
use tinwright::hardware::v1 as hw;
use tinwright::status::Violations;
use tinwright::workflow::v1 as pb;
use tinwright::workflow::v1::worker_service_server::WorkerService;
use tinwright::{BootId, HardwareId, LeaseId, Mac, WorkflowId, check};
use tonic::{Code, Request, Response, Status};
use tonic_types::StatusExt as _;

use super::Api;
use crate::dispatch::MAX_HOLD;
use crate::lifecycle::{ActionEnd, AttemptReport, Event, EventRefused, Holder};
use crate::logs::{LogKey, MAX_CHUNK_BYTES};
use crate::progress::action_under_lease;
use crate::record::attempts;
use crate::record::size::{MAX_HOLDER_ID_BYTES, MAX_REASON_BYTES};
use crate::worker_enrollment::{self, IssueError};
use crate::workflows::{Error, refuse_two_boots};

/// Pause of a machine that enrols while too many others do.
const ENROLMENT_RETRY: Duration = Duration::from_secs(20);
/// The most bytes of a tail that are stored.
const MAX_TAIL_BYTES: usize = 4096;

#[tonic::async_trait]
impl WorkerService for Api {
    #[tracing::instrument(skip_all)]
    async fn redeem(
        &self,
        request: Request<pb::RedeemRequest>,
    ) -> Result<Response<pb::RedeemResponse>, Status> {
        let from = peer(&request);
        let pb::RedeemRequest { boot_token, csr, holder } = request.into_inner();
        let boot = redeeming_boot(holder)?;
        let token = match self.enrollment.verify(&boot_token, &csr, from, self.clock.wall()) {
            Err(worker_enrollment::Error::InvalidToken(InvalidToken::Foreign)) => {
                return self.redeem_for_enrolment(&boot_token, &csr, from, &boot).await;
            }
            result => result?,
        };
        let record = self.record(token.machine()).await?;
        let macs = record.interfaces.iter().filter_map(|interface| interface.mac.parse().ok());
        self.check_neighbour(&record.id, macs, from).await?;
        if token.is_node() {
            self.agents.check(token.machine(), &boot).await?;
        }
        let issued = self.enrollment.redeem(&token, &csr, &boot, self.clock.wall()).await?;
        tracing::info!(hardware.id = record.id, boot = boot.0, "machine identified");
        Ok(Response::new(pb::RedeemResponse {
            certificate: issued.certificate,
            hardware_id: record.id,
            expire_time: Some(issued.expires.into()),
            enrols: false,
        }))
    }

    #[tracing::instrument(skip_all)]
    async fn renew(
        &self,
        request: Request<pb::RenewRequest>,
    ) -> Result<Response<pb::RenewResponse>, Status> {
        let (machine, caller) = renewing(&request)?;
        self.check_is_present(&machine).await?;
        self.check_record(machine.machine).await?;
        let issued = self.enrollment.renew(caller, &request.get_ref().csr);
        let issued = issued.map_err(worker_enrollment::Error::from)?;
        let (certificate, expire_time) = (issued.certificate, Some(issued.expires.into()));
        Ok(Response::new(pb::RenewResponse { certificate, expire_time }))
    }

    #[tracing::instrument(skip_all)]
    async fn next_action(
        &self,
        request: Request<pb::NextActionRequest>,
    ) -> Result<Response<pb::NextActionResponse>, Status> {
        let MachineCaller { machine, epoch } = self.present_machine(&request).await?;
        self.check_record(machine).await?;
        let pb::NextActionRequest { holder: caller, running_lease_id: running } =
            request.into_inner();
        let running = (!running.is_empty()).then_some(LeaseId(running));
        let holder = holder(caller, epoch)?;
        let next = self.dispatcher.next(machine, &holder, running);
        let next = tokio::time::timeout(MAX_HOLD, self.stop.run_until_cancelled(next)).await;
        let response = match next {
            // The worker requests again.
            Err(_) => pb::NextActionResponse::default(),
            Ok(None) => return Err(Status::unavailable("the server is stopping")),
            Ok(Some(response)) => response?,
        };
        Ok(Response::new(response))
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
        let (id, mut record) = self.own_workflow(&request, &request.get_ref().workflow_id).await?;
        let pb::ReportProgressRequest { workflow_id: _, lease_id, progress } = request.into_inner();
        let progress = pb::Progress {
            time: Some(Timestamp::from(self.clock.wall())),
            ..progress.unwrap_or_default()
        };
        let current = action_under_lease(&mut record, &lease_id).is_some();
        // Only the progress of a current lease is cached; another lease is refused by the store.
        let now = self.clock.monotonic();
        let waits = record.boots.as_ref().is_some_and(|boots| boots.other.is_some());
        if !current || waits || self.progress.record(&record.id, &lease_id, progress, now) {
            record = self.renew_lease(id, &lease_id, progress).await?;
        }
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
        let request = request.into_inner();
        let lease = request.lease_id.clone();
        let late = pb::LateResult {
            lease_id: request.lease_id,
            state: request.state,
            reason: report.reason.clone(),
            time: Some(Timestamp::from(self.clock.wall())),
            attempt: 0,
        };
        let event = Event::Report { lease: lease.as_str().into(), report };
        let applied = self.workflows.apply_report(id, &event, &lease, &tail).await;
        match applied.and_then(refuse_two_boots) {
            Err(refused @ Error::Refused(EventRefused::TwoBoots)) => return Err(refused.into()),
            Err(Error::Refused(refused)) => {
                tracing::info!(reason = %refused, "late result: recorded without effect");
                self.record_late_result(id, late).await?;
            }
            applied => self.progress.remove(&applied?.id),
        }
        Ok(Response::new(pb::FinishActionResponse {}))
    }

    #[tracing::instrument(skip_all)]
    async fn report_inventory(
        &self,
        request: Request<pb::ReportInventoryRequest>,
    ) -> Result<Response<pb::ReportInventoryResponse>, Status> {
        if let Some(id) = enrolling(&request) {
            return self.enrol(id, request.into_inner()).await;
        }
        let MachineCaller { machine, .. } = self.present_machine(&request).await?;
        let inventory = Violations::require("inventory", request.into_inner().inventory)?;
        let (hardware_id, inventory) = (machine.to_string(), Some(inventory));
        let record = hw::RecordInventoryRequest { hardware_id, inventory };
        match self.hardware.clone().record_inventory(record).await {
            Ok(_) => Ok(Response::new(pb::ReportInventoryResponse::default())),
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
}

impl Api {
    /// Redeems the token of a machine without a record.
    async fn redeem_for_enrolment(
        &self,
        token: &str,
        csr: &[u8],
        from: Option<IpAddr>,
        boot: &BootId,
    ) -> Result<Response<pb::RedeemResponse>, Status> {
        let claims = self.enrollment.verify_for_enrolment(token, csr, from, self.clock.wall())?;
        let id = claims.id.to_string();
        self.check_neighbour(&id, [claims.mac].into_iter(), from).await?;
        let issued = self.enrollment.redeem_for_enrolment(&claims, csr, boot).await?;
        tracing::info!(enrolment.id = id, mac = %claims.mac, "machine without a record identified");
        Ok(Response::new(pb::RedeemResponse {
            certificate: issued.certificate,
            hardware_id: id,
            expire_time: Some(issued.expires.into()),
            enrols: true,
        }))
    }

    /// Creates or completes the record of the machine with the enrolment `id`. The machine does not learn which record it resembles.
    async fn enrol(
        &self,
        id: HardwareId,
        request: pb::ReportInventoryRequest,
    ) -> Result<Response<pb::ReportInventoryResponse>, Status> {
        let inventory = Violations::require("inventory", request.inventory)?;
        let begun = self.enrollment.enrolments().current(id, self.clock.wall()).await?;
        let ended = || Status::permission_denied("the enrolment of this boot has ended");
        let begun = begun.ok_or_else(ended)?;
        let (uuid, mac, network) = (begun.uuid, begun.mac, begun.network);
        let enrolment = hw::Enrolment { id: begun.id, mac, network, time: None };
        let (enrolment, inventory) = (Some(enrolment), Some(inventory));
        let request = hw::EnrolMachineRequest { enrolment, uuid, inventory };
        match self.hardware.clone().enrol_machine(request).await {
            Ok(made) => {
                let hw::Hardware { id, name, .. } = made.into_inner().hardware.unwrap_or_default();
                Ok(Response::new(pb::ReportInventoryResponse { hardware_id: id, name }))
            }
            Err(status) if status.code() == Code::FailedPrecondition => {
                tracing::warn!(enrolment.id = %id, %status, "enrolment refused");
                Err(refused_enrolment(&status))
            }
            Err(status)
                if matches!(status.code(), Code::InvalidArgument | Code::ResourceExhausted) =>
            {
                Err(status)
            }
            Err(status) => {
                tracing::warn!(enrolment.id = %id, %status, "machine not enrolled");
                Err(Status::unavailable("the machine cannot be enrolled now"))
            }
        }
    }

    /// Returns the calling machine, whose identity must be of its present boot epoch.
    async fn present_machine<T>(&self, request: &Request<T>) -> Result<MachineCaller, Status> {
        let caller = machine(request)?;
        self.check_is_present(&caller).await?;
        Ok(caller)
    }

    /// Refuses an identity that is not of the present boot epoch of its machine.
    async fn check_is_present(&self, caller: &MachineCaller) -> Result<(), Status> {
        let present = self.workflows.epochs().present(&caller.machine.to_string()).await?;
        match caller.epoch == present.number {
            true => Ok(()),
            false => Err(Status::permission_denied(
                "the identity is of another boot epoch of the machine",
            )),
        }
    }

    /// Refuses a machine that has no hardware record.
    async fn check_record(&self, machine: HardwareId) -> Result<(), Status> {
        self.record(machine).await.map(drop)
    }

    /// Refuses a caller at `from` that is not the machine `id` with these interfaces, as far as the owner of the address on our link shows.
    async fn check_neighbour(
        &self,
        id: &str,
        macs: impl Iterator<Item = Mac>,
        from: Option<IpAddr>,
    ) -> Result<(), Status> {
        let (Some(from), Some(neighbours)) = (from, &self.neighbours) else { return Ok(()) };
        if self.source == SourceCheck::Address {
            return Ok(());
        }
        let owner = neighbour::owner_of(neighbours, from).await;
        self.source.admits(macs, owner).map_err(|rejected| {
            tracing::error!(hardware.id = id, address = %from, %owner, "boot token refused: {rejected}");
            Status::permission_denied(rejected.to_string())
        })
    }

    /// Returns the hardware record of `machine`. Refuses a machine that has none.
    async fn record(&self, machine: HardwareId) -> Result<hw::Hardware, Status> {
        let by = Some(hw::get_hardware_request::By::Id(machine.to_string()));
        let request = hw::GetHardwareRequest { by, view: View::Basic.into() };
        match self.hardware.clone().get_hardware(request).await {
            Ok(found) => Ok(found.into_inner().hardware.unwrap_or_default()),
            Err(status) if status.code() == Code::NotFound => {
                Err(Status::permission_denied("the machine has no record"))
            }
            Err(status) => {
                tracing::warn!(hardware.id = %machine, %status, "worker's call not answered: hardware record not read");
                Err(Status::unavailable("the machine's record cannot be read now"))
            }
        }
    }

    /// Refuses a machine that has no hardware record any more. A worker goes on while the record cannot be read.
    async fn check_not_deleted(&self, machine: HardwareId) -> Result<(), Status> {
        match self.check_record(machine).await {
            Err(status) if status.code() == Code::PermissionDenied => Err(status),
            Ok(()) | Err(_) => Ok(()),
        }
    }

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

    async fn renew_lease(
        &self,
        id: WorkflowId,
        lease: &str,
        progress: pb::Progress,
    ) -> Result<pb::Workflow, Error> {
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

    /// Records a late result, for people.
    async fn record_late_result(&self, id: WorkflowId, late: pb::LateResult) -> Result<(), Error> {
        let record = |new: &mut pb::Workflow| attempts::record_late_result(new, late.clone());
        match self.workflows.edit(id, record).await {
            // The worker must be able to go on even if the record is full.
            Err(Error::Records(records::Error::Store(store::Error::Refused(reason)))) => {
                tracing::warn!(%reason, "late result not recorded");
                Ok(())
            }
            recorded => recorded.map(drop),
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
    let latest = |action: &pb::Action| {
        action.lease.as_ref().filter(|held| held.id == lease.0).map(|held| held.attempt)
    };
    workflow.actions.iter().find_map(|action| {
        let key = LogKey { workflow: workflow.id.clone(), action: action.id.clone() };
        latest(action).map(|attempt| (key, attempt))
    })
}

/// A machine that calls, and the boot epoch in its identity.
struct MachineCaller {
    machine: HardwareId,
    epoch: u64,
}

/// Returns the refusal of an enrolment as the machine gets it.
fn refused_enrolment(status: &Status) -> Status {
    let reason = status.get_details_error_info().map(|info| info.reason).unwrap_or_default();
    let (reason, text) = match reason.as_str() {
        "ENROLMENT_LIMIT" => ("ENROLMENT_LIMIT", "too many machines wait for acceptance"),
        _ => ("KNOWN_MACHINE", "the machine has the UUID or a MAC of a known one"),
    };
    tinwright::status::failed_precondition(reason, "enrolment", text)
}

/// Returns the id of the enrolment of the caller, if it has an identity of that purpose.
fn enrolling<T>(request: &Request<T>) -> Option<HardwareId> {
    match request.extensions().get::<Caller>()?.role() {
        Role::Machine(id, MachinePurpose::Enrol) => Some(id),
        Role::Machine(_, MachinePurpose::Work | MachinePurpose::Node)
        | Role::Admin
        | Role::Operator
        | Role::Viewer
        | Role::Service
        | Role::Edge
        | Role::Door
        | Role::Builder => None,
    }
}

/// Returns the calling machine.
fn machine<T>(request: &Request<T>) -> Result<MachineCaller, Status> {
    let caller = request.extensions().get::<Caller>();
    match caller.map(|caller| (caller.role(), caller.boot_epoch())) {
        Some((Role::Machine(machine, MachinePurpose::Work), epoch)) => {
            Ok(MachineCaller { machine, epoch })
        }
        Some(_) => Err(Status::permission_denied("this call is for the worker on a machine")),
        None => Err(Status::unauthenticated("a machine's certificate is required")),
    }
}

/// Returns the calling machine, a worker's or a node, and the caller that it is.
fn renewing<T>(request: &Request<T>) -> Result<(MachineCaller, &Caller), Status> {
    let caller = request.extensions().get::<Caller>();
    let caller =
        caller.ok_or_else(|| Status::unauthenticated("a machine's certificate is required"))?;
    match caller.role() {
        Role::Machine(machine, MachinePurpose::Work | MachinePurpose::Node) => {
            Ok((MachineCaller { machine, epoch: caller.boot_epoch() }, caller))
        }
        Role::Machine(_, MachinePurpose::Enrol)
        | Role::Admin
        | Role::Operator
        | Role::Viewer
        | Role::Service
        | Role::Edge
        | Role::Door
        | Role::Builder => Err(Status::permission_denied("this call is for workers and nodes")),
    }
}

/// Returns the address of the caller, if the connection has one.
fn peer<T>(request: &Request<T>) -> Option<IpAddr> {
    let forwarded = request.extensions().get::<ConnectionAddresses>().map(|ends| ends.remote);
    forwarded.or_else(|| request.remote_addr()).map(|address| address.ip())
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

/// Returns the boot that redeems a token; empty if it is not named.
fn redeeming_boot(holder: Option<pb::Holder>) -> Result<BootId, Violations> {
    let boot = holder.unwrap_or_default().boot_id;
    let mut wrong = Violations::default();
    wrong.take("holder.boot_id", check::length(&boot, MAX_HOLDER_ID_BYTES));
    wrong.into_result(boot.as_str().into())
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

impl From<worker_enrollment::Error> for Status {
    fn from(error: worker_enrollment::Error) -> Self {
        use worker_enrollment::Error as Cause;
        match error {
            Cause::InvalidToken(_)
            | Cause::WrongAddress(_)
            | Cause::NotPrepared
            | Cause::OtherEpoch
            | Cause::Spent
            | Cause::OtherBoot
            | Cause::SecondToken => Self::permission_denied(error.to_string()),
            Cause::TooManyEnrolments => {
                tinwright::status::overloaded(error.to_string(), ENROLMENT_RETRY)
            }
            Cause::NotIssued(IssueError::Request) => Violations::single("csr", error).into(),
            Cause::NotIssued(IssueError::Authority(cause)) => {
                let error = cause.as_ref() as &dyn std::error::Error;
                tracing::error!(error, "certificate not issued");
                Self::unavailable("no certificate can be issued now")
            }
            Cause::UnnamedBoot => Violations::single("holder.boot_id", "is empty").into(),
            Cause::Records(error) => error.into(),
        }
    }
}
