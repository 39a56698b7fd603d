//! Which machines meet which constraints.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;

const GIB: u64 = 1 << 30;

fn model(constraints: pb::ModelConstraints) -> pb::Model {
    pb::Model { constraints: Some(constraints), ..pb::Model::default() }
}

fn any() -> pb::ModelConstraints {
    pb::ModelConstraints::default()
}

fn bounds(min: impl Into<Option<u64>>, max: impl Into<Option<u64>>) -> Option<pb::Bounds> {
    Some(pb::Bounds { min: min.into(), max: max.into() })
}

fn disk(size: u64, medium: DiskMedium) -> pb::InventoryDisk {
    let medium = medium.into();
    pb::InventoryDisk { size_bytes: size * GIB, medium, ..pb::InventoryDisk::default() }
}

fn wanted(count: Option<pb::Bounds>, min_size: u64, medium: DiskMedium) -> Vec<pb::DiskConstraint> {
    vec![pb::DiskConstraint { count, min_size_bytes: min_size * GIB, medium: medium.into() }]
}

/// A machine with 16 cores, 128 GiB, two NVMe disks, a hard disk and a USB stick, and two interfaces.
fn machine() -> pb::Hardware {
    let stick = pb::InventoryDisk { removable: true, ..disk(4000, DiskMedium::Ssd) };
    let interface =
        |speed_mbps| pb::InventoryInterface { speed_mbps, ..pb::InventoryInterface::default() };
    let inventory = pb::Inventory {
        vendor: "Acme Inc.".into(),
        product: "M2".into(),
        firmware_mode: FirmwareMode::Uefi.into(),
        processors: Some(pb::Processors { cores: 16, ..pb::Processors::default() }),
        memory_bytes: 128 * GIB,
        disks: vec![
            disk(960, DiskMedium::Nvme),
            disk(960, DiskMedium::Nvme),
            disk(4000, DiskMedium::Hdd),
            stick,
        ],
        interfaces: vec![interface(25_000), interface(0)],
        ..pb::Inventory::default()
    };
    pb::Hardware {
        architecture: "x86_64".into(),
        labels: [("rack".into(), "r1".into()), ("gpu".into(), String::new())].into(),
        inventory: Some(Box::new(inventory)),
        ..pb::Hardware::default()
    }
}

#[test]
fn constraints_and_the_machine_that_meets_them_or_not() {
    use DiskMedium::{Hdd, Nvme, Ssd, Unspecified};
    let label = |key: &str, value: &str| [(key.to_owned(), value.to_owned())].into();
    let speed = |count, min_speed_mbps| vec![pb::InterfaceConstraint { count, min_speed_mbps }];
    let (uefi, bios) = (FirmwareMode::Uefi.into(), FirmwareMode::Bios.into());
    let table = [
        (any(), true),
        (pb::ModelConstraints { architecture: "x86_64".into(), ..any() }, true),
        (pb::ModelConstraints { architecture: "aarch64".into(), ..any() }, false),
        (pb::ModelConstraints { labels: label("rack", "r1"), ..any() }, true),
        (pb::ModelConstraints { labels: label("rack", "r2"), ..any() }, false),
        (pb::ModelConstraints { labels: label("gpu", ""), ..any() }, true),
        (pb::ModelConstraints { labels: label("tpm", ""), ..any() }, false),
        (pb::ModelConstraints { firmware_mode: uefi, ..any() }, true),
        (pb::ModelConstraints { firmware_mode: bios, ..any() }, false),
        (pb::ModelConstraints { vendor: "ACME inc.".into(), ..any() }, true),
        (pb::ModelConstraints { vendor: "Acme".into(), ..any() }, false),
        (pb::ModelConstraints { product: "m2".into(), ..any() }, true),
        (pb::ModelConstraints { product: "M3".into(), ..any() }, false),
        (pb::ModelConstraints { cores: bounds(16, 16), ..any() }, true),
        (pb::ModelConstraints { cores: bounds(17, None), ..any() }, false),
        (pb::ModelConstraints { cores: bounds(None, 15), ..any() }, false),
        (pb::ModelConstraints { memory_bytes: bounds(64 * GIB, 128 * GIB), ..any() }, true),
        (pb::ModelConstraints { memory_bytes: bounds(None, 128 * GIB - 1), ..any() }, false),
        (pb::ModelConstraints { disks: wanted(None, 0, Nvme), ..any() }, true),
        (pb::ModelConstraints { disks: wanted(None, 961, Nvme), ..any() }, false),
        (pb::ModelConstraints { disks: wanted(bounds(2, 2), 960, Nvme), ..any() }, true),
        (pb::ModelConstraints { disks: wanted(bounds(3, 3), 0, Unspecified), ..any() }, true),
        (pb::ModelConstraints { disks: wanted(bounds(None, 0), 0, Hdd), ..any() }, false),
        // The stick does not count.
        (pb::ModelConstraints { disks: wanted(bounds(None, 0), 0, Ssd), ..any() }, true),
        (pb::ModelConstraints { interfaces: speed(None, 25_000), ..any() }, true),
        (pb::ModelConstraints { interfaces: speed(bounds(2, None), 10_000), ..any() }, false),
        (pb::ModelConstraints { interfaces: speed(bounds(2, 2), 0), ..any() }, true),
    ];
    for (constraints, expected) in table {
        assert_eq!(matches(&model(constraints.clone()), &machine()), expected, "{constraints:?}");
    }
}

#[test]
fn all_constraints_have_to_be_met() {
    let first = pb::ModelConstraints { cores: bounds(16, 16), vendor: "Acme Inc.".into(), ..any() };
    let disks = [wanted(None, 900, DiskMedium::Nvme), wanted(bounds(2, None), 0, DiskMedium::Hdd)];
    assert!(matches(&model(first.clone()), &machine()));
    let second = pb::ModelConstraints { disks: disks[0].clone(), ..first.clone() };
    assert!(matches(&model(second), &machine()));
    let third = pb::ModelConstraints { disks: disks.concat(), ..first };
    assert!(!matches(&model(third), &machine()), "it has one hard disk only");
}

#[test]
fn a_machine_without_an_inventory_meets_only_constraints_that_need_none() {
    let bare = pb::Hardware { inventory: None, ..machine() };
    let silent = pb::Hardware { inventory: Some(Box::default()), ..machine() };
    assert!(matches(&pb::Model::default(), &bare));
    let on_record = pb::ModelConstraints {
        architecture: "x86_64".into(),
        labels: [("rack".into(), "r1".into())].into(),
        ..any()
    };
    assert!(matches(&model(on_record), &bare));
    for constraints in [
        pb::ModelConstraints { cores: bounds(None, 64), ..any() },
        pb::ModelConstraints { memory_bytes: bounds(0, None), ..any() },
        pb::ModelConstraints { firmware_mode: FirmwareMode::Uefi.into(), ..any() },
        pb::ModelConstraints { vendor: "Acme Inc.".into(), ..any() },
    ] {
        assert!(!matches(&model(constraints.clone()), &bare), "{constraints:?}");
        assert!(!matches(&model(constraints), &silent), "an inventory that does not say");
    }
    let no_disk = pb::ModelConstraints {
        disks: wanted(bounds(None, 0), 0, DiskMedium::Unspecified),
        ..any()
    };
    assert!(!matches(&model(no_disk.clone()), &bare));
    assert!(matches(&model(no_disk), &silent));
}

proptest! {
    /// The constraints on numbers, compared with a second implementation.
    #[test]
    fn numbers_are_within_their_bounds(
        (min, max) in (option::of(0_u64..6), option::of(0_u64..6)),
        cores in 0_u32..6,
        sizes in vec(0_u64..6, 0..6),
        min_size in 0_u64..6,
    ) {
        let disks = sizes.iter().map(|size| disk(*size, DiskMedium::Ssd)).collect();
        let processors = Some(pb::Processors { cores, ..pb::Processors::default() });
        let inventory = pb::Inventory { disks, processors, ..pb::Inventory::default() };
        let machine =
            pb::Hardware { inventory: Some(Box::new(inventory)), ..pb::Hardware::default() };
        let allowed = min.unwrap_or(0)..=max.unwrap_or(u64::MAX);
        let on_cores = pb::ModelConstraints { cores: bounds(min, max), ..any() };
        prop_assert_eq!(
            matches(&model(on_cores), &machine),
            cores > 0 && allowed.contains(&u64::from(cores))
        );
        let large = sizes.iter().filter(|size| **size >= min_size).count() as u64;
        let disks = wanted(bounds(min, max), min_size, DiskMedium::Ssd);
        let on_disks = pb::ModelConstraints { disks, ..any() };
        prop_assert_eq!(matches(&model(on_disks), &machine), allowed.contains(&large));
    }
}
