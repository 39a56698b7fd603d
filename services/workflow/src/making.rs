//! How a workflow is made: a template, a machine and the caller's values, rendered once.

use std::time::SystemTime;

use prost_types::Timestamp;
use serde_json::{Map, Value, json};
use tinwright::hardware::v1 as hw;
use tinwright::status::Violations;
use tinwright::workflow::v1 as pb;
use tinwright::{Mac, WorkflowId, check};

use crate::ids::HardwareId;
use crate::lifecycle::{Plan, plan};
use crate::template::{self, Template, Values};
use crate::{record, templates};

/// The most bytes all values together may have.
const VALUES: usize = 64 * 1024;

/// The record of a new workflow on `machine`, as `asked`, of `template` (whose id may be empty).
pub fn workflow(
    asked: &pb::CreateWorkflowRequest,
    template: &pb::Template,
    machine: &hw::Hardware,
    now: SystemTime,
) -> Result<pb::Workflow, Violations> {
    let rendered = render(asked, template, machine)?;
    let actions = rendered.tasks.iter().flat_map(|task| &task.actions);
    let steps = plan::steps(&rendered, |worker| worker_of(machine, worker));
    let steps = steps.map_err(|unknown| {
        let name = if machine.name.is_empty() { &machine.id } else { &machine.name };
        Violations::single("template", format!("{unknown}: this one is {name}"))
    })?;
    let options = asked.boot_options;
    let mode = options.as_ref().map(pb::BootOptions::mode);
    let plan = Plan {
        prepares: mode == Some(pb::boot_options::Mode::Netboot),
        time_limit: rendered.global_timeout,
    };
    let blank = pb::Workflow {
        id: WorkflowId::new().to_string(),
        labels: asked.labels.clone(),
        create_time: Some(Timestamp::from(now)),
        update_time: Some(Timestamp::from(now)),
        template_id: template.id.clone(),
        template_name: if template.name.is_empty() { &rendered.name } else { &template.name }
            .clone(),
        hardware_id: machine.id.clone(),
        instance_id: asked.instance_id.clone(),
        boot_options: options,
        rendered: rendered.text.clone(),
        ..pb::Workflow::default()
    };
    Ok(record::newborn(blank, plan, steps.into_iter().zip(actions).collect(), now))
}

/// What is wrong with a request before anything else is looked at.
pub fn check(asked: &pb::CreateWorkflowRequest) -> Result<(), Violations> {
    let mut wrong = Violations::default();
    if asked.template_id.is_empty() == asked.template_data.is_empty() {
        wrong.add("template_id", "give it or template_data, one of them");
    }
    let size = asked.values.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
    if size > VALUES {
        wrong.add("values", format!("has {size} bytes, at most {VALUES} are allowed"));
    }
    if asked
        .boot_options
        .is_some_and(|options| pb::boot_options::Mode::try_from(options.mode).is_err())
    {
        wrong.add("boot_options.mode", "is no value of its enumeration");
    }
    wrong.take("labels", check::labels(&asked.labels));
    wrong.take("request_id", check::length(&asked.request_id, 128));
    wrong.into_result(())
}

fn render(
    asked: &pb::CreateWorkflowRequest,
    template: &pb::Template,
    machine: &hw::Hardware,
) -> Result<template::Rendered, Violations> {
    let field = if asked.template_data.is_empty() { "template" } else { "template_data" };
    let name = if template.name.is_empty() { "template_data" } else { &template.name };
    let parsed = Template::parse(name, &template.data).map_err(template::Error::from);
    let rendered = parsed.and_then(|parsed| parsed.render(values(asked, machine)));
    rendered.map_err(|error| Violations::single(field, templates::told(&error)))
}

/// What the template may ask about.
fn values(asked: &pb::CreateWorkflowRequest, machine: &hw::Hardware) -> Values {
    let given = asked.values.iter().map(|(key, value)| (key.clone(), json!(value)));
    let mut hardware_map: Map<String, Value> = given.collect();
    if let Some(interface) = machine.interfaces.first() {
        // As everybody calls the only machine of a template.
        hardware_map.entry("device_1").or_insert_with(|| json!(interface.mac));
    }
    // Only a message the contract does not know cannot be written.
    let hardware = tinwright::json::write(machine).unwrap_or_default();
    Values { hardware_map, hardware, older: older(machine), references: Value::Null }
}

/// The machine as templates of Tinkerbell's Kubernetes years know it, in Go's names.
fn older(machine: &hw::Hardware) -> Value {
    let disks: Vec<&str> = machine.disks.iter().map(|disk| disk.device.as_str()).collect();
    let interfaces: Vec<Value> =
        machine.interfaces.iter().map(|it| older_interface(machine, it)).collect();
    let mut all = json!({ "Disks": disks, "Interfaces": interfaces });
    // What an import brought along that has no field of ours.
    let extra: Value = serde_json::from_slice(&machine.extra).unwrap_or_default();
    for (theirs, name) in
        [("userData", "UserData"), ("vendorData", "VendorData"), ("metadata", "Metadata")]
    {
        if let (Some(found), Some(all)) = (extra.get(theirs), all.as_object_mut()) {
            all.insert(name.to_owned(), found.clone());
        }
    }
    all
}

fn older_interface(machine: &hw::Hardware, interface: &hw::Interface) -> Value {
    let dhcp = interface.dhcp.clone().unwrap_or_default();
    let address = dhcp.address.unwrap_or_default();
    json!({ "DHCP": {
        "MAC": interface.mac,
        "IfaceName": interface.name,
        "Hostname": dhcp.hostname,
        "Arch": machine.architecture,
        "NameServers": dhcp.name_servers,
        "TimeServers": dhcp.time_servers,
        "VLANID": dhcp.vlan_id.to_string(),
        "IP": {
            "Address": address.address,
            "Netmask": netmask(&address.address, address.prefix_length),
            "Gateway": address.gateway,
            "Family": if address.address.contains(':') { 6 } else { 4 },
        },
    }})
}

/// Dotted; empty where there is none.
fn netmask(address: &str, bits: u32) -> String {
    match address.parse() {
        Ok(std::net::IpAddr::V4(_)) if bits <= 32 => {
            let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
            std::net::Ipv4Addr::from_bits(mask).to_string()
        }
        Ok(_) | Err(_) => String::new(),
    }
}

/// `machine`, if `worker` is its id, one of its MACs or one of its addresses, in any notation.
fn worker_of(machine: &hw::Hardware, worker: &str) -> Option<HardwareId> {
    let worker = worker.trim();
    let id = worker.parse::<tinwright::HardwareId>().is_ok_and(|id| id.to_string() == machine.id);
    let mac = worker.parse::<Mac>().map(|mac| mac.to_string()).ok();
    let address = check::address(worker).map(|address| address.to_string()).ok();
    let has = |interface: &hw::Interface| {
        let own = interface.dhcp.as_ref().and_then(|dhcp| dhcp.address.as_ref());
        mac.as_ref() == Some(&interface.mac)
            || own.is_some_and(|own| Some(&own.address) == address.as_ref())
    };
    (id || machine.interfaces.iter().any(has)).then(|| machine.id.as_str().into())
}

#[cfg(test)]
mod tests;
