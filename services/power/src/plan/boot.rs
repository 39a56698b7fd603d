//! The boot override: what to PATCH, and when it reads as wanted.

use serde_json::{Map, Value, json};
use tinwright::power::v1::operation::Boot;
use tinwright::power::v1::operation::boot::{Device, Mode};

use super::{Ask, Choice, How, Next};
use crate::redfish::{Override, System};

const TARGET: &str = "BootSourceOverrideTarget";
const ENABLED: &str = "BootSourceOverrideEnabled";
const MODE: &str = "BootSourceOverrideMode";

/// The last resort of clearing an override.
const DISK: &str = "disk instead of none";
/// For what is asked of the settings object.
const SETTINGS: &str = " in settings";

pub(super) fn next(wanted: &Boot, system: &System, choice: Choice<'_>) -> Next {
    // What is pending for the next start is in the settings object, and counts once it was asked for there.
    let pending = system.pending.as_ref().filter(|_| choice.progress.asked.ends_with(SETTINGS));
    let read = [Some(&system.boot), pending];
    let held = read.into_iter().flatten().find_map(|read| held(wanted, read, choice));
    match held {
        Some(downgrades) => Next::Done(downgrades),
        None => choice.among(asks(wanted, system)),
    }
}

/// Whether `read` is what is wanted, and what about it is not.
fn held(wanted: &Boot, read: &Override, choice: Choice<'_>) -> Option<Vec<String>> {
    if wanted.device() == Device::None {
        return cleared(read, choice);
    }
    if !target(wanted.device()).eq_ignore_ascii_case(&read.target) {
        return None;
    }
    let mut downgrades = Vec::new();
    match (wanted.persistent, read.enabled.as_str()) {
        (true, "Continuous") | (false, "Once") => {}
        (false, "Continuous") if choice.progress.accepted => {
            downgrades.push("boot once reads back as continuous".into());
        }
        _ => return None,
    }
    let mode = mode(wanted.mode());
    match mode {
        Some(mode) if mode != read.mode => {
            let without = choice.progress.asked.starts_with("boot without mode");
            if !without || !choice.progress.accepted {
                return None;
            }
            downgrades.push(format!("mode {mode} reads back as {:?}", read.mode));
        }
        Some(_) | None => {}
    }
    Some(downgrades)
}

fn cleared(read: &Override, choice: Choice<'_>) -> Option<Vec<String>> {
    if read.enabled == "Disabled" || read.target == "None" {
        return Some(Vec::new());
    }
    let disk = choice.progress.accepted && choice.progress.asked.starts_with(DISK);
    let text = "the override cannot be cleared: it is set to the disk";
    (disk && read.target == "Hdd").then(|| vec![text.into()])
}

/// Every way to ask, the best first.
fn asks(wanted: &Boot, system: &System) -> Vec<Ask> {
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
    let on_system = bodies.iter().map(|(name, body)| Ask {
        name: (*name).to_owned(),
        how: How::System(json!({"Boot": body})),
    });
    let on_settings = bodies.iter().filter(|_| system.settings.is_some()).map(|(name, body)| Ask {
        name: format!("{name}{SETTINGS}"),
        how: How::Settings(json!({"Boot": body})),
    });
    on_system.chain(on_settings).collect()
}

/// Nothing where the system lists its targets, and the wanted one is not among them.
fn with_and_without_mode(wanted: &Boot, system: &System) -> Vec<(&'static str, Value)> {
    let (target, listed) = (target(wanted.device()), &system.boot.targets);
    if !listed.is_empty() && !listed.iter().any(|listed| listed == target) {
        return Vec::new();
    }
    let mut body = Map::new();
    body.insert(ENABLED.into(), if wanted.persistent { "Continuous" } else { "Once" }.into());
    body.insert(TARGET.into(), target.into());
    let without = Value::Object(body.clone());
    let modes = &system.boot.modes;
    match mode(wanted.mode()) {
        None => vec![("boot", without)],
        Some(mode) if !modes.is_empty() && !modes.iter().any(|listed| listed == mode) => {
            vec![("boot without mode", without)]
        }
        Some(mode) => {
            body.insert(MODE.into(), mode.into());
            vec![("boot", Value::Object(body)), ("boot without mode", without)]
        }
    }
}

fn target(device: Device) -> &'static str {
    match device {
        Device::Unspecified | Device::None => "None",
        Device::Pxe => "Pxe",
        Device::Disk => "Hdd",
        Device::Cdrom => "Cd",
        Device::BiosSetup => "BiosSetup",
        Device::UefiHttp => "UefiHttp",
    }
}

fn mode(mode: Mode) -> Option<&'static str> {
    match mode {
        Mode::Unspecified => None,
        Mode::Uefi => Some("UEFI"),
        Mode::Legacy => Some("Legacy"),
    }
}

/// An override as it reads, in the contract's words.
pub(crate) fn told(read: &Override) -> Boot {
    let device = match (read.enabled.as_str(), read.target.as_str()) {
        ("Disabled", _) | (_, "None") => Device::None,
        (_, "Pxe") => Device::Pxe,
        (_, "Hdd") => Device::Disk,
        (_, "Cd") => Device::Cdrom,
        (_, "BiosSetup") => Device::BiosSetup,
        (_, "UefiHttp") => Device::UefiHttp,
        _ => Device::Unspecified,
    };
    let mode = match read.mode.as_str() {
        "UEFI" => Mode::Uefi,
        "Legacy" => Mode::Legacy,
        _ => Mode::Unspecified,
    };
    let persistent = read.enabled == "Continuous" && device != Device::None;
    Boot { device: device.into(), persistent, mode: mode.into() }
}
