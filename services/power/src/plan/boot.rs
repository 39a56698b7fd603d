//! The boot override: the PATCH requests that set it, and the readings that prove it.
//!
//! A BMC may require that the request names the boot mode, refuse that, or change the mode if it is
//! not named. So a wish for an unchanged mode is read back too, and mended by naming the former
//! mode.

use tinwright::power::v1::operation::Boot;
use tinwright::power::v1::operation::boot::{Device, Mode};

use super::{BootRequest, Call, Choice, Next, Request};
use crate::forms::{AcceptedForms, BootMode, BootResource};
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
/// The property that names the mode.
const MODE_PROPERTY: &str = "BootSourceOverrideMode";

/// The request with the wanted mode.
const WITH_MODE: &str = "boot";
/// The request that leaves the mode unchanged, for a BMC that cannot change it.
const WITHOUT_MODE: &str = "boot without mode";
/// The request that leaves the mode unchanged, for a BMC that reports the wanted one.
const IN_PRESENT_MODE: &str = "boot in present mode";
/// The last request that replaces an override which cannot be cleared.
const DISK: &str = "disk instead of none";
/// The suffix of requests that name the mode that the BMC reported before.
const IN_FORMER_MODE: &str = " in former mode";
/// The start of the suffix of requests that name a mode because the BMC requires one and reports
/// none.
const BY: &str = " by ";
/// The request with the wanted mode to the settings resource.
const WITH_MODE_IN_SETTINGS: &str = "boot in settings";
/// The suffix of requests to the settings resource.
const SETTINGS: &str = " in settings";

/// The effect of the requests so far.
enum Effect {
    /// Not the wanted one.
    Absent,
    /// The wanted one, but the mode is another one than before.
    OtherMode(Vec<String>),
    /// The wanted one, with these deviations.
    Present(Vec<String>),
}

/// A request before it is known which resource it is sent to.
struct Draft {
    name: String,
    request: BootRequest,
    is_last_resort: bool,
}

pub(super) fn next(wanted: &Boot, system: &System, choice: Choice<'_>) -> Next {
    let effects = readings(wanted, system, choice);
    let effects = effects.into_iter().map(|read| effect(wanted, read, system, choice));
    // A cleared override must not come back from the settings; one that is set counts in either.
    let total = match wanted.device() == Device::None {
        true => effects.reduce(Effect::weaker),
        false => effects.reduce(Effect::stronger),
    };
    match total.unwrap_or(Effect::Absent) {
        Effect::Present(deviations) => Next::Done(deviations),
        Effect::OtherMode(deviations) => mend_mode(deviations, wanted, system, choice),
        Effect::Absent => choice.send_first(requests(wanted, system, choice)),
    }
}

/// Returns the readings that count. An override for the next start counts once it was requested in
/// the settings, or if it is to be cleared.
fn readings<'a>(wanted: &Boot, system: &'a System, choice: Choice<'_>) -> Vec<&'a BootOverride> {
    let in_settings = choice.progress.request.ends_with(SETTINGS);
    let is_cleared = wanted.device() == Device::None;
    let counts = |pending: &&BootOverride| in_settings || is_cleared && !pending.enabled.is_empty();
    [Some(&system.boot), system.pending.as_ref().filter(counts)].into_iter().flatten().collect()
}

impl Effect {
    /// Returns the one that is nearer to the wanted effect; the first one if they are equal.
    fn stronger(self, other: Self) -> Self {
        if other.rank() > self.rank() { other } else { self }
    }

    /// Returns the one that is farther from the wanted effect; the first one if they are equal.
    fn weaker(self, other: Self) -> Self {
        if other.rank() < self.rank() { other } else { self }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Absent => 0,
            Self::OtherMode(_) => 1,
            Self::Present(_) => 2,
        }
    }
}

/// Sends a request that names the mode. Once there is none left, the operation is done with
/// `deviations`.
fn mend_mode(deviations: Vec<String>, wanted: &Boot, system: &System, choice: Choice<'_>) -> Next {
    let last = &choice.progress.request;
    let named = requests(wanted, system, choice).into_iter().filter(|request| {
        let has_mode =
            matches!(&request.call, Call::Boot { request, .. } if request.mode.is_some());
        has_mode && request.name != *last && choice.is_usable(&request.name)
    });
    let is_named = |name: &str| name.contains(IN_FORMER_MODE) || name.contains(BY);
    if is_named(last) && choice.progress.accepted {
        return match choice.is_pending(choice.timing.effect_timeout) {
            true => Next::Wait,
            false => Next::Done(deviations),
        };
    }
    named.min_by_key(|request| request.is_last_resort).map_or(Next::Done(deviations), Next::Send)
}

/// Returns the effect that `read` shows.
fn effect(wanted: &Boot, read: &BootOverride, system: &System, choice: Choice<'_>) -> Effect {
    let Some(mut deviations) = deviations_of_device(wanted, read, choice) else {
        return Effect::Absent;
    };
    if read.enabled == NOT_VALID {
        return Effect::Present(deviations);
    }
    let former = &choice.progress.boot_mode;
    let is_unchanged = former.is_empty() || read.mode.is_empty() || *former == read.mode;
    let Some(mode) = mode_of(wanted) else {
        if system.protocol == Protocol::Ipmi || is_unchanged || choice.progress.request.is_empty() {
            return Effect::Present(deviations);
        }
        deviations.push(format!("the boot mode changed from {former} to {}", read.mode));
        return Effect::OtherMode(deviations);
    };
    if mode == read.mode {
        return Effect::Present(deviations);
    }
    let names_modes = read.names_modes() || system.boot.names_modes();
    if system.protocol == Protocol::Redfish && !names_modes {
        let is_named = choice.is_accepted(WITH_MODE) || choice.is_accepted(WITH_MODE_IN_SETTINGS);
        let text = if is_named { "" } else { "not " };
        deviations.push(format!("the BMC reports no boot mode: {mode} was {text}named"));
        return Effect::Present(deviations);
    }
    deviations.push(format!("mode {mode} reads back as {:?}", read.mode));
    let accepted = |name| choice.progress.accepted && choice.progress.request.starts_with(name);
    let is_last = match system.protocol {
        // Pending settings may have no more than was sent.
        Protocol::Redfish => {
            accepted(WITHOUT_MODE)
                || choice.progress.accepted && choice.progress.request.contains(IN_FORMER_MODE)
                || read.mode.is_empty() && accepted(IN_PRESENT_MODE)
                // Neither the mode reads back, nor can a request leave it out.
                || read.mode.is_empty()
                    && choice.is_accepted(WITH_MODE)
                    && !choice.is_usable(WITHOUT_MODE)
        }
        // Over IPMI there is no request without a mode.
        Protocol::Ipmi => accepted(WITH_MODE),
    };
    match is_last {
        true => Effect::Present(deviations),
        // The request did not name the mode, and the BMC changed it.
        false if accepted(IN_PRESENT_MODE) => Effect::OtherMode(deviations),
        false => Effect::Absent,
    }
}

/// Returns the deviations of `read` from `wanted` apart from the mode; none if `read` does not have
/// the wanted effect.
fn deviations_of_device(
    wanted: &Boot,
    read: &BootOverride,
    choice: Choice<'_>,
) -> Option<Vec<String>> {
    let accepted = choice.progress.accepted;
    if wanted.device() == Device::None {
        if matches!(read.enabled.as_str(), "Disabled" | NOT_VALID) || read.target == "None" {
            return Some(Vec::new());
        }
        let is_replaced = accepted && choice.progress.request.starts_with(DISK);
        let text = "the override cannot be cleared: it is set to the disk";
        return (is_replaced && read.target == "Hdd").then(|| vec![text.into()]);
    }
    if !target(wanted.device()).eq_ignore_ascii_case(&read.target) {
        return None;
    }
    let mut deviations = Vec::new();
    match (wanted.persistent, read.enabled.as_str()) {
        (true, "Continuous") | (false, "Once") => {}
        (false, "Continuous") if accepted => {
            deviations.push("boot once reads back as continuous".into());
        }
        // A BMC that reports only the device of its boot flags.
        (_, NOT_VALID) if accepted => {
            return Some(vec!["the boot flags read back as not valid".into()]);
        }
        _ => return None,
    }
    if wanted.http_url != read.http_url && !wanted.http_url.is_empty() {
        if !accepted {
            return None;
        }
        deviations.push(format!("the file to boot reads back as {:?}", read.http_url));
    }
    Some(deviations)
}

/// Returns all requests that may have the wanted effect, the preferred one first. None if the
/// system lists its targets without the wanted one.
fn requests(wanted: &Boot, system: &System, choice: Choice<'_>) -> Vec<Request> {
    let mut drafts = match wanted.device() {
        Device::None => clearing(wanted, system, choice),
        Device::Unspecified
        | Device::Pxe
        | Device::Disk
        | Device::Cdrom
        | Device::BiosSetup
        | Device::UefiHttp => setting(wanted, system, choice),
    };
    // A wish that names the mode tells nothing of requests that are to leave it unchanged.
    let has_choice = mode_of(wanted).is_none()
        && drafts.iter().any(|draft| draft.request.mode.is_some())
        && drafts.iter().any(|draft| draft.request.mode.is_none());
    if let Some(mode) = choice.accepted.get::<BootMode>() {
        let is_accepted = |draft: &Draft| draft.request.mode.is_some() == (mode == BootMode::Named);
        // The sort is stable, and last resorts stay last.
        drafts.sort_by_key(|draft| !is_accepted(draft));
    }
    let resources = choice.accepted.in_order::<BootResource>().into_iter();
    let resources =
        resources.filter(|resource| *resource == BootResource::System || system.settings.is_some());
    let to_requests =
        |resource| drafts.iter().map(move |draft| draft.sent_to(resource, has_choice));
    resources.flat_map(to_requests).collect()
}

impl Draft {
    fn new(name: impl Into<String>, request: BootRequest) -> Self {
        Self { name: name.into(), request, is_last_resort: false }
    }

    fn last_resort(self) -> Self {
        Self { is_last_resort: true, ..self }
    }

    /// Returns the request to `resource`. The form of its mode tells something only if there was a
    /// choice.
    fn sent_to(&self, resource: BootResource, has_choice: bool) -> Request {
        let Self { name, request, is_last_resort } = self;
        let in_settings = resource == BootResource::Settings;
        let suffix = if in_settings { SETTINGS } else { "" };
        let mode = if request.mode.is_some() { BootMode::Named } else { BootMode::Omitted };
        let mode = if has_choice { AcceptedForms::only(mode) } else { AcceptedForms::default() };
        Request {
            name: format!("{name}{suffix}"),
            call: Call::Boot { request: request.clone(), in_settings },
            is_last_resort: *is_last_resort,
            follows_ineffective: false,
            forms: AcceptedForms::only(resource).and(mode),
        }
    }
}

/// Returns the drafts that clear the override. Those without a mode come first: a service that
/// needs the target would accept the mode alone, and not clear anything.
fn clearing(wanted: &Boot, system: &System, choice: Choice<'_>) -> Vec<Draft> {
    let forms = [
        ("clear", "Disabled", None),
        ("clear target", "Disabled", Some("None")),
        (DISK, "Continuous", Some("Hdd")),
    ];
    let mut drafts = Vec::new();
    for (suffix, mode, is_guess) in modes(wanted, system, choice) {
        for (name, enabled, target) in forms {
            let draft = Draft::new(format!("{name}{suffix}"), request(enabled, target, mode));
            let is_last_resort = name == DISK || is_guess;
            drafts.push(Draft { is_last_resort, ..draft });
        }
    }
    drafts
}

/// Returns the drafts that set an override.
///
/// A mode is sent first only to a BMC that lists it as allowed, or that reports another one. Others
/// refuse every request that has one, and some answer such a request with an internal error.
fn setting(wanted: &Boot, system: &System, choice: Choice<'_>) -> Vec<Draft> {
    let BootOverride { targets, modes: allowed, mode: reported, .. } = &system.boot;
    let target = target(wanted.device());
    let is_listed = |list: &[String], name| list.is_empty() || list.iter().any(|one| one == name);
    if !is_listed(targets, target) {
        return Vec::new();
    }
    let enabled = if wanted.persistent { "Continuous" } else { "Once" };
    let draft = |name: String, mode| {
        let http_url = wanted.http_url.clone();
        Draft::new(name, BootRequest { http_url, ..request(enabled, Some(target), mode) })
    };
    let named = |name: &str, mode| draft(name.into(), Some(mode));
    let without = |name: &str| draft(name.into(), None);
    // A former mode that is the wanted one would repeat a request.
    let other_former = former_mode(system, choice).filter(|mode| mode_of(wanted) != Some(mode));
    let in_former =
        other_former.map(|mode| named(&format!("{WITH_MODE}{IN_FORMER_MODE}"), mode).last_resort());
    match (mode_of(wanted), system.protocol) {
        // The boot flags always say a mode: the present one stays.
        (None, Protocol::Ipmi) => vec![draft(WITH_MODE.into(), present_mode(system))],
        (Some(mode), Protocol::Ipmi) => vec![named(WITH_MODE, mode)],
        (None, Protocol::Redfish) => {
            let drafts = modes(wanted, system, choice).into_iter();
            drafts
                .map(|(suffix, mode, is_last_resort)| Draft {
                    is_last_resort,
                    ..draft(format!("{WITH_MODE}{suffix}"), mode)
                })
                .collect()
        }
        (Some(mode), Protocol::Redfish) if allowed.is_empty() && *reported == mode => {
            vec![without(IN_PRESENT_MODE), named(WITH_MODE, mode)]
        }
        (Some(mode), Protocol::Redfish)
            if system.boot.names_modes() && is_listed(allowed, mode) =>
        {
            let last = without(WITHOUT_MODE).last_resort();
            [named(WITH_MODE, mode), last].into_iter().chain(in_former).collect()
        }
        (Some(mode), Protocol::Redfish) => {
            let both = [without(WITHOUT_MODE), named(WITH_MODE, mode)];
            both.into_iter().chain(in_former).collect()
        }
    }
}

/// Returns the modes that a request may name which leaves the mode unchanged: none, then the one
/// that the BMC reported before. A BMC that reports none gets one of those that it lists, or any if
/// it required or accepted a mode before. Each has the suffix of the request's name, and is true
/// for a guess: it could change the mode, unless the BMC said in this operation that it is missing.
fn modes(
    wanted: &Boot,
    system: &System,
    choice: Choice<'_>,
) -> Vec<(String, Option<&'static str>, bool)> {
    let mut modes = vec![(String::new(), None, false)];
    if let Some(mode) = former_mode(system, choice) {
        modes.push((IN_FORMER_MODE.into(), Some(mode), false));
        return modes;
    }
    let is_missing = choice.progress.missing.iter().any(|name| name == MODE_PROPERTY);
    let is_listed = |mode: &str| system.boot.modes.iter().any(|listed| listed == mode);
    let is_wanted = |mode: &str| mode_of(wanted).is_none_or(|wanted| wanted == mode);
    let is_accepted = choice.accepted.get() == Some(BootMode::Named);
    for (_, mode) in MODES {
        if (is_missing || is_accepted || is_listed(mode)) && is_wanted(mode) {
            modes.push((format!("{BY}{}", mode.to_lowercase()), Some(mode), !is_missing));
        }
    }
    modes
}

fn request(
    enabled: &'static str,
    target: Option<&'static str>,
    mode: Option<&'static str>,
) -> BootRequest {
    BootRequest { enabled, target, mode, http_url: String::new() }
}

/// Returns the mode that the system reported before the first request, else the one that it reports
/// now.
fn former_mode(system: &System, choice: Choice<'_>) -> Option<&'static str> {
    named_mode(&choice.progress.boot_mode).or_else(|| present_mode(system))
}

/// Returns the mode that the system reports.
fn present_mode(system: &System) -> Option<&'static str> {
    named_mode(&system.boot.mode)
}

fn named_mode(text: &str) -> Option<&'static str> {
    MODES.iter().find(|(_, name)| *name == text).map(|(_, name)| *name)
}

fn target(device: Device) -> &'static str {
    DEVICES.iter().find(|(known, _)| *known == device).map_or("None", |(_, name)| name)
}

/// Returns the mode that `wanted` names.
fn mode_of(wanted: &Boot) -> Option<&'static str> {
    MODES.iter().find(|(known, _)| *known == wanted.mode()).map(|(_, name)| *name)
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
