//! The gRPC service of BMCs and power jobs.

use std::pin::Pin;

use futures_util::Stream;
use store::mirror::Mirror;
use store::records::requests::IdempotentRequest;
use store::records::{self, CheckReport};
use store::serving;
use tinwright::power::v1 as pb;
use tinwright::power::v1::power_service_server::{PowerService, PowerServiceServer};
use tinwright::status::Violations;
use tinwright::{BmcId, HardwareId, Id, check, id};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use crate::bmcs::By;
use crate::jobs::Jobs;
use crate::plan::{self, Timing};
use crate::redfish::{Power, Redfish};
use crate::stored::{Bmc, Job};
use crate::{Error, reconcile};

/// Serves BMCs and [`Jobs`] over gRPC, and carries the jobs out.
#[derive(Clone, Debug)]
pub struct Api {
    jobs: Jobs,
    bmc_mirror: Mirror<Bmc>,
    job_mirror: Mirror<Job>,
    pace: Timing,
    stop: CancellationToken,
}

impl Api {
    /// Serves `jobs` and their BMCs, and carries out the jobs at `pace`. Watches end at `stop`.
    pub fn new(jobs: Jobs, pace: Timing, stop: CancellationToken) -> Self {
        let bmc_mirror = Mirror::new(jobs.bmcs().records().clone());
        let job_mirror = Mirror::new(jobs.records().clone());
        Self { jobs, bmc_mirror, job_mirror, pace, stop }
    }

    /// Converts it into a service for a tonic router.
    pub fn into_service(self) -> PowerServiceServer<Self> {
        PowerServiceServer::new(self)
    }

    /// Resolves once watches can be served.
    pub async fn ready(&self) {
        tokio::join!(self.bmc_mirror.ready(), self.job_mirror.ready());
    }

    /// Checks that records and indexes agree; with `repair`, corrects the indexes.
    pub async fn check(&self, mend: bool) -> Result<CheckReport, records::Error> {
        let bmcs = self.jobs.bmcs().records().check(mend).await?;
        Ok(bmcs.and(self.jobs.records().check(mend).await?))
    }

    /// Follows the records and carries out jobs until `stop`, which must come after the end of the watches. A running job
    /// continues at the next start.
    pub async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        let (jobs, mirror, pace) = (self.jobs, self.job_mirror, self.pace);
        let mut tasks = JoinSet::new();
        tasks.spawn(serving::run(self.bmc_mirror, stop.clone()));
        let (follow, end) = (mirror.clone(), stop.clone());
        tasks.spawn(async move {
            follow.run(end).await;
            Ok(())
        });
        let (sweeping, end) = (jobs.clone(), stop.clone());
        tasks.spawn(async move {
            reconcile::sweep(sweeping, end).await;
            Ok(())
        });
        tasks.spawn(async move {
            reconcile::run(jobs, mirror, pace, stop).await;
            Ok(())
        });
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        Ok(())
    }
}

#[tonic::async_trait]
impl PowerService for Api {
    #[tracing::instrument(skip_all)]
    async fn create_bmc(
        &self,
        request: Request<pb::CreateBmcRequest>,
    ) -> Result<Response<pb::CreateBmcResponse>, Status> {
        let pb::CreateBmcRequest { bmc, request_id } = request.into_inner();
        let bmc = given(bmc)?;
        // The digest of a request is stored: it must not allow guessing the password.
        let shown = pb::Bmc { password: String::new(), ..bmc.clone() };
        let asked = asked(&request_id, &shown)?;
        let bmc = self.jobs.bmcs().create(bmc, asked).await?;
        Ok(Response::new(pb::CreateBmcResponse { bmc: Some(bmc) }))
    }

    #[tracing::instrument(skip_all)]
    async fn get_bmc(
        &self,
        request: Request<pb::GetBmcRequest>,
    ) -> Result<Response<pb::GetBmcResponse>, Status> {
        use pb::get_bmc_request::By as Given;
        let by = match request.into_inner().by {
            None => {
                return Err(Violations::single("by", "is missing: give id or hardware_id").into());
            }
            Some(Given::Id(text)) => By::Id(parsed("id", &text)?),
            Some(Given::HardwareId(text)) => By::Hardware(parsed("hardware_id", &text)?),
        };
        let bmc = self.jobs.bmcs().get(by).await?;
        Ok(Response::new(pb::GetBmcResponse { bmc: Some(bmc) }))
    }

    #[tracing::instrument(skip_all)]
    async fn list_bmcs(
        &self,
        request: Request<pb::ListBmcsRequest>,
    ) -> Result<Response<pb::ListBmcsResponse>, Status> {
        let pb::ListBmcsRequest { page_size, page_token, labels } = request.into_inner();
        let size = serving::page_size(page_size)?;
        let listing = self.jobs.bmcs().list(&page_token, size, &labels).await?;
        let next_page_token = listing.next.unwrap_or_default();
        Ok(Response::new(pb::ListBmcsResponse { bmcs: listing.records, next_page_token }))
    }

    #[tracing::instrument(skip_all)]
    async fn update_bmc(
        &self,
        request: Request<pb::UpdateBmcRequest>,
    ) -> Result<Response<pb::UpdateBmcResponse>, Status> {
        let pb::UpdateBmcRequest { bmc, update_mask } = request.into_inner();
        let mut update = given(bmc)?;
        update.id = parsed::<id::Bmc>("bmc.id", &update.id)?.to_string();
        let paths = update_mask.unwrap_or_default().paths;
        let bmc = self.jobs.bmcs().update(update, &paths).await?;
        Ok(Response::new(pb::UpdateBmcResponse { bmc: Some(bmc) }))
    }

    #[tracing::instrument(skip_all, fields(bmc.id = request.get_ref().id))]
    async fn delete_bmc(
        &self,
        request: Request<pb::DeleteBmcRequest>,
    ) -> Result<Response<pb::DeleteBmcResponse>, Status> {
        let pb::DeleteBmcRequest { id, revision } = request.into_inner();
        let id: BmcId = parsed("id", &id)?;
        self.jobs.bmcs().delete(id, revision).await?;
        Ok(Response::new(pb::DeleteBmcResponse {}))
    }

    type WatchBmcsStream =
        Pin<Box<dyn Stream<Item = Result<pb::WatchBmcsResponse, Status>> + Send>>;

    #[tracing::instrument(skip_all)]
    async fn watch_bmcs(
        &self,
        request: Request<pb::WatchBmcsRequest>,
    ) -> Result<Response<Self::WatchBmcsStream>, Status> {
        let watcher = match request.get_ref().id.as_str() {
            "" => self.bmc_mirror.watch(),
            one => self.bmc_mirror.watch_one(&parsed::<id::Bmc>("id", one)?.to_string()),
        };
        let told = serving::watch(watcher, self.stop.clone(), |bmc| bmc);
        Ok(Response::new(Box::pin(told)))
    }

    #[tracing::instrument(skip_all, fields(hardware.id = request.get_ref().hardware_id))]
    async fn get_power_state(
        &self,
        request: Request<pb::GetPowerStateRequest>,
    ) -> Result<Response<pb::GetPowerStateResponse>, Status> {
        use pb::get_power_state_response::PowerState;
        let hardware: HardwareId = parsed("hardware_id", &request.get_ref().hardware_id)?;
        let bmc = self.jobs.bmcs().get(By::Hardware(hardware)).await?;
        let target = self.jobs.bmcs().target(&bmc).await?;
        let mut bmc = Redfish::new(target).map_err(Error::from)?;
        let system = bmc.system().await;
        bmc.close().await;
        let system = system.map_err(Error::from)?;
        let power_state = match system.power {
            Power::On => PowerState::On,
            Power::Off => PowerState::Off,
            Power::Changing => PowerState::Changing,
        };
        let boot = Some(plan::boot::told(&system.boot));
        Ok(Response::new(pb::GetPowerStateResponse { power_state: power_state.into(), boot }))
    }

    #[tracing::instrument(skip_all, fields(hardware.id = request.get_ref().hardware_id))]
    async fn create_power_job(
        &self,
        request: Request<pb::CreatePowerJobRequest>,
    ) -> Result<Response<pb::CreatePowerJobResponse>, Status> {
        let asked = asked(&request.get_ref().request_id, request.get_ref())?;
        let pb::CreatePowerJobRequest { hardware_id, operations, labels, request_id: _ } =
            request.into_inner();
        let hardware = parsed("hardware_id", &hardware_id)?;
        let job = self.jobs.create(hardware, operations, labels, asked).await?;
        Ok(Response::new(pb::CreatePowerJobResponse { power_job: Some(job) }))
    }

    #[tracing::instrument(skip_all)]
    async fn get_power_job(
        &self,
        request: Request<pb::GetPowerJobRequest>,
    ) -> Result<Response<pb::GetPowerJobResponse>, Status> {
        let job = self.jobs.get(parsed("id", &request.get_ref().id)?).await?;
        Ok(Response::new(pb::GetPowerJobResponse { power_job: Some(job) }))
    }

    #[tracing::instrument(skip_all)]
    async fn list_power_jobs(
        &self,
        request: Request<pb::ListPowerJobsRequest>,
    ) -> Result<Response<pb::ListPowerJobsResponse>, Status> {
        let pb::ListPowerJobsRequest { page_size, page_token, hardware_id, labels } =
            request.into_inner();
        let hardware = match hardware_id.as_str() {
            "" => None,
            one => Some(parsed("hardware_id", one)?),
        };
        let size = serving::page_size(page_size)?;
        let listing = self.jobs.list(&page_token, size, hardware, &labels).await?;
        let next_page_token = listing.next.unwrap_or_default();
        Ok(Response::new(pb::ListPowerJobsResponse {
            power_jobs: listing.records,
            next_page_token,
        }))
    }

    #[tracing::instrument(skip_all, fields(job.id = request.get_ref().id))]
    async fn cancel_power_job(
        &self,
        request: Request<pb::CancelPowerJobRequest>,
    ) -> Result<Response<pb::CancelPowerJobResponse>, Status> {
        let job = self.jobs.cancel(parsed("id", &request.get_ref().id)?).await?;
        Ok(Response::new(pb::CancelPowerJobResponse { power_job: Some(job) }))
    }

    type WatchPowerJobsStream =
        Pin<Box<dyn Stream<Item = Result<pb::WatchPowerJobsResponse, Status>> + Send>>;

    #[tracing::instrument(skip_all)]
    async fn watch_power_jobs(
        &self,
        request: Request<pb::WatchPowerJobsRequest>,
    ) -> Result<Response<Self::WatchPowerJobsStream>, Status> {
        let watcher = match request.get_ref().id.as_str() {
            "" => self.job_mirror.watch(),
            one => self.job_mirror.watch_one(&parsed::<id::PowerJob>("id", one)?.to_string()),
        };
        let told = serving::watch(watcher, self.stop.clone(), |job| job);
        Ok(Response::new(Box::pin(told)))
    }
}

fn given(bmc: Option<pb::Bmc>) -> Result<pb::Bmc, Violations> {
    bmc.ok_or_else(|| Violations::single("bmc", "is missing"))
}

fn parsed<N: id::Noun>(field: &str, text: &str) -> Result<Id<N>, Violations> {
    text.parse().map_err(|reason| Violations::single(field, reason))
}

/// Returns the idempotent request with this id and body.
fn asked(id: &str, body: &impl prost::Message) -> Result<Option<IdempotentRequest>, Violations> {
    check::length(id, 128).map_err(|reason| Violations::single("request_id", reason))?;
    Ok(IdempotentRequest::new(id, body))
}
