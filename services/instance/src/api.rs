//! The gRPC service of the instances.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::Stream;
use runtime::{Clock, access};
use store::Store;
use store::mirror::Mirror;
use store::records::CheckReport;
use store::records::requests::IdempotentRequest;
use store::serving;
use tinwright::common::v1::View;
use tinwright::instance::v1 as pb;
use tinwright::instance::v1::instance_service_server::{InstanceService, InstanceServiceServer};
use tinwright::secret::Secrets as _;
use tinwright::status::{self, Violations};
use tinwright::{HardwareId, InstanceId, check};
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};

use crate::instances::machine_reports::{PhoneHome, ScriptOutcome};
use crate::instances::{Error, InstanceKind, InstanceSelector, Instances};
use crate::peers::Peers;
use crate::reconcile::Reconciler;

/// Serves [`Instances`] over gRPC, and reconciles them.
#[derive(Clone, Debug)]
pub struct Api {
    instances: Instances,
    mirror: Mirror<InstanceKind>,
    peers: Peers,
    stop: CancellationToken,
}

impl Api {
    /// Serves the instances in `store` and calls the services behind the channels. Watches end at `stop`.
    pub fn new(
        store: Arc<dyn Store>,
        hardware: Channel,
        workflow: Channel,
        power: Channel,
        stop: CancellationToken,
    ) -> Self {
        let instances = Instances::new(store, Clock::system());
        let mirror = Mirror::new(instances.records().clone());
        Self { instances, mirror, peers: Peers::new(hardware, workflow, power), stop }
    }

    /// Converts it into a service for a tonic router.
    pub fn into_service(self) -> InstanceServiceServer<Self> {
        InstanceServiceServer::new(self)
    }

    /// Resolves once watches can be served.
    pub async fn ready(&self) {
        self.mirror.ready().await;
    }

    /// Follows the records and reconciles until `stop`, which must come after the end of the watches.
    pub async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        let reconciler = Reconciler::new(self.instances, self.peers);
        let mirror = self.mirror.clone();
        let (served, ()) = tokio::join!(
            serving::run(self.mirror, stop.clone()),
            Box::pin(reconciler.run(mirror, stop)),
        );
        served
    }

    /// Checks that records and claims agree; with `repair`, corrects the claims. No service may have the store open meanwhile.
    pub async fn check(&self, repair: bool) -> Result<CheckReport, Error> {
        self.instances.check(repair).await
    }
}

#[tonic::async_trait]
impl InstanceService for Api {
    #[tracing::instrument(skip_all)]
    async fn create_instance(
        &self,
        request: Request<pb::CreateInstanceRequest>,
    ) -> Result<Response<pb::CreateInstanceResponse>, Status> {
        let request = request.into_inner();
        check::length(&request.request_id, 128).map_err(|e| Violations::single("request_id", e))?;
        let idempotent = IdempotentRequest::new(&request.request_id, &request);
        let pb::CreateInstanceRequest { instance, request_id: _ } = request;
        let created = self.instances.create(required(instance)?, idempotent).await?;
        let instance = Some(created.without_secrets());
        Ok(Response::new(pb::CreateInstanceResponse { instance }))
    }

    #[tracing::instrument(skip_all)]
    async fn get_instance(
        &self,
        request: Request<pb::GetInstanceRequest>,
    ) -> Result<Response<pb::GetInstanceResponse>, Status> {
        let view = access::effective_view(&request, request.get_ref().view())?;
        let found = self.instances.get(&selector(request.into_inner().by)?).await?;
        Ok(Response::new(pb::GetInstanceResponse { instance: Some(project(found, view)) }))
    }

    #[tracing::instrument(skip_all)]
    async fn list_instances(
        &self,
        request: Request<pb::ListInstancesRequest>,
    ) -> Result<Response<pb::ListInstancesResponse>, Status> {
        let view = access::effective_view(&request, request.get_ref().view())?;
        let pb::ListInstancesRequest { page_size, page_token, labels, view: _ } =
            request.into_inner();
        let size = serving::page_size(page_size)?;
        let listing = self.instances.list(&page_token, size, &labels).await?;
        let instances = listing.records.into_iter().map(|found| project(found, view)).collect();
        let next_page_token = listing.next.unwrap_or_default();
        Ok(Response::new(pb::ListInstancesResponse { instances, next_page_token }))
    }

    #[tracing::instrument(skip_all)]
    async fn update_instance(
        &self,
        request: Request<pb::UpdateInstanceRequest>,
    ) -> Result<Response<pb::UpdateInstanceResponse>, Status> {
        let pb::UpdateInstanceRequest { instance, update_mask } = request.into_inner();
        let mut update = required(instance)?;
        update.id = id("instance.id", &update.id)?.to_string();
        let paths = update_mask.unwrap_or_default().paths;
        let new = self.instances.update(update, &paths).await?;
        Ok(Response::new(pb::UpdateInstanceResponse { instance: Some(new.without_secrets()) }))
    }

    #[tracing::instrument(skip_all, fields(instance.id = request.get_ref().id))]
    async fn delete_instance(
        &self,
        request: Request<pb::DeleteInstanceRequest>,
    ) -> Result<Response<pb::DeleteInstanceResponse>, Status> {
        let pb::DeleteInstanceRequest { id: name, revision, force } = request.into_inner();
        let deleted = self.instances.delete(id("id", &name)?, revision, force).await?;
        let instance = Some(deleted.without_secrets());
        Ok(Response::new(pb::DeleteInstanceResponse { instance }))
    }

    #[tracing::instrument(skip_all, fields(instance.id = request.get_ref().id))]
    async fn retry_instance(
        &self,
        request: Request<pb::RetryInstanceRequest>,
    ) -> Result<Response<pb::RetryInstanceResponse>, Status> {
        let retried = self.instances.retry(id("id", &request.into_inner().id)?).await?;
        Ok(Response::new(pb::RetryInstanceResponse { instance: Some(retried.without_secrets()) }))
    }

    #[tracing::instrument(skip_all, fields(hardware.id = request.get_ref().hardware_id))]
    async fn report_phone_home(
        &self,
        request: Request<pb::ReportPhoneHomeRequest>,
    ) -> Result<Response<pb::ReportPhoneHomeResponse>, Status> {
        let pb::ReportPhoneHomeRequest { hardware_id, instance_id, host_keys, kind } =
            request.into_inner();
        let hardware = hardware("hardware_id", &hardware_id)?;
        let instance = match instance_id.as_str() {
            "" => None,
            text => Some(id("instance_id", text)?),
        };
        let call = PhoneHome::new(kind, host_keys);
        self.instances.record_phone_home(hardware, instance, &call).await?;
        self.peers.report_boot(&hardware_id).await;
        Ok(Response::new(pb::ReportPhoneHomeResponse {}))
    }

    #[tracing::instrument(skip_all, fields(instance.id = request.get_ref().instance_id))]
    async fn report_script(
        &self,
        request: Request<pb::ReportScriptRequest>,
    ) -> Result<Response<pb::ReportScriptResponse>, Status> {
        let pb::ReportScriptRequest { hardware_id, instance_id, generation, started } =
            request.into_inner();
        let hardware = hardware("hardware_id", &hardware_id)?;
        let instance = id("instance_id", &instance_id)?;
        let outcome = ScriptOutcome { generation, started };
        self.instances.record_script(hardware, instance, outcome).await?;
        Ok(Response::new(pb::ReportScriptResponse {}))
    }

    type WatchInstancesStream =
        Pin<Box<dyn Stream<Item = Result<pb::WatchInstancesResponse, Status>> + Send>>;

    #[tracing::instrument(skip_all)]
    async fn watch_instances(
        &self,
        request: Request<pb::WatchInstancesRequest>,
    ) -> Result<Response<Self::WatchInstancesStream>, Status> {
        let view = access::effective_view(&request, request.get_ref().view())?;
        let watcher = match request.get_ref().id.as_str() {
            "" => self.mirror.watch(),
            one => self.mirror.watch_one(&id("id", one)?.to_string()),
        };
        let project = move |instance| project(instance, view);
        let events = serving::watch(watcher, self.stop.clone(), project);
        Ok(Response::new(Box::pin(events)))
    }
}

/// Returns `instance` as `view` shows it.
fn project(instance: pb::Instance, view: View) -> pb::Instance {
    match view {
        View::Full => instance,
        View::Unspecified | View::Basic => instance.without_secrets(),
    }
}

fn required(instance: Option<pb::Instance>) -> Result<pb::Instance, Violations> {
    instance.ok_or_else(|| Violations::single("instance", "is missing"))
}

fn id(field: &str, text: &str) -> Result<InstanceId, Violations> {
    text.parse().map_err(|reason| Violations::single(field, reason))
}

fn hardware(field: &str, text: &str) -> Result<HardwareId, Violations> {
    text.parse().map_err(|reason| Violations::single(field, reason))
}

fn selector(by: Option<pb::get_instance_request::By>) -> Result<InstanceSelector, Violations> {
    use pb::get_instance_request::By;
    match by {
        None => Err(Violations::single("by", "is missing: give id, hardware_id or address")),
        Some(By::Id(text)) => id("id", &text).map(InstanceSelector::Id),
        Some(By::HardwareId(text)) => {
            hardware("hardware_id", &text).map(InstanceSelector::Hardware)
        }
        Some(By::Address(text)) => match check::address(&text) {
            Ok(address) => Ok(InstanceSelector::Address(address.to_string())),
            Err(reason) => Err(Violations::single("address", reason)),
        },
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        match error {
            Error::Invalid(violations) => violations.into(),
            Error::Illegal(_) | Error::NotQueued(_) => {
                status::failed_precondition("STATE", "instance", text)
            }
            Error::BeingDeleted(id) => status::failed_precondition("STATE", &id, text),
            Error::NotOccupant { hardware, .. } => {
                status::failed_precondition("OCCUPANT", &hardware.to_string(), text)
            }
            Error::UnknownState(_) => Self::new(Code::DataLoss, text),
            Error::NoRandomness => Self::internal(text),
            Error::Records(error) => error.into(),
        }
    }
}

#[cfg(test)]
mod tests;
