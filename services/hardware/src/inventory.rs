//! Inventories that machines report of themselves: their limits, the form in which they are stored, and what changed.

pub(crate) mod bmc;
mod differences;

use prost::Message as _;
use tinwright::check;
use tinwright::hardware::v1 as pb;
use tinwright::status::Violations;
use tinwright::{HardwareId, Mac};

pub(crate) use differences::differences;

/// The longest inventory.
const MAX_BYTES: usize = 64 * 1024;
/// The longest text.
const MAX_TEXT_BYTES: usize = 255;
/// The most disks.
const MAX_DISKS: usize = 128;
/// The most network interfaces.
const MAX_INTERFACES: usize = 64;
/// The greatest id of a VLAN.
const MAX_VLAN_ID: u32 = 4094;
/// The most links of a disk in one folder.
const MAX_LINKS: usize = 8;

/// Returns `inventory` as it is stored, except for the time of the report, or its violations.
pub(crate) fn normalize(mut inventory: pb::Inventory) -> Result<pb::Inventory, Violations> {
    let mut wrong = Violations::default();
    inventory.report_time = None;
    wrong.normalize_optional("uuid", &mut inventory.uuid, |uuid| uuid.parse::<HardwareId>());
    check_texts(&inventory, &mut wrong);
    let pb::Inventory { disks, interfaces, .. } = &mut inventory;
    wrong.each("disks", &mut *disks, MAX_DISKS, check_disk);
    wrong.each("interfaces", &mut *interfaces, MAX_INTERFACES, normalize_interface);
    disks.sort_by(|a, b| a.name.cmp(&b.name));
    interfaces.sort_by(|a, b| a.name.cmp(&b.name));
    if inventory.encoded_len() > MAX_BYTES {
        wrong.add("", format!("has more than {MAX_BYTES} bytes"));
    }
    wrong.into_result(inventory)
}

fn check_texts(inventory: &pb::Inventory, wrong: &mut Violations) {
    let pb::Inventory {
        serial,
        vendor,
        product,
        bmc_url,
        tpm_version,
        architecture,
        processors,
        ..
    } = inventory;
    let model = processors.as_ref().map_or("", |processors| &processors.model);
    for (field, text) in [
        ("serial", serial.as_str()),
        ("vendor", vendor),
        ("product", product),
        ("bmc_url", bmc_url),
        ("tpm_version", tpm_version),
        ("architecture", architecture),
        ("processors.model", model),
    ] {
        check_text(field, text, wrong);
    }
}

fn check_text(field: &str, text: &str, wrong: &mut Violations) {
    wrong.take(field, check::length(text, MAX_TEXT_BYTES));
    if text.contains(char::is_control) {
        wrong.add(field, "contains a control character");
    }
}

fn check_disk(disk: &mut pb::InventoryDisk, wrong: &mut Violations) {
    let pb::InventoryDisk { name, serial, wwn, model, by_id, by_path, .. } = disk;
    for (field, text) in [("name", name), ("serial", serial), ("wwn", wwn), ("model", model)] {
        check_text(field, text, wrong);
    }
    for (field, links, folder) in
        [("by_id", by_id, "/dev/disk/by-id/"), ("by_path", by_path, "/dev/disk/by-path/")]
    {
        wrong.each(field, &*links, MAX_LINKS, |link, wrong| {
            check_text("", link, wrong);
            wrong.take("", check::script_word(link));
            let name = link.strip_prefix(folder);
            if name.is_none_or(|name| name.is_empty() || name.contains('/') || name == "..") {
                wrong.add("", format!("is not a link in {folder}"));
            }
        });
    }
}

fn normalize_interface(interface: &mut pb::InventoryInterface, wrong: &mut Violations) {
    let pb::InventoryInterface { name, mac, driver, lldp_neighbour, .. } = interface;
    wrong.normalize("mac", mac, |mac| mac.parse::<Mac>());
    check_text("name", name, wrong);
    check_text("driver", driver, wrong);
    let pb::LldpNeighbour { chassis_id, port_id, system_name, vlan_id } =
        lldp_neighbour.clone().unwrap_or_default();
    if vlan_id > MAX_VLAN_ID {
        wrong.add("lldp_neighbour.vlan_id", format!("is greater than {MAX_VLAN_ID}"));
    }
    for (field, text) in [
        ("lldp_neighbour.chassis_id", chassis_id),
        ("lldp_neighbour.port_id", port_id),
        ("lldp_neighbour.system_name", system_name),
    ] {
        check_text(field, &text, wrong);
    }
}

/// Returns what the reports in `new` changed, for people; empty for nothing.
pub(crate) fn reported_change(old: &pb::Hardware, new: &pb::Hardware) -> String {
    let own = match (&old.inventory, &new.inventory) {
        (None, Some(_)) => vec!["first inventory".into()],
        (Some(old), Some(new)) => differences(old, new),
        (_, None) => Vec::new(),
    };
    let listed = match (&old.bmc_inventory, &new.bmc_inventory) {
        (None, Some(_)) => vec!["first inventory of the BMC".into()],
        (Some(old), Some(new)) => bmc::differences(old, new),
        (_, None) => Vec::new(),
    };
    let listed = listed.into_iter().map(|text: String| match text.starts_with("first") {
        true => text,
        false => format!("by the BMC: {text}"),
    });
    own.into_iter().chain(listed).collect::<Vec<_>>().join("; ")
}

/// Returns the contradiction between the two inventories of `machine`; empty for none.
pub(crate) fn warning(machine: &pb::Hardware) -> String {
    match (&machine.inventory, &machine.bmc_inventory) {
        (Some(own), Some(bmc)) => bmc::contradiction(own, bmc),
        (Some(_), None) | (None, _) => String::new(),
    }
}

/// Adds to `new` the LLDP neighbours in `old` of which `new` says nothing: a switch announces itself every 30 s only, and a machine
/// may report before that.
pub(crate) fn keep_neighbours(old: &pb::Inventory, new: &mut pb::Inventory) {
    for interface in new.interfaces.iter_mut().filter(|it| it.lldp_neighbour.is_none()) {
        let before = old.interfaces.iter().find(|it| it.mac == interface.mac);
        interface.lldp_neighbour = before.and_then(|before| before.lldp_neighbour.clone());
    }
}

#[cfg(test)]
mod tests;
