//! Machines that are known by their BMC only: from its address and credentials to a machine's record, and its first boot.
//!
//! ```text
//! address, credentials ─▶ login, inventory ─▶ machine (by MAC, by name, or new) ─▶ BMC ─▶ inventory stored ─▶ discovery boot
//! ```
//!
//! Nothing is written before the login has succeeded. Each later step finds what the earlier ones wrote, so that an enrolment which was
//! interrupted is completed when it is repeated.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use tinwright::check;
use tinwright::hardware::v1 as hw;
use tinwright::hardware::v1::get_hardware_request::By;
use tinwright::power::v1 as pb;
use tinwright::power::v1::bmc::Protocol;
use tinwright::power::v1::enrol_bmc_request::Discovery;
use tinwright::power::v1::operation::boot::Device;
use tinwright::power::v1::operation::{Boot, Power as Switch, What};
use tinwright::status::Violations;

use crate::Error;
use crate::address::Address;
use crate::bmc_client::{self, Reading};
use crate::bmcs::{set_learnt, set_system_uuid};
use crate::hardware_directory::{HardwareDirectory, ListedMachine};
use crate::jobs::{JobFilter, Jobs};
use crate::redfish::Power;

/// The most interfaces of a machine's record.
const MAX_INTERFACES: usize = 16;
/// The longest name of a machine.
const MAX_NAME_BYTES: usize = 63;

/// Enrols machines by their BMCs.
#[derive(Clone, Debug)]
pub struct Enrolment {
    jobs: Jobs,
    hardware: HardwareDirectory,
    /// The addresses whose enrolment is running in this process.
    running: Arc<Mutex<BTreeSet<String>>>,
}

/// An address whose enrolment is running, until drop.
struct Running {
    address: String,
    all: Arc<Mutex<BTreeSet<String>>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.address);
    }
}

/// What a BMC says of its machine.
struct Found {
    reading: Reading,
    inventory: hw::BmcInventory,
}

impl Enrolment {
    /// Enrols machines of `hardware`, with the BMCs of `jobs`.
    pub fn new(jobs: Jobs, hardware: HardwareDirectory) -> Self {
        Self { jobs, hardware, running: Arc::default() }
    }

    /// Enrols the machine that `request` describes.
    pub async fn enrol(&self, request: pb::EnrolBmcRequest) -> Result<pb::EnrolBmcResponse, Error> {
        let (bmc, discovery) = check_request(&request)?;
        let bmc = self.jobs.bmcs.check_new(bmc)?;
        let _running = self.begin(&bmc)?;
        match self.jobs.bmcs.find_by_address(&bmc).await? {
            Some(existing) => Box::pin(self.complete(existing, discovery)).await,
            None => Box::pin(self.enrol_new(bmc, discovery, request)).await,
        }
    }

    /// Reads the inventory of the machine of the stored `bmc`, and stores it.
    pub async fn read_inventory(&self, bmc: pb::Bmc) -> Result<(Power, hw::BmcInventory), Error> {
        let target = self.jobs.bmcs.target(&bmc).await?;
        let (reading, inventory) = bmc_client::read_inventory(target).await?;
        let bmc = self.jobs.bmcs.pin(bmc, &reading.learnt).await?;
        self.hardware.record(&bmc.hardware_id, inventory.clone()).await?;
        Ok((reading.system.power, inventory))
    }

    /// Marks the address of `bmc` as being enrolled.
    fn begin(&self, bmc: &pb::Bmc) -> Result<Running, Error> {
        let address = format!("{:?}", Address::of(bmc));
        let mut all = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        match all.insert(address.clone()) {
            true => Ok(Running { address, all: self.running.clone() }),
            false => Err(Error::EnrolmentRuns),
        }
    }

    /// Enrols the machine of a BMC that has no record.
    async fn enrol_new(
        &self,
        mut bmc: pb::Bmc,
        discovery: Discovery,
        request: pb::EnrolBmcRequest,
    ) -> Result<pb::EnrolBmcResponse, Error> {
        let (reading, inventory) = self.jobs.bmcs.log_in_to_new(&bmc).await?;
        let mut notes = missing_parts(&bmc, &inventory);
        let found = self.find_machine(&inventory).await?;
        let hardware_created = found.is_none();
        let id = found.as_ref().map_or("", |machine| &machine.id);
        self.jobs.bmcs.check_unique(id, &bmc, &ListedMachine::from(&inventory)).await?;
        let machine = match found {
            Some(machine) => {
                notes.push(format!("the machine has a record already: {}", shown(&machine)));
                machine
            }
            None => {
                check_identity(&inventory, discovery)?;
                let machine = self.new_machine(request, &inventory, &mut notes).await?;
                self.hardware.create(machine).await?
            }
        };
        bmc.hardware_id.clone_from(&machine.id);
        set_learnt(&mut bmc, &reading.learnt);
        set_system_uuid(&mut bmc, &inventory.uuid);
        let bmc = self.jobs.bmcs.create(bmc, crate::Login::Skip, None).await?;
        let found = Found { reading, inventory };
        let response = pb::EnrolBmcResponse {
            hardware_created,
            bmc_created: true,
            notes,
            ..pb::EnrolBmcResponse::default()
        };
        self.finish(bmc, machine, discovery, found, response).await
    }

    /// Completes the enrolment of a BMC that has a record, if it was interrupted. Changes nothing otherwise.
    async fn complete(
        &self,
        bmc: pb::Bmc,
        discovery: Discovery,
    ) -> Result<pb::EnrolBmcResponse, Error> {
        let machine = self.hardware.find(By::Id(bmc.hardware_id.clone())).await?;
        let machine = machine.unwrap_or_default();
        let hardware = bmc.hardware_id.parse().ok();
        let has_job = match hardware {
            Some(_) => {
                let filter = JobFilter { hardware, ..JobFilter::default() };
                let jobs = self.jobs.list("", 1, &filter).await?;
                !jobs.records.is_empty()
            }
            None => false,
        };
        let is_complete = machine.state() != hw::State::Enrolled
            || machine.inventory.is_some()
            || has_job
            || discovery == Discovery::None && machine.bmc_inventory.is_some();
        let notes = vec!["the BMC has a record already".to_owned()];
        let response = pb::EnrolBmcResponse { notes, ..pb::EnrolBmcResponse::default() };
        if is_complete {
            return Ok(pb::EnrolBmcResponse {
                hardware_id: bmc.hardware_id.clone(),
                bmc: Some(bmc),
                inventory: machine.bmc_inventory.map(|inventory| *inventory),
                ..response
            });
        }
        let target = self.jobs.bmcs.target(&bmc).await?;
        let (reading, inventory) = bmc_client::read_inventory(target).await?;
        self.finish(bmc, machine, discovery, Found { reading, inventory }, response).await
    }

    /// Stores the inventory, and orders the boot for discovery.
    async fn finish(
        &self,
        bmc: pb::Bmc,
        machine: hw::Hardware,
        discovery: Discovery,
        Found { reading, inventory }: Found,
        mut response: pb::EnrolBmcResponse,
    ) -> Result<pb::EnrolBmcResponse, Error> {
        self.hardware.record(&machine.id, inventory.clone()).await?;
        let power = reading.system.power;
        if machine.state() != hw::State::Enrolled {
            response.notes.push("no boot for discovery: the machine is past that state".into());
        } else if discovery == Discovery::Unspecified && power != Power::Off {
            response.notes.push("no boot for discovery: the machine is on".into());
        } else if discovery != Discovery::None {
            let operations = [
                What::Boot(Boot { device: Device::Pxe.into(), ..Boot::default() }),
                What::Power(Switch::Cycle.into()),
            ];
            let job = pb::PowerJob {
                hardware_id: machine.id.clone(),
                operations: operations
                    .map(|what| pb::Operation { what: Some(what), ..Default::default() })
                    .into(),
                ..pb::PowerJob::default()
            };
            response.discovery = Some(self.jobs.create(job, None).await?);
        }
        response.hardware_id = machine.id;
        response.bmc = Some(bmc);
        response.inventory = Some(inventory);
        response.set_power_state(power.into());
        Ok(response)
    }

    /// Returns the machine whose record has one of the MACs in `inventory`, or the name that its serial number gives and no other
    /// identity.
    async fn find_machine(
        &self,
        inventory: &hw::BmcInventory,
    ) -> Result<Option<hw::Hardware>, Error> {
        for interface in inventory.interfaces.iter().take(MAX_INTERFACES) {
            if let Some(machine) = self.hardware.find(By::Mac(interface.mac.clone())).await? {
                return Ok(Some(machine));
            }
        }
        let name = name_of(&inventory.serial);
        if name.is_empty() {
            return Ok(None);
        }
        let named = self.hardware.find(By::Name(name)).await?;
        Ok(named.filter(|machine| has_identity(machine, inventory)))
    }

    /// Returns the record of a new machine.
    async fn new_machine(
        &self,
        request: pb::EnrolBmcRequest,
        inventory: &hw::BmcInventory,
        notes: &mut Vec<String>,
    ) -> Result<hw::Hardware, Error> {
        let mut name = request.name;
        if name.is_empty() {
            name = name_of(&inventory.serial);
            if !name.is_empty() && self.hardware.find(By::Name(name.clone())).await?.is_some() {
                notes.push(format!("no name: another machine is named {name}"));
                name.clear();
            }
        }
        let interfaces = inventory.interfaces.iter().take(MAX_INTERFACES).map(new_interface);
        Ok(hw::Hardware {
            name,
            state: hw::State::Enrolled.into(),
            interfaces: interfaces.collect(),
            location_id: request.location_id,
            zone: request.zone,
            labels: request.labels,
            ..hw::Hardware::default()
        })
    }
}

/// Returns the BMC in `request`, and the wanted boot for discovery.
fn check_request(request: &pb::EnrolBmcRequest) -> Result<(pb::Bmc, Discovery), Violations> {
    let mut wrong = Violations::default();
    let discovery = Discovery::try_from(request.discovery);
    if discovery.is_err() {
        wrong.add("discovery", format!("{} is not a kind of discovery", request.discovery));
    }
    if !request.name.is_empty() {
        wrong.take("name", check::label(&request.name));
    }
    wrong.take("labels", check::labels(&request.labels));
    let bmc = request.bmc.clone().unwrap_or_default();
    match &request.bmc {
        None => wrong.add("bmc", "is missing"),
        Some(bmc) => {
            for (field, value) in [("bmc.id", &bmc.id), ("bmc.hardware_id", &bmc.hardware_id)] {
                if !value.is_empty() {
                    wrong.add(field, "is given by the server");
                }
            }
        }
    }
    wrong.into_result((bmc, discovery.unwrap_or_default()))
}

/// Passes unless the machine of `inventory` is to boot for discovery and would not be recognized then: its own report names its UUID and its
/// MACs.
fn check_identity(inventory: &hw::BmcInventory, discovery: Discovery) -> Result<(), Error> {
    let is_known = !inventory.uuid.is_empty() || !inventory.interfaces.is_empty();
    if is_known || discovery == Discovery::None { Ok(()) } else { Err(Error::NoIdentity) }
}

/// Returns an interface that boots the in-memory environment.
fn new_interface(interface: &hw::BmcInterface) -> hw::Interface {
    let netboot = hw::Netboot { allow_pxe: true, allow_workflow: true, ..Default::default() };
    hw::Interface { mac: interface.mac.clone(), netboot: Some(netboot), ..hw::Interface::default() }
}

/// Returns what `inventory` lacks, for people.
fn missing_parts(bmc: &pb::Bmc, inventory: &hw::BmcInventory) -> Vec<String> {
    let protocol = match &bmc.protocol {
        Some(Protocol::Ipmi(_)) => " over IPMI",
        Some(Protocol::Redfish(_)) | None => "",
    };
    let parts = [
        ("UUID", inventory.uuid.is_empty()),
        ("serial number", inventory.serial.is_empty()),
        ("Ethernet address", inventory.interfaces.is_empty()),
    ];
    let missing = parts.into_iter().filter(|(_, is_missing)| *is_missing);
    missing.map(|(part, _)| format!("the BMC lists no {part}{protocol}")).collect()
}

/// True if nothing in `machine` says that it is another one than that of `inventory`, whose serial number is its name.
fn has_identity(machine: &hw::Hardware, inventory: &hw::BmcInventory) -> bool {
    let own = machine.inventory.as_deref().map(|own| (&own.uuid, &own.serial));
    let listed = machine.bmc_inventory.as_deref().map(|listed| (&listed.uuid, &listed.serial));
    let is_other = |known: &str, read: &str| !known.is_empty() && !read.is_empty() && known != read;
    [own, listed].into_iter().flatten().all(|(uuid, serial)| {
        !is_other(uuid, &inventory.uuid) && !is_other(serial, &inventory.serial)
    })
}

/// Returns the name of a machine with this serial number: its letters and digits, with hyphens between them. Empty if it has none.
fn name_of(serial: &str) -> String {
    let is_part = |letter: char| letter.is_ascii_alphanumeric();
    let parts = serial.split(|letter| !is_part(letter)).filter(|part| !part.is_empty());
    let mut name = parts.collect::<Vec<_>>().join("-").to_ascii_lowercase();
    name.truncate(MAX_NAME_BYTES);
    name.trim_end_matches('-').to_owned()
}

/// Returns the name of `machine`, else its id.
fn shown(machine: &hw::Hardware) -> &str {
    if machine.name.is_empty() { &machine.id } else { &machine.name }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inventory(uuid: &str, serial: &str) -> hw::BmcInventory {
        hw::BmcInventory { uuid: uuid.into(), serial: serial.into(), ..Default::default() }
    }

    #[test]
    fn a_serial_number_becomes_a_label() {
        for (serial, name) in
            [("B0BBR22", "b0bbr22"), (" VM/12 34_", "vm-12-34"), ("ü", ""), ("", "")]
        {
            assert_eq!(name_of(serial), name);
            assert!(name.is_empty() || check::label(name).is_ok());
        }
        let long = name_of(&format!("{}-{}", "a".repeat(62), "b".repeat(20)));
        assert_eq!(long, "a".repeat(62));
    }

    #[test]
    fn a_machine_of_that_name_with_another_identity_is_another_machine() {
        let stored = inventory("4c4c4544-0042-3010-8052-b4c04f4d3232", "A1");
        let machine = hw::Hardware { bmc_inventory: Some(Box::new(stored)), ..Default::default() };
        assert!(has_identity(&machine, &inventory("", "A1")));
        assert!(has_identity(&hw::Hardware::default(), &inventory("x", "A1")));
        assert!(!has_identity(&machine, &inventory("5c4c4544-0042-3010-8052-b4c04f4d3232", "A1")));
        assert!(!has_identity(&machine, &inventory("", "A2")));
    }

    #[test]
    fn what_a_bmc_does_not_list_is_said() {
        let ipmi = pb::bmc::Ipmi { host: "192.0.2.1".into(), ..Default::default() };
        let bmc = pb::Bmc { protocol: Some(Protocol::Ipmi(ipmi)), ..pb::Bmc::default() };
        assert_eq!(
            missing_parts(&bmc, &inventory("", "A1")),
            ["the BMC lists no UUID over IPMI", "the BMC lists no Ethernet address over IPMI"]
        );
    }

    #[test]
    fn ids_are_not_given_by_the_caller_and_all_violations_are_named() {
        let bmc = pb::Bmc { hardware_id: "x".into(), ..pb::Bmc::default() };
        let request = pb::EnrolBmcRequest {
            bmc: Some(bmc),
            name: "rack 1".into(),
            discovery: 9,
            ..Default::default()
        };
        let wrong = check_request(&request).unwrap_err();
        let fields: Vec<_> = wrong.iter().map(|violation| violation.field.as_str()).collect();
        assert_eq!(fields, ["discovery", "name", "bmc.hardware_id"]);
    }
}
