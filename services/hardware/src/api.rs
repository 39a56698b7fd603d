//! The gRPC service of the machines.

use std::pin::Pin;

use futures_util::Stream;
use runtime::access;
use store::mirror::Mirror;
use store::records::requests::IdempotentRequest;
use store::records::{self, CheckReport};
use store::serving;
use tinwright::common::v1::View;
use tinwright::hardware::v1 as pb;
use tinwright::hardware::v1::hardware_service_server::{HardwareService, HardwareServiceServer};
use tinwright::secret::Secrets as _;
use tinwright::status::{self, Violations};
use tinwright::{HardwareId, check};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use crate::occupancy::Occupancy;
use crate::records::{Error, HardwareKind, HardwareRecords, HardwareSelector};
use crate::state::State;

/// Serves [`HardwareRecords`] over gRPC.
#[derive(Clone, Debug)]
pub struct Api {
    records: HardwareRecords,
    mirror: Mirror<HardwareKind>,
    occupancy: Occupancy,
    stop: CancellationToken,
}

impl Api {
    /// Serves `records`, and asks `occupancy` before it deletes one. Watches end at `stop`.
    pub fn new(records: HardwareRecords, occupancy: Occupancy, stop: CancellationToken) -> Self {
        let mirror = Mirror::new(records.records().clone());
        Self { records, mirror, occupancy, stop }
    }

    /// Converts it into a service for a tonic router.
    pub fn into_service(self) -> HardwareServiceServer<Self> {
        HardwareServiceServer::new(self)
    }

    /// Resolves once watches can be served.
    pub async fn ready(&self) {
        self.mirror.ready().await;
    }

    /// Checks that records and indexes agree; with `repair`, corrects the indexes.
    pub async fn check(&self, repair: bool) -> Result<CheckReport, records::Error> {
        self.records.records().check(repair).await
    }

    /// Follows the records until `stop`, which must come after the end of the watches.
    pub async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        serving::run(self.mirror, stop).await
    }
}

#[tonic::async_trait]
impl HardwareService for Api {
    #[tracing::instrument(skip_all)]
    async fn create_hardware(
        &self,
        request: Request<pb::CreateHardwareRequest>,
    ) -> Result<Response<pb::CreateHardwareResponse>, Status> {
        let request = request.into_inner();
        check::length(&request.request_id, 128).map_err(|e| Violations::single("request_id", e))?;
        let idempotent = IdempotentRequest::new(&request.request_id, &request);
        let pb::CreateHardwareRequest { hardware, request_id: _ } = request;
        let hardware = self.records.create(required(hardware)?, idempotent).await?;
        Ok(Response::new(pb::CreateHardwareResponse { hardware: Some(hardware.without_secrets()) }))
    }

    #[tracing::instrument(skip_all)]
    async fn get_hardware(
        &self,
        request: Request<pb::GetHardwareRequest>,
    ) -> Result<Response<pb::GetHardwareResponse>, Status> {
        let view = access::effective_view(&request, request.get_ref().view())?;
        let hardware = self.records.get(&selector(request.into_inner())?).await?;
        Ok(Response::new(pb::GetHardwareResponse { hardware: Some(project(hardware, view)) }))
    }

    #[tracing::instrument(skip_all)]
    async fn list_hardware(
        &self,
        request: Request<pb::ListHardwareRequest>,
    ) -> Result<Response<pb::ListHardwareResponse>, Status> {
        let view = access::effective_view(&request, request.get_ref().view())?;
        let pb::ListHardwareRequest { page_size, page_token, labels, view: _ } =
            request.into_inner();
        let listing =
            self.records.list(&page_token, serving::page_size(page_size)?, &labels).await?;
        let hardware = listing.records.into_iter().map(|machine| project(machine, view)).collect();
        let next_page_token = listing.next.unwrap_or_default();
        Ok(Response::new(pb::ListHardwareResponse { hardware, next_page_token }))
    }

    #[tracing::instrument(skip_all)]
    async fn update_hardware(
        &self,
        request: Request<pb::UpdateHardwareRequest>,
    ) -> Result<Response<pb::UpdateHardwareResponse>, Status> {
        let pb::UpdateHardwareRequest { hardware, update_mask } = request.into_inner();
        let mut update = required(hardware)?;
        update.id = id("hardware.id", &update.id)?.to_string();
        let paths = update_mask.unwrap_or_default().paths;
        let hardware = self.records.update(update, &paths).await?;
        Ok(Response::new(pb::UpdateHardwareResponse { hardware: Some(hardware.without_secrets()) }))
    }

    #[tracing::instrument(skip_all, fields(hardware.id = request.get_ref().id))]
    async fn set_hardware_state(
        &self,
        request: Request<pb::SetHardwareStateRequest>,
    ) -> Result<Response<pb::SetHardwareStateResponse>, Status> {
        let to = State::try_from(request.get_ref().state())
            .map_err(|e| Violations::single("state", e))?;
        let pb::SetHardwareStateRequest { id: name, state: _, reason, revision } =
            request.into_inner();
        check::length(&reason, 1024).map_err(|e| Violations::single("reason", e))?;
        let hardware = self.records.set_state(id("id", &name)?, to, reason, revision).await?;
        Ok(Response::new(pb::SetHardwareStateResponse {
            hardware: Some(hardware.without_secrets()),
        }))
    }

    #[tracing::instrument(skip_all, fields(hardware.id = request.get_ref().id))]
    async fn delete_hardware(
        &self,
        request: Request<pb::DeleteHardwareRequest>,
    ) -> Result<Response<pb::DeleteHardwareResponse>, Status> {
        let pb::DeleteHardwareRequest { id: name, revision } = request.into_inner();
        self.records.delete(id("id", &name)?, revision, &self.occupancy).await?;
        Ok(Response::new(pb::DeleteHardwareResponse {}))
    }

    type WatchHardwareStream =
        Pin<Box<dyn Stream<Item = Result<pb::WatchHardwareResponse, Status>> + Send>>;

    #[tracing::instrument(skip_all)]
    async fn watch_hardware(
        &self,
        request: Request<pb::WatchHardwareRequest>,
    ) -> Result<Response<Self::WatchHardwareStream>, Status> {
        let view = access::effective_view(&request, request.get_ref().view())?;
        let watcher = match request.get_ref().id.as_str() {
            "" => self.mirror.watch(),
            one => self.mirror.watch_one(&id("id", one)?.to_string()),
        };
        let project = move |machine| project(machine, view);
        let events = serving::watch(watcher, self.stop.clone(), project);
        Ok(Response::new(Box::pin(events)))
    }
}

/// Returns `machine` as `view` shows it.
fn project(machine: pb::Hardware, view: View) -> pb::Hardware {
    match view {
        View::Full => machine,
        View::Unspecified | View::Basic => machine.without_secrets(),
    }
}

fn required(hardware: Option<pb::Hardware>) -> Result<pb::Hardware, Violations> {
    hardware.ok_or_else(|| Violations::single("hardware", "is missing"))
}

fn id(field: &str, text: &str) -> Result<HardwareId, Violations> {
    text.parse().map_err(|reason| Violations::single(field, reason))
}

fn selector(request: pb::GetHardwareRequest) -> Result<HardwareSelector, Violations> {
    use pb::get_hardware_request::By;
    match request.by {
        None => Err(Violations::single("by", "is missing: give id, name, mac or address")),
        Some(By::Id(text)) => id("id", &text).map(HardwareSelector::Id),
        Some(By::Name(text)) => match check::label(&text) {
            Ok(name) => Ok(HardwareSelector::Name(name)),
            Err(reason) => Err(Violations::single("name", reason)),
        },
        Some(By::Mac(text)) => {
            let mac = text.parse().map_err(|reason| Violations::single("mac", reason))?;
            Ok(HardwareSelector::Mac(mac))
        }
        Some(By::Address(text)) => match check::address(&text) {
            Ok(address) => Ok(HardwareSelector::Address(address.to_string())),
            Err(reason) => Err(Violations::single("address", reason)),
        },
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        match error {
            Error::Invalid(violations) => violations.into(),
            Error::Illegal(_) => {
                status::failed_precondition("STATE", "hardware", error.to_string())
            }
            Error::Occupied { ref id, .. } => {
                let subject = format!("hardware/{id}");
                status::failed_precondition("OCCUPIED", &subject, error.to_string())
            }
            Error::OccupantUnknown(_) => Self::unavailable(error.to_string()),
            Error::Records(error) => error.into(),
        }
    }
}
