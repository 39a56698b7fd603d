//! Power jobs: created once, and waited for across interruptions of the connection.

use std::time::Duration;

use runtime::Channel;
use runtime::retry::{Backoff, is_final};
use tinwright::power::v1 as pb;
use tinwright::power::v1::get_power_state_response::PowerState;
use tinwright::power::v1::operation::{Boot, Drive, InsertMedia, Power, What, boot};
use tinwright::power::v1::power_job::State;
use tinwright::power::v1::power_service_client::PowerServiceClient;
use tinwright::status;
use tinwright::watch::{WatchEvent, WatchResponse as _};
use tonic::Status;

use crate::machine_gate::{MachineGate, Permission};
use crate::record::size::MAX_REASON_BYTES;

/// The pauses after the power or hardware service could not be reached.
const RETRY_BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(15));
/// The pause after a watch was interrupted.
const WATCH_PAUSE: Duration = Duration::from_millis(200);

/// Runs jobs on BMCs, by the power service. None is created for a machine on which steps wait.
#[derive(Clone, Debug)]
pub struct BmcClient {
    power: PowerServiceClient<Channel>,
    gate: MachineGate,
}

/// The reason why a power job did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PowerJobError {
    /// It failed, for this reason.
    Failed(String),
    /// It was not created, because steps on its machine wait.
    Suspended,
}

impl PowerJobError {
    /// A failure for this reason, of which no more is kept than a workflow's record has room for.
    fn failed(reason: impl Into<String>) -> Self {
        let mut reason = reason.into();
        reason.truncate(reason.floor_char_boundary(MAX_REASON_BYTES));
        Self::Failed(reason)
    }
}

impl BmcClient {
    /// A client for the channel `power`.
    pub fn new(power: Channel, gate: MachineGate) -> Self {
        Self { power: PowerServiceClient::new(power), gate }
    }

    /// Creates a job for `operations`, or returns the one that was created with this `request_id`. The machine is read again
    /// before each attempt, since the power service may be out of reach for long.
    pub(super) async fn create_job(
        &self,
        machine: &str,
        operations: &[pb::Operation],
        request_id: String,
    ) -> Result<pb::PowerJob, PowerJobError> {
        let request = pb::CreatePowerJobRequest {
            hardware_id: machine.to_owned(),
            operations: operations.to_vec(),
            request_id,
            ..pb::CreatePowerJobRequest::default()
        };
        let created = retry(|| {
            let (mut client, request) = (self.power.clone(), request.clone());
            async move {
                match self.gate.permission(machine).await? {
                    Permission::Granted => Ok(Ok(client.create_power_job(request).await?)),
                    Permission::Suspended(_) => Ok(Err(PowerJobError::Suspended)),
                    Permission::Gone => Err(status::not_found("hardware", machine)),
                }
            }
        })
        .await??;
        Ok(created.into_inner().power_job.unwrap_or_default())
    }

    /// True if the machine's BMC reports it as off. False as well if it has no BMC, or the BMC does not answer.
    pub(super) async fn is_off(&self, machine: &str) -> bool {
        let request = pb::GetPowerStateRequest { hardware_id: machine.to_owned() };
        match self.power.clone().get_power_state(request).await {
            Ok(response) => response.into_inner().power_state() == PowerState::Off,
            Err(status) => {
                tracing::debug!(reason = status.message(), "power state not read");
                false
            }
        }
    }

    async fn get(&self, id: &str) -> Result<pb::PowerJob, PowerJobError> {
        let request = pb::GetPowerJobRequest { id: id.to_owned() };
        let found = retry(|| {
            let (mut client, request) = (self.power.clone(), request.clone());
            async move { client.get_power_job(request).await }
        })
        .await?;
        Ok(found.into_inner().power_job.unwrap_or_default())
    }

    /// Waits for the end of a job.
    pub(super) async fn wait(&self, id: &str) -> Result<(), PowerJobError> {
        self.wait_until(id, |job| result(job).is_some())
            .await
            .and_then(|job| result(&job).unwrap_or(Ok(())))
    }

    /// Waits until this number of operations of a job is done, or it has ended. Fails if it has failed.
    pub(super) async fn wait_for_operations(
        &self,
        id: &str,
        count: i32,
    ) -> Result<(), PowerJobError> {
        let done = |job: &pb::PowerJob| job.completed_operations >= count;
        let job = self.wait_until(id, |job| done(job) || result(job).is_some()).await?;
        if done(&job) { Ok(()) } else { result(&job).unwrap_or(Ok(())) }
    }

    /// Waits until `reached` is true of a job. Follows it by a watch, and reads it again whenever the watch breaks.
    async fn wait_until(
        &self,
        id: &str,
        reached: impl Fn(&pb::PowerJob) -> bool,
    ) -> Result<pb::PowerJob, PowerJobError> {
        loop {
            let job = self.get(id).await?;
            if reached(&job) {
                return Ok(job);
            }
            match self.watch(id, &reached).await {
                Ok(job) => return job,
                Err(status) => {
                    tracing::debug!(reason = status.message(), "watch of a power job interrupted");
                    tokio::time::sleep(WATCH_PAUSE).await;
                }
            }
        }
    }

    /// Cancels a job, on a best-effort basis: later jobs on the BMC wait for one that runs.
    pub(super) async fn cancel(&self, id: &str) {
        let request = pb::CancelPowerJobRequest { id: id.to_owned() };
        if let Err(status) = self.power.clone().cancel_power_job(request).await {
            tracing::warn!(power_job.id = id, reason = status.message(), "power job not cancelled");
        }
    }

    async fn watch(
        &self,
        id: &str,
        reached: impl Fn(&pb::PowerJob) -> bool,
    ) -> Result<Result<pb::PowerJob, PowerJobError>, Status> {
        let request = pb::WatchPowerJobsRequest { id: id.to_owned(), ..Default::default() };
        let mut stream = self.power.clone().watch_power_jobs(request).await?.into_inner();
        while let Some(message) = stream.message().await? {
            match message.into_event() {
                Some(WatchEvent::Put(job)) if reached(&job) => return Ok(Ok(job)),
                Some(WatchEvent::Deleted(_)) => {
                    return Ok(Err(PowerJobError::failed("the power job was deleted")));
                }
                Some(WatchEvent::Put(_) | WatchEvent::Synced) | None => {}
            }
        }
        Err(Status::unavailable("the stream ended"))
    }
}

/// The result of a job, once it has ended.
fn result(job: &pb::PowerJob) -> Option<Result<(), PowerJobError>> {
    match job.state() {
        State::Success => Some(Ok(())),
        State::Failed => {
            Some(Err(PowerJobError::failed(format!("power job failed: {}", job.state_reason))))
        }
        State::Cancelled => Some(Err(PowerJobError::failed("the power job was cancelled"))),
        State::Unspecified | State::Pending | State::Running => None,
    }
}

/// Repeats `call` with backoff until it succeeds or fails for good.
async fn retry<T, F>(call: impl Fn() -> F) -> Result<T, PowerJobError>
where
    F: Future<Output = Result<T, Status>>,
{
    let mut backoff = RETRY_BACKOFF;
    loop {
        match call().await {
            Ok(response) => return Ok(response),
            Err(status) if is_final(status.code()) => {
                return Err(PowerJobError::failed(status.message()));
            }
            Err(status) => {
                let (code, reason) = (status.code(), status.message());
                tracing::debug!(?code, reason, "power or hardware service failed");
                backoff.wait().await;
            }
        }
    }
}

/// A power operation.
pub(super) fn power(power: Power) -> pb::Operation {
    pb::Operation { what: Some(What::Power(power.into())), ..Default::default() }
}

/// Sets the device and the mode of the next boot.
pub(super) fn boot_once(device: boot::Device, mode: boot::Mode) -> pb::Operation {
    let boot = Boot { device: device.into(), mode: mode.into(), ..Boot::default() };
    pb::Operation { what: Some(What::Boot(boot)), ..Default::default() }
}

/// Shows the image at `image_url` as a CD.
pub(super) fn insert_cd(image_url: String) -> pb::Operation {
    let media = InsertMedia { image_url, drive: Drive::Cd.into() };
    pb::Operation { what: Some(What::InsertMedia(media)), ..Default::default() }
}

/// Takes the CD out.
pub(super) fn eject_cd() -> pb::Operation {
    pb::Operation { what: Some(What::EjectMedia(Drive::Cd.into())), ..Default::default() }
}

/// Sets the boot device, for the next boot or for all if `persistent`.
pub(super) fn boot(device: boot::Device, persistent: bool) -> pb::Operation {
    let boot = Boot { device: device.into(), persistent, ..Boot::default() };
    pb::Operation { what: Some(What::Boot(boot)), ..Default::default() }
}
