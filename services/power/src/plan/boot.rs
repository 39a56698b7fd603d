//! The boot override: the PATCH requests that set it, and the readings that prove it.

use tinwright::power::v1::operation::Boot;
use tinwright::power::v1::operation::boot::{Device, Mode};

use super::{BootRequest, Call, Choice, Next, Request};
use crate::redfish::{BootOverride, Protocol, System};

/// The state of boot flags that count only after a request.
const NOT_VALID: &str = BootOverride::NOT_VALID;
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

/// The request with the wanted mode.
const WITH_MODE: &str = "boot";
/// The request that leaves the mode unchanged, for a BMC that cannot change it.
const WITHOUT_MODE: &str = "boot without mode";
/// The request that leaves the mode unchanged, for a BMC that reports the wanted one.
const IN_PRESENT_MODE: &str = "boot in present mode";
/// The last request that replaces an override which cannot be cleared.
const DISK: &str = "disk instead of none";
/// The suffix of requests to the settings resource.
const SETTINGS: &str = " in settings";

pub(super) fn next(wanted: &Boot, system: &System, choice: Choice<'_>) -> Next {
    // The override for the next start counts once it was requested in the settings.
    let in_settings = choice.progress.request.ends_with(SETTINGS);
    let pending = system.pending.as_ref().filter(|_| in_settings);
    let mut readings = [Some(&system.boot), pending].into_iter().flatten();
    match readings.find_map(|read| deviations(wanted, read, system, choice)) {
        Some(downgrades) => Next::Done(downgrades),
        None => choice.send_first(requests(wanted, system)),
    }
}

/// Returns the deviations of `read` from `wanted`; none if `read` does not have the wanted effect.
fn deviations(
    wanted: &Boot,
    read: &BootOverride,
    system: &System,
    choice: Choice<'_>,
) -> Option<Vec<String>> {
    let accepted = |name| choice.progress.accepted && choice.progress.request.starts_with(name);
    if wanted.device() == Device::None {
        if matches!(read.enabled.as_str(), "Disabled" | NOT_VALID) || read.target == "None" {
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
        // A BMC that reports only the device of its boot flags.
        (_, NOT_VALID) if choice.progress.accepted => {
            return Some(vec!["the boot flags read back as not valid".into()]);
        }
        _ => return None,
    }
    if wanted.http_url != read.http_url && !wanted.http_url.is_empty() {
        if !choice.progress.accepted {
            return None;
        }
        deviations.push(format!("the file to boot reads back as {:?}", read.http_url));
    }
    if let Some(mode) = mode(wanted.mode()).filter(|mode| *mode != read.mode) {
        let names_modes = read.names_modes() || system.boot.names_modes();
        // Over IPMI there is no request without a mode. To a BMC that reports none, no other request is sent.
        let is_last = match system.protocol {
            Protocol::Redfish if !names_modes => true,
            // Pending settings may have no more than was sent.
            Protocol::Redfish => {
                accepted(WITHOUT_MODE) || read.mode.is_empty() && accepted(IN_PRESENT_MODE)
            }
            Protocol::Ipmi => accepted(WITH_MODE),
        };
        if !is_last {
            return None;
        }
        deviations.push(match system.protocol {
            Protocol::Redfish if !names_modes => {
                format!("the BMC reports no boot mode: {mode} was not named")
            }
            Protocol::Redfish | Protocol::Ipmi => {
                format!("mode {mode} reads back as {:?}", read.mode)
            }
        });
    }
    Some(deviations)
}

/// Returns all requests that may have the wanted effect, the preferred one first.
fn requests(wanted: &Boot, system: &System) -> Vec<Request> {
    let requests = match wanted.device() {
        Device::None => vec![
            ("clear", request("Disabled", None, None)),
            ("clear target", request("Disabled", Some("None"), None)),
            (DISK, request("Continuous", Some("Hdd"), None)),
        ],
        Device::Unspecified
        | Device::Pxe
        | Device::Disk
        | Device::Cdrom
        | Device::BiosSetup
        | Device::UefiHttp => with_and_without_mode(wanted, system),
    };
    let places =
        if system.settings.is_some() { [Some(""), Some(SETTINGS)] } else { [Some(""), None] };
    let places = places.into_iter().flatten();
    let to_request = |suffix: &'static str| {
        let in_settings = suffix == SETTINGS;
        requests.iter().map(move |(name, request)| Request {
            name: format!("{name}{suffix}"),
            call: Call::Boot { request: request.clone(), in_settings },
        })
    };
    places.flat_map(to_request).collect()
}

/// Returns no request if the system lists its targets without the wanted one.
///
/// A mode is sent only to a BMC that lists it as allowed, or that reports another one. Others refuse every request that has one, and some
/// answer such a request with an internal error, after which it would be repeated.
fn with_and_without_mode(wanted: &Boot, system: &System) -> Vec<(&'static str, BootRequest)> {
    let BootOverride { targets, modes, mode: reported, .. } = &system.boot;
    let target = target(wanted.device());
    let is_listed = |list: &[String], name| list.is_empty() || list.iter().any(|one| one == name);
    if !is_listed(targets, target) {
        return Vec::new();
    }
    let enabled = if wanted.persistent { "Continuous" } else { "Once" };
    let with = |mode| {
        let http_url = wanted.http_url.clone();
        BootRequest { http_url, ..request(enabled, Some(target), mode) }
    };
    match (mode(wanted.mode()), system.protocol) {
        // The boot flags always say a mode: the present one stays.
        (None, Protocol::Ipmi) => vec![(WITH_MODE, with(present_mode(system)))],
        (None, Protocol::Redfish) => vec![(WITH_MODE, with(None))],
        (Some(mode), Protocol::Ipmi) => vec![(WITH_MODE, with(Some(mode)))],
        (Some(mode), Protocol::Redfish) if modes.is_empty() && *reported == mode => {
            let without = (WITHOUT_MODE, with(None));
            vec![(IN_PRESENT_MODE, with(None)), (WITH_MODE, with(Some(mode))), without]
        }
        (Some(mode), Protocol::Redfish) if system.boot.names_modes() && is_listed(modes, mode) => {
            vec![(WITH_MODE, with(Some(mode))), (WITHOUT_MODE, with(None))]
        }
        (Some(_), Protocol::Redfish) => vec![(WITHOUT_MODE, with(None))],
    }
}

fn request(
    enabled: &'static str,
    target: Option<&'static str>,
    mode: Option<&'static str>,
) -> BootRequest {
    BootRequest { enabled, target, mode, http_url: String::new() }
}

/// Returns the mode that the system reports.
fn present_mode(system: &System) -> Option<&'static str> {
    MODES.iter().find(|(_, name)| *name == system.boot.mode).map(|(_, name)| *name)
}

fn target(device: Device) -> &'static str {
    DEVICES.iter().find(|(known, _)| *known == device).map_or("None", |(_, name)| name)
}

fn mode(mode: Mode) -> Option<&'static str> {
    MODES.iter().find(|(known, _)| *known == mode).map(|(_, name)| *name)
}

/// Converts an override into the contract's form.
pub(crate) fn to_proto(read: &BootOverride) -> Boot {
    let is_off = matches!(read.enabled.as_str(), "Disabled" | NOT_VALID);
    let target = if is_off { "None" } else { &read.target };
    let device = DEVICES.iter().find(|(_, name)| *name == target).map(|(device, _)| *device);
    let mode = MODES.iter().find(|(_, name)| *name == read.mode).map(|(mode, _)| *mode);
    let persistent = read.enabled == "Continuous" && device != Some(Device::None);
    Boot {
        device: device.unwrap_or_default().into(),
        persistent,
        mode: mode.unwrap_or_default().into(),
        http_url: if is_off { String::new() } else { read.http_url.clone() },
    }
}
