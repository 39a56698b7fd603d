//! A machine, joined from the records of three services.

use std::net::IpAddr;
use std::sync::Arc;

use tinwright::hardware::v1::{Dhcp, Hardware, Interface};
use tinwright::instance::v1::instance::AttachedAddress;
use tinwright::instance::v1::{Instance, State};
use tinwright::workflow::v1::{Workflow, WorkflowState, boot_options::Mode};
use tinwright::{HardwareId, Mac};

/// A machine, the instance that occupies it, and the workflows on it that have not ended.
#[derive(Clone, Debug)]
pub struct FleetMachine {
    /// The id of its hardware record.
    pub id: HardwareId,
    /// Its hardware record.
    pub hardware: Arc<Hardware>,
    /// The instance that occupies it.
    pub instance: Option<Arc<Instance>>,
    /// Its workflows that have not ended, in the order of their ids.
    pub workflows: Vec<FleetWorkflow>,
    /// Addresses that its records claim and that another machine claimed first.
    pub contested: Vec<IpAddr>,
}

/// A workflow that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetWorkflow {
    /// Its id.
    pub id: String,
    /// True if it has an action to run on the machine now.
    pub wants_machine: bool,
    /// True if the machine is still to be switched off and started for it. Until then, what runs on the machine may be its
    /// tenant's system: it must get neither a script nor an identity.
    pub is_unprepared: bool,
    /// The boot epoch of the machine that it began; 0 if it has not.
    pub boot_epoch: u64,
    /// SHA-256 of the stored file of its image, in hexadecimal digits. None: it has no image.
    pub image_file: Option<Box<str>>,
}

impl From<&Workflow> for FleetWorkflow {
    fn from(workflow: &Workflow) -> Self {
        let prepares = workflow.boot_options.is_some_and(|options| options.mode() == Mode::Netboot);
        let waits = matches!(workflow.state(), WorkflowState::Pending | WorkflowState::Preparing);
        let is_unprepared = prepares && waits && !workflow.prepared;
        let wants_machine = workflow.wants_machine && !is_unprepared;
        let boot_epoch = workflow.boot_epoch;
        let image = workflow.image.as_ref().map(|image| image.stored_sha256.as_str().into());
        let id = workflow.id.clone();
        Self { id, wants_machine, is_unprepared, boot_epoch, image_file: image }
    }
}

/// A machine that was added, changed or removed.
#[derive(Clone, Debug)]
pub struct MachineChange {
    /// Its id.
    pub id: HardwareId,
    /// The machine before; none if it is new.
    pub before: Option<Arc<FleetMachine>>,
    /// The machine now; none if it was removed.
    pub after: Option<Arc<FleetMachine>>,
}

impl FleetMachine {
    /// True if a workflow has an action to run on it.
    pub fn worker_wanted(&self) -> bool {
        self.workflows.iter().any(|workflow| workflow.wants_machine)
    }

    /// True if a workflow waits until the machine was switched off and started for it.
    pub fn is_unprepared(&self) -> bool {
        self.workflows.iter().any(|workflow| workflow.is_unprepared)
    }

    /// The boot epoch of the machine, as far as its workflows show it; 0 if they do not.
    pub fn boot_epoch(&self) -> u64 {
        self.workflows.iter().map(|workflow| workflow.boot_epoch).max().unwrap_or(0)
    }

    /// True if another machine claimed `address` first.
    pub fn is_contested(&self, address: IpAddr) -> bool {
        self.contested.contains(&address.to_canonical())
    }

    /// Returns the MACs of its interfaces.
    pub fn macs(&self) -> impl Iterator<Item = Mac> {
        self.hardware.interfaces.iter().filter_map(|interface| interface.mac.parse().ok())
    }

    /// True if `other` was joined from the same records.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let instances = [&self.instance, &other.instance].map(|one| one.as_ref().map(Arc::as_ptr));
        Arc::ptr_eq(&self.hardware, &other.hardware)
            && instances[0] == instances[1]
            && self.workflows == other.workflows
            && self.contested == other.contested
    }

    pub(crate) fn claims(&self) -> Vec<IpAddr> {
        claimed_addresses(&self.hardware, self.instance.as_deref())
    }
}

/// Releases unused capacity: decoding reserves four elements for each list, and most lists have one or two.
pub(crate) fn shrink(hardware: &mut Hardware) {
    hardware.interfaces.shrink_to_fit();
    hardware.disks.shrink_to_fit();
    for interface in &mut hardware.interfaces {
        let Some(dhcp) = &mut interface.dhcp else { continue };
        let Dhcp { name_servers, time_servers, classless_routes, .. } = dhcp;
        name_servers.shrink_to_fit();
        time_servers.shrink_to_fit();
        classless_routes.shrink_to_fit();
    }
}

/// Returns the address that `interface` reserves.
pub fn reserved_address(interface: &Interface) -> Option<IpAddr> {
    interface.dhcp.as_ref()?.address.as_ref()?.address.parse().ok()
}

/// True if an instance in `state` occupies its machine: false from deprovisioning on.
pub fn is_occupying(state: State) -> bool {
    match state {
        State::Queued
        | State::Provisioning
        | State::Reinstalling
        | State::Active
        | State::Failed
        | State::Unspecified => true,
        State::Deprovisioning | State::DeprovisionFailed | State::Deleted => false,
    }
}

/// Returns the granted addresses that are attached to the interface `mac` by `instance`, while that occupies the machine.
pub fn attached_addresses(
    instance: Option<&Instance>,
    mac: Mac,
) -> impl Iterator<Item = &AttachedAddress> {
    let instance = instance.filter(|instance| is_occupying(instance.state()));
    let all = instance.into_iter().flat_map(|instance| &instance.addresses);
    all.filter(move |attached| attached.mac.parse() == Ok(mac))
}

/// Returns the addresses that the records of a machine claim, in canonical form without duplicates: the reservations of its
/// interfaces, and the addresses of its instance, also those that are granted to it.
pub(crate) fn claimed_addresses(hardware: &Hardware, instance: Option<&Instance>) -> Vec<IpAddr> {
    let reserved = hardware.interfaces.iter().filter_map(reserved_address);
    let instance = instance.filter(|instance| is_occupying(instance.state()));
    let listed = instance.into_iter().flat_map(|instance| &instance.ips).map(|ip| &ip.address);
    let granted = instance.into_iter().flat_map(|instance| &instance.addresses);
    let own = listed.chain(granted.map(|attached| &attached.address));
    let own = own.filter_map(|address| address.parse::<IpAddr>().ok());
    let mut all: Vec<_> = reserved.chain(own).map(|address| address.to_canonical()).collect();
    all.sort();
    all.dedup();
    all
}
