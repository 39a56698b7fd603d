//! What a machine's record may say, and the form it is stored in.
//!
//! [`normal`] answers with the stored form (MACs and addresses in canonical spelling, names in lower case), or with
//! everything that is wrong, field by field (control-plane specification, sections 1.3 and 3.5; netboot specification,
//! sections 2.1 and 8.1).

mod bonds;
mod interface;
mod policy;
mod relay_port;

use std::collections::BTreeSet;

use tinwright::check;
use tinwright::hardware::v1 as pb;
use tinwright::status::Violations;

/// The most interfaces, and the most disks, of a machine: with its indexes it fits one commit.
const MANY: usize = 16;
/// The longest short text, in bytes.
const SHORT: usize = 255;
/// The longest opaque JSON object, in bytes.
const EXTRA: usize = 64 * 1024;
/// How deep that object may nest.
const DEPTH: usize = 32;

/// `hardware` as it is stored, but for what only the server writes; or what is wrong with it.
pub fn normal(mut hardware: pb::Hardware) -> Result<pb::Hardware, Violations> {
    let mut wrong = Violations::default();
    texts(&mut hardware, &mut wrong);
    if hardware.interfaces.is_empty() {
        wrong.add("interfaces", "is empty: a machine has at least one");
    }
    wrong.take("interfaces", check::count(hardware.interfaces.len(), MANY));
    for (n, interface) in hardware.interfaces.iter_mut().enumerate() {
        wrong.add_nested(&format!("interfaces[{n}]"), interface::normalize(interface));
    }
    twice(&hardware, &mut wrong);
    disks(&hardware.disks, &mut wrong);
    bonds::check(&hardware, &mut wrong);
    if let Some(policy) = &hardware.policy {
        wrong.add_nested("policy", policy::check(policy));
    }
    wrong.take("extra", extra(&hardware.extra));
    wrong.into_result(hardware)
}

fn texts(hardware: &mut pb::Hardware, wrong: &mut Violations) {
    if !hardware.name.is_empty()
        && let Some(name) = wrong.take("name", check::label(&hardware.name))
    {
        hardware.name = name;
    }
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
        wrong.take(field, word(text));
    }
}

/// Ends up in kernel arguments and in lines of metadata: no space, no control character.
fn word(text: &str) -> Result<(), check::InvalidValue> {
    check::length(text, SHORT)?;
    if text.is_empty() { Ok(()) } else { check::script_word(text) }
}

/// No two interfaces of one machine share a MAC, an address or a port.
fn twice(hardware: &pb::Hardware, wrong: &mut Violations) {
    let (mut macs, mut addresses, mut ports) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for (n, interface) in hardware.interfaces.iter().enumerate() {
        if !macs.insert(&interface.mac) {
            wrong.add(format!("interfaces[{n}].mac"), format!("{} is there twice", interface.mac));
        }
        if let Some(address) = address(interface)
            && !addresses.insert(address)
        {
            let field = format!("interfaces[{n}].dhcp.address.address");
            wrong.add(field, format!("{address} is there twice"));
        }
        if let Some(port) = relay_port(interface)
            && !ports.insert(port.clone())
        {
            wrong.add(format!("interfaces[{n}].relay_port"), format!("{port} is there twice"));
        }
    }
}

/// The reserved address of `interface`.
pub(crate) fn address(interface: &pb::Interface) -> Option<&str> {
    let address = interface.dhcp.as_ref()?.address.as_ref()?;
    (!address.address.is_empty()).then_some(&address.address)
}

/// The port that `interface` is plugged into, as one word: link, remote and circuit.
pub(crate) fn relay_port(interface: &pb::Interface) -> Option<String> {
    let pb::RelayPort { circuit_id, remote_id, link_address, pinned: _ } =
        interface.relay_port.as_ref()?;
    Some(format!("{link_address},{remote_id},{circuit_id}"))
}

fn disks(disks: &[pb::Disk], wrong: &mut Violations) {
    wrong.take("disks", check::count(disks.len(), MANY));
    for (n, pb::Disk { device }) in disks.iter().enumerate() {
        let field = format!("disks[{n}].device");
        wrong.take(field.clone(), word(device));
        if !device.starts_with("/dev/") || device.split('/').any(|part| part == "..") {
            wrong.add(field, "is no path below /dev");
        }
    }
}

/// Words of a kernel's command line.
fn words(field: &str, words: &[String], wrong: &mut Violations) {
    wrong.take(field, check::count(words.len(), 64));
    for (n, word) in words.iter().enumerate() {
        wrong.take(format!("{field}[{n}]"), check::script_word(word));
    }
}

/// One of an enumeration's numbers.
fn known<E: TryFrom<i32>>(number: i32) -> Result<E, &'static str> {
    E::try_from(number).map_err(|_| "is no value of its enumeration")
}

fn extra(extra: &[u8]) -> Result<(), check::InvalidValue> {
    check::length(extra, EXTRA)?;
    if extra.is_empty() { Ok(()) } else { check::json_object(extra, DEPTH) }
}

#[cfg(test)]
mod tests;
