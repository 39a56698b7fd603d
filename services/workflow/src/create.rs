//! Creates the record of a workflow from a template, hardware and the caller's values.

mod boot_times;
mod hidden;
mod image;
mod plan;

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use prost_types::Timestamp;
use serde_json::{Map, Value, json};
use tinwright::hardware::v1 as hw;
use tinwright::image::v1::Image;
use tinwright::status::{self, Violations};
use tinwright::workflow::v1 as pb;
use tinwright::{Mac, WorkflowId, boot_image, check, disk_hint};
use tonic::Status;

pub(crate) use self::boot_times::BootTimes;
use self::hidden::HiddenValues;
pub use self::image::ImageError;
pub use self::plan::{plan, render as render_template};
use crate::lifecycle::{Plan, Step};
use crate::template::{self, PlaceholderErrorCause, Template, Values};
use crate::{record, templates};

/// The most bytes of all values together.
const MAX_VALUES_BYTES: usize = 64 * 1024;
/// The name of the value with the path of the root disk.
const DISK: &str = "disk";

/// The reason why a workflow was not created.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Fields of the request, or parts of the template, are wrong.
    #[error(transparent)]
    Invalid(#[from] Violations),
    /// The image does not fit the machine.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The template uses `.disk`, and the machine's root disk is not found.
    #[error("{machine}: {source}")]
    RootDisk {
        /// The machine.
        hardware_id: String,
        /// Its name, or else its id.
        machine: String,
        /// The reason.
        source: disk_hint::Error,
    },
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        match error {
            Error::Invalid(violations) => violations.into(),
            Error::Image(error) => status::failed_precondition(error.reason(), "image", text),
            Error::RootDisk { hardware_id, source, .. } => {
                let subject = format!("hardware/{hardware_id}");
                status::failed_precondition(source.reason(), &subject, text)
            }
        }
    }
}

/// What a workflow is made from.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    /// The template; its id may be empty. Without a text, the built-in template of the image.
    pub template: pb::Template,
    /// The machine.
    pub machine: hw::Hardware,
    /// The image, if there is one.
    pub image: Option<Image>,
}

impl Parts {
    /// Returns the template, and whether it is the built-in one of the image.
    fn template(&self) -> Result<(Cow<'_, pb::Template>, bool), Error> {
        match &self.image {
            Some(image) if self.template.data.is_empty() => {
                image::check_firmware(image, &self.machine)?;
                Ok((Cow::Owned(image::built_in(image)?), true))
            }
            Some(_) | None => Ok((Cow::Borrowed(&self.template), false)),
        }
    }
}

/// Returns the record of a new workflow, as requested. Neither its names nor an error have hidden values.
pub fn new_workflow(
    request: &pb::CreateWorkflowRequest,
    parts: &Parts,
    now: SystemTime,
) -> Result<pb::Workflow, Error> {
    let (template, is_built_in) = parts.template()?;
    let (template, machine) = (&*template, &parts.machine);
    let hidden = HiddenValues::new(request, template, machine);
    let disk = root_disk(machine, is_built_in);
    let rendered = render(request, template, parts, &hidden, disk)?;
    check_actions(request, &rendered, &hidden)?;
    let template::Definition { name, global_timeout, tasks, .. } = &rendered.definition;
    let steps = steps(tasks, machine, &hidden)?;
    let options = request.boot_options.unwrap_or_default();
    let plan = Plan {
        prepares: options.mode() == pb::boot_options::Mode::Netboot,
        powers_off: options.power_off_after,
        time_limit: (*global_timeout > 0).then(|| Duration::from_secs(*global_timeout)),
        ..Plan::default()
    };
    let blank = pb::Workflow {
        id: WorkflowId::new().to_string(),
        labels: request.labels.clone(),
        create_time: Some(Timestamp::from(now)),
        update_time: Some(Timestamp::from(now)),
        template_id: template.id.clone(),
        template_name: if template.name.is_empty() { name } else { &template.name }.clone(),
        hardware_id: machine.id.clone(),
        instance_id: request.instance_id.clone(),
        boot_options: request.boot_options,
        firmware_mode: machine.inventory.as_ref().map_or(0, |inventory| inventory.firmware_mode),
        boot_image_url: boot_image::url_for(machine).unwrap_or_default(),
        rendered: rendered.text.clone(),
        held: request.held,
        image: parts.image.as_ref().map(image::pinned),
        ..pb::Workflow::default()
    };
    let mut created = record::new_record(blank, plan, steps, now);
    hidden.mask_names(&mut created);
    record::size::check(&created).map_err(|error| Violations::single(field(request), error))?;
    if let Some(image) = &parts.image {
        image::check_size(image, &created, machine)?;
    }
    Ok(created)
}

/// Returns the steps of all `tasks`, each with its action. Every task has to name `machine`.
fn steps<'a>(
    tasks: &'a [template::Task],
    machine: &hw::Hardware,
    hidden: &HiddenValues,
) -> Result<Vec<(Step, &'a template::Action)>, Error> {
    let mut steps = Vec::new();
    for template::Task { name: task, worker, actions, .. } in tasks {
        if !names_machine(worker, machine) {
            let machine = machine_name(machine);
            let reason = format!(
                "task {task:?} names worker {worker:?}, which is not the workflow's machine, {machine}"
            );
            return Err(Violations::single("template", hidden.mask(&reason)).into());
        }
        steps.extend(actions.iter().map(|action| (Step::new(task, action), action)));
    }
    Ok(steps)
}

/// Checks the fields of a request that need no look-up.
pub fn check(request: &pb::CreateWorkflowRequest) -> Result<(), Violations> {
    let mut wrong = Violations::default();
    match (request.template_id.is_empty(), request.template_data.is_empty()) {
        (false, false) => wrong.add("template_id", "set either it or template_data"),
        (true, true) if request.image_id.is_empty() => {
            wrong.add("template_id", "set it, template_data or image_id");
        }
        (_, _) => {}
    }
    let size = request.values.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
    if size > MAX_VALUES_BYTES {
        wrong.add("values", format!("has {size} bytes, at most {MAX_VALUES_BYTES} are allowed"));
    }
    if request
        .boot_options
        .is_some_and(|options| pb::boot_options::Mode::try_from(options.mode).is_err())
    {
        wrong.add("boot_options.mode", "is not a value of its enum");
    }
    wrong.take("labels", check::labels(&request.labels));
    wrong.into_result(())
}

/// Passes unless the machine's worker would refuse an action.
fn check_actions(
    request: &pb::CreateWorkflowRequest,
    rendered: &template::Rendered,
    hidden: &HiddenValues,
) -> Result<(), Violations> {
    let mut wrong = Violations::default();
    for error in rendered.definition.action_errors(template::Stage::Rendered) {
        wrong.add(field(request), hidden.mask(&error.to_string()));
    }
    wrong.into_result(())
}

/// Passes unless `template` does not use a value of the request. Those of an instance are for several templates.
pub fn check_values(
    request: &pb::CreateWorkflowRequest,
    template: &pb::Template,
) -> Result<(), Violations> {
    let unused = template::unused_values(&[&template.data], &request.values);
    if unused.is_empty() || !request.instance_id.is_empty() {
        return Ok(());
    }
    let text = format!("has values that the template does not use: {}", unused.join(", "));
    Err(Violations::single("values", text))
}

/// The name of a machine, or its id if it has none.
fn machine_name(machine: &hw::Hardware) -> &str {
    if machine.name.is_empty() { &machine.id } else { &machine.name }
}

/// Returns the path of the root disk. For the built-in template of an image, that of a machine whose
/// disks were not seen yet is the first in its record.
fn root_disk(machine: &hw::Hardware, is_built_in: bool) -> Result<String, disk_hint::Error> {
    let found = disk_hint::root_disk(machine.root_disk.as_deref(), machine.inventory.as_deref());
    match (found, machine.disks.first()) {
        (Err(disk_hint::Error::NoInventory), Some(first))
            if is_built_in && machine.root_disk.is_none() =>
        {
            Ok(first.device.clone())
        }
        (found, _) => found,
    }
}

fn render(
    request: &pb::CreateWorkflowRequest,
    template: &pb::Template,
    parts: &Parts,
    hidden: &HiddenValues,
    disk: Result<String, disk_hint::Error>,
) -> Result<template::Rendered, Error> {
    let machine = &parts.machine;
    let name = if template.name.is_empty() { "template_data" } else { &template.name };
    let invalid = |error: template::Error| {
        let text = hidden.mask(&templates::one_line(&error)) + &misspelt_value(&error, request);
        Error::from(Violations::single(field(request), text))
    };
    let parsed = Template::parse(name, &template.data).map_err(|error| invalid(error.into()))?;
    let values = values(request, parts);
    match disk {
        Ok(path) => parsed.render(with_disk(values, &path)).map_err(invalid),
        // Only a template that uses it cannot be rendered.
        Err(source) => parsed.render(values.clone()).map_err(|error| {
            let missing = error.missing_field(DISK).cloned();
            // With any value for it, the same error is about another map's field of this name.
            let stays = |other: template::Error| other.missing_field(DISK) == missing.as_ref();
            let is_other = || parsed.render(with_disk(values, "/dev/null")).is_err_and(stays);
            if missing.is_none() || is_other() {
                return invalid(error);
            }
            let name = machine_name(machine).to_owned();
            Error::RootDisk { hardware_id: machine.id.clone(), machine: name, source }
        }),
    }
}

/// Returns the name of the value that may be meant, if `error` is that one is missing.
fn misspelt_value(error: &template::Error, request: &pb::CreateWorkflowRequest) -> String {
    let template::Error::Placeholder(error) = error else { return String::new() };
    let PlaceholderErrorCause::NoField(field) = &error.cause else { return String::new() };
    match actions::suggest(field, request.values.keys().map(String::as_str)) {
        Some(given) => format!(": the value {given:?} was given"),
        None => String::new(),
    }
}

/// Adds the path of the root disk to `values`, unless the caller's have it.
fn with_disk(mut values: Values, path: &str) -> Values {
    values.hardware_map.entry(DISK).or_insert_with(|| json!(path));
    values
}

/// The field that errors of the request's template name.
fn field(request: &pb::CreateWorkflowRequest) -> &'static str {
    if request.template_data.is_empty() { "template" } else { "template_data" }
}

/// The template's values.
fn values(request: &pb::CreateWorkflowRequest, parts: &Parts) -> Values {
    let machine = &parts.machine;
    let values = request.values.iter().map(|(key, value)| (key.clone(), json!(value)));
    let mut hardware_map: Map<String, Value> = values.collect();
    if let Some(interface) = machine.interfaces.first() {
        // The customary name of a template's only machine.
        hardware_map.entry("device_1").or_insert_with(|| json!(interface.mac));
    }
    if let Some(image) = &parts.image {
        hardware_map.insert(image::IMAGE.to_owned(), image::values(image));
    }
    // Writing fails only for a message that is not in the contract.
    let hardware = tinwright::json::write(machine).unwrap_or_default();
    Values { hardware_map, hardware, legacy_hardware: legacy_hardware(machine) }
}

/// The machine in the form of Tinkerbell's Kubernetes versions, with the names of its Go fields.
fn legacy_hardware(machine: &hw::Hardware) -> Value {
    let disks: Vec<&str> = machine.disks.iter().map(|disk| disk.device.as_str()).collect();
    let interfaces: Vec<Value> =
        machine.interfaces.iter().map(|it| legacy_interface(machine, it)).collect();
    let mut all = json!({ "Disks": disks, "Interfaces": interfaces });
    // Imported fields that our message lacks.
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

fn legacy_interface(machine: &hw::Hardware, interface: &hw::Interface) -> Value {
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

/// The netmask in dotted form; empty if there is none.
fn netmask(address: &str, bits: u32) -> String {
    match address.parse() {
        Ok(std::net::IpAddr::V4(_)) if bits <= 32 => {
            let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
            std::net::Ipv4Addr::from_bits(mask).to_string()
        }
        Ok(_) | Err(_) => String::new(),
    }
}

/// True if `worker` is the id of `machine`, one of its MACs or one of its addresses, in any notation.
fn names_machine(worker: &str, machine: &hw::Hardware) -> bool {
    let worker = worker.trim();
    let id = worker.parse::<tinwright::HardwareId>().is_ok_and(|id| id.to_string() == machine.id);
    let mac = worker.parse::<Mac>().map(|mac| mac.to_string()).ok();
    let address = check::address(worker).map(|address| address.to_string()).ok();
    let has = |interface: &hw::Interface| {
        let own = interface.dhcp.as_ref().and_then(|dhcp| dhcp.address.as_ref());
        mac.as_ref() == Some(&interface.mac)
            || own.is_some_and(|own| Some(&own.address) == address.as_ref())
    };
    id || machine.interfaces.iter().any(has)
}

#[cfg(test)]
mod tests;
