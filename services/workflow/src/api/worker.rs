//! The workers' calls over gRPC.

use std::net::IpAddr;
use std::time::{Instant, SystemTime};

use prost_types::Timestamp;
use runtime::serve::Peers;
use store::records;
use tinwright::status::Violations;
use tinwright::workflow::v1 as pb;
use tinwright::workflow::v1::worker_service_server::WorkerService;
use tinwright::{WorkflowId, check};
use tonic::{Code, Request, Response, Status};

use super::Api;
use super::caller::Machines;
use crate::assigning::{HELD, Told};
use crate::ids::LeaseId;
use crate::lifecycle::{End, Event, Holder, Refused};
use crate::logs::{self, CHUNK, Of};
use crate::progress::running_under;
use crate::record::tries;
use crate::redeeming::{self, NotIssued};
use crate::workflows::Error;

/// The most of a reason that is kept, in bytes.
const REASON: usize = 1024;
/// The most of a tail that is kept, in bytes.
const TAIL: usize = 4096;
/// The longest id of a boot or a process, in bytes.
const ID: usize = 128;

#[tonic::async_trait]
impl WorkerService for Api {
    #[tracing::instrument(skip_all)]
    async fn redeem(
        &self,
        request: Request<pb::RedeemRequest>,
    ) -> Result<Response<pb::RedeemResponse>, Status> {
        let from = peer(&request);
        let pb::RedeemRequest { boot_token, csr, holder: _ } = request.into_inner();
        let (machine, issued) =
            self.redeeming.redeem(&boot_token, &csr, from, SystemTime::now()).await?;
        tracing::info!(hardware.id = %machine, "a worker has identified itself");
        Ok(Response::new(pb::RedeemResponse {
            certificate: issued.certificate,
            hardware_id: machine.to_string(),
            expire_time: Some(issued.expires.into()),
        }))
    }

    #[tracing::instrument(skip_all)]
    async fn renew(
        &self,
        request: Request<pb::RenewRequest>,
    ) -> Result<Response<pb::RenewResponse>, Status> {
        let machine = Machines::of(&request)?.one()?;
        let issued = self.redeeming.issue(machine, &request.get_ref().csr);
        let issued = issued.map_err(redeeming::Error::from)?;
        let (certificate, expire_time) = (issued.certificate, Some(issued.expires.into()));
        Ok(Response::new(pb::RenewResponse { certificate, expire_time }))
    }

    #[tracing::instrument(skip_all)]
    async fn next_action(
        &self,
        request: Request<pb::NextActionRequest>,
    ) -> Result<Response<pb::NextActionResponse>, Status> {
        let machine = Machines::of(&request)?.one()?.to_string();
        let pb::NextActionRequest { holder: who, running_lease_id: running } = request.into_inner();
        let running = (!running.is_empty()).then_some(LeaseId(running));
        let (machine, holder) = (machine.as_str().into(), holder(who)?);
        let next = self.assigning.next(&machine, &holder, running);
        let told = tokio::time::timeout(HELD, self.stop.run_until_cancelled(next)).await;
        let response = match told {
            Err(_) => pb::NextActionResponse::default(),
            Ok(None) => return Err(Status::unavailable("the server is ending")),
            Ok(Some(told)) => match told? {
                Told::Run(assignment) => {
                    pb::NextActionResponse { assignment: Some(*assignment), reboot: false }
                }
                Told::Reboot => pb::NextActionResponse { assignment: None, reboot: true },
                Told::Nothing => pb::NextActionResponse::default(),
            },
        };
        Ok(Response::new(response))
    }

    #[tracing::instrument(skip_all, fields(workflow.id = request.get_ref().workflow_id))]
    async fn start_action(
        &self,
        request: Request<pb::StartActionRequest>,
    ) -> Result<Response<pb::StartActionResponse>, Status> {
        let seen = self.seen(Machines::of(&request)?, &request.get_ref().workflow_id).await?;
        let pb::StartActionRequest { workflow_id: _, lease_id, terminal } = request.into_inner();
        let event = Event::Start { lease: LeaseId(lease_id), terminal };
        self.workflows.apply(&seen.id, &event, |_| {}).await?;
        Ok(Response::new(pb::StartActionResponse {}))
    }

    #[tracing::instrument(skip_all, fields(workflow.id = request.get_ref().workflow_id))]
    async fn report_progress(
        &self,
        request: Request<pb::ReportProgressRequest>,
    ) -> Result<Response<pb::ReportProgressResponse>, Status> {
        let mut seen = self.seen(Machines::of(&request)?, &request.get_ref().workflow_id).await?;
        let pb::ReportProgressRequest { workflow_id: _, lease_id, progress } = request.into_inner();
        let progress = pb::Progress {
            time: Some(Timestamp::from(SystemTime::now())),
            ..progress.unwrap_or_default()
        };
        let current = running_under(&mut seen, &lease_id).is_some();
        // Only what is current is noted in memory: what is not, the store refuses.
        let now = Instant::now();
        if !current || self.pulses.told(&seen.id, &lease_id, progress.clone(), now) {
            seen = self.renew_lease(&seen.id, &lease_id, progress).await?;
        }
        let stop = seen.state() == pb::WorkflowState::Running && seen.stop_time.is_some();
        Ok(Response::new(pb::ReportProgressResponse { stop }))
    }

    #[tracing::instrument(skip_all, fields(workflow.id = request.get_ref().workflow_id))]
    async fn append_log(
        &self,
        request: Request<pb::AppendLogRequest>,
    ) -> Result<Response<pb::AppendLogResponse>, Status> {
        check::length(&request.get_ref().data, CHUNK).map_err(|e| Violations::single("data", e))?;
        let seen = self.seen(Machines::of(&request)?, &request.get_ref().workflow_id).await?;
        let pb::AppendLogRequest { workflow_id: _, lease_id, offset, data } = request.into_inner();
        let (of, attempt) = self.log_under(seen, LeaseId(lease_id)).await?;
        let next_offset = self.logs.append(&of, attempt, offset, &data).await?;
        Ok(Response::new(pb::AppendLogResponse { next_offset }))
    }

    #[tracing::instrument(skip_all, fields(workflow.id = request.get_ref().workflow_id))]
    async fn finish_action(
        &self,
        request: Request<pb::FinishActionRequest>,
    ) -> Result<Response<pb::FinishActionResponse>, Status> {
        let end = end(request.get_ref())?;
        let seen = self.seen(Machines::of(&request)?, &request.get_ref().workflow_id).await?;
        let told = request.into_inner();
        let note = |new: &mut pb::Workflow| {
            let mut actions = new.actions.iter_mut();
            if let Some(action) = actions.find(|action| tried_under(action, &told.lease_id)) {
                (action.tail, action.reason) =
                    (last(&told.tail).to_owned(), one_line(&told.reason));
                tries::settle(action);
            }
        };
        let event = Event::Report { lease: told.lease_id.as_str().into(), end };
        match self.workflows.apply(&seen.id, &event, note).await {
            Err(Error::Refused(refused)) => {
                tracing::info!(reason = %refused, "a result came too late and changes nothing");
                self.remember(&seen.id, &told).await?;
            }
            taken => self.pulses.forget(&taken?.id),
        }
        Ok(Response::new(pb::FinishActionResponse {}))
    }
}

impl Api {
    /// The workflow `id` as it lately was, if `machines` are its.
    async fn seen(&self, machines: Machines, id: &str) -> Result<pb::Workflow, Status> {
        let id: WorkflowId =
            id.parse().map_err(|reason| Violations::single("workflow_id", reason))?;
        let seen = match self.mirrors.1.get(&id.to_string()) {
            Some(seen) => seen,
            None => self.workflows.get(&id.to_string()).await?,
        };
        machines.admit(&seen.hardware_id)?;
        Ok(seen)
    }

    async fn renew_lease(
        &self,
        workflow: &str,
        lease: &str,
        progress: pb::Progress,
    ) -> Result<pb::Workflow, Error> {
        let note = |new: &mut pb::Workflow| {
            if let Some(action) = running_under(new, lease) {
                action.progress = Some(progress.clone());
            }
        };
        let renewed = self.workflows.apply(workflow, &Event::Renew(lease.into()), note).await;
        // What is not stored is told again with the next report.
        renewed.inspect_err(|_| self.pulses.forget(workflow))
    }

    /// Keeps a result that came too late, as a fact for people.
    async fn remember(&self, workflow: &str, told: &pb::FinishActionRequest) -> Result<(), Error> {
        let late = pb::LateResult {
            lease_id: told.lease_id.clone(),
            state: told.state,
            reason: one_line(&told.reason),
            time: Some(Timestamp::from(SystemTime::now())),
            attempt: 0,
        };
        match self.workflows.note(workflow, |new| tries::late(new, late.clone())).await {
            // A record that is full already loses the fact, and its worker can go on.
            Err(Error::Records(records::Error::Store(store::Error::Refused(why)))) => {
                tracing::warn!(reason = ?why, "a late result is not remembered");
            }
            noted => drop(noted?),
        }
        Ok(())
    }

    /// Whose log is written under `lease`, and of which try. What memory does not know yet, the store does.
    async fn log_under(&self, seen: pb::Workflow, lease: LeaseId) -> Result<(Of, i32), Error> {
        if let Some(found) = log_under(&seen, &lease) {
            return Ok(found);
        }
        let stored = self.workflows.get(&seen.id).await?;
        log_under(&stored, &lease).ok_or_else(|| Refused::Superseded(lease).into())
    }
}

fn log_under(workflow: &pb::Workflow, lease: &LeaseId) -> Option<(Of, i32)> {
    let action = workflow.actions.iter().find(|action| tried_under(action, &lease.0))?;
    let of = Of { workflow: workflow.id.clone(), action: action.id.clone() };
    Some((of, action.lease.as_ref()?.attempt))
}

/// Whether the latest try at `action` is, or was, under `lease`.
fn tried_under(action: &pb::Action, lease: &str) -> bool {
    action.lease.as_ref().is_some_and(|held| held.id == lease)
}

/// The address of whoever calls, where the connection has one.
fn peer<T>(request: &Request<T>) -> Option<IpAddr> {
    let told = request.extensions().get::<Peers>().map(|ends| ends.remote);
    told.or_else(|| request.remote_addr()).map(|address| address.ip())
}

fn holder(holder: Option<pb::Holder>) -> Result<Holder, Violations> {
    let pb::Holder { boot_id, process_id } = holder.unwrap_or_default();
    let mut wrong = Violations::default();
    for (field, id) in [("holder.boot_id", &boot_id), ("holder.process_id", &process_id)] {
        wrong.take(field, check::length(id, ID));
        if id.is_empty() {
            wrong.add(field, "is empty");
        }
    }
    let (boot, process) = (boot_id.as_str().into(), process_id.as_str().into());
    wrong.into_result(Holder { boot, process })
}

/// How an action ended, as its worker says.
fn end(request: &pb::FinishActionRequest) -> Result<End, Violations> {
    use pb::ActionState as State;
    match request.state() {
        State::Success => Ok(End::Success),
        State::Failed => Ok(End::Failed { reason: one_line(&request.reason) }),
        State::Timeout => Ok(End::Timeout),
        State::Unspecified | State::Pending | State::Leased | State::Running | State::Skipped => {
            Err(Violations::single("state", "is neither success, failed nor timeout"))
        }
    }
}

/// Cut rather than refused: a worker that cannot get rid of its result could never go on.
fn one_line(reason: &str) -> String {
    let line = reason.split_whitespace().collect::<Vec<_>>().join(" ");
    let end = line.floor_char_boundary(REASON);
    line.get(..end).unwrap_or_default().to_owned()
}

/// The end of what was written, as much as is kept.
fn last(tail: &str) -> &str {
    let from = tail.ceil_char_boundary(tail.len().saturating_sub(TAIL));
    tail.get(from..).unwrap_or_default()
}

impl From<redeeming::Error> for Status {
    fn from(error: redeeming::Error) -> Self {
        use redeeming::Error as Why;
        match error {
            Why::InvalidToken(_) | Why::Elsewhere(_) | Why::Spent => {
                Self::permission_denied(error.to_string())
            }
            Why::NotIssued(NotIssued::Request) => Violations::single("csr", error).into(),
            Why::NotIssued(NotIssued::Authority(cause)) => {
                tracing::error!(
                    error = cause.as_ref() as &dyn std::error::Error,
                    "no certificate issued"
                );
                Self::unavailable("no certificate can be issued now")
            }
            Why::Records(error) => error.into(),
        }
    }
}

impl From<logs::Error> for Status {
    fn from(error: logs::Error) -> Self {
        match error {
            logs::Error::Gap(_) => Self::new(Code::OutOfRange, error.to_string()),
            logs::Error::Records(error) => error.into(),
        }
    }
}
