//! Power jobs: asked for once, waited for however often the connection breaks.

use std::time::Duration;

use tinwright::power::v1 as pb;
use tinwright::power::v1::operation::{Boot, Power, What, boot};
use tinwright::power::v1::power_job::State;
use tinwright::power::v1::power_service_client::PowerServiceClient;
use tinwright::watch::{WatchEvent, WatchResponse as _};
use tonic::transport::Channel;
use tonic::{Code, Status};

/// The pause after the power service could not be asked; doubled up to [`LONGEST`].
const PAUSE: Duration = Duration::from_millis(200);
/// The longest pause.
const LONGEST: Duration = Duration::from_secs(15);

/// What BMCs are told, over the power service.
#[derive(Clone, Debug)]
pub(super) struct Bmcs(PowerServiceClient<Channel>);

/// Why a BMC did not do what it was told, for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Failed(String);

impl Bmcs {
    pub(super) fn new(power: Channel) -> Self {
        Self(PowerServiceClient::new(power))
    }

    /// The job for `operations`: made if `request_id` is new, else the one that was made then. Asks until it is
    /// answered.
    pub(super) async fn job(
        &self,
        machine: &str,
        operations: &[pb::Operation],
        request_id: String,
    ) -> Result<pb::PowerJob, Failed> {
        let request = pb::CreatePowerJobRequest {
            hardware_id: machine.to_owned(),
            operations: operations.to_vec(),
            request_id,
            ..pb::CreatePowerJobRequest::default()
        };
        let mut patience = Patience::default();
        loop {
            match self.0.clone().create_power_job(request.clone()).await {
                Ok(made) => return Ok(made.into_inner().power_job.unwrap_or_default()),
                Err(status) => patience.after(status).await?,
            }
        }
    }

    async fn get(&self, id: &str) -> Result<pb::PowerJob, Failed> {
        let mut patience = Patience::default();
        loop {
            let request = pb::GetPowerJobRequest { id: id.to_owned() };
            match self.0.clone().get_power_job(request).await {
                Ok(found) => return Ok(found.into_inner().power_job.unwrap_or_default()),
                Err(status) => patience.after(status).await?,
            }
        }
    }

    /// Resolves when the job has ended. Told by a watch; read again whenever that breaks.
    pub(super) async fn done(&self, id: &str) -> Result<(), Failed> {
        loop {
            if let Some(end) = end(&self.get(id).await?) {
                return end;
            }
            match self.watched(id).await {
                Ok(end) => return end,
                Err(status) => {
                    tracing::debug!(reason = status.message(), "watch of a power job cut");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Calls off what has not begun. Best effort: what follows on the BMC waits for what has.
    pub(super) async fn cancel(&self, id: &str) {
        let request = pb::CancelPowerJobRequest { id: id.to_owned() };
        if let Err(status) = self.0.clone().cancel_power_job(request).await {
            tracing::warn!(
                power_job.id = id,
                reason = status.message(),
                "power job not called off"
            );
        }
    }

    async fn watched(&self, id: &str) -> Result<Result<(), Failed>, Status> {
        let request = pb::WatchPowerJobsRequest { id: id.to_owned() };
        let mut stream = self.0.clone().watch_power_jobs(request).await?.into_inner();
        while let Some(message) = stream.message().await? {
            let end = match message.into_event() {
                Some(WatchEvent::Put(job)) => end(&job),
                Some(WatchEvent::Deleted(_)) => {
                    Some(Err(Failed("the power job was deleted".to_owned())))
                }
                Some(WatchEvent::Synced) | None => None,
            };
            if let Some(end) = end {
                return Ok(end);
            }
        }
        Err(Status::unavailable("the stream ended"))
    }
}

/// How a job ended, if it has.
fn end(job: &pb::PowerJob) -> Option<Result<(), Failed>> {
    match job.state() {
        State::Success => Some(Ok(())),
        State::Failed => Some(Err(Failed(format!("power job failed: {}", job.state_reason)))),
        State::Cancelled => Some(Err(Failed("the power job was cancelled".to_owned()))),
        State::Unspecified | State::Pending | State::Running => None,
    }
}

/// How long one waits before asking the power service again.
struct Patience(Duration);

impl Default for Patience {
    fn default() -> Self {
        Self(PAUSE)
    }
}

impl Patience {
    /// Passes after a pause if asking again may help.
    async fn after(&mut self, status: Status) -> Result<(), Failed> {
        if !passes(status.code()) {
            return Err(Failed(status.message().to_owned()));
        }
        tracing::debug!(code = ?status.code(), reason = status.message(), "no answer from power");
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 2).min(LONGEST);
        Ok(())
    }
}

/// Whether the same call may succeed later.
fn passes(code: Code) -> bool {
    match code {
        Code::Unavailable
        | Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::ResourceExhausted
        | Code::Aborted
        | Code::Internal => true,
        Code::Ok
        | Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::DataLoss
        | Code::Unauthenticated => false,
    }
}

/// An operation on the power.
pub(super) fn power(power: Power) -> pb::Operation {
    pb::Operation { what: Some(What::Power(power.into())) }
}

/// What the machine boots next; `persistent` for always.
pub(super) fn boot(device: boot::Device, persistent: bool) -> pb::Operation {
    let boot = Boot { device: device.into(), persistent, mode: boot::Mode::Unspecified.into() };
    pb::Operation { what: Some(What::Boot(boot)) }
}
