//! The machine as one JSON document, for three generations of clients.
//!
//! ```text
//! { fields of the instance …          Hegel, whose /metadata was the instance itself
//!   fields of Equinix Metal …         afterburn, Ignition, Talos; they have precedence
//!   fields of the hardware …          clients of the hardware export, which is older than instances
//!   "instance": {…}                   clients of that export; left out if the document would be too long
//!   "metadata": {"instance": {…}} }   rootio, and clients of Tinkerbell's own document
//! ```
//!
//! No name has two meanings.

mod equinix;
mod instance;

use serde_json::{Map, Value, json};

use super::RequestContext;
use crate::machine::Machine;

/// The longest document. A longer one is replaced by a shorter form.
const MAX_DOCUMENT_BYTES: usize = 256 * 1024;

/// Makes a document of the machine and the fields of its instance.
type Render = fn(&Machine, Map<String, Value>, RequestContext) -> Value;

/// Returns the document at `/metadata`.
pub fn whole(machine: &Machine, context: RequestContext) -> Value {
    shortened(machine, context, [with_alias, without_alias])
}

/// Returns the first of these documents that is short enough: of both `forms`, and of the last one without user data. User data
/// may be long, the document contains it twice, and `/userdata` has it as well.
fn shortened(machine: &Machine, context: RequestContext, forms: [Render; 2]) -> Value {
    let mut instance = instance::instance(machine, context);
    for form in forms {
        let document = form(machine, instance.clone(), context);
        if document.to_string().len() <= MAX_DOCUMENT_BYTES {
            return document;
        }
    }
    instance.remove(instance::USER_DATA);
    instance.remove(instance::USER_DATA_BYTES);
    let [_, short] = forms;
    short(machine, instance, context)
}

/// Returns the hardware as Hegel exported it. Fields of the instance are at `instance` and at `metadata.instance`.
pub fn hardware(machine: &Machine, context: RequestContext) -> Value {
    shortened(machine, context, [exported, exported])
}

fn exported(machine: &Machine, instance: Map<String, Value>, _: RequestContext) -> Value {
    let mut hardware = hardware_fields(machine);
    hardware["instance"] = instance.clone().into();
    hardware["network"] = equinix::network(machine);
    let mut metadata: Value = object(&machine.extra).into();
    metadata["facility"] = json!({ "facility_code": machine.facility, "plan_slug": machine.plan });
    metadata["manufacturer"] = json!({ "slug": machine.manufacturer });
    metadata["instance"] = instance.into();
    hardware["metadata"] = metadata;
    hardware
}

/// Returns the document with the instance also at `instance`.
fn with_alias(machine: &Machine, instance: Map<String, Value>, context: RequestContext) -> Value {
    let mut document = without_alias(machine, instance.clone(), context);
    document["instance"] = instance.into();
    document
}

fn without_alias(
    machine: &Machine,
    instance: Map<String, Value>,
    context: RequestContext,
) -> Value {
    let mut document = object(&hardware_fields(machine));
    document.extend(instance.clone());
    document.extend(object(&equinix::fields(machine, context)));
    document.insert("metadata".into(), json!({ "instance": instance }));
    document.into()
}

/// Returns the fields of a JSON object; none for another value.
fn object(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

/// Returns the fields of the hardware in Hegel's export.
fn hardware_fields(machine: &Machine) -> Value {
    let ports = machine.nics.iter().zip(machine.links()).map(|(nic, link)| {
        json!({
            "type": "data",
            "name": link.name,
            "data": { "mac": nic.mac.to_string(), "bonded": !nic.bond.is_empty() },
        })
    });
    let ports: Value = ports.collect();
    let extra = |key| machine.extra.get(key).cloned();
    let os_version = "preinstalled_operating_system_version";
    json!({
        "id": machine.id.to_string(),
        "arch": machine.architecture,
        "state": machine.instance.as_ref().map_or_else(String::new, |one| one.state.word()),
        "hostname": machine.hostname(),
        "facility_code": machine.facility,
        "plan_slug": machine.plan,
        "bonding_mode": equinix::bonding_mode(machine),
        "network_ports": ports,
        "efi_boot": extra("efi_boot").unwrap_or(json!(false)),
        os_version: extra(os_version).unwrap_or(json!({})),
    })
}

#[cfg(test)]
mod tests;
