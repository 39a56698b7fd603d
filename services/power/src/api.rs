//! The gRPC service of BMCs and power jobs.

use std::sync::Arc;

use anyhow::Context as _;
use runtime::{Caller, access};
use store::hosted::{self, HostedService, RecordVisitor};
use store::mirror::Mirror;
use store::records::{Kind, Selector};
use store::serving;
use tinwright::Stored as _;
use tinwright::hardware::v1::get_hardware_request::By;
use tinwright::power::v1 as pb;
use tinwright::power::v1::get_power_state_response::PowerState;
use tinwright::power::v1::power_service_server::{PowerService, PowerServiceServer};
use tinwright::secret::Secrets;
use tinwright::status::Violations;
use tinwright::{BmcId, HardwareId, InstanceId, PowerJobId, TenantName};
use tokio_util::sync::CancellationToken;
use tonic::service::RoutesBuilder;
use tonic::{Request, Response, Status};

use crate::Error;
use crate::bmc_client;
use crate::bmcs::{Login, requested};
use crate::enrolment::Enrolment;
use crate::hardware_directory::HardwareDirectory;
use crate::jobs::Jobs;
use crate::plan::{self, Timing};
use crate::reconcile;
use crate::redfish::System;
use crate::shared_readings::SharedReadings;
use crate::stored::{Bmc, Job};
use crate::tenant_view;

/// The call that releases a job that was created held back.
const RELEASE_CALL: &str = "/tinwright.power.v1.PowerService/ReleasePowerJob";

/// A reading of a BMC.
type Reading = Arc<Result<bmc_client::Reading, bmc_client::Error>>;

/// Serves BMCs and [`Jobs`] over gRPC, and carries the jobs out.
#[derive(Clone, Debug)]
pub struct Api {
    jobs: Jobs,
    bmc_mirror: Mirror<Bmc>,
    job_mirror: Mirror<Job>,
    /// By the id and the revision of the BMC's record.
    readings: SharedReadings<(String, i64), Reading>,
    timing: Timing,
    /// None if this process has no client of the hardware service.
    enrolment: Option<Enrolment>,
    /// The same.
    hardware: Option<HardwareDirectory>,
    stop: CancellationToken,
}

impl Api {
    /// Serves `jobs` and their BMCs, and carries out the jobs with `timing`. Watches end at `stop`.
    pub fn new(jobs: Jobs, timing: Timing, stop: CancellationToken) -> Self {
        let bmc_mirror = Mirror::new(jobs.bmcs.records.clone());
        let job_mirror = Mirror::new(jobs.records.clone());
        let readings = SharedReadings::new(stop.clone());
        let (enrolment, hardware) = (None, None);
        Self { jobs, bmc_mirror, job_mirror, readings, timing, enrolment, hardware, stop }
    }

    /// Sets the service to which inventories of BMCs go, and in which machines are enrolled.
    pub fn with_hardware(mut self, hardware: HardwareDirectory) -> Self {
        self.jobs.bmcs.set_hardware(hardware.clone());
        let enrolment = Some(Enrolment::new(self.jobs.clone(), hardware.clone()));
        Self { enrolment, hardware: Some(hardware), ..self }
    }

    fn enrolment(&self) -> Result<&Enrolment, Error> {
        self.enrolment.as_ref().ok_or(Error::NoHardware)
    }

    /// Returns the BMC of the machine `hardware`. Fails with the machine's name if it has none.
    async fn bmc_of(&self, hardware: &str) -> Result<pb::Bmc, Error> {
        self.with_name(self.jobs.bmcs.get_by_hardware(hardware).await).await
    }

    /// Replaces the id of a machine without a BMC by its name in the error of `result`, if it has
    /// one and the hardware service says it.
    async fn with_name<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        let (Err(Error::NoBmc { hardware, .. }), Some(directory)) = (&result, &self.hardware)
        else {
            return result;
        };
        let found = directory.find(By::Id(hardware.clone())).await.ok().flatten();
        match found.map(|machine| machine.name).filter(|name| !name.is_empty()) {
            Some(name) => Err(Error::NoBmc { hardware: hardware.clone(), name }),
            None => result,
        }
    }

    /// Reads the system of the machine of `bmc`. Calls that come in quick succession share a
    /// reading.
    async fn read_system(&self, bmc: pb::Bmc) -> Result<System, Status> {
        let bmcs = &self.jobs.bmcs;
        let target = bmcs.target(&bmc).await?;
        let read = || {
            let target = target.clone();
            async { Arc::new(bmc_client::read_system(target).await) }
        };
        let reading = self.readings.get(&(bmc.id.clone(), bmc.revision), read).await;
        let reading = reading.ok_or_else(|| Status::internal("the BMC could not be read"))?;
        let bmc_client::Reading { system, learnt } = (*reading).as_ref()?;
        bmcs.pin(bmc, learnt).await?;
        Ok(system.clone())
    }

    /// Returns the job `id`, if a caller limited to `tenant` may see it.
    async fn job_of(
        &self,
        id: PowerJobId,
        tenant: Option<&TenantName>,
    ) -> Result<pb::PowerJob, Status> {
        let job = self.jobs.get(id).await?;
        match job.is_visible_to(tenant) {
            true => Ok(job),
            false => Err(Selector::Id(id.to_string()).missing(Job::NOUN).into()),
        }
    }
}

impl HostedService for Api {
    const NAME: &'static str = "power";

    fn add_routes(&self, routes: &mut RoutesBuilder) {
        routes.add_service(PowerServiceServer::new(self.clone()));
    }

    fn visit(&self, visitor: &mut impl RecordVisitor) {
        visitor.mirror(&self.bmc_mirror);
        visitor.bounded(&self.job_mirror);
        visitor.records(&self.jobs.bmcs.passwords);
        visitor.records(&self.jobs.queues);
    }

    /// Follows the records and carries out jobs. A running job continues at the next start.
    async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        let followed = hosted::follow(&self, &stop);
        let Self { jobs, job_mirror, readings, timing, .. } = self;
        let sessions = jobs.bmcs.sessions.clone();
        tokio::join!(followed, reconcile::run(jobs, job_mirror, timing, stop));
        readings.drain().await;
        sessions.drain().await;
        Ok(())
    }

    /// Encrypts the passwords of BMCs, too, whose key is another one.
    async fn reseal(&self) -> anyhow::Result<usize> {
        let passwords = self.jobs.bmcs.reseal().await.context("the passwords of BMCs")?;
        Ok(hosted::reseal(self).await? + passwords)
    }
}

impl PowerService for Api {
    async fn create_bmc(
        &self,
        request: Request<pb::CreateBmcRequest>,
    ) -> Result<Response<pb::CreateBmcResponse>, Status> {
        let caller = access::request_scope(&request);
        let pb::CreateBmcRequest { bmc, request_id, skip_login, accept_other_machine } =
            request.into_inner();
        let bmc = requested(Violations::require("bmc", bmc)?);
        // The digest of a request is stored: it must not allow guessing the password.
        let body = pb::Bmc { password: String::new(), ..bmc.clone() };
        let request = serving::idempotent(&caller, &request_id, &body)?;
        let bmc =
            self.jobs.bmcs.create(bmc, login(skip_login, accept_other_machine), request).await?;
        Ok(Response::new(pb::CreateBmcResponse { bmc: Some(bmc) }))
    }

    async fn get_bmc(
        &self,
        request: Request<pb::GetBmcRequest>,
    ) -> Result<Response<pb::GetBmcResponse>, Status> {
        use pb::get_bmc_request::By;
        let bmcs = &self.jobs.bmcs;
        let bmc = match request.into_inner().by {
            None => {
                return Err(Violations::single("by", "is missing: set id or hardware_id").into());
            }
            Some(By::Id(id)) => bmcs.get(Violations::parse("id", &id)?).await?,
            Some(By::HardwareId(id)) => self.bmc_of(&hardware_id(&id)?).await?,
        };
        Ok(Response::new(pb::GetBmcResponse { bmc: Some(bmc) }))
    }

    async fn list_bmcs(
        &self,
        request: Request<pb::ListBmcsRequest>,
    ) -> Result<Response<pb::ListBmcsResponse>, Status> {
        nouns::list(&self.bmc_mirror, request).await
    }

    async fn update_bmc(
        &self,
        request: Request<pb::UpdateBmcRequest>,
    ) -> Result<Response<pb::UpdateBmcResponse>, Status> {
        let pb::UpdateBmcRequest { bmc, update_mask, skip_login, accept_other_machine } =
            request.into_inner();
        let mut update = Violations::require("bmc", bmc)?;
        update.id = Violations::parse::<BmcId>("bmc.id", &update.id)?.to_string();
        let paths = update_mask.unwrap_or_default().paths;
        let login = login(skip_login, accept_other_machine);
        let bmc = self.jobs.bmcs.update(update, &paths, login).await?;
        Ok(Response::new(pb::UpdateBmcResponse { bmc: Some(bmc) }))
    }

    #[tracing::instrument(skip_all, fields(bmc.id = request.get_ref().id))]
    async fn delete_bmc(
        &self,
        request: Request<pb::DeleteBmcRequest>,
    ) -> Result<Response<pb::DeleteBmcResponse>, Status> {
        let pb::DeleteBmcRequest { id, revision } = request.into_inner();
        let id: BmcId = Violations::parse("id", &id)?;
        self.jobs.bmcs.delete(id, revision).await?;
        Ok(Response::new(pb::DeleteBmcResponse {}))
    }

    type WatchBmcsStream = serving::Events<pb::WatchBmcsResponse>;

    async fn watch_bmcs(
        &self,
        request: Request<pb::WatchBmcsRequest>,
    ) -> Result<Response<Self::WatchBmcsStream>, Status> {
        nouns::watch(&self.bmc_mirror, &self.stop, request)
    }

    #[tracing::instrument(skip_all, fields(hardware.id = request.get_ref().hardware_id))]
    async fn get_power_state(
        &self,
        request: Request<pb::GetPowerStateRequest>,
    ) -> Result<Response<pb::GetPowerStateResponse>, Status> {
        let hardware = hardware_id(&request.get_ref().hardware_id)?;
        let bmc = self.bmc_of(&hardware).await?;
        let system = self.read_system(bmc).await?;
        let power_state = PowerState::from(system.power).into();
        let boot = Some(plan::boot::to_proto(&system.boot));
        Ok(Response::new(pb::GetPowerStateResponse { power_state, boot }))
    }

    #[tracing::instrument(skip_all, fields(hardware.id = request.get_ref().hardware_id))]
    async fn read_bmc_inventory(
        &self,
        request: Request<pb::ReadBmcInventoryRequest>,
    ) -> Result<Response<pb::ReadBmcInventoryResponse>, Status> {
        let hardware = hardware_id(&request.get_ref().hardware_id)?;
        let enrolment = self.enrolment()?.clone();
        let bmc = self.bmc_of(&hardware).await?;
        // It ends with a logout even if the caller goes away.
        let read = async move { Ok(enrolment.read_inventory(bmc).await?) };
        let (power, inventory) = serving::to_the_end(read).await?;
        Ok(Response::new(pb::ReadBmcInventoryResponse {
            inventory: Some(inventory),
            power_state: PowerState::from(power).into(),
        }))
    }

    async fn enrol_bmc(
        &self,
        request: Request<pb::EnrolBmcRequest>,
    ) -> Result<Response<pb::EnrolBmcResponse>, Status> {
        let (enrolment, request) = (self.enrolment()?.clone(), request.into_inner());
        let enrol = async move { Ok(Box::pin(enrolment.enrol(request)).await?) };
        let mut enrolled = serving::to_the_end(enrol).await?;
        enrolled.discovery = enrolled.discovery.map(Secrets::without_secrets);
        Ok(Response::new(enrolled))
    }

    #[tracing::instrument(skip_all, fields(hardware.id = request.get_ref().hardware_id))]
    async fn create_power_job(
        &self,
        request: Request<pb::CreatePowerJobRequest>,
    ) -> Result<Response<pb::CreatePowerJobResponse>, Status> {
        check_hold(&request)?;
        let caller = access::request_scope(&request);
        let tenant = access::tenant(&request).cloned();
        let request = request.into_inner();
        let idempotent = serving::idempotent(&caller, &request.request_id, &request)?;
        let job = new_job(request)?;
        let created = self.jobs.create_for(tenant.as_ref(), job, idempotent).await;
        let power_job = Some(show(tenant.as_ref())(self.with_name(created).await?));
        Ok(Response::new(pb::CreatePowerJobResponse { power_job }))
    }

    async fn get_power_job(
        &self,
        request: Request<pb::GetPowerJobRequest>,
    ) -> Result<Response<pb::GetPowerJobResponse>, Status> {
        let tenant = access::tenant(&request);
        let job = self.job_of(Violations::parse("id", &request.get_ref().id)?, tenant).await?;
        Ok(Response::new(pb::GetPowerJobResponse { power_job: Some(show(tenant)(job)) }))
    }

    async fn list_power_jobs(
        &self,
        request: Request<pb::ListPowerJobsRequest>,
    ) -> Result<Response<pb::ListPowerJobsResponse>, Status> {
        nouns::list(&self.job_mirror, request).await
    }

    #[tracing::instrument(skip_all, fields(job.id = request.get_ref().id))]
    async fn release_power_job(
        &self,
        request: Request<pb::ReleasePowerJobRequest>,
    ) -> Result<Response<pb::ReleasePowerJobResponse>, Status> {
        let job = self.jobs.release_held(Violations::parse("id", &request.get_ref().id)?).await?;
        let power_job = Some(job.without_secrets());
        Ok(Response::new(pb::ReleasePowerJobResponse { power_job }))
    }

    #[tracing::instrument(skip_all, fields(job.id = request.get_ref().id))]
    async fn cancel_power_job(
        &self,
        request: Request<pb::CancelPowerJobRequest>,
    ) -> Result<Response<pb::CancelPowerJobResponse>, Status> {
        let tenant = access::tenant(&request);
        let id: PowerJobId = Violations::parse("id", &request.get_ref().id)?;
        if let Some(tenant) = tenant
            && self.job_of(id, Some(tenant)).await?.creator_tenant != tenant.as_str()
        {
            return Err(Status::permission_denied(format!("power job {id} belongs to the site")));
        }
        let power_job = Some(show(tenant)(self.jobs.cancel(id).await?));
        Ok(Response::new(pb::CancelPowerJobResponse { power_job }))
    }

    type WatchPowerJobsStream = serving::Events<pb::WatchPowerJobsResponse>;

    async fn watch_power_jobs(
        &self,
        request: Request<pb::WatchPowerJobsRequest>,
    ) -> Result<Response<Self::WatchPowerJobsStream>, Status> {
        nouns::watch(&self.job_mirror, &self.stop, request)
    }
}

fn login(skip: bool, accept_other_machine: bool) -> Login {
    match (skip, accept_other_machine) {
        (true, _) => Login::Skip,
        (false, true) => Login::AcceptMachine,
        (false, false) => Login::Try,
    }
}

/// Returns the job that `request` orders.
fn new_job(request: pb::CreatePowerJobRequest) -> Result<pb::PowerJob, Violations> {
    let pb::CreatePowerJobRequest {
        hardware_id,
        operations,
        request_id: _,
        labels,
        instance_id,
        held,
    } = request;
    let hardware_id = self::hardware_id(&hardware_id)?;
    let instance_id = match instance_id.as_str() {
        "" => instance_id,
        id => Violations::parse::<InstanceId>("instance_id", id)?.to_string(),
    };
    let blank = pb::PowerJob::default();
    Ok(pb::PowerJob { hardware_id, operations, labels, instance_id, held, ..blank })
}

/// Passes unless the job is to be held back for a caller that cannot release it.
fn check_hold(request: &Request<pb::CreatePowerJobRequest>) -> Result<(), Status> {
    let may_release = access::admits(RELEASE_CALL, request.extensions().get::<Caller>());
    if request.get_ref().held && !may_release {
        return Err(Status::permission_denied("held is for services: others cannot release it"));
    }
    Ok(())
}

/// Returns what shows a job, without its secrets, to a caller who is limited to the objects of `tenant`, or to others.
fn show(tenant: Option<&TenantName>) -> fn(pb::PowerJob) -> pb::PowerJob {
    if tenant.is_some() { tenant_view::view } else { Secrets::without_secrets }
}

/// Returns a hardware id in normal form.
fn hardware_id(text: &str) -> Result<String, Violations> {
    Ok(Violations::parse::<HardwareId>("hardware_id", text)?.to_string())
}
