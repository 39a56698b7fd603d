//! The machine as one JSON document, for three generations of readers.
//!
//! ```text
//! { fields of the instance …          Hegel, whose /metadata was the instance itself
//!   fields of Equinix Metal …         afterburn, Ignition, Talos; they go before
//!   fields of the hardware …          readers of the hardware as it was exported before there were instances
//!   "instance": {…}                   the same, whose instance stood there; left out where it would make all too long
//!   "metadata": {"instance": {…}} }   rootio, and whoever reads Tinkerbell's own document
//! ```
//!
//! No two of them mean different things by one name.

mod equinix;
mod instance;

use serde_json::{Map, Value, json};

use super::Asked;
use crate::machine::Machine;

/// How long a document may be, in bytes.
const LONGEST: usize = 256 * 1024;

/// Puts a document together of the machine and what is said of its instance.
type Make = fn(&Machine, Map<String, Value>, Asked) -> Value;

/// What `GET /metadata` answers.
pub fn whole(machine: &Machine, asked: Asked) -> Value {
    within(machine, asked, [aliased, superset])
}

/// The document that the first of `makes` makes; or else the other, where it would be longer than it may be.
fn within(machine: &Machine, asked: Asked, makes: [Make; 2]) -> Value {
    let mut instance = instance::instance(machine, asked);
    for make in makes {
        let document = make(machine, instance.clone(), asked);
        if document.to_string().len() <= LONGEST {
            return document;
        }
    }
    // User data is what can be long, it stands there twice, and /userdata has it as well.
    instance.remove("userdata");
    let [_, shorter] = makes;
    shorter(machine, instance, asked)
}

/// The hardware as Hegel exported it, for readers of either generation: the instance is at the top for those of the first.
pub fn hardware(machine: &Machine, asked: Asked) -> Value {
    within(machine, asked, [exported, exported])
}

fn exported(machine: &Machine, instance: Map<String, Value>, _: Asked) -> Value {
    let mut hardware = of_hardware(machine);
    hardware.insert("instance".into(), instance.clone().into());
    hardware.insert("network".into(), equinix::network(machine));
    let mut metadata = match &machine.extra {
        Value::Object(extra) => extra.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Map::new()
        }
    };
    let facility = json!({ "facility_code": machine.facility, "plan_slug": machine.plan });
    metadata.insert("facility".into(), facility);
    metadata.insert("manufacturer".into(), json!({ "slug": machine.manufacturer }));
    metadata.insert("instance".into(), instance.into());
    hardware.insert("metadata".into(), metadata.into());
    hardware.into()
}

/// The same with the instance under its name, too, as the export had it.
fn aliased(machine: &Machine, instance: Map<String, Value>, asked: Asked) -> Value {
    let mut document = superset(machine, instance.clone(), asked);
    document["instance"] = instance.into();
    document
}

fn superset(machine: &Machine, instance: Map<String, Value>, asked: Asked) -> Value {
    let mut document = of_hardware(machine);
    document.extend(instance.clone());
    document.extend(equinix::fields(machine, asked));
    document.insert("metadata".into(), json!({ "instance": instance }));
    document.into()
}

/// What is said of the hardware, in the words of Hegel's export.
fn of_hardware(machine: &Machine) -> Map<String, Value> {
    let ports = machine.nics.iter().zip(machine.links()).map(|(nic, link)| {
        json!({
            "type": "data",
            "name": link.name,
            "data": { "mac": nic.mac.to_string(), "bonded": !nic.bond.is_empty() },
        })
    });
    let instance = machine.instance.as_ref();
    Map::from_iter([
        ("id".to_owned(), json!(machine.id.to_string())),
        ("arch".to_owned(), json!(machine.architecture)),
        (
            "state".to_owned(),
            json!(instance.map_or_else(String::new, |instance| instance.state.word())),
        ),
        ("hostname".to_owned(), json!(machine.hostname())),
        ("facility_code".to_owned(), json!(machine.facility)),
        ("plan_slug".to_owned(), json!(machine.plan)),
        ("bonding_mode".to_owned(), json!(equinix::bonding_mode(machine))),
        ("network_ports".to_owned(), ports.collect()),
        ("efi_boot".to_owned(), said(machine, "efi_boot", json!(false))),
        (
            "preinstalled_operating_system_version".to_owned(),
            said(machine, "preinstalled_operating_system_version", json!({})),
        ),
    ])
}

/// What the hardware's record says under `key`, where it has no field for that.
fn said(machine: &Machine, key: &str, otherwise: Value) -> Value {
    machine.extra.get(key).cloned().unwrap_or(otherwise)
}

#[cfg(test)]
mod tests;
