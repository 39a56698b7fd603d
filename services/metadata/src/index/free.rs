//! The machines that no instance occupies. Nobody gets an answer at their addresses; only explanations name them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};

use fleet::machine::reserved_address;
use fleet::{FleetMachine, MachineChange};
use tinwright::HardwareId;

use crate::records;

/// A machine that no instance occupies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreeMachine {
    /// Its id.
    pub id: HardwareId,
    /// Its name, or else its id.
    pub name: String,
    /// The reserved addresses of its record.
    pub addresses: Vec<IpAddr>,
}

/// The free machines, by id.
#[derive(Debug, Default)]
pub struct FreeMachines(RwLock<HashMap<HardwareId, FreeMachine>>);

impl FreeMachines {
    /// Applies `changes` of machines.
    pub(super) fn apply(&self, changes: &[MachineChange]) {
        let mut free = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for MachineChange { id, before: _, after } in changes {
            match after.as_ref().filter(|machine| is_free(machine)) {
                Some(machine) => free.insert(*id, FreeMachine::new(machine)),
                None => free.remove(id),
            };
        }
    }

    /// Returns the first free machine in the order of ids that `matches`. Looks at all of them.
    pub fn find(&self, matches: impl Fn(&FreeMachine) -> bool) -> Option<FreeMachine> {
        let free = self.0.read().unwrap_or_else(PoisonError::into_inner);
        free.values().filter(|machine| matches(machine)).min_by_key(|machine| machine.id).cloned()
    }
}

impl FreeMachine {
    fn new(machine: &FleetMachine) -> Self {
        let hardware = &machine.hardware;
        let name = if hardware.name.is_empty() { &hardware.id } else { &hardware.name };
        let addresses = hardware.interfaces.iter().filter_map(reserved_address);
        let addresses = addresses.map(|address| address.to_canonical()).collect();
        Self { id: machine.id, name: name.clone(), addresses }
    }
}

fn is_free(machine: &Arc<FleetMachine>) -> bool {
    records::machine(&machine.hardware, machine.instance.as_ref()).is_none()
}
