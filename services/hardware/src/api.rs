//! The gRPC services of machines, locations, models and machines without a record.

mod locations;
mod models;
mod unknown_machines;

use std::time::Duration;

use nouns::{Noun as _, Served as _, Viewer};
use runtime::{Caller, Role, access};
use store::hosted::{self, HostedService, RecordVisitor};
use store::mirror::Mirror;
use store::records::Selector;
use store::serving;
use tinwright::hardware::v1 as pb;
use tinwright::hardware::v1::State;
use tinwright::hardware::v1::hardware_service_server::{HardwareService, HardwareServiceServer};
use tinwright::hardware::v1::location_service_server::LocationServiceServer;
use tinwright::hardware::v1::model_service_server::ModelServiceServer;
use tinwright::hardware::v1::unknown_machine_service_server::UnknownMachineServiceServer;
use tinwright::secret::Secrets as _;
use tinwright::status::{self, Violations};
use tinwright::{HardwareId, Mac, check};
use tokio_util::sync::CancellationToken;
use tonic::service::RoutesBuilder;
use tonic::{Request, Response, Status};

use crate::bmc_identity::ListedIdentity;
use crate::enrolment::Report;
use crate::enrolments::Enrolments;
use crate::error::Error;
use crate::filter::Filter;
use crate::interrupted;
use crate::locations::Locations;
use crate::models::{ModelKind, Models};
use crate::network_identity;
use crate::peers::{self, Peers};
use crate::place::LocationKind;
use crate::records::{HardwareKind, HardwareRecords};
use crate::scripts;
use crate::unknown_machines::{UnknownMachineKind, UnknownMachines, sweep};

/// Pause of a machine before it repeats an enrolment that came with too many others.
const ENROLMENT_RETRY: Duration = Duration::from_secs(1);

/// Maximum length of the reason of a state.
const MAX_REASON_BYTES: usize = 1024;

/// Serves [`HardwareRecords`], and the locations and models beside them, over gRPC.
#[derive(Clone, Debug)]
pub struct Api {
    records: HardwareRecords,
    enrolments: Enrolments,
    locations: Locations,
    models: Models,
    mirror: Mirror<HardwareKind>,
    location_mirror: Mirror<LocationKind>,
    model_mirror: Mirror<ModelKind>,
    unknown: UnknownMachines,
    unknown_mirror: Mirror<UnknownMachineKind>,
    peers: Peers,
    stop: CancellationToken,
}

impl Api {
    /// Serves `records`, and releases each at `peers` before it is deleted. Watches end at `stop`.
    pub fn new(records: HardwareRecords, peers: Peers, stop: CancellationToken) -> Self {
        let (store, clock) = (records.records.store(), &records.clock);
        let locations = Locations::new(store.clone(), clock.clone());
        let models = Models::new(store.clone(), clock.clone());
        let unknown = UnknownMachines::new(store.clone(), clock.clone());
        Self {
            enrolments: Enrolments::new(records.clone()),
            mirror: Mirror::new(records.records.clone()),
            location_mirror: Mirror::new(locations.records().clone()),
            model_mirror: Mirror::new(models.records().clone()),
            unknown_mirror: Mirror::new(unknown.records.clone()),
            records,
            locations,
            models,
            unknown,
            peers,
            stop,
        }
    }

    /// Passes unless an instance occupies the machine, and `update` changes its network identity.
    async fn check_free_for(&self, update: &pb::Hardware, paths: &[String]) -> Result<(), Error> {
        let (machine, updated) = self.records.preview(update, paths).await?;
        let changes = network_identity::changes(&machine, &updated);
        if changes.is_empty() {
            return Ok(());
        }
        let Some(occupant) = self.peers.occupant(&machine.id).await? else { return Ok(()) };
        let (name, changes) = (&machine.name, changes.join(", "));
        let text = format!(
            "{name} is in use by instance {}, which the change of its {changes} may cut off: change it with --force (force)",
            occupant.id
        );
        let subject = format!("hardware/{}", machine.id);
        Err(Error::Precondition { reason: "OCCUPIED", subject, text })
    }

    /// Refuses an update by an edge that does more than to remove one-shot scripts from the record at its revision.
    async fn check_update_of_edge(
        &self,
        update: &pb::Hardware,
        paths: &[String],
    ) -> Result<(), Status> {
        if update.revision == 0 {
            return Err(Violations::single("hardware.revision", "is missing").into());
        }
        // The update itself compares the revision again.
        let old = self.records.records.at(&update.id, update.revision).await?;
        match scripts::only_removes_one_shot(&old, update, paths) {
            true => Ok(()),
            false => Err(Status::permission_denied(
                "an edge only removes one-shot scripts from interfaces",
            )),
        }
    }
}

impl HostedService for Api {
    const NAME: &'static str = "hardware";

    fn add_routes(&self, routes: &mut RoutesBuilder) {
        routes.add_service(HardwareServiceServer::new(self.clone()));
        routes.add_service(LocationServiceServer::new(self.clone()));
        routes.add_service(ModelServiceServer::new(self.clone()));
        routes.add_service(UnknownMachineServiceServer::new(self.clone()));
    }

    fn visit(&self, visitor: &mut impl RecordVisitor) {
        visitor.bounded(&self.mirror);
        visitor.mirror(&self.location_mirror);
        visitor.mirror(&self.model_mirror);
        visitor.records(&self.enrolments.log);
        visitor.mirror(&self.unknown_mirror);
    }

    /// Follows the records, and continues interrupted deletes.
    async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        let followed = hosted::follow(&self, &stop);
        let Self { records, mirror, unknown, unknown_mirror, peers, .. } = self;
        let claims = records.clone();
        tokio::join!(
            followed,
            sweep(unknown, unknown_mirror, mirror.clone(), stop.clone()),
            claims.claims.reconcile(&claims, &claims.clock, &stop),
            interrupted::run(records, mirror, peers, stop.clone()),
        );
        Ok(())
    }
}

impl HardwareService for Api {
    async fn create_hardware(
        &self,
        request: Request<pb::CreateHardwareRequest>,
    ) -> Result<Response<pb::CreateHardwareResponse>, Status> {
        let caller = access::request_scope(&request);
        let request = request.into_inner();
        let idempotent = serving::idempotent(&caller, &request.request_id, &request)?;
        let hardware = Violations::require("hardware", request.hardware)?;
        let hardware = self.records.create(hardware, idempotent).await?;
        Ok(Response::new(pb::CreateHardwareResponse { hardware: Some(hardware.without_secrets()) }))
    }

    async fn get_hardware(
        &self,
        request: Request<pb::GetHardwareRequest>,
    ) -> Result<Response<pb::GetHardwareResponse>, Status> {
        let viewer = Viewer::of(&request, request.get_ref().view())?;
        let selector = selector(request.into_inner())?;
        let found = self.records.records.select(&selector).await?;
        if !self.peers.is_visible(&found.id, viewer.tenant.as_ref()).await? {
            return Err(selector.missing("hardware").into());
        }
        let hardware = Some(HardwareKind::show(&viewer, found));
        Ok(Response::new(pb::GetHardwareResponse { hardware }))
    }

    async fn list_hardware(
        &self,
        request: Request<pb::ListHardwareRequest>,
    ) -> Result<Response<pb::ListHardwareResponse>, Status> {
        let filter = Filter::read(request.get_ref(), &self.models).await?;
        let visible = match access::tenant(&request) {
            Some(tenant) => Some(self.peers.occupied_machines(Some(tenant)).await?),
            None => None,
        };
        let is_visible = |id: &str| visible.as_ref().is_none_or(|visible| visible.contains(id));
        let keep = |machine: &pb::Hardware| is_visible(&machine.id) && filter.keeps(machine);
        nouns::list_where(&self.mirror, request, |_, machine| keep(machine)).await
    }

    async fn update_hardware(
        &self,
        request: Request<pb::UpdateHardwareRequest>,
    ) -> Result<Response<pb::UpdateHardwareResponse>, Status> {
        let is_edge = Caller::role_in(request.extensions()) == Some(Role::Edge);
        let pb::UpdateHardwareRequest { hardware, update_mask, force } = request.into_inner();
        let mut update = Violations::require("hardware", hardware)?;
        update.id = Violations::parse::<HardwareId>("hardware.id", &update.id)?.to_string();
        let paths = update_mask.unwrap_or_default().paths;
        if is_edge {
            self.check_update_of_edge(&update, &paths).await?;
        }
        if !force {
            self.check_free_for(&update, &paths).await?;
        }
        let hardware = self.records.update(update, &paths).await?;
        Ok(Response::new(pb::UpdateHardwareResponse { hardware: Some(hardware.without_secrets()) }))
    }

    #[tracing::instrument(skip_all, fields(hardware.id = request.get_ref().id))]
    async fn set_hardware_state(
        &self,
        request: Request<pb::SetHardwareStateRequest>,
    ) -> Result<Response<pb::SetHardwareStateResponse>, Status> {
        let state = ordered_state(request.get_ref())?;
        let pb::SetHardwareStateRequest { id, state: _, reason, revision } = request.into_inner();
        let id = Violations::parse("id", &id)?;
        let hardware = self.records.set_state(id, state, reason, revision).await?;
        let hardware = Some(hardware.without_secrets());
        Ok(Response::new(pb::SetHardwareStateResponse { hardware }))
    }

    #[tracing::instrument(skip_all, fields(hardware.id = request.get_ref().id))]
    async fn delete_hardware(
        &self,
        request: Request<pb::DeleteHardwareRequest>,
    ) -> Result<Response<pb::DeleteHardwareResponse>, Status> {
        let pb::DeleteHardwareRequest { id, revision } = request.into_inner();
        let id = Violations::parse("id", &id)?;
        let (records, peers) = (self.records.clone(), self.peers.clone());
        let delete = async move { Ok(records.delete(id, revision, &peers).await?) };
        serving::to_the_end(delete).await?;
        Ok(Response::new(pb::DeleteHardwareResponse {}))
    }

    #[tracing::instrument(skip_all, fields(hardware.id = request.get_ref().hardware_id))]
    async fn record_inventory(
        &self,
        request: Request<pb::RecordInventoryRequest>,
    ) -> Result<Response<pb::RecordInventoryResponse>, Status> {
        let pb::RecordInventoryRequest { hardware_id, inventory } = request.into_inner();
        let id = Violations::parse("hardware_id", &hardware_id)?;
        let inventory = Violations::require("inventory", inventory)?;
        self.records.record_inventory(id, inventory).await?;
        Ok(Response::new(pb::RecordInventoryResponse {}))
    }

    #[tracing::instrument(skip_all, fields(hardware.id = request.get_ref().hardware_id))]
    async fn record_bmc_inventory(
        &self,
        request: Request<pb::RecordBmcInventoryRequest>,
    ) -> Result<Response<pb::RecordBmcInventoryResponse>, Status> {
        let pb::RecordBmcInventoryRequest { hardware_id, inventory } = request.into_inner();
        let id = Violations::parse("hardware_id", &hardware_id)?;
        let inventory = Violations::require("inventory", inventory)?;
        self.records.record_bmc_inventory(id, inventory).await?;
        Ok(Response::new(pb::RecordBmcInventoryResponse {}))
    }

    #[tracing::instrument(skip_all, fields(hardware.id = request.get_ref().hardware_id))]
    async fn check_bmc_identity(
        &self,
        request: Request<pb::CheckBmcIdentityRequest>,
    ) -> Result<Response<pb::CheckBmcIdentityResponse>, Status> {
        let pb::CheckBmcIdentityRequest { hardware_id, uuid, macs } = request.into_inner();
        let named = Some(&hardware_id).filter(|id| !id.is_empty());
        let id = named.map(|id| Violations::parse("hardware_id", id)).transpose()?;
        let listed = ListedIdentity::new(&uuid, &macs);
        let other_machine = self.records.other_machine(id, &listed).await?.unwrap_or_default();
        Ok(Response::new(pb::CheckBmcIdentityResponse { other_machine }))
    }

    async fn enrol_machine(
        &self,
        request: Request<pb::EnrolMachineRequest>,
    ) -> Result<Response<pb::EnrolMachineResponse>, Status> {
        let report = Report::new(request.into_inner())?;
        let enrolled = self.enrolments.enrol(&report).await;
        if let Err(Error::Precondition { text, .. }) = &enrolled {
            self.unknown.record_refusal(report.mac(), text.clone()).await?;
        }
        let hardware = enrolled?;
        Ok(Response::new(pb::EnrolMachineResponse { hardware: Some(hardware.without_secrets()) }))
    }

    type WatchHardwareStream = serving::Events<pb::WatchHardwareResponse>;

    async fn watch_hardware(
        &self,
        request: Request<pb::WatchHardwareRequest>,
    ) -> Result<Response<Self::WatchHardwareStream>, Status> {
        nouns::watch(&self.mirror, &self.stop, request)
    }
}

fn selector(request: pb::GetHardwareRequest) -> Result<Selector, Violations> {
    use pb::get_hardware_request::By;
    let (field, value) = match &request.by {
        None => {
            return Err(Violations::single("by", "is missing: give id, name, mac or address"));
        }
        Some(By::Id(text)) => {
            let id: HardwareId = Violations::parse("id", text)?;
            return Ok(Selector::Id(id.to_string()));
        }
        Some(By::Name(text)) => ("name", check::label(text)),
        Some(By::Mac(text)) => ("mac", Ok(Violations::parse::<Mac>("mac", text)?.to_string())),
        Some(By::Address(text)) => ("address", check::address(text).map(|it| it.to_string())),
    };
    let value = value.map_err(|reason| Violations::single(field, reason))?;
    Ok(Selector::Index(field, value))
}

/// Returns the state that `request` orders. Fails if it, or its reason, is not valid.
fn ordered_state(request: &pb::SetHardwareStateRequest) -> Result<State, Violations> {
    if request.state() == State::Unspecified {
        let reason = "is none of enrolled, provisionable, failed, maintenance";
        return Err(Violations::single("state", reason));
    }
    let reason = check::length(&request.reason, MAX_REASON_BYTES);
    reason.map_err(|error| Violations::single("reason", error))?;
    Ok(request.state())
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        match error {
            Error::Invalid(violations) => violations.into(),
            Error::Illegal(_) => {
                status::failed_precondition("STATE", "hardware", error.to_string())
            }
            Error::Protected(ref id) => {
                let subject = format!("hardware/{id}");
                status::failed_precondition("PROTECTED", &subject, error.to_string())
            }
            Error::Precondition { reason, subject, text } => {
                status::failed_precondition(reason, &subject, text)
            }
            Error::TooManyEnrolments | Error::TooManyReports => {
                status::overloaded(error.to_string(), ENROLMENT_RETRY)
            }
            Error::Peers(error) => error.into(),
            Error::Addresses(error) => error.into_status(None),
            Error::Records(error) => error.into(),
        }
    }
}

impl From<peers::Error> for Status {
    fn from(error: peers::Error) -> Self {
        let text = error.to_string();
        let (reason, id) = match error {
            peers::Error::Occupied { id, .. } => ("OCCUPIED", id),
            peers::Error::Working { id, .. } => ("WORKFLOW", id),
            peers::Error::Unavailable { .. } => return Self::unavailable(text),
        };
        status::failed_precondition(reason, &format!("hardware/{id}"), text)
    }
}

#[cfg(test)]
mod tests;
