//! The other services of a site, as far as nodes need them.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::extract::Request as HttpRequest;
use axum::http::Response as HttpResponse;
use axum::routing::post;
use futures_util::{Stream, StreamExt as _, stream};
use tinwright::HardwareId;
use tinwright::hardware::v1::get_hardware_request::By;
use tinwright::hardware::v1::{
    GetHardwareRequest, GetHardwareResponse, Hardware, WatchHardwareRequest, WatchHardwareResponse,
};
use tinwright::instance::v1::{
    Instance, ReportStackRunningRequest, ReportStackRunningResponse, WatchInstancesRequest,
    WatchInstancesResponse,
};
use tinwright::watch::WatchEvent;
use tinwright::workflow::v1::{GetBootEpochRequest, GetBootEpochResponse};
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tonic::body::Body;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;
use tower::service_fn;

/// The other services. Each machine is there, and in boot epoch 0, unless a test says otherwise. Clones share everything.
#[derive(Clone, Debug)]
pub struct Site {
    state: Arc<Mutex<State>>,
    changes: Arc<watch::Sender<u64>>,
}

/// What the services have.
#[derive(Debug, Default)]
pub struct State {
    /// The present boot epochs.
    pub epochs: BTreeMap<HardwareId, u64>,
    /// The answers to the next requests for boot epochs, before those of `epochs`.
    pub epoch_failures: VecDeque<Status>,
    /// The reports of running stacks, also those that were not answered.
    pub reports: Vec<ReportStackRunningRequest>,
    /// The answers to the next reports, before those that are accepted.
    pub report_failures: VecDeque<Status>,
    machines: Vec<HardwareId>,
    instances: BTreeMap<String, Instance>,
}

impl Default for Site {
    fn default() -> Self {
        Self { state: Arc::default(), changes: Arc::new(watch::Sender::new(0)) }
    }
}

impl Site {
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a boot epoch of `machine`, as the redemption of a boot token does.
    pub fn begin_epoch(&self, machine: HardwareId) -> u64 {
        let mut state = self.state();
        let epoch = state.epochs.entry(machine).or_default();
        *epoch += 1;
        *epoch
    }

    /// Stores `instance`, whose machine is there, and sends it to those who watch.
    pub fn put(&self, instance: Instance) {
        let mut state = self.state();
        let machine = instance.hardware_id.parse().unwrap();
        if !state.machines.contains(&machine) {
            state.machines.push(machine);
        }
        state.instances.insert(instance.id.clone(), instance);
        drop(state);
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Returns the services for a process.
    pub fn router(&self) -> Router {
        Router::new()
            .route("/tinwright.hardware.v1.HardwareService/GetHardware", self.unary(get_hardware))
            .route(
                "/tinwright.workflow.v1.WorkflowService/GetBootEpoch",
                self.unary(get_boot_epoch),
            )
            .route(
                "/tinwright.instance.v1.InstanceService/ReportStackRunning",
                self.unary(report_stack_running),
            )
            .route(
                "/tinwright.hardware.v1.HardwareService/WatchHardware",
                self.watch::<WatchHardwareRequest, WatchHardwareResponse, _>(|state| {
                    state.machines.iter().map(|id| hardware(id.to_string())).collect()
                }),
            )
            .route(
                "/tinwright.instance.v1.InstanceService/WatchInstances",
                self.watch::<WatchInstancesRequest, WatchInstancesResponse, _>(|state| {
                    state.instances.values().cloned().collect()
                }),
            )
    }

    /// Answers a call by `answer`.
    fn unary<T, R>(
        &self,
        answer: impl Fn(&mut State, T) -> Result<R, Status> + Clone + Send + Sync + 'static,
    ) -> axum::routing::MethodRouter
    where
        T: prost::Message + Default + 'static,
        R: prost::Message + 'static,
    {
        let site = self.clone();
        post(move |http: HttpRequest| async move {
            let service = service_fn(move |request: Request<T>| {
                let answer = answer(&mut site.state(), request.into_inner()).map(Response::new);
                std::future::ready(answer)
            });
            let mut grpc = tonic::server::Grpc::new(ProstCodec::<R, T>::default());
            let response: HttpResponse<Body> = grpc.unary(service, http).await;
            response
        })
    }

    /// Serves a watch of what `objects` returns: all of it, then all of it after each change.
    fn watch<T, R, O>(
        &self,
        objects: impl Fn(&State) -> Vec<O> + Clone + Send + Sync + 'static,
    ) -> axum::routing::MethodRouter
    where
        T: prost::Message + Default + 'static,
        R: prost::Message + From<WatchEvent<O>> + 'static,
        O: Send + 'static,
    {
        let site = self.clone();
        post(move |http: HttpRequest| async move {
            let service = service_fn(move |_: Request<T>| {
                let events = site.events::<R, O>(objects.clone());
                std::future::ready(Ok::<_, Status>(Response::new(events)))
            });
            let mut grpc = tonic::server::Grpc::new(ProstCodec::<R, T>::default());
            let response: HttpResponse<Body> = grpc.server_streaming(service, http).await;
            response
        })
    }

    fn events<R, O>(
        &self,
        objects: impl Fn(&State) -> Vec<O> + Send + 'static,
    ) -> Pin<Box<dyn Stream<Item = Result<R, Status>> + Send>>
    where
        R: From<WatchEvent<O>> + Send + 'static,
        O: Send + 'static,
    {
        let site = self.clone();
        let changes = WatchStream::from_changes(self.changes.subscribe());
        let all =
            move || objects(&site.state()).into_iter().map(WatchEvent::Put).collect::<Vec<_>>();
        let first = all().into_iter().chain([WatchEvent::Synced]);
        let later = changes.flat_map(move |_| stream::iter(all()));
        Box::pin(stream::iter(first).chain(later).map(|event| Ok(event.into())))
    }
}

fn get_hardware(_: &mut State, request: GetHardwareRequest) -> Result<GetHardwareResponse, Status> {
    let Some(By::Id(id)) = request.by else {
        return Err(Status::invalid_argument("an id is required"));
    };
    Ok(GetHardwareResponse { hardware: Some(hardware(id)) })
}

fn get_boot_epoch(
    state: &mut State,
    request: GetBootEpochRequest,
) -> Result<GetBootEpochResponse, Status> {
    if let Some(failure) = state.epoch_failures.pop_front() {
        return Err(failure);
    }
    let machine: HardwareId = request.hardware_id.parse().unwrap();
    let number = state.epochs.get(&machine).copied().unwrap_or_default();
    Ok(GetBootEpochResponse { number, ..GetBootEpochResponse::default() })
}

fn report_stack_running(
    state: &mut State,
    request: ReportStackRunningRequest,
) -> Result<ReportStackRunningResponse, Status> {
    state.reports.push(request);
    state.report_failures.pop_front().map_or(Ok(ReportStackRunningResponse {}), Err)
}

fn hardware(id: String) -> Hardware {
    Hardware { name: format!("n-{}", &id[..4]), id, ..Hardware::default() }
}
