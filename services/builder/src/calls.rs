//! The calls of a builder: leases, reports and ends of builds.

use std::time::Duration;

use runtime::retry::{Backoff, is_final};
use runtime::{Channel, Clock, call};
use tinwright::BuildId;
use tinwright::image::v1::finish_build_request::Outcome;
use tinwright::image::v1::{
    Build, FinishBuildRequest, LeaseBuildRequest, LeaseBuildResponse, ReportBuildRequest,
    ReportBuildResponse,
};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::progress::{Progress, Report};
use crate::settings::Timing;

/// Timeout of LeaseBuild, which the server holds for 50 s.
const LEASE_TIMEOUT: Duration = Duration::from_secs(70);
/// Timeout of the other calls.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);
/// Reason of a status that asks for content again.
const BLOB_MISSING: &str = "BLOB_MISSING";

/// The builder service, as one slot calls it.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    pub(crate) channel: Channel,
    /// Name of the slot in leases.
    pub(crate) holder: String,
    pub(crate) timing: Timing,
}

/// A leased build.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    pub(crate) id: BuildId,
    pub(crate) attempt: u32,
    pub(crate) build: Build,
    /// Maximum size of the content in bytes.
    pub(crate) max_size_bytes: u64,
}

/// Reason why a lease is not renewed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Lost {
    /// The server says so.
    #[error("{}: {}", .0.code(), .0.message())]
    Refused(Status),
    /// The server was away for too long: another builder may have the build.
    #[error("no contact to the server for {0:?}: {1}")]
    NoContact(Duration, String),
}

/// Result of FinishBuild.
#[derive(Debug)]
pub(crate) enum Finish {
    /// The build has ended.
    Accepted,
    /// Content is not stored.
    BlobMissing(Status),
    /// The build is not this builder's any more.
    Lost(Lost),
    /// The server does not accept the result.
    Refused(Status),
}

impl Service {
    /// Returns the next build. Waits until there is one.
    pub(crate) async fn lease(&self) -> Lease {
        let mut backoff = self.backoff();
        loop {
            let request = LeaseBuildRequest { holder: self.holder.clone() };
            match within(LEASE_TIMEOUT, call(self.channel.clone(), request)).await {
                Ok(response) => {
                    backoff.reset();
                    match leased(response) {
                        Ok(Some(lease)) => return lease,
                        Ok(None) => {}
                        Err(status) => self.log_and_wait(&mut backoff, &status).await,
                    }
                }
                Err(status) => self.log_and_wait(&mut backoff, &status).await,
            }
        }
    }

    /// Reports the progress of the build until the lease is lost: in intervals, and at each new
    /// step.
    pub(crate) async fn renew(&self, lease: &Lease, progress: &Progress) -> Lost {
        let mut steps = progress.subscribe();
        let mut backoff = self.backoff();
        let clock = Clock::system();
        let mut contact = clock.monotonic();
        loop {
            let report = *steps.borrow_and_update();
            let delay = match self.report(lease, report, "").await {
                Ok(_) => {
                    backoff.reset();
                    contact = clock.monotonic();
                    self.timing.renewal
                }
                Err(status) if is_final(status.code()) => return Lost::Refused(status),
                Err(status) if clock.monotonic() - contact >= self.timing.contact => {
                    return Lost::NoContact(self.timing.contact, status.message().to_owned());
                }
                Err(_) => backoff.next_delay(),
            };
            // An early end of the wait is a new step. The sender lives as long as the build.
            let _step = tokio::time::timeout(delay, steps.changed()).await;
        }
    }

    /// Has the server store the pinned reference of the build's source. Repeats the call until the
    /// server answers.
    pub(crate) async fn pin(
        &self,
        lease: &Lease,
        report: Report,
        reference: &str,
    ) -> Result<(), Status> {
        let mut backoff = self.backoff();
        loop {
            match self.report(lease, report, reference).await {
                Ok(_) => return Ok(()),
                Err(status) if is_final(status.code()) => return Err(status),
                Err(status) => self.log_and_wait(&mut backoff, &status).await,
            }
        }
    }

    /// Ends the build. Repeats the call until the server answers.
    pub(crate) async fn finish(&self, lease: &Lease, outcome: Outcome) -> Finish {
        let request = FinishBuildRequest {
            build_id: lease.build.id.clone(),
            holder: self.holder.clone(),
            attempt: lease.attempt,
            outcome: Some(outcome),
        };
        let mut backoff = self.backoff();
        loop {
            match within(CALL_TIMEOUT, call(self.channel.clone(), request.clone())).await {
                Ok(_) => return Finish::Accepted,
                Err(status) if has_reason(&status, BLOB_MISSING) => {
                    return Finish::BlobMissing(status);
                }
                Err(status) if is_lost(&status) => return Finish::Lost(Lost::Refused(status)),
                Err(status) if is_final(status.code()) => return Finish::Refused(status),
                Err(status) => self.log_and_wait(&mut backoff, &status).await,
            }
        }
    }

    async fn report(
        &self,
        lease: &Lease,
        report: Report,
        pinned_reference: &str,
    ) -> Result<ReportBuildResponse, Status> {
        let request = ReportBuildRequest {
            build_id: lease.build.id.clone(),
            holder: self.holder.clone(),
            attempt: lease.attempt,
            step: report.step.name().to_owned(),
            progress: Some(report.bytes),
            pinned_reference: pinned_reference.to_owned(),
        };
        within(CALL_TIMEOUT, call(self.channel.clone(), request)).await
    }

    fn backoff(&self) -> Backoff {
        let (first, max) = self.timing.retry_delays;
        Backoff::new(first, max)
    }

    /// Waits after a failure. The first one of several in a row is a warning.
    async fn log_and_wait(&self, backoff: &mut Backoff, status: &Status) {
        let code = status.code();
        let reason = status.message();
        match backoff.failures() {
            0 => tracing::warn!(%code, reason, "builder service: call failed"),
            failures => tracing::debug!(%code, reason, failures, "builder service: call failed"),
        }
        backoff.wait_after(status).await;
    }
}

/// Returns the response to `call`, or an error after `timeout`.
async fn within<T>(
    timeout: Duration,
    call: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    let late = |_| Status::deadline_exceeded("no response in time");
    tokio::time::timeout(timeout, call).await.map_err(late)?
}

/// Returns the lease in `response`, if it has one.
fn leased(response: LeaseBuildResponse) -> Result<Option<Lease>, Status> {
    let LeaseBuildResponse { build, max_size_bytes } = response;
    let Some(build) = build else { return Ok(None) };
    let invalid = |field: &str| Status::internal(format!("LeaseBuild: build.{field}: invalid"));
    let id = build.id.parse().map_err(|_| invalid("id"))?;
    let attempt = build.lease.as_ref().ok_or_else(|| invalid("lease"))?.attempt;
    Ok(Some(Lease { id, attempt, build, max_size_bytes }))
}

/// True if another attempt has begun, or the build has ended or is gone.
fn is_lost(status: &Status) -> bool {
    let reasons = ["LEASE_LOST", "BUILD_ENDED"];
    status.code() == Code::NotFound || reasons.iter().any(|reason| has_reason(status, reason))
}

fn has_reason(status: &Status, reason: &str) -> bool {
    status.code() == Code::FailedPrecondition
        && status.get_details_error_info().is_some_and(|info| info.reason == reason)
}

#[cfg(test)]
mod tests {
    use tinwright::image::v1::BuildLease;
    use tokio::time::Instant;

    use super::*;

    const BUILD: &str = "0198a1b2-0000-7000-8000-000000000001";

    fn build(id: &str, lease: Option<BuildLease>) -> LeaseBuildResponse {
        let build = Some(Build { id: id.into(), lease, ..Build::default() });
        LeaseBuildResponse { build, max_size_bytes: 1 }
    }

    #[test]
    fn a_lease_without_an_id_or_an_attempt_is_refused() {
        let lease = BuildLease { attempt: 3, ..BuildLease::default() };
        assert_eq!(leased(build(BUILD, Some(lease.clone()))).unwrap().unwrap().attempt, 3);
        assert!(leased(LeaseBuildResponse::default()).unwrap().is_none());
        for invalid in [build(BUILD, None), build("../a", Some(lease))] {
            assert_eq!(leased(invalid).unwrap_err().code(), Code::Internal);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_build_is_given_up_when_the_server_is_away_for_too_long() {
        let (channel, timing) = (Channel::unconnected(), Timing::default());
        let service = Service { channel, holder: "builder".into(), timing };
        let lease = leased(build(BUILD, Some(BuildLease::default()))).unwrap().unwrap();
        let began = Instant::now();
        let lost = service.renew(&lease, &Progress::new()).await;
        assert_eq!(lost.to_string(), "no contact to the server for 600s: the server stops");
        let (least, most) = (timing.contact, timing.contact + timing.retry_delays.1);
        assert!((least..=most).contains(&began.elapsed()), "{:?}", began.elapsed());
    }
}
