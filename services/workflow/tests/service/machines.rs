//! A fake of the hardware service: machines by id.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use futures_util::Stream;
use tinwright::HardwareId;
use tinwright::hardware::v1 as pb;
use tinwright::hardware::v1::hardware_service_server::HardwareService;
use tinwright::hardware::v1::model_service_server::ModelService;
use tinwright::secret::Secrets as _;
use tinwright::status;
use tonic::{Request, Response, Status};

/// Knows every machine except `NO_MACHINE` and those that were deleted.
#[derive(Clone, Debug, Default)]
pub(crate) struct FakeHardware {
    /// Machines that are not provisionable; none if they were deleted.
    states: Arc<Mutex<BTreeMap<String, Option<pb::State>>>>,
    disks: Arc<Mutex<BTreeMap<String, Disks>>>,
    policies: Arc<Mutex<BTreeMap<String, pb::Policy>>>,
    inventories: Arc<Mutex<Vec<pb::RecordInventoryRequest>>>,
    enrolments: Arc<Mutex<Vec<pb::EnrolMachineRequest>>>,
    models: Arc<Mutex<BTreeMap<String, Vec<pb::Model>>>>,
}

/// The hint and the inventory of a machine.
type Disks = (Option<Box<pb::DiskHint>>, Option<Box<pb::Inventory>>);

/// The id of a protected machine.
pub(crate) const PROTECTED_MACHINE: &str = "00000000-0000-7000-8000-0000000005af";

/// A MAC that another machine has.
pub(crate) const KNOWN_MAC: &str = "02:00:00:00:00:0d";

/// The id of no machine.
pub(crate) const NO_MACHINE: &str = "00000000-0000-7000-8000-00000000dead";

/// Text in the secret fields of every machine.
pub(crate) const SECRET: &str = "hunter2";

type Answer<T> = Result<Response<T>, Status>;

impl FakeHardware {
    /// Sets the state of a machine.
    pub(crate) fn set_state(&self, machine: HardwareId, state: pb::State) {
        self.states.lock().unwrap().insert(machine.to_string(), Some(state));
    }

    /// Gives a machine models with these times of boots, in minutes.
    pub(crate) fn set_boot_minutes(&self, machine: HardwareId, times: &[(u32, u32)]) {
        let model = |(boot_silent_minutes, boot_step_minutes): &(u32, u32)| pb::Model {
            boot_silent_minutes: *boot_silent_minutes,
            boot_step_minutes: *boot_step_minutes,
            ..pb::Model::default()
        };
        let models = times.iter().map(model).collect();
        self.models.lock().unwrap().insert(machine.to_string(), models);
    }

    /// Returns the inventories that were recorded.
    pub(crate) fn inventories(&self) -> Vec<pb::RecordInventoryRequest> {
        self.inventories.lock().unwrap().clone()
    }

    /// Returns the reports of machines that enrolled.
    pub(crate) fn enrolments(&self) -> Vec<pb::EnrolMachineRequest> {
        self.enrolments.lock().unwrap().clone()
    }

    /// Sets the disks of a machine, by their serial numbers, and the hint to its root disk.
    pub(crate) fn set_disks(&self, machine: HardwareId, serials: &[&str], hint: Option<&str>) {
        let disk = |serial: &&str| pb::InventoryDisk {
            name: format!("sd{serial}").to_lowercase(),
            serial: (*serial).into(),
            by_id: vec![format!("/dev/disk/by-id/scsi-S{serial}")],
            ..pb::InventoryDisk::default()
        };
        let disks = serials.iter().map(disk).collect();
        let inventory = Box::new(pb::Inventory { disks, ..pb::Inventory::default() });
        let hint = hint.map(|hint| Box::new(hint.parse().unwrap()));
        self.disks.lock().unwrap().insert(machine.to_string(), (hint, Some(inventory)));
    }

    /// Sets the firmware that the inventory of a machine names.
    pub(crate) fn set_firmware(&self, machine: HardwareId, mode: pb::FirmwareMode) {
        let inventory = pb::Inventory { firmware_mode: mode.into(), ..Default::default() };
        self.disks.lock().unwrap().insert(machine.to_string(), (None, Some(inventory.into())));
    }

    /// Sets the policy of a machine.
    pub(crate) fn set_policy(&self, machine: HardwareId, policy: pb::Policy) {
        self.policies.lock().unwrap().insert(machine.to_string(), policy);
    }

    /// Deletes the record of a machine.
    pub(crate) fn delete(&self, machine: HardwareId) {
        self.states.lock().unwrap().insert(machine.to_string(), None);
    }
}

fn closed<T>() -> Answer<T> {
    Err(Status::unimplemented("not part of the fake"))
}

impl HardwareService for FakeHardware {
    async fn get_hardware(
        &self,
        request: Request<pb::GetHardwareRequest>,
    ) -> Answer<pb::GetHardwareResponse> {
        let view = request.get_ref().view();
        let Some(pb::get_hardware_request::By::Id(id)) = request.into_inner().by else {
            return closed();
        };
        let state = self.states.lock().unwrap().get(&id).copied();
        let state = match state.unwrap_or(Some(pb::State::Provisionable)) {
            Some(state) if id != NO_MACHINE => state,
            _ => return Err(status::not_found("hardware", &id)),
        };
        let ipxe = Some(pb::Ipxe { contents: SECRET.into(), ..Default::default() });
        let interface = pb::Interface {
            mac: "02:00:00:00:00:01".into(),
            netboot: Some(pb::Netboot { ipxe, ..Default::default() }),
            ..Default::default()
        };
        let disks = self.disks.lock().unwrap().get(&id).cloned();
        let (root_disk, inventory) = disks.unwrap_or_default();
        let hardware = pb::Hardware {
            root_disk,
            inventory,
            policy: self.policies.lock().unwrap().get(&id).cloned(),
            protect: id == PROTECTED_MACHINE,
            id,
            interfaces: vec![interface],
            state: state.into(),
            extra: format!(r#"{{"userData": "{SECRET}"}}"#).into(),
            ..Default::default()
        };
        let hardware = Some(hardware.in_view(view));
        Ok(Response::new(pb::GetHardwareResponse { hardware }))
    }

    async fn create_hardware(
        &self,
        _: Request<pb::CreateHardwareRequest>,
    ) -> Answer<pb::CreateHardwareResponse> {
        closed()
    }

    /// Lists the machines that have a policy, one on a page.
    async fn list_hardware(
        &self,
        request: Request<pb::ListHardwareRequest>,
    ) -> Answer<pb::ListHardwareResponse> {
        let after = request.into_inner().page_token;
        let policies = self.policies.lock().unwrap();
        let next = policies.iter().find(|(id, _)| **id > after);
        let Some((id, policy)) = next else {
            return Ok(Response::new(pb::ListHardwareResponse::default()));
        };
        let hardware = pb::Hardware {
            id: id.clone(),
            name: "node-1".into(),
            policy: Some(policy.clone()),
            ..Default::default()
        };
        let (hardware, next_page_token) = (vec![hardware], id.clone());
        Ok(Response::new(pb::ListHardwareResponse { hardware, next_page_token }))
    }

    async fn update_hardware(
        &self,
        _: Request<pb::UpdateHardwareRequest>,
    ) -> Answer<pb::UpdateHardwareResponse> {
        closed()
    }

    async fn set_hardware_state(
        &self,
        _: Request<pb::SetHardwareStateRequest>,
    ) -> Answer<pb::SetHardwareStateResponse> {
        closed()
    }

    async fn delete_hardware(
        &self,
        _: Request<pb::DeleteHardwareRequest>,
    ) -> Answer<pb::DeleteHardwareResponse> {
        closed()
    }

    async fn record_inventory(
        &self,
        request: Request<pb::RecordInventoryRequest>,
    ) -> Answer<pb::RecordInventoryResponse> {
        let request = request.into_inner();
        if self.states.lock().unwrap().get(&request.hardware_id) == Some(&None) {
            return Err(status::not_found("hardware", &request.hardware_id));
        }
        self.inventories.lock().unwrap().push(request);
        Ok(Response::new(pb::RecordInventoryResponse {}))
    }

    async fn record_bmc_inventory(
        &self,
        _: Request<pb::RecordBmcInventoryRequest>,
    ) -> Answer<pb::RecordBmcInventoryResponse> {
        closed()
    }

    async fn check_bmc_identity(
        &self,
        _: Request<pb::CheckBmcIdentityRequest>,
    ) -> Answer<pb::CheckBmcIdentityResponse> {
        closed()
    }

    async fn enrol_machine(
        &self,
        request: Request<pb::EnrolMachineRequest>,
    ) -> Answer<pb::EnrolMachineResponse> {
        let request = request.into_inner();
        let asked = request.enrolment.clone().unwrap();
        if asked.mac == KNOWN_MAC {
            let subject = format!("hardware/{NO_MACHINE}");
            return Err(status::failed_precondition("KNOWN_MACHINE", &subject, SECRET));
        }
        self.enrolments.lock().unwrap().push(request);
        let made = pb::Hardware { id: asked.id, name: "sn-1".into(), ..pb::Hardware::default() };
        Ok(Response::new(pb::EnrolMachineResponse { hardware: Some(made) }))
    }

    type WatchHardwareStream =
        Pin<Box<dyn Stream<Item = Result<pb::WatchHardwareResponse, Status>> + Send>>;

    async fn watch_hardware(
        &self,
        _: Request<pb::WatchHardwareRequest>,
    ) -> Answer<Self::WatchHardwareStream> {
        closed()
    }
}

impl ModelService for FakeHardware {
    async fn list_models(
        &self,
        request: Request<pb::ListModelsRequest>,
    ) -> Answer<pb::ListModelsResponse> {
        let machine = request.into_inner().hardware_id;
        let models = self.models.lock().unwrap().get(&machine).cloned().unwrap_or_default();
        Ok(Response::new(pb::ListModelsResponse { models, ..Default::default() }))
    }

    async fn list_model_offers(
        &self,
        _: Request<pb::ListModelOffersRequest>,
    ) -> Answer<pb::ListModelOffersResponse> {
        closed()
    }

    async fn create_model(
        &self,
        _: Request<pb::CreateModelRequest>,
    ) -> Answer<pb::CreateModelResponse> {
        closed()
    }

    async fn get_model(&self, _: Request<pb::GetModelRequest>) -> Answer<pb::GetModelResponse> {
        closed()
    }

    async fn update_model(
        &self,
        _: Request<pb::UpdateModelRequest>,
    ) -> Answer<pb::UpdateModelResponse> {
        closed()
    }

    async fn delete_model(
        &self,
        _: Request<pb::DeleteModelRequest>,
    ) -> Answer<pb::DeleteModelResponse> {
        closed()
    }

    type WatchModelsStream =
        Pin<Box<dyn Stream<Item = Result<pb::WatchModelsResponse, Status>> + Send>>;

    async fn watch_models(
        &self,
        _: Request<pb::WatchModelsRequest>,
    ) -> Answer<Self::WatchModelsStream> {
        closed()
    }
}
