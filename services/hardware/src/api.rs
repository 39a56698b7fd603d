//! The gRPC face of the machines.

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

use crate::machines::{By, Error, Machine, Machines};
use crate::occupancy::Occupancy;
use crate::state::State;

/// Serves [`Machines`] over gRPC.
#[derive(Clone, Debug)]
pub struct Api {
    machines: Machines,
    mirror: Mirror<Machine>,
    occupancy: Occupancy,
    stop: CancellationToken,
}

impl Api {
    /// An API over `machines`, whose watches end at `stop`; `occupancy` says which of them are taken.
    pub fn new(machines: Machines, occupancy: Occupancy, stop: CancellationToken) -> Self {
        let mirror = Mirror::new(machines.records().clone());
        Self { machines, mirror, occupancy, stop }
    }

    /// As a service for a tonic router.
    pub fn into_service(self) -> HardwareServiceServer<Self> {
        HardwareServiceServer::new(self)
    }

    /// Resolves once watches can be answered.
    pub async fn ready(&self) {
        self.mirror.ready().await;
    }

    /// Whether records and indexes agree; with `mend`, making them.
    pub async fn check(&self, mend: bool) -> Result<CheckReport, records::Error> {
        self.machines.records().check(mend).await
    }

    /// Follows the records until `stop`: later than the watches, which are fed by it.
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
        let asked = IdempotentRequest::new(&request.request_id, &request);
        let pb::CreateHardwareRequest { hardware, request_id: _ } = request;
        let hardware = self.machines.create(given(hardware)?, asked).await?;
        Ok(Response::new(pb::CreateHardwareResponse { hardware: Some(hardware.without_secrets()) }))
    }

    #[tracing::instrument(skip_all)]
    async fn get_hardware(
        &self,
        request: Request<pb::GetHardwareRequest>,
    ) -> Result<Response<pb::GetHardwareResponse>, Status> {
        let view = access::effective_view(&request, request.get_ref().view())?;
        let hardware = self.machines.get(&by(request.into_inner())?).await?;
        Ok(Response::new(pb::GetHardwareResponse { hardware: Some(shown(hardware, view)) }))
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
            self.machines.list(&page_token, serving::page_size(page_size)?, &labels).await?;
        let hardware = listing.records.into_iter().map(|machine| shown(machine, view)).collect();
        let next_page_token = listing.next.unwrap_or_default();
        Ok(Response::new(pb::ListHardwareResponse { hardware, next_page_token }))
    }

    #[tracing::instrument(skip_all)]
    async fn update_hardware(
        &self,
        request: Request<pb::UpdateHardwareRequest>,
    ) -> Result<Response<pb::UpdateHardwareResponse>, Status> {
        let pb::UpdateHardwareRequest { hardware, update_mask } = request.into_inner();
        let mut update = given(hardware)?;
        update.id = id("hardware.id", &update.id)?.to_string();
        let paths = update_mask.unwrap_or_default().paths;
        let hardware = self.machines.update(update, &paths).await?;
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
        let hardware = self.machines.set_state(id("id", &name)?, to, reason, revision).await?;
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
        self.machines.delete(id("id", &name)?, revision, &self.occupancy).await?;
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
        let told = serving::watch(watcher, self.stop.clone(), move |machine| shown(machine, view));
        Ok(Response::new(Box::pin(told)))
    }
}

/// What is shown of a machine.
fn shown(machine: pb::Hardware, view: View) -> pb::Hardware {
    match view {
        View::Full => machine,
        View::Unspecified | View::Basic => machine.without_secrets(),
    }
}

fn given(hardware: Option<pb::Hardware>) -> Result<pb::Hardware, Violations> {
    hardware.ok_or_else(|| Violations::single("hardware", "is missing"))
}

fn id(field: &str, text: &str) -> Result<HardwareId, Violations> {
    text.parse().map_err(|reason| Violations::single(field, reason))
}

fn by(request: pb::GetHardwareRequest) -> Result<By, Violations> {
    use pb::get_hardware_request::By as Given;
    match request.by {
        None => Err(Violations::single("by", "is missing: give id, name, mac or address")),
        Some(Given::Id(text)) => id("id", &text).map(By::Id),
        Some(Given::Name(text)) => match check::label(&text) {
            Ok(name) => Ok(By::Name(name)),
            Err(reason) => Err(Violations::single("name", reason)),
        },
        Some(Given::Mac(text)) => {
            text.parse().map(By::Mac).map_err(|reason| Violations::single("mac", reason))
        }
        Some(Given::Address(text)) => match check::address(&text) {
            Ok(address) => Ok(By::Address(address.to_string())),
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
            Error::Unasked(_) => Self::unavailable(error.to_string()),
            Error::Records(error) => error.into(),
        }
    }
}
