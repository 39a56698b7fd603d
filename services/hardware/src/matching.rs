//! The machines of a model: those that meet its constraints.

use tinwright::Attributes as _;
use tinwright::hardware::v1 as pb;
use tinwright::hardware::v1::{DiskMedium, FirmwareMode};

/// True if `machine` meets all constraints of `model`. A machine without an inventory meets only those that need none.
pub fn matches(model: &pb::Model, machine: &pb::Hardware) -> bool {
    let Some(constraints) = &model.constraints else { return true };
    let architecture = &constraints.architecture;
    (architecture.is_empty() || *architecture == machine.architecture)
        && machine.has_labels(&constraints.labels)
        && (!needs_inventory(constraints)
            || machine.inventory.as_deref().is_some_and(|it| inventory_matches(constraints, it)))
}

/// True if one of `constraints` is on the inventory.
fn needs_inventory(constraints: &pb::ModelConstraints) -> bool {
    let pb::ModelConstraints { architecture, labels, .. } = constraints.clone();
    *constraints != pb::ModelConstraints { architecture, labels, ..Default::default() }
}

fn inventory_matches(constraints: &pb::ModelConstraints, inventory: &pb::Inventory) -> bool {
    let pb::ModelConstraints {
        architecture: _,
        labels: _,
        firmware_mode: _,
        vendor,
        product,
        cores,
        memory_bytes,
        disks,
        interfaces,
    } = constraints;
    let is_any_or = |wanted: &str, has: &str| wanted.is_empty() || wanted.eq_ignore_ascii_case(has);
    let mode = constraints.firmware_mode();
    let has_cores = inventory.processors.as_ref().map_or(0, |it| it.cores.into());
    (mode == FirmwareMode::Unspecified || mode == inventory.firmware_mode())
        && is_any_or(vendor, &inventory.vendor)
        && is_any_or(product, &inventory.product)
        && cores.is_none_or(|bounds| has_cores > 0 && contains(bounds, has_cores))
        && memory_bytes.is_none_or(|bounds| {
            inventory.memory_bytes > 0 && contains(bounds, inventory.memory_bytes)
        })
        && disks.iter().all(|wanted| disks_match(wanted, &inventory.disks))
        && interfaces.iter().all(|wanted| interfaces_match(wanted, &inventory.interfaces))
}

fn disks_match(wanted: &pb::DiskConstraint, disks: &[pb::InventoryDisk]) -> bool {
    let medium = wanted.medium();
    let is_wanted = |disk: &&pb::InventoryDisk| {
        !disk.removable
            && disk.size_bytes >= wanted.min_size_bytes
            && (medium == DiskMedium::Unspecified || medium == disk.medium())
    };
    count_matches(wanted.count, disks.iter().filter(is_wanted).count())
}

fn interfaces_match(
    wanted: &pb::InterfaceConstraint,
    interfaces: &[pb::InventoryInterface],
) -> bool {
    let is_wanted = |it: &&pb::InventoryInterface| it.speed_mbps >= wanted.min_speed_mbps;
    count_matches(wanted.count, interfaces.iter().filter(is_wanted).count())
}

/// True if `bounds` contain `count`; without bounds, if it is at least one.
fn count_matches(bounds: Option<pb::Bounds>, count: usize) -> bool {
    bounds.map_or(count > 0, |bounds| contains(bounds, count as u64))
}

fn contains(pb::Bounds { min, max }: pb::Bounds, value: u64) -> bool {
    min.is_none_or(|min| min <= value) && max.is_none_or(|max| value <= max)
}

#[cfg(test)]
mod tests;
