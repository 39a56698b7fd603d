//! The rules for hardware records, and the form in which they are stored.
//!
//! [`normalize`] returns the stored form (canonical MACs and addresses, names in lower case), or all violations, field by
//! field.

mod bonds;
mod interface;
mod policy;
mod relay_port;

use std::collections::BTreeSet;

use tinwright::hardware::v1 as pb;
use tinwright::hardware::v1::State;
use tinwright::status::Violations;
use tinwright::{LocationId, check, disk_hint};

/// The most interfaces, and the most disks: with its index entries, a record fits one commit.
const MAX_PARTS: usize = 16;
/// The longest short text.
const MAX_TEXT_BYTES: usize = 255;
/// The longest `extra`.
const MAX_EXTRA_BYTES: usize = 64 * 1024;
/// The deepest nesting of `extra`.
const MAX_EXTRA_DEPTH: usize = 32;

/// Returns `hardware` as it is stored, except for output-only fields, or its violations.
pub fn normalize(mut hardware: pb::Hardware) -> Result<pb::Hardware, Violations> {
    let mut wrong = Violations::default();
    texts(&mut hardware, &mut wrong);
    // An enrolled machine may be known by its BMC only, which need not list the interfaces.
    let is_in_use = matches!(hardware.state(), State::Unspecified | State::Provisionable);
    if hardware.interfaces.is_empty() && is_in_use {
        wrong.add(
            "interfaces",
            "is empty: a machine has at least one, unless its state is set to enrolled",
        );
    }
    wrong.each("interfaces", &mut hardware.interfaces, MAX_PARTS, interface::normalize);
    check_unique(&hardware, &mut wrong);
    wrong.each("disks", &hardware.disks, MAX_PARTS, check_disk);
    let root_disk = hardware.root_disk.as_deref_mut();
    wrong.nest("root_disk", root_disk, disk_hint::normalize);
    bonds::check(&hardware, &mut wrong);
    wrong.nest("policy", &hardware.policy, policy::check);
    wrong.take("extra", extra(&hardware.extra));
    wrong.into_result(hardware)
}

fn texts(hardware: &mut pb::Hardware, wrong: &mut Violations) {
    wrong.normalize_optional("name", &mut hardware.name, check::label);
    wrong.take("labels", check::labels(&hardware.labels));
    if hardware.architecture.is_empty() {
        hardware.architecture = "x86_64".into();
    }
    if !matches!(hardware.architecture.as_str(), "x86_64" | "aarch64") {
        wrong.add("architecture", "is neither x86_64 nor aarch64");
    }
    let pb::Hardware { agent_id, facility, plan, manufacturer, .. } = hardware;
    for (field, text) in [
        ("agent_id", agent_id),
        ("facility", facility),
        ("plan", plan),
        ("manufacturer", manufacturer),
    ] {
        wrong.take(field, check_word(text));
    }
    let pb::Hardware { location_id, zone, .. } = hardware;
    wrong.normalize_optional("location_id", location_id, str::parse::<LocationId>);
    wrong.normalize_optional("zone", zone, check::label);
    if location_id.is_empty() && !zone.is_empty() {
        wrong.add("zone", "is set without location_id");
    }
}

/// Passes for a text without spaces and control characters: it is used in kernel arguments and lines of metadata.
fn check_word(text: &str) -> Result<(), check::InvalidValue> {
    check::length(text, MAX_TEXT_BYTES)?;
    if text.is_empty() { Ok(()) } else { check::script_word(text) }
}

/// Checks that no two interfaces of the machine share a MAC, an address or a port.
fn check_unique(hardware: &pb::Hardware, wrong: &mut Violations) {
    let mut seen = BTreeSet::new();
    for (n, interface) in hardware.interfaces.iter().enumerate() {
        let unique = [
            ("mac", Some(interface.mac.clone())),
            ("dhcp.address.address", address(interface).map(str::to_owned)),
            ("relay_port", relay_port(interface)),
        ];
        for (field, value) in unique {
            if let Some(value) = value
                && !seen.insert((field, value.clone()))
            {
                wrong.add(format!("interfaces[{n}].{field}"), format!("{value} is listed twice"));
            }
        }
    }
}

/// Returns the reserved address of `interface`.
pub(crate) fn address(interface: &pb::Interface) -> Option<&str> {
    let address = interface.dhcp.as_ref()?.address.as_ref()?;
    (!address.address.is_empty()).then_some(&address.address)
}

/// Returns the relay port of `interface` as one word: link, remote and circuit.
pub(crate) fn relay_port(interface: &pb::Interface) -> Option<String> {
    let pb::RelayPort { circuit_id, remote_id, link_address, pinned: _ } =
        interface.relay_port.as_ref()?;
    Some(format!("{link_address},{remote_id},{circuit_id}"))
}

fn check_disk(pb::Disk { device }: &pb::Disk, wrong: &mut Violations) {
    wrong.take("device", check_word(device));
    if !device.starts_with("/dev/") || device.split('/').any(|part| part == "..") {
        wrong.add("device", "is not a path below /dev");
    }
}

/// Checks parameters of a kernel command line.
fn check_kernel_params(field: &str, words: &[String], wrong: &mut Violations) {
    wrong.each(field, words, 64, |word, wrong| {
        wrong.take("", check::script_word(word));
    });
}

/// Returns the enum value with this number.
pub(crate) fn enum_value<E: TryFrom<i32>>(number: i32) -> Result<E, &'static str> {
    E::try_from(number).map_err(|_| "is not a value of its enum")
}

fn extra(extra: &[u8]) -> Result<(), check::InvalidValue> {
    check::length(extra, MAX_EXTRA_BYTES)?;
    if extra.is_empty() { Ok(()) } else { check::json_object(extra, MAX_EXTRA_DEPTH) }
}

#[cfg(test)]
mod tests;
