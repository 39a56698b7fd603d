//! The differences between two inventories of a machine, in words for people.

use tinwright::disk_hint::{medium_word, size_text};
use tinwright::hardware::v1 as pb;
use tinwright::hardware::v1::FirmwareMode;

/// Returns what changed from `old` to `new`, one text for each part. New names of the same disks and interfaces are no change:
/// they depend on the order of detection.
pub(crate) fn differences(old: &pb::Inventory, new: &pb::Inventory) -> Vec<String> {
    let mut found = Vec::new();
    machine(old, new, &mut found);
    disks(&old.disks, &new.disks, &mut found);
    interfaces(&old.interfaces, &new.interfaces, &mut found);
    found
}

fn machine(old: &pb::Inventory, new: &pb::Inventory, found: &mut Vec<String>) {
    for (part, old, new) in [
        ("UUID", &old.uuid, &new.uuid),
        ("serial", &old.serial, &new.serial),
        ("vendor", &old.vendor, &new.vendor),
        ("product", &old.product, &new.product),
        ("BMC", &old.bmc_url, &new.bmc_url),
        ("TPM", &old.tpm_version, &new.tpm_version),
        ("architecture", &old.architecture, &new.architecture),
    ] {
        changed(part, old.clone(), new.clone(), found);
    }
    changed("firmware", firmware(old), firmware(new), found);
    changed("processors", processors(&old.processors), processors(&new.processors), found);
    changed("memory", memory(old.memory_bytes), memory(new.memory_bytes), found);
}

/// Adds that `part` is `new` and was `old`, unless both are equal.
pub(super) fn changed(
    part: impl std::fmt::Display,
    old: String,
    new: String,
    found: &mut Vec<String>,
) {
    let shown = |text: String| if text.is_empty() { "unknown".to_owned() } else { text };
    if old != new {
        found.push(format!("{part} is {}, was {}", shown(new), shown(old)));
    }
}

fn disks(old: &[pb::InventoryDisk], new: &[pb::InventoryDisk], found: &mut Vec<String>) {
    let is_in = |disk, disks: &[_]| disks.iter().any(|other| is_same_disk(disk, other));
    for gone in old.iter().filter(|disk| !is_in(disk, new)) {
        found.push(format!("disk {} is gone", disk_identity(gone)));
    }
    for added in new.iter().filter(|disk| !is_in(disk, old)) {
        let details = [added.name.clone(), size_text(added.size_bytes), medium(added)];
        let details: Vec<_> = details.into_iter().filter(|it| !it.is_empty()).collect();
        found.push(format!("disk {} is new ({})", disk_identity(added), details.join(", ")));
    }
    for disk in new {
        let Some(before) = old.iter().find(|other| is_same_disk(disk, other)) else { continue };
        let part = |name| format!("{name} of disk {}", disk_identity(disk));
        changed(part("size"), size_text(before.size_bytes), size_text(disk.size_bytes), found);
        changed(part("medium"), medium(before), medium(disk), found);
    }
}

/// True if both records describe one disk: by its WWN, else by its serial number, else by its name.
fn is_same_disk(a: &pb::InventoryDisk, b: &pb::InventoryDisk) -> bool {
    let key = |disk: &pb::InventoryDisk| match (&*disk.wwn, &*disk.serial) {
        ("", "") => (0, disk.name.clone()),
        ("", serial) => (1, serial.to_owned()),
        (wwn, _) => (2, wwn.to_owned()),
    };
    key(a) == key(b)
}

fn disk_identity(disk: &pb::InventoryDisk) -> String {
    match (&*disk.serial, &*disk.wwn) {
        ("", "") => disk.name.clone(),
        ("", wwn) => format!("with WWN {wwn}"),
        (serial, _) => format!("with serial {serial}"),
    }
}

fn interfaces(
    old: &[pb::InventoryInterface],
    new: &[pb::InventoryInterface],
    found: &mut Vec<String>,
) {
    let of = |mac: &str, all: &[pb::InventoryInterface]| {
        all.iter().find(|interface| interface.mac == mac).cloned()
    };
    for gone in old.iter().filter(|interface| of(&interface.mac, new).is_none()) {
        found.push(format!("interface {} is gone", gone.mac));
    }
    for interface in new {
        let Some(before) = of(&interface.mac, old) else {
            found.push(format!("interface {} is new ({})", interface.mac, interface.name));
            continue;
        };
        let part = |name| format!("{name} of interface {}", interface.mac);
        changed(part("link"), link(&before), link(interface), found);
        changed(part("neighbour"), neighbour(&before), neighbour(interface), found);
    }
}

fn link(interface: &pb::InventoryInterface) -> String {
    match (interface.link, interface.speed_mbps) {
        (false, _) => "down".into(),
        (true, 0) => "up".into(),
        (true, speed) => format!("{speed} Mbit/s"),
    }
}

fn neighbour(interface: &pb::InventoryInterface) -> String {
    let Some(neighbour) = &interface.lldp_neighbour else { return String::new() };
    let name = Some(&neighbour.system_name).filter(|name| !name.is_empty());
    let port = format!("port {} of {}", neighbour.port_id, name.unwrap_or(&neighbour.chassis_id));
    match neighbour.vlan_id {
        0 => port,
        vlan => format!("{port} in VLAN {vlan}"),
    }
}

fn firmware(inventory: &pb::Inventory) -> String {
    match inventory.firmware_mode() {
        FirmwareMode::Unspecified => "",
        FirmwareMode::Bios => "BIOS",
        FirmwareMode::Uefi => "UEFI",
    }
    .into()
}

pub(super) fn processors(processors: &Option<pb::Processors>) -> String {
    let Some(pb::Processors { model, sockets, cores, threads }) = processors else {
        return String::new();
    };
    format!("{sockets} x {model} with {cores} cores and {threads} threads")
}

fn medium(disk: &pb::InventoryDisk) -> String {
    medium_word(disk.medium()).into()
}

pub(super) fn memory(bytes: u64) -> String {
    if bytes == 0 { String::new() } else { format!("{} MiB", bytes >> 20) }
}
