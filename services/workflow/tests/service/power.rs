//! The power service as this one needs it: jobs that are made once per request id, and end as the test says.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use futures_util::{Stream, StreamExt as _};
use tinwright::PowerJobId;
use tinwright::power::v1 as pb;
use tinwright::power::v1::operation::{Power as Switch, What};
use tinwright::power::v1::power_job::State;
use tinwright::power::v1::power_service_server::PowerService;
use tinwright::watch::WatchEvent;
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tonic::{Request, Response, Status};

/// BMCs that do as they are told, at once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Power {
    jobs: Arc<Mutex<BTreeMap<String, watch::Sender<pb::PowerJob>>>>,
    ends: Arc<Mutex<Ends>>,
}

/// How jobs end.
#[derive(Clone, Debug, Default)]
pub(crate) enum Ends {
    #[default]
    Well,
    /// With this reason.
    Badly(String),
    /// Not by themselves.
    Never,
}

type Answer<T> = Result<Response<T>, Status>;

fn closed<T>() -> Answer<T> {
    Err(Status::unimplemented("not played here"))
}

impl Power {
    /// From now on jobs end so.
    pub(crate) fn end(&self, how: Ends) {
        *self.ends.lock().unwrap() = how;
    }

    /// What runs now has gone well.
    pub(crate) fn finish(&self) {
        for job in self.jobs.lock().unwrap().values() {
            job.send_modify(|job| job.set_state(State::Success));
        }
    }

    /// What was asked for: request ids less the workflow's, with operations and state, in the request ids' order.
    pub(crate) fn jobs(&self) -> Vec<String> {
        let jobs = self.jobs.lock().unwrap();
        let told = |(request, job): (&String, &watch::Sender<pb::PowerJob>)| {
            let job = job.borrow();
            let operations: Vec<_> = job.operations.iter().map(operation).collect();
            let step = request.split_once('/').unwrap().1;
            format!("{step}: {} {}", operations.join(" "), job.state().as_str_name())
        };
        jobs.iter().map(told).collect()
    }

    fn by_id(&self, id: &str) -> Result<watch::Receiver<pb::PowerJob>, Status> {
        let jobs = self.jobs.lock().unwrap();
        let found = jobs.values().find(|job| job.borrow().id == id).map(watch::Sender::subscribe);
        found.ok_or_else(|| tinwright::status::not_found("power job", id))
    }

    fn make(&self, asked: pb::CreatePowerJobRequest) -> pb::PowerJob {
        let (state, state_reason) = match &*self.ends.lock().unwrap() {
            Ends::Well => (State::Success, String::new()),
            Ends::Badly(reason) => (State::Failed, reason.clone()),
            Ends::Never => (State::Running, String::new()),
        };
        pb::PowerJob {
            id: PowerJobId::new().to_string(),
            hardware_id: asked.hardware_id,
            operations: asked.operations,
            state: state.into(),
            state_reason,
            ..Default::default()
        }
    }
}

fn operation(operation: &pb::Operation) -> String {
    match operation.what.as_ref().unwrap() {
        What::Power(power) => Switch::try_from(*power).unwrap().as_str_name().to_owned(),
        What::Boot(boot) => boot.device().as_str_name().to_owned(),
    }
}

#[tonic::async_trait]
impl PowerService for Power {
    async fn create_power_job(
        &self,
        request: Request<pb::CreatePowerJobRequest>,
    ) -> Answer<pb::CreatePowerJobResponse> {
        let asked = request.into_inner();
        let mut jobs = self.jobs.lock().unwrap();
        let job = jobs
            .entry(asked.request_id.clone())
            .or_insert_with(|| watch::Sender::new(self.make(asked)));
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
        let told = WatchStream::new(job).map(|job| Ok(WatchEvent::Put(job).into()));
        Ok(Response::new(Box::pin(told)))
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

    async fn get_power_state(
        &self,
        _: Request<pb::GetPowerStateRequest>,
    ) -> Answer<pb::GetPowerStateResponse> {
        closed()
    }

    async fn list_power_jobs(
        &self,
        _: Request<pb::ListPowerJobsRequest>,
    ) -> Answer<pb::ListPowerJobsResponse> {
        closed()
    }
}
