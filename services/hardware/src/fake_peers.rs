//! Other services that have nothing for any machine, and an instance service whose responses a test gives.

use runtime::Channel;
use tinwright::instance::v1 as pb;
use tinwright::instance::v1::instance_service_server::{InstanceService, InstanceServiceServer};
use tokio::sync::{mpsc, oneshot};
use tonic::service::Routes;
use tonic::{Request, Response, Status};

use crate::peers::Peers;

/// A call that waits for its response: the machine's occupant, if it has one. If this is dropped, the call fails.
pub(crate) type Call = oneshot::Sender<Option<String>>;

/// Starts the services. Returns their clients, and the calls of the instance service.
pub(crate) fn start() -> (Peers, mpsc::UnboundedReceiver<Call>) {
    start_with(Vec::new())
}

/// Starts the services with these instances. Only calls about other machines are returned.
pub(crate) fn start_with(instances: Vec<pb::Instance>) -> (Peers, mpsc::UnboundedReceiver<Call>) {
    let (sender, calls) = mpsc::unbounded_channel();
    let instances = Routes::new(InstanceServiceServer::new(FakeInstances(sender, instances)));
    let not_found = || async { Status::not_found("nothing").into_http::<axum::body::Body>() };
    let routes = Routes::from(instances.into_axum_router().fallback(not_found));
    let channel = Channel::to(routes);
    (Peers::new(channel.clone(), channel.clone(), channel), calls)
}

struct FakeInstances(mpsc::UnboundedSender<Call>, Vec<pb::Instance>);

/// Implements calls that the hardware service never makes.
macro_rules! never_called {
    ($($name:ident($request:ty) -> $response:ty;)*) => {$(
        async fn $name(&self, _: Request<$request>) -> Result<Response<$response>, Status> {
            Err(Status::unimplemented(stringify!($name)))
        }
    )*};
}

impl InstanceService for FakeInstances {
    async fn get_instance(
        &self,
        request: Request<pb::GetInstanceRequest>,
    ) -> Result<Response<pb::GetInstanceResponse>, Status> {
        let by = request.into_inner().by;
        if let Some(pb::get_instance_request::By::HardwareId(id)) = by
            && let Some(found) = self.1.iter().find(|it| it.hardware_id == id)
        {
            return Ok(Response::new(pb::GetInstanceResponse { instance: Some(found.clone()) }));
        }
        let (call, occupant) = oneshot::channel();
        self.0.send(call).map_err(|_| Status::unavailable("the test has ended"))?;
        match occupant.await {
            Ok(Some(id)) => {
                let instance = Some(pb::Instance { id, ..pb::Instance::default() });
                Ok(Response::new(pb::GetInstanceResponse { instance }))
            }
            Ok(None) => Err(Status::not_found("no instance")),
            Err(_) => Err(Status::unavailable("the test gave no response")),
        }
    }

    async fn list_instances(
        &self,
        request: Request<pb::ListInstancesRequest>,
    ) -> Result<Response<pb::ListInstancesResponse>, Status> {
        let tenant = request.into_inner().tenant;
        let found = self.1.iter().filter(|it| tenant.is_empty() || it.tenant == tenant);
        let found = found.cloned().collect();
        let response = pb::ListInstancesResponse { instances: found, ..Default::default() };
        Ok(Response::new(response))
    }

    type WatchInstancesStream = tonic::codegen::BoxStream<pb::WatchInstancesResponse>;

    never_called! {
        create_instance(pb::CreateInstanceRequest) -> pb::CreateInstanceResponse;
        update_instance(pb::UpdateInstanceRequest) -> pb::UpdateInstanceResponse;
        delete_instance(pb::DeleteInstanceRequest) -> pb::DeleteInstanceResponse;
        retry_instance(pb::RetryInstanceRequest) -> pb::RetryInstanceResponse;
        reinstall_instance(pb::ReinstallInstanceRequest) -> pb::ReinstallInstanceResponse;
        restart_instance(pb::RestartInstanceRequest) -> pb::RestartInstanceResponse;
        report_phone_home(pb::ReportPhoneHomeRequest) -> pb::ReportPhoneHomeResponse;
        report_script(pb::ReportScriptRequest) -> pb::ReportScriptResponse;
        report_stack_running(pb::ReportStackRunningRequest) -> pb::ReportStackRunningResponse;
        watch_instances(pb::WatchInstancesRequest) -> Self::WatchInstancesStream;
    }
}
