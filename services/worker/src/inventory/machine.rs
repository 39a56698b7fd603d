//! Identity, firmware, processors, memory and TPM.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use tinwright::hardware::v1 as pb;
use tinwright::hardware::v1::FirmwareMode;

use super::{names, number, one_line, text};

/// Texts that vendors leave in place of an identity.
const PLACEHOLDERS: [&str; 6] = [
    "0",
    "default string",
    "none",
    "not specified",
    "system serial number",
    "to be filled by o.e.m.",
];

/// Returns `text`, or nothing if it is a vendor's placeholder.
pub(super) fn identity_text(text: &str) -> String {
    let is_placeholder = PLACEHOLDERS.contains(&text.to_lowercase().as_str());
    if is_placeholder { String::new() } else { text.to_owned() }
}

pub(super) fn firmware_mode(root: &Path) -> FirmwareMode {
    match root.join("sys/firmware/efi").exists() {
        true => FirmwareMode::Uefi,
        false => FirmwareMode::Bios,
    }
}

/// Returns the processors that are online.
pub(super) fn processors(root: &Path) -> Option<pb::Processors> {
    let folder = root.join("sys/devices/system/cpu");
    let (mut sockets, mut cores, mut threads) = (BTreeSet::new(), BTreeSet::new(), 0);
    for name in names(&folder) {
        let topology = folder.join(name).join("topology");
        let of = |attribute: &str| text(&topology.join(attribute));
        let (socket, core) = (of("physical_package_id"), of("core_id"));
        if !core.is_empty() {
            threads += 1;
            cores.insert((socket.clone(), core));
            sockets.insert(socket);
        }
    }
    let info = fs::read_to_string(root.join("proc/cpuinfo")).unwrap_or_default();
    let model = info.lines().filter_map(|line| line.split_once(':'));
    let model =
        model.filter(|(name, _)| name.trim() == "model name").map(|(_, model)| model).next();
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    (threads > 0).then(|| pb::Processors {
        model: one_line(model.unwrap_or_default()),
        sockets: count(sockets.len()),
        cores: count(cores.len()),
        threads,
    })
}

/// Returns the memory that the kernel has: less than what is installed.
pub(super) fn kernel_memory_bytes(root: &Path) -> Option<u64> {
    let info = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let total = info.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(total.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

/// Returns the version of the first TPM's specification.
pub(super) fn tpm_version(root: &Path) -> String {
    match number(&root.join("sys/class/tpm/tpm0/tpm_version_major")) {
        Some(1) => "1.2".into(),
        Some(major) => format!("{major}.0"),
        None => String::new(),
    }
}
