//! A service of machines in memory, whose next calls may fail.

use std::sync::{Arc, Mutex};

use futures_util::stream::Empty;
use power::HardwareDirectory;
use runtime::Channel;
use tinwright::hardware::v1 as pb;
use tinwright::hardware::v1::get_hardware_request::By;
use tinwright::hardware::v1::hardware_service_server::{HardwareService, HardwareServiceServer};
use tinwright::{HardwareId, status};
use tonic::service::Routes;
use tonic::{Request, Response, Status};

type Answer<T> = Result<Response<T>, Status>;

/// The machines.
#[derive(Clone, Debug, Default)]
pub(crate) struct FakeHardware {
    machines: Arc<Mutex<Vec<pb::Hardware>>>,
    /// The number of the next inventories that are not stored.
    failures: Arc<Mutex<u32>>,
    /// True if BMCs list another machine than that of their record.
    others: Arc<Mutex<bool>>,
    /// True if identities are not compared.
    away: Arc<Mutex<bool>>,
    /// True if machines are not returned.
    unreadable: Arc<Mutex<bool>>,
    /// The identities that were compared.
    compared: Arc<Mutex<Vec<pb::CheckBmcIdentityRequest>>>,
}

impl FakeHardware {
    /// Returns a client of the service.
    pub(crate) fn directory(&self) -> HardwareDirectory {
        let routes = Routes::new(HardwareServiceServer::new(self.clone()));
        HardwareDirectory::new(Channel::to(routes))
    }

    /// Returns all machines.
    pub(crate) fn all(&self) -> Vec<pb::Hardware> {
        self.machines.lock().unwrap().clone()
    }

    /// Adds a machine, and returns its id.
    pub(crate) fn add(&self, machine: pb::Hardware) -> HardwareId {
        let id = HardwareId::new();
        self.machines.lock().unwrap().push(pb::Hardware { id: id.to_string(), ..machine });
        id
    }

    /// Says from now on whether BMCs list another machine.
    pub(crate) fn set_others(&self, others: bool) {
        *self.others.lock().unwrap() = others;
    }

    /// Says from now on whether calls that compare an identity fail.
    pub(crate) fn set_away(&self, away: bool) {
        *self.away.lock().unwrap() = away;
    }

    /// Says from now on whether calls that read a machine fail.
    pub(crate) fn set_unreadable(&self, unreadable: bool) {
        *self.unreadable.lock().unwrap() = unreadable;
    }

    /// Returns the identities that were compared.
    pub(crate) fn compared(&self) -> Vec<pb::CheckBmcIdentityRequest> {
        self.compared.lock().unwrap().clone()
    }

    /// Fails the next call that stores an inventory.
    pub(crate) fn fail_once(&self) {
        *self.failures.lock().unwrap() = 1;
    }
}

fn closed<T>() -> Answer<T> {
    Err(Status::unimplemented("not part of the fake"))
}

fn has_mac(machine: &pb::Hardware, mac: &str) -> bool {
    machine.interfaces.iter().any(|interface| interface.mac == mac)
}

impl HardwareService for FakeHardware {
    async fn get_hardware(
        &self,
        request: Request<pb::GetHardwareRequest>,
    ) -> Answer<pb::GetHardwareResponse> {
        let by = request.into_inner().by.unwrap();
        if *self.unreadable.lock().unwrap() {
            return Err(Status::unavailable("away"));
        }
        if let By::Id(id) = &by
            && id.parse::<HardwareId>().is_err()
        {
            return Err(Status::invalid_argument("id: not an id"));
        }
        let is_it = |machine: &&pb::Hardware| match &by {
            By::Id(id) => machine.id == *id,
            By::Mac(mac) => has_mac(machine, mac),
            By::Name(name) => machine.name == *name,
            By::Address(_) => false,
        };
        let found = self.all().iter().find(is_it).cloned();
        let found = found.ok_or_else(|| status::not_found("hardware", "it"))?;
        Ok(Response::new(pb::GetHardwareResponse { hardware: Some(found) }))
    }

    async fn create_hardware(
        &self,
        request: Request<pb::CreateHardwareRequest>,
    ) -> Answer<pb::CreateHardwareResponse> {
        let machine = request.into_inner().hardware.unwrap();
        let is_taken = |other: &pb::Hardware| {
            other.name == machine.name && !other.name.is_empty()
                || machine.interfaces.iter().any(|interface| has_mac(other, &interface.mac))
        };
        if self.all().iter().any(is_taken) {
            return Err(status::already_exists("hardware", &machine.name, "taken"));
        }
        self.add(machine);
        Ok(Response::new(pb::CreateHardwareResponse { hardware: self.all().pop() }))
    }

    async fn record_bmc_inventory(
        &self,
        request: Request<pb::RecordBmcInventoryRequest>,
    ) -> Answer<pb::RecordBmcInventoryResponse> {
        if std::mem::take(&mut *self.failures.lock().unwrap()) > 0 {
            return Err(Status::unavailable("away"));
        }
        let pb::RecordBmcInventoryRequest { hardware_id, inventory } = request.into_inner();
        let mut machines = self.machines.lock().unwrap();
        let machine = machines.iter_mut().find(|machine| machine.id == hardware_id);
        let machine = machine.ok_or_else(|| status::not_found("hardware", &hardware_id))?;
        machine.bmc_inventory = inventory.map(Box::new);
        Ok(Response::new(pb::RecordBmcInventoryResponse {}))
    }

    async fn list_hardware(
        &self,
        _: Request<pb::ListHardwareRequest>,
    ) -> Answer<pb::ListHardwareResponse> {
        closed()
    }

    async fn check_bmc_identity(
        &self,
        request: Request<pb::CheckBmcIdentityRequest>,
    ) -> Answer<pb::CheckBmcIdentityResponse> {
        if *self.away.lock().unwrap() {
            return Err(Status::unavailable("away"));
        }
        let request = request.into_inner();
        let other_machine = match *self.others.lock().unwrap() {
            true => format!("the BMC lists UUID {}, which is that of node-9", request.uuid),
            false => String::new(),
        };
        self.compared.lock().unwrap().push(request);
        Ok(Response::new(pb::CheckBmcIdentityResponse { other_machine }))
    }

    async fn enrol_machine(
        &self,
        _: Request<pb::EnrolMachineRequest>,
    ) -> Answer<pb::EnrolMachineResponse> {
        closed()
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
        _: Request<pb::RecordInventoryRequest>,
    ) -> Answer<pb::RecordInventoryResponse> {
        closed()
    }

    type WatchHardwareStream = Empty<Result<pb::WatchHardwareResponse, Status>>;

    async fn watch_hardware(
        &self,
        _: Request<pb::WatchHardwareRequest>,
    ) -> Answer<Self::WatchHardwareStream> {
        closed()
    }
}
