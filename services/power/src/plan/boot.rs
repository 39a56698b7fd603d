//! The boot override: the PATCH requests that set it, and the readings that prove it.

use serde_json::{Value, json};
use tinwright::power::v1::operation::Boot;
use tinwright::power::v1::operation::boot::{Device, Mode};

use super::{Call, Choice, Next, Request};
use crate::redfish::{BootOverride, System};

const TARGET: &str = "BootSourceOverrideTarget";
const ENABLED: &str = "BootSourceOverrideEnabled";
const MODE: &str = "BootSourceOverrideMode";

/// Redfish's names of boot devices.
const DEVICES: [(Device, &str); 6] = [
    (Device::None, "None"),
    (Device::Pxe, "Pxe"),
    (Device::Disk, "Hdd"),
    (Device::Cdrom, "Cd"),
    (Device::BiosSetup, "BiosSetup"),
    (Device::UefiHttp, "UefiHttp"),
];
/// Redfish's names of boot modes.
const MODES: [(Mode, &str); 2] = [(Mode::Uefi, "UEFI"), (Mode::Legacy, "Legacy")];

/// The last request that replaces an override which cannot be cleared.
const DISK: &str = "disk instead of none";
/// The suffix of requests to the settings resource.
const SETTINGS: &str = " in settings";

pub(super) fn next(wanted: &Boot, system: &System, choice: Choice<'_>) -> Next {
    // The override for the next start counts once it was requested in the settings.
    let in_settings = choice.progress.request.ends_with(SETTINGS);
    let pending = system.pending.as_ref().filter(|_| in_settings);
    let mut readings = [Some(&system.boot), pending].into_iter().flatten();
    match readings.find_map(|read| deviations(wanted, read, choice)) {
        Some(downgrades) => Next::Done(downgrades),
        None => choice.send_first(requests(wanted, system)),
    }
}

/// Returns the deviations of `read` from `wanted`; none if `read` does not have the wanted effect.
fn deviations(wanted: &Boot, read: &BootOverride, choice: Choice<'_>) -> Option<Vec<String>> {
    let accepted = |name| choice.progress.accepted && choice.progress.request.starts_with(name);
    if wanted.device() == Device::None {
        if read.enabled == "Disabled" || read.target == "None" {
            return Some(Vec::new());
        }
        let text = "the override cannot be cleared: it is set to the disk";
        return (accepted(DISK) && read.target == "Hdd").then(|| vec![text.into()]);
    }
    if !target(wanted.device()).eq_ignore_ascii_case(&read.target) {
        return None;
    }
    let mut deviations = Vec::new();
    match (wanted.persistent, read.enabled.as_str()) {
        (true, "Continuous") | (false, "Once") => {}
        (false, "Continuous") if choice.progress.accepted => {
            deviations.push("boot once reads back as continuous".into());
        }
        _ => return None,
    }
    if let Some(mode) = mode(wanted.mode()).filter(|mode| *mode != read.mode) {
        if !accepted("boot without mode") {
            return None;
        }
        deviations.push(format!("mode {mode} reads back as {:?}", read.mode));
    }
    Some(deviations)
}

/// Returns all requests that may have the wanted effect, the preferred one first.
fn requests(wanted: &Boot, system: &System) -> Vec<Request> {
    let bodies = match wanted.device() {
        Device::None => vec![
            ("clear", json!({ENABLED: "Disabled"})),
            ("clear target", json!({ENABLED: "Disabled", TARGET: "None"})),
            (DISK, json!({ENABLED: "Continuous", TARGET: "Hdd"})),
        ],
        Device::Unspecified
        | Device::Pxe
        | Device::Disk
        | Device::Cdrom
        | Device::BiosSetup
        | Device::UefiHttp => with_and_without_mode(wanted, system),
    };
    let request = |suffix, call: fn(Value) -> Call| {
        let of = move |(name, body): &(&str, Value)| Request {
            name: format!("{name}{suffix}"),
            call: call(json!({"Boot": body})),
        };
        bodies.iter().map(of)
    };
    let mut requests: Vec<_> = request("", Call::PatchSystem).collect();
    if system.settings.is_some() {
        requests.extend(request(SETTINGS, Call::PatchSettings));
    }
    requests
}

/// Returns no body if the system lists its targets without the wanted one.
fn with_and_without_mode(wanted: &Boot, system: &System) -> Vec<(&'static str, Value)> {
    let (target, BootOverride { targets, modes, .. }) = (target(wanted.device()), &system.boot);
    let is_listed = |list: &[String], name| list.is_empty() || list.iter().any(|one| one == name);
    if !is_listed(targets, target) {
        return Vec::new();
    }
    let enabled = if wanted.persistent { "Continuous" } else { "Once" };
    let without_mode = json!({ENABLED: enabled, TARGET: target});
    match mode(wanted.mode()) {
        None => vec![("boot", without_mode)],
        Some(mode) if is_listed(modes, mode) => vec![
            ("boot", json!({ENABLED: enabled, TARGET: target, MODE: mode})),
            ("boot without mode", without_mode),
        ],
        Some(_) => vec![("boot without mode", without_mode)],
    }
}

fn target(device: Device) -> &'static str {
    DEVICES.iter().find(|(known, _)| *known == device).map_or("None", |(_, name)| name)
}

fn mode(mode: Mode) -> Option<&'static str> {
    MODES.iter().find(|(known, _)| *known == mode).map(|(_, name)| *name)
}

/// Converts an override into the contract's form.
pub(crate) fn to_proto(read: &BootOverride) -> Boot {
    let target = if read.enabled == "Disabled" { "None" } else { &read.target };
    let device = DEVICES.iter().find(|(_, name)| *name == target).map(|(device, _)| *device);
    let mode = MODES.iter().find(|(_, name)| *name == read.mode).map(|(mode, _)| *mode);
    let persistent = read.enabled == "Continuous" && device != Some(Device::None);
    Boot {
        device: device.unwrap_or_default().into(),
        persistent,
        mode: mode.unwrap_or_default().into(),
    }
}
