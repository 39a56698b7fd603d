//! The calls of builders.

use std::time::Duration;

use store::records;
use tinwright::BuildId;
use tinwright::check;
use tinwright::image::v1 as pb;
use tinwright::image::v1::builder_service_server::BuilderService;
use tinwright::image::v1::finish_build_request::Outcome;
use tinwright::status::Violations;
use tonic::{Request, Response, Status};

use super::Api;
use crate::builds::ReportedProgress;
use crate::error::Error;
use crate::lifecycle::Attempt;

/// Maximum time for which a request for a build is held.
const HOLD_TIMEOUT: Duration = Duration::from_secs(50);
/// Maximum length of names and steps in bytes.
const MAX_TEXT_BYTES: usize = 128;
/// Maximum length of a pinned reference in bytes.
const MAX_REFERENCE_BYTES: usize = 1024;

impl BuilderService for Api {
    async fn lease_build(
        &self,
        request: Request<pb::LeaseBuildRequest>,
    ) -> Result<Response<pb::LeaseBuildResponse>, Status> {
        let pb::LeaseBuildRequest { holder } = request.into_inner();
        check_holder(&holder)?;
        self.blobs.require_store()?;
        let lease = self.builds.lease(&self.build_mirror, &holder);
        let lease = self.stop.run_until_cancelled(tokio::time::timeout(HOLD_TIMEOUT, lease));
        let build = match lease.await {
            Some(Ok(leased)) => Some(leased?),
            Some(Err(_)) | None => None,
        };
        let max_size_bytes = self.max_size_bytes;
        Ok(Response::new(pb::LeaseBuildResponse { build, max_size_bytes }))
    }

    async fn report_build(
        &self,
        request: Request<pb::ReportBuildRequest>,
    ) -> Result<Response<pb::ReportBuildResponse>, Status> {
        let pb::ReportBuildRequest { build_id, holder, attempt, step, progress, pinned_reference } =
            request.into_inner();
        let id: BuildId = Violations::parse("build_id", &build_id)?;
        let length = check::length(&step, MAX_TEXT_BYTES);
        length.map_err(|error| Violations::single("step", error))?;
        let length = check::length(&pinned_reference, MAX_REFERENCE_BYTES);
        length.map_err(|error| Violations::single("pinned_reference", error))?;
        let attempt = Attempt { holder, number: attempt };
        let progress = ReportedProgress { step, bytes: progress, pinned_reference };
        self.builds.report(id, &attempt, &progress).await.map_err(gone(id))?;
        let lease_duration = prost_types::Duration::try_from(self.builds.lease_duration()).ok();
        Ok(Response::new(pb::ReportBuildResponse { lease_duration }))
    }

    #[tracing::instrument(skip_all, fields(build.id = request.get_ref().build_id))]
    async fn finish_build(
        &self,
        request: Request<pb::FinishBuildRequest>,
    ) -> Result<Response<pb::FinishBuildResponse>, Status> {
        let pb::FinishBuildRequest { build_id, holder, attempt, outcome } = request.into_inner();
        let id: BuildId = Violations::parse("build_id", &build_id)?;
        let attempt = Attempt { holder, number: attempt };
        let finished = match Violations::require("outcome", outcome)? {
            Outcome::Content(content) => self.publisher.finish(id, &attempt, &content).await,
            Outcome::Failure(failure) => self.builds.fail(id, &attempt, &failure).await,
        };
        finished.map_err(gone(id))?;
        Ok(Response::new(pb::FinishBuildResponse {}))
    }
}

fn check_holder(holder: &str) -> Result<(), Violations> {
    let is_valid = !holder.is_empty() && !holder.contains(char::is_control);
    match is_valid && holder.len() <= MAX_TEXT_BYTES {
        true => Ok(()),
        false => Err(Violations::single("holder", "is not a name of at most 128 bytes")),
    }
}

/// Returns the function that says of a build without a record that it has ended: it was deleted
/// with its image.
fn gone(id: BuildId) -> impl Fn(Error) -> Error {
    move |error| {
        let gone = matches!(
            error,
            Error::Records(records::Error::Missing { noun: "build" | "image", .. })
        );
        if !gone {
            return error;
        }
        let text = format!("build {id} has ended: it was deleted");
        Error::precondition("BUILD_ENDED", "build", &id.to_string(), text)
    }
}
