//! Inventories that BMCs have of their machines: limits, what changed, and what contradicts the machine's own report.

use tinwright::hardware::v1 as pb;
use tinwright::hardware::v1::Health;
use tinwright::status::Violations;
use tinwright::{HardwareId, Mac, machine_uuid};

use super::differences::{changed, memory, processors};
use super::{MAX_INTERFACES, check_text};

/// Returns `inventory` as it is stored, except for the time of the report, or its violations.
pub(crate) fn normalize(mut inventory: pb::BmcInventory) -> Result<pb::BmcInventory, Violations> {
    let mut wrong = Violations::default();
    inventory.report_time = None;
    wrong.normalize_optional("uuid", &mut inventory.uuid, |uuid| uuid.parse::<HardwareId>());
    let pb::BmcInventory { serial, vendor, product, sku, bios_version, processors, .. } =
        &inventory;
    let model = processors.as_ref().map_or("", |processors| &processors.model);
    for (field, text) in [
        ("serial", serial.as_str()),
        ("vendor", vendor),
        ("product", product),
        ("sku", sku),
        ("bios_version", bios_version),
        ("processors.model", model),
    ] {
        check_text(field, text, &mut wrong);
    }
    if Health::try_from(inventory.health).is_err() {
        wrong.add("health", "is not a value of its enum");
    }
    wrong.each("interfaces", &mut inventory.interfaces, MAX_INTERFACES, |interface, wrong| {
        wrong.normalize("mac", &mut interface.mac, |mac| mac.parse::<Mac>());
        check_text("name", &interface.name, wrong);
    });
    inventory.interfaces.sort_by(|a, b| a.mac.cmp(&b.mac));
    wrong.into_result(inventory)
}

/// Returns what changed from `old` to `new`, one text for each part.
pub(crate) fn differences(old: &pb::BmcInventory, new: &pb::BmcInventory) -> Vec<String> {
    let mut found = Vec::new();
    for (part, old, new) in [
        ("UUID", &old.uuid, &new.uuid),
        ("serial", &old.serial, &new.serial),
        ("vendor", &old.vendor, &new.vendor),
        ("product", &old.product, &new.product),
        ("SKU", &old.sku, &new.sku),
        ("BIOS version", &old.bios_version, &new.bios_version),
    ] {
        changed(part, old.clone(), new.clone(), &mut found);
    }
    changed("health", health(old), health(new), &mut found);
    let (before, after) = (processors(&old.processors), processors(&new.processors));
    changed("processors", before, after, &mut found);
    changed("memory", memory(old.memory_bytes), memory(new.memory_bytes), &mut found);
    let has = |all: &[pb::BmcInterface], mac: &str| all.iter().any(|it| it.mac == mac);
    let gone = old.interfaces.iter().filter(|it| !has(&new.interfaces, &it.mac));
    found.extend(gone.map(|it| format!("interface {} is gone", it.mac)));
    let added = new.interfaces.iter().filter(|it| !has(&old.interfaces, &it.mac));
    found.extend(added.map(|it| format!("interface {} is new", it.mac)));
    found
}

/// Returns the contradiction between what a machine and its BMC say of the machine's identity, for people; empty for none. What one
/// of them does not say contradicts nothing.
pub(crate) fn contradiction(own: &pb::Inventory, bmc: &pb::BmcInventory) -> String {
    let is_serial_other = own.serial.trim() != bmc.serial.trim();
    let parts = [
        ("UUID", &own.uuid, &bmc.uuid, !is_same_uuid(&own.uuid, &bmc.uuid)),
        ("serial", &own.serial, &bmc.serial, is_serial_other),
    ];
    let other = parts.into_iter().filter(|(_, own, bmc, is_other)| {
        *is_other && !own.trim().is_empty() && !bmc.trim().is_empty()
    });
    let texts: Vec<_> = other
        .map(|(part, own, bmc, _)| format!("the BMC says {part} {bmc}, the machine itself {own}"))
        .collect();
    match texts.as_slice() {
        [] => String::new(),
        texts => format!("{}: is it the BMC of another machine?", texts.join("; ")),
    }
}

/// True if both are one UUID, in either byte order.
fn is_same_uuid(a: &str, b: &str) -> bool {
    match (a.parse(), b.parse()) {
        (Ok(a), Ok(b)) => machine_uuid::is_same(a, b),
        (_, _) => a == b,
    }
}

fn health(inventory: &pb::BmcInventory) -> String {
    match inventory.health() {
        Health::Unspecified => "",
        Health::Ok => "ok",
        Health::Warning => "warning",
        Health::Critical => "critical",
    }
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "4c4c4544-0042-3010-8052-b4c04f4d3232";

    fn own(uuid: &str, serial: &str) -> pb::Inventory {
        pb::Inventory { uuid: uuid.into(), serial: serial.into(), ..Default::default() }
    }

    fn bmc(uuid: &str, serial: &str) -> pb::BmcInventory {
        pb::BmcInventory { uuid: uuid.into(), serial: serial.into(), ..Default::default() }
    }

    #[test]
    fn another_uuid_or_serial_contradicts_and_a_missing_or_swapped_one_does_not() {
        let agrees = |a: &pb::Inventory, b: &pb::BmcInventory| contradiction(a, b).is_empty();
        assert!(agrees(&own(UUID, "A1"), &bmc(UUID, "A1 ")));
        assert!(agrees(&own(UUID, ""), &bmc("", "A1")));
        assert!(agrees(&own(UUID, ""), &bmc("44454c4c-4200-1030-8052-b4c04f4d3232", "")));
        let other = "4c4c4544-0042-3010-8052-b4c04f4d3233";
        assert_eq!(
            contradiction(&own(UUID, "A1"), &bmc(other, "B7")),
            format!(
                "the BMC says UUID {other}, the machine itself {UUID}; the BMC says serial B7, the machine itself A1: is it the BMC of another machine?"
            )
        );
    }

    #[test]
    fn a_change_of_health_or_of_an_interface_is_a_difference() {
        let with = |health: Health, mac: &str| pb::BmcInventory {
            health: health.into(),
            interfaces: vec![pb::BmcInterface { mac: mac.into(), ..Default::default() }],
            ..bmc(UUID, "A1")
        };
        let old = with(Health::Ok, "02:00:00:00:00:01");
        assert!(differences(&old, &old).is_empty());
        assert_eq!(
            differences(&old, &with(Health::Critical, "02:00:00:00:00:02")),
            [
                "health is critical, was ok",
                "interface 02:00:00:00:00:01 is gone",
                "interface 02:00:00:00:00:02 is new"
            ]
        );
    }

    #[test]
    fn a_wrong_mac_and_too_many_interfaces_are_named() {
        let interface = |mac: &str| pb::BmcInterface { mac: mac.into(), ..Default::default() };
        let interfaces = vec![interface("02-00-00-00-00-0B"), interface("x")];
        let wrong = normalize(pb::BmcInventory { interfaces, ..bmc("", "") }).unwrap_err();
        assert!(wrong.to_string().starts_with("interfaces[1].mac: "), "{wrong}");
        let interfaces = vec![interface("02-00-00-00-00-0B")];
        let right = normalize(pb::BmcInventory { interfaces, ..bmc("", "") }).unwrap();
        assert_eq!(right.interfaces[0].mac, "02:00:00:00:00:0b");
        let interfaces = vec![interface("02:00:00:00:00:01"); MAX_INTERFACES + 1];
        assert!(normalize(pb::BmcInventory { interfaces, ..bmc("", "") }).is_err());
    }
}
