//! A fake of the power service: jobs are created once per request id, and end as the test says.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::{Stream, StreamExt as _};
use tinwright::PowerJobId;
use tinwright::power::v1 as pb;
use tinwright::power::v1::get_power_state_response::PowerState;
use tinwright::power::v1::operation::boot::Mode;
use tinwright::power::v1::operation::{Drive, Power as Switch, What};
use tinwright::power::v1::power_job::State;
use tinwright::power::v1::power_service_server::PowerService;
use tinwright::watch::WatchEvent;
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tonic::{Request, Response, Status};

/// Runs jobs at once.
#[derive(Clone, Debug, Default)]
pub(crate) struct FakePower {
    jobs: Arc<Mutex<BTreeMap<String, watch::Sender<pb::PowerJob>>>>,
    end: Arc<Mutex<JobEnd>>,
    away: Arc<AtomicBool>,
    power_state: Arc<Mutex<PowerState>>,
}

/// The end of jobs.
#[derive(Clone, Debug, Default)]
pub(crate) enum JobEnd {
    #[default]
    Success,
    /// Failure, with this reason.
    Failure(String),
    /// Failure if it ejects an image, else success.
    EjectFails,
    /// None by itself.
    Never,
}

type Answer<T> = Result<Response<T>, Status>;

fn closed<T>() -> Answer<T> {
    Err(Status::unimplemented("not part of the fake"))
}

impl FakePower {
    /// Sets the end of later jobs.
    pub(crate) fn set_end(&self, end: JobEnd) {
        *self.end.lock().unwrap() = end;
    }

    /// Sets the power state that the BMC of each machine reports.
    pub(crate) fn set_power_state(&self, power_state: PowerState) {
        *self.power_state.lock().unwrap() = power_state;
    }

    /// Sets whether jobs cannot be created now.
    pub(crate) fn set_away(&self, away: bool) {
        self.away.store(away, Ordering::Relaxed);
    }

    /// Ends the running jobs with success, and the later ones as soon as they are created.
    pub(crate) fn finish(&self) {
        let jobs = self.jobs.lock().unwrap();
        self.set_end(JobEnd::Success);
        for job in jobs.values() {
            job.send_modify(|job| job.set_state(State::Success));
        }
    }

    /// Completes the first operation of the running jobs.
    pub(crate) fn complete_first_operation(&self) {
        for job in self.jobs.lock().unwrap().values() {
            job.send_modify(|job| job.completed_operations = 1);
        }
    }

    /// The jobs: request ids without the workflow's id, operations and state, in the order of the request ids.
    pub(crate) fn jobs(&self) -> Vec<String> {
        let jobs = self.jobs.lock().unwrap();
        let text = |(request, job): (&String, &watch::Sender<pb::PowerJob>)| {
            let job = job.borrow();
            let operations: Vec<_> = job.operations.iter().map(operation).collect();
            let step = request.split_once('/').unwrap().1;
            format!("{step}: {} {}", operations.join(" "), job.state().as_str_name())
        };
        jobs.iter().map(text).collect()
    }

    fn by_id(&self, id: &str) -> Result<watch::Receiver<pb::PowerJob>, Status> {
        let jobs = self.jobs.lock().unwrap();
        let found = jobs.values().find(|job| job.borrow().id == id).map(watch::Sender::subscribe);
        found.ok_or_else(|| tinwright::status::not_found("power job", id))
    }

    fn new_job(&self, request: pb::CreatePowerJobRequest) -> pb::PowerJob {
        let (state, state_reason) = match &*self.end.lock().unwrap() {
            JobEnd::Success => (State::Success, String::new()),
            JobEnd::Failure(reason) => (State::Failed, reason.clone()),
            JobEnd::EjectFails => {
                let ejects = |it: &pb::Operation| matches!(it.what, Some(What::EjectMedia(_)));
                match request.operations.iter().any(ejects) {
                    true => (State::Failed, "the drive is locked".into()),
                    false => (State::Success, String::new()),
                }
            }
            JobEnd::Never => (State::Running, String::new()),
        };
        pb::PowerJob {
            id: PowerJobId::new().to_string(),
            hardware_id: request.hardware_id,
            operations: request.operations,
            state: state.into(),
            state_reason,
            ..Default::default()
        }
    }
}

fn operation(operation: &pb::Operation) -> String {
    match operation.what.as_ref().unwrap() {
        What::Power(power) => Switch::try_from(*power).unwrap().as_str_name().to_owned(),
        What::Boot(boot) => match boot.mode() {
            Mode::Unspecified => boot.device().as_str_name().to_owned(),
            mode @ (Mode::Uefi | Mode::Legacy) => {
                format!("{}/{}", boot.device().as_str_name(), mode.as_str_name())
            }
        },
        What::InsertMedia(media) => format!("INSERT {}", media.image_url),
        What::EjectMedia(drive) => {
            format!("EJECT {}", Drive::try_from(*drive).unwrap().as_str_name())
        }
    }
}

impl PowerService for FakePower {
    async fn create_power_job(
        &self,
        request: Request<pb::CreatePowerJobRequest>,
    ) -> Answer<pb::CreatePowerJobResponse> {
        if self.away.load(Ordering::Relaxed) {
            return Err(Status::unavailable("away"));
        }
        let request = request.into_inner();
        let mut jobs = self.jobs.lock().unwrap();
        let job = jobs
            .entry(request.request_id.clone())
            .or_insert_with(|| watch::Sender::new(self.new_job(request)));
        Ok(Response::new(pb::CreatePowerJobResponse { power_job: Some(job.borrow().clone()) }))
    }

    async fn get_power_job(
        &self,
        request: Request<pb::GetPowerJobRequest>,
    ) -> Answer<pb::GetPowerJobResponse> {
        let job = self.by_id(&request.get_ref().id)?.borrow().clone();
        Ok(Response::new(pb::GetPowerJobResponse { power_job: Some(job) }))
    }

    async fn cancel_power_job(
        &self,
        request: Request<pb::CancelPowerJobRequest>,
    ) -> Answer<pb::CancelPowerJobResponse> {
        let id = request.into_inner().id;
        let jobs = self.jobs.lock().unwrap();
        let job = jobs.values().find(|job| job.borrow().id == id).unwrap();
        job.send_modify(|job| job.state = State::Cancelled.into());
        Ok(Response::new(pb::CancelPowerJobResponse { power_job: Some(job.borrow().clone()) }))
    }

    type WatchPowerJobsStream =
        Pin<Box<dyn Stream<Item = Result<pb::WatchPowerJobsResponse, Status>> + Send>>;

    async fn watch_power_jobs(
        &self,
        request: Request<pb::WatchPowerJobsRequest>,
    ) -> Answer<Self::WatchPowerJobsStream> {
        let job = self.by_id(&request.get_ref().id)?;
        let events = WatchStream::new(job).map(|job| Ok(WatchEvent::Put(job).into()));
        Ok(Response::new(Box::pin(events)))
    }

    async fn release_power_job(
        &self,
        _: Request<pb::ReleasePowerJobRequest>,
    ) -> Answer<pb::ReleasePowerJobResponse> {
        closed()
    }

    async fn create_bmc(&self, _: Request<pb::CreateBmcRequest>) -> Answer<pb::CreateBmcResponse> {
        closed()
    }

    async fn get_bmc(&self, _: Request<pb::GetBmcRequest>) -> Answer<pb::GetBmcResponse> {
        closed()
    }

    async fn list_bmcs(&self, _: Request<pb::ListBmcsRequest>) -> Answer<pb::ListBmcsResponse> {
        closed()
    }

    async fn update_bmc(&self, _: Request<pb::UpdateBmcRequest>) -> Answer<pb::UpdateBmcResponse> {
        closed()
    }

    async fn delete_bmc(&self, _: Request<pb::DeleteBmcRequest>) -> Answer<pb::DeleteBmcResponse> {
        closed()
    }

    type WatchBmcsStream =
        Pin<Box<dyn Stream<Item = Result<pb::WatchBmcsResponse, Status>> + Send>>;

    async fn watch_bmcs(&self, _: Request<pb::WatchBmcsRequest>) -> Answer<Self::WatchBmcsStream> {
        closed()
    }

    async fn read_bmc_inventory(
        &self,
        _: Request<pb::ReadBmcInventoryRequest>,
    ) -> Answer<pb::ReadBmcInventoryResponse> {
        closed()
    }

    async fn enrol_bmc(&self, _: Request<pb::EnrolBmcRequest>) -> Answer<pb::EnrolBmcResponse> {
        closed()
    }

    async fn get_power_state(
        &self,
        _: Request<pb::GetPowerStateRequest>,
    ) -> Answer<pb::GetPowerStateResponse> {
        let power_state = (*self.power_state.lock().unwrap()).into();
        Ok(Response::new(pb::GetPowerStateResponse { power_state, ..Default::default() }))
    }

    async fn list_power_jobs(
        &self,
        _: Request<pb::ListPowerJobsRequest>,
    ) -> Answer<pb::ListPowerJobsResponse> {
        closed()
    }
}
