//! Enrolment: the rules by which a machine without a record gets one, by its own report. No I/O.
//!
//! ```text
//! a record of this enrolment               ─▶ done: nothing is changed
//! no record with its UUID or one of its MACs ─▶ created, as enrolled
//! an enrolled record with its UUID, and no MAC or the one that asked ─▶ completed
//! anything else                            ─▶ refused: the machine is known
//! ```
//!
//! Nothing proves what a machine says of itself. So it never changes a record that somebody uses, and gets none that names the
//! UUID or a MAC of another one.

use std::collections::BTreeSet;

use tinwright::hardware::v1 as pb;
use tinwright::hardware::v1::State;
use tinwright::status::Violations;
use tinwright::{HardwareId, Mac, check, machine_uuid};

use crate::error::Error;
use crate::inventory;

/// The most machines of one network that wait for acceptance.
pub const MAX_WAITING: usize = 256;
/// The most interfaces that a record gets.
const MAX_INTERFACES: usize = 16;

/// The report of a machine without a record, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The id of its identity.
    pub id: HardwareId,
    mac: Mac,
    network: String,
    /// In the byte order of the inventory.
    uuid: HardwareId,
    inventory: pb::Inventory,
    /// The MAC that asked first.
    macs: Vec<String>,
}

/// What the records have to do with a [`Report`].
#[derive(Debug, Default)]
pub struct Survey {
    /// The record of this enrolment, or the one to complete.
    own: Option<pb::Hardware>,
    /// Id of a record that the machine must not change, and what it has in common with the report.
    known: Option<(String, String)>,
    /// The number of machines of the same network that wait for acceptance.
    waiting: usize,
    /// Names that are taken.
    names: BTreeSet<String>,
}

/// The consequence of a [`Report`].
#[derive(Debug, PartialEq)]
pub enum Outcome {
    /// The record exists already.
    Done(Box<pb::Hardware>),
    /// This record is created.
    Create(Box<pb::Hardware>),
    /// The first record is replaced by the second one.
    Complete(Box<pb::Hardware>, Box<pb::Hardware>),
}

impl Report {
    /// Returns the MAC that asked for the boot.
    pub fn mac(&self) -> Mac {
        self.mac
    }

    /// Checks a request.
    pub fn new(request: pb::EnrolMachineRequest) -> Result<Self, Violations> {
        let pb::EnrolMachineRequest { enrolment, uuid, inventory } = request;
        let enrolment = Violations::require("enrolment", enrolment)?;
        let id = Violations::parse("enrolment.id", &enrolment.id)?;
        let mac: Mac = Violations::parse("enrolment.mac", &enrolment.mac)?;
        let network = check::network(&enrolment.network);
        let network = network.map_err(|error| Violations::single("enrolment.network", error))?;
        let asked = machine_uuid::parse(&uuid).map_err(|why| Violations::single("uuid", why))?;
        let inventory = Violations::require("inventory", inventory)?;
        let inventory = inventory::normalize(inventory)?;
        let uuid: HardwareId = Violations::parse("inventory.uuid", &inventory.uuid)?;
        if !machine_uuid::is_same(uuid, asked) {
            let why = format!("is not {asked}, which asked for the boot");
            return Err(Violations::single("inventory.uuid", why));
        }
        let macs = macs(mac, &inventory)?;
        Ok(Self { id, mac, network, uuid, inventory, macs })
    }

    /// Returns what becomes of the machine.
    pub fn evaluate(&self, survey: Survey) -> Result<Outcome, Error> {
        let Survey { own, known, waiting, names } = survey;
        if let Some(own) = own.as_ref().filter(|own| self.is_made(own)) {
            return Ok(Outcome::Done(Box::new(own.clone())));
        }
        if let Some((id, common)) = known {
            let text = format!("hardware {id} has the {common} of a machine that asks to enrol");
            let subject = format!("hardware/{id}");
            return Err(Error::Precondition { reason: "KNOWN_MACHINE", subject, text });
        }
        if let Some(own) = own {
            let completed = self.completed(&own);
            return Ok(Outcome::Complete(Box::new(own), Box::new(completed)));
        }
        if waiting >= MAX_WAITING {
            let network = &self.network;
            let text = format!("{waiting} machines of {network} wait for acceptance");
            let subject = format!("network/{network}");
            return Err(Error::Precondition { reason: "ENROLMENT_LIMIT", subject, text });
        }
        Ok(Outcome::Create(Box::new(self.created(&names))))
    }

    /// True if `machine` is the record of this enrolment.
    fn is_made(&self, machine: &pb::Hardware) -> bool {
        let id = self.id.to_string();
        machine.enrolment.as_ref().is_some_and(|made| made.id == id)
    }

    /// Returns what `machine` has in common with the report; none for nothing.
    fn common(&self, machine: &pb::Hardware) -> Option<String> {
        if machine.id == self.id.to_string() {
            return Some("id".into());
        }
        if self.is_uuid_of(machine) {
            return Some(format!("UUID {}", self.uuid));
        }
        let mut macs = machine.interfaces.iter().map(|interface| &interface.mac);
        macs.find(|mac| self.macs.contains(mac)).map(|mac| format!("MAC {mac}"))
    }

    /// True if `machine` has the UUID, by its own report or by its BMC's.
    fn is_uuid_of(&self, machine: &pb::Hardware) -> bool {
        let own = machine.inventory.as_ref().map(|own| &own.uuid);
        let of_bmc = machine.bmc_inventory.as_ref().map(|listed| &listed.uuid);
        let mut uuids =
            own.into_iter().chain(of_bmc).filter_map(|it| it.parse::<HardwareId>().ok());
        uuids.any(|uuid| machine_uuid::is_same(uuid, self.uuid))
    }

    /// True if `machine` is a record that the report completes.
    fn completes(&self, machine: &pb::Hardware) -> bool {
        let has_mac = || machine.interfaces.iter().any(|it| it.mac == self.mac.to_string());
        machine.state() == State::Enrolled
            && !machine.protect
            && self.is_uuid_of(machine)
            && (machine.interfaces.is_empty() || has_mac())
    }

    fn enrolment(&self) -> Option<Box<pb::Enrolment>> {
        let (id, mac, network) = (self.id.to_string(), self.mac.to_string(), self.network.clone());
        Some(Box::new(pb::Enrolment { id, mac, network, time: None }))
    }

    /// Returns the interfaces for the record: the one that asked boots from the network.
    fn interfaces(&self) -> Vec<pb::Interface> {
        let interface = |mac: &String| pb::Interface {
            mac: mac.clone(),
            netboot: (*mac == self.mac.to_string())
                .then(|| pb::Netboot { allow_pxe: true, ..pb::Netboot::default() }),
            ..pb::Interface::default()
        };
        self.macs.iter().map(interface).collect()
    }

    fn created(&self, names: &BTreeSet<String>) -> pb::Hardware {
        let serial = check::label(&format!("sn-{}", self.inventory.serial.to_lowercase()));
        let mac = format!("mac-{}", self.mac.to_string().replace(':', ""));
        let name = serial.into_iter().chain([mac]).find(|name| !names.contains(name));
        pb::Hardware {
            id: self.id.to_string(),
            name: name.unwrap_or_default(),
            state: State::Enrolled.into(),
            architecture: self.inventory.architecture.clone(),
            interfaces: self.interfaces(),
            inventory: Some(Box::new(self.inventory.clone())),
            enrolment: self.enrolment(),
            ..pb::Hardware::default()
        }
    }

    /// Returns `old` with what it lacks. What an operator set stays.
    fn completed(&self, old: &pb::Hardware) -> pb::Hardware {
        let mut new = old.clone();
        let has = |mac: &str| old.interfaces.iter().any(|it| it.mac == mac);
        let missing = self.interfaces().into_iter().filter(|it| !has(&it.mac));
        new.interfaces.extend(missing);
        new.interfaces.truncate(MAX_INTERFACES);
        if old.interfaces.is_empty() {
            new.architecture.clone_from(&self.inventory.architecture);
        }
        new.inventory = Some(Box::new(self.inventory.clone()));
        new.enrolment = self.enrolment();
        new
    }
}

impl Survey {
    /// Adds a record.
    pub fn add(&mut self, report: &Report, machine: pb::Hardware) {
        let waits = |made: &pb::Enrolment| made.network == report.network;
        if machine.state() == State::Enrolled && machine.enrolment.as_deref().is_some_and(waits) {
            self.waiting += 1;
        }
        if !machine.name.is_empty() {
            self.names.insert(machine.name.clone());
        }
        if report.is_made(&machine) || (self.own.is_none() && report.completes(&machine)) {
            self.own = Some(machine);
        } else if let Some(common) = report.common(&machine) {
            self.known.get_or_insert((machine.id, common));
        }
    }
}

/// Returns the MACs of the machine, with `asked` first.
fn macs(asked: Mac, inventory: &pb::Inventory) -> Result<Vec<String>, Violations> {
    let asked = asked.to_string();
    let is_usable = |mac: &&String| mac.parse().is_ok_and(|mac: Mac| mac.is_unicast());
    let listed: BTreeSet<_> =
        inventory.interfaces.iter().map(|it| &it.mac).filter(is_usable).collect();
    if !listed.contains(&asked) {
        let why = format!("has no interface {asked}, which asked for the boot");
        return Err(Violations::single("inventory.interfaces", why));
    }
    let others = listed.into_iter().filter(|mac| **mac != asked).cloned();
    Ok([asked.clone()].into_iter().chain(others).take(MAX_INTERFACES).collect())
}

#[cfg(test)]
mod tests;
