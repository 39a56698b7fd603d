//! The instances that grants are attached to, and the interfaces of their machines.

use runtime::Channel;
use tinwright::Stored as _;
use tinwright::address::v1 as pb;
use tinwright::hardware::v1 as hw;
use tinwright::hardware::v1::get_hardware_request::By as HardwareBy;
use tinwright::hardware::v1::get_location_request::By as LocationBy;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tinwright::hardware::v1::location_service_client::LocationServiceClient;
use tinwright::instance::v1 as inst;
use tinwright::instance::v1::get_instance_request::By as InstanceBy;
use tinwright::instance::v1::instance_service_client::InstanceServiceClient;
use tinwright::status::Violations;
use tinwright::{InstanceId, LocationId, Mac, TenantName};
use tonic::{Response, Status};

use crate::Error;

/// Clients of the services that have instances and machines.
#[derive(Clone, Debug)]
pub struct InterfaceDirectory {
    hardware: HardwareServiceClient<Channel>,
    instance: InstanceServiceClient<Channel>,
    location: LocationServiceClient<Channel>,
}

/// An interface of the machine that an instance occupies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachTarget {
    /// The instance.
    pub instance: InstanceId,
    /// The tenant of the instance; empty for the site.
    pub tenant: String,
    /// The interface.
    pub mac: Mac,
}

impl InterfaceDirectory {
    /// Clients for these channels.
    pub fn new(hardware: Channel, instance: Channel) -> Self {
        Self {
            location: LocationServiceClient::new(hardware.clone()),
            hardware: HardwareServiceClient::new(hardware),
            instance: InstanceServiceClient::new(instance),
        }
    }

    /// Returns the name of the location with this id, which has to exist.
    pub async fn require_location(&self, id: LocationId) -> Result<String, Error> {
        let by = Some(LocationBy::Id(id.to_string()));
        let request = hw::GetLocationRequest { by };
        let found = response("hardware", self.location.clone().get_location(request)).await?;
        let location = found.and_then(|found| found.location);
        location.map(|it| it.name).ok_or_else(|| missing("location", &id.to_string()))
    }

    /// Returns the interface that `wanted` names, if its instance is one that `tenant` may see and occupies a machine.
    pub async fn find(
        &self,
        wanted: &pb::Attachment,
        tenant: Option<&TenantName>,
    ) -> Result<AttachTarget, Error> {
        let id: InstanceId = Violations::parse("attachment.instance_id", &wanted.instance_id)?;
        let by = Some(InstanceBy::Id(id.to_string()));
        let request = inst::GetInstanceRequest { by, ..Default::default() };
        let found = response("instance", self.instance.clone().get_instance(request)).await?;
        let instance = found.and_then(|found| found.instance);
        let instance = instance.filter(|it| it.is_visible_to(tenant));
        let instance = instance.ok_or_else(|| missing("instance", &id.to_string()))?;
        check_occupies(&instance)?;
        let machine = self.machine(&instance.hardware_id).await?;
        let machine = machine.ok_or_else(|| missing("hardware", &instance.hardware_id))?;
        let mac = interface(&machine, &wanted.mac)?;
        Ok(AttachTarget { instance: id, tenant: instance.tenant, mac })
    }

    /// Returns the name of the machine `id`, if it has one and the hardware service answers.
    pub async fn machine_name(&self, id: &str) -> Option<String> {
        let machine = self.machine(id).await.ok()??;
        Some(machine.name).filter(|name| !name.is_empty())
    }

    /// Returns the MACs of the machine `id`; none if there is none.
    pub async fn machine_macs(&self, id: &str) -> Result<Vec<String>, Error> {
        let interfaces = self.machine(id).await?.map(|machine| machine.interfaces);
        Ok(interfaces.unwrap_or_default().into_iter().map(|it| it.mac).collect())
    }

    async fn machine(&self, id: &str) -> Result<Option<hw::Hardware>, Error> {
        let by = Some(HardwareBy::Id(id.to_owned()));
        let request = hw::GetHardwareRequest { by, ..Default::default() };
        let found = response("hardware", self.hardware.clone().get_hardware(request)).await?;
        Ok(found.and_then(|found| found.hardware))
    }
}

/// Passes if `instance` occupies its machine.
fn check_occupies(instance: &inst::Instance) -> Result<(), Error> {
    let (reason, text) = match instance.state() {
        inst::State::Unspecified
        | inst::State::Deprovisioning
        | inst::State::DeprovisionFailed
        | inst::State::Deleted => ("INSTANCE_ENDING", "is being deleted"),
        inst::State::Queued
        | inst::State::Provisioning
        | inst::State::Reinstalling
        | inst::State::Active
        | inst::State::Failed => match instance.hardware_id.is_empty() || instance.released {
            true => ("NO_MACHINE", "has no machine"),
            false => return Ok(()),
        },
    };
    Err(Error::Precondition {
        reason,
        subject: format!("instance/{}", instance.id),
        text: format!("instance {} {text}", instance.id),
    })
}

/// Returns the interface of `machine` with the MAC `wanted`, or the primary interface if that is empty.
fn interface(machine: &hw::Hardware, wanted: &str) -> Result<Mac, Error> {
    let mut macs = machine.interfaces.iter().filter_map(|it| it.mac.parse::<Mac>().ok());
    let none = |text: &str| Error::from(Violations::single("attachment.mac", text));
    if wanted.is_empty() {
        return macs.next().ok_or_else(|| none("is missing: the machine has no interface"));
    }
    let wanted: Mac = Violations::parse("attachment.mac", wanted)?;
    macs.find(|mac| *mac == wanted)
        .ok_or_else(|| none("is not an interface of the instance's machine"))
}

fn missing(noun: &'static str, name: &str) -> Error {
    store::records::Error::Missing { noun, name: name.to_owned() }.into()
}

/// Returns the response of `service`; none if it does not have the object.
async fn response<T>(
    service: &'static str,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<Option<T>, Error> {
    let found = runtime::find(call).await;
    found.map_err(|status| Error::Unavailable { service, status: Box::new(status) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(error: &Error) -> String {
        if let Error::Precondition { reason, .. } = error {
            (*reason).to_owned()
        } else {
            error.to_string()
        }
    }

    #[test]
    fn only_an_instance_that_occupies_a_machine_gets_addresses() {
        let instance = |state: inst::State, hardware_id: &str, released| inst::Instance {
            state: state.into(),
            hardware_id: hardware_id.into(),
            released,
            ..inst::Instance::default()
        };
        for (instance, expected) in [
            (instance(inst::State::Active, "h", false), None),
            (instance(inst::State::Provisioning, "h", false), None),
            (instance(inst::State::Queued, "", false), Some("NO_MACHINE")),
            (instance(inst::State::Failed, "h", true), Some("NO_MACHINE")),
            (instance(inst::State::Deprovisioning, "h", false), Some("INSTANCE_ENDING")),
            (instance(inst::State::DeprovisionFailed, "h", false), Some("INSTANCE_ENDING")),
        ] {
            let found = check_occupies(&instance).err().map(|error| code(&error));
            assert_eq!(found.as_deref(), expected, "{instance:?}");
        }
    }

    #[test]
    fn an_interface_is_found_by_its_mac_and_the_primary_one_without() {
        let of = |mac: &str| hw::Interface { mac: mac.into(), ..hw::Interface::default() };
        let interfaces = vec![of("52:54:00:00:00:01"), of("52:54:00:00:00:0a")];
        let machine = hw::Hardware { interfaces, ..hw::Hardware::default() };
        let found = |wanted: &str| {
            interface(&machine, wanted).map(|mac| mac.to_string()).map_err(|error| code(&error))
        };
        assert_eq!(found(""), Ok("52:54:00:00:00:01".into()));
        assert_eq!(found("52-54-00-00-00-0A"), Ok("52:54:00:00:00:0a".into()));
        let text = "attachment.mac: is not an interface of the instance's machine";
        assert_eq!(found("52:54:00:00:00:0b"), Err(text.into()));
        assert!(interface(&hw::Hardware::default(), "").is_err());
    }
}
