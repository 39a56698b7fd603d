//! Root disks of inventories, and the text form of hints.

use super::*;
use proptest::prelude::*;

const GB: u64 = 1_000_000_000;

fn disk(name: &str, serial: &str, gigabytes: u64, medium: DiskMedium) -> InventoryDisk {
    let by_id = format!("/dev/disk/by-id/scsi-S{serial}");
    InventoryDisk {
        name: name.into(),
        serial: serial.into(),
        wwn: format!("0x5000c500{}", serial.to_lowercase()),
        size_bytes: gigabytes * GB,
        medium: medium.into(),
        by_id: if serial.is_empty() { Vec::new() } else { vec![by_id] },
        by_path: vec![format!("/dev/disk/by-path/pci-0000:00:05.0-scsi-0:0:{name}:0")],
        ..InventoryDisk::default()
    }
}

/// Two SSDs, a hard disk and a USB stick.
fn disks() -> Vec<InventoryDisk> {
    let stick = InventoryDisk { removable: true, ..disk("sdd", "D4", 8, DiskMedium::Ssd) };
    vec![
        disk("sda", "A1", 480, DiskMedium::Ssd),
        disk("sdb", "B2", 960, DiskMedium::Ssd),
        disk("sdc", "C3", 4000, DiskMedium::Hdd),
        stick,
    ]
}

fn hint(text: &str) -> DiskHint {
    text.parse().unwrap()
}

fn found(text: &str) -> Result<String, String> {
    let disks = disks();
    let found = resolve(Some(&hint(text)), &disks);
    found.map(|disk| disk.serial.clone()).map_err(|error| error.to_string())
}

#[test]
fn the_root_disk_fulfils_every_part_of_the_hint() {
    for (text, serial) in [
        ("serial=B2", "B2"),
        ("wwn=0x5000c500c3", "C3"),
        ("medium=hdd", "C3"),
        ("medium=ssd,choose=smallest", "A1"),
        ("medium=ssd,choose=largest", "B2"),
        ("choose=smallest", "A1"),
        ("choose=largest", "C3"),
        ("min-size=500GB,max-size=1TB", "B2"),
        ("max-size=480GB", "A1"),
        ("min-size=4TB", "C3"),
        ("by-path=/dev/disk/by-path/pci-0000:00:05.0-scsi-0:0:sdb:0", "B2"),
        ("serial=D4", "D4"),
    ] {
        assert_eq!(found(text).as_deref(), Ok(serial), "{text}");
    }
}

#[test]
fn a_hint_that_fits_no_disk_or_several_is_refused_with_the_candidates() {
    let all = "sda (serial A1, 480 GB, ssd), sdb (serial B2, 960 GB, ssd), sdc (serial C3, 4000 GB, hdd), sdd (serial D4, 8 GB, ssd, removable)";
    for text in ["serial=X", "serial=A1,medium=hdd", "medium=nvme", "max-size=10GB"] {
        let expected = format!("no disk can be the root disk (hint {text}): the machine has {all}");
        assert_eq!(found(text), Err(expected));
    }
    let two = "several disks can be the root disk (hint medium=ssd): sda (serial A1, 480 GB, ssd), sdb (serial B2, 960 GB, ssd)";
    assert_eq!(found("medium=ssd"), Err(two.into()));
    let mut tie = disks();
    tie[1].size_bytes = tie[0].size_bytes;
    let refused = resolve(Some(&hint("choose=smallest")), &tie).unwrap_err();
    assert_eq!(refused.reason(), "ROOT_DISK_AMBIGUOUS");
    assert!(
        refused
            .to_string()
            .ends_with(": sda (serial A1, 480 GB, ssd), sdb (serial B2, 480 GB, ssd)")
    );
}

#[test]
fn without_a_hint_only_a_single_fixed_disk_is_the_root_disk() {
    let inventory =
        |disks: &[InventoryDisk]| Inventory { disks: disks.into(), ..Inventory::default() };
    let root = |disks: &[InventoryDisk]| root_disk(None, Some(&inventory(disks)));
    let all = disks();
    assert_eq!(root(&all[2..]).as_deref(), Ok("/dev/disk/by-id/scsi-SC3"));
    let several = root(&all).unwrap_err();
    assert_eq!(several.reason(), "ROOT_DISK_AMBIGUOUS");
    assert!(
        several
            .to_string()
            .starts_with("several disks can be the root disk (without a hint): sda (")
    );
    for (disks, end) in [(&all[3..], "sdd (serial D4, 8 GB, ssd, removable)"), (&[], "no disk")] {
        let none = root(disks).unwrap_err();
        assert_eq!(none.reason(), "ROOT_DISK_MISSING");
        assert!(none.to_string().ends_with(&format!("the machine has {end}")), "{none}");
    }
    assert_eq!(root_disk(None, None), Err(Error::NoInventory));
}

#[test]
fn the_path_is_a_link_that_no_other_disk_has() {
    let path = |disks: &[InventoryDisk]| stable_path(&disks[0], disks);
    let mut disks = disks();
    disks[0].by_id.insert(0, "/dev/disk/by-id/virtio-\"x".into());
    assert_eq!(path(&disks).as_deref(), Some("/dev/disk/by-id/scsi-SA1"));
    let first = disks[0].clone();
    disks[1].by_id.clone_from(&first.by_id);
    assert_eq!(path(&disks), Some(disks[0].by_path[0].clone()), "another disk claims the same id");
    disks[1].by_path.clone_from(&first.by_path);
    assert_eq!(path(&disks), None);
    let bare = InventoryDisk { by_path: Vec::new(), ..disk("vda", "", 8, DiskMedium::Hdd) };
    assert_eq!(path(std::slice::from_ref(&bare)).as_deref(), Some("/dev/vda"));
    let refused = root_disk(
        Some(&hint("max-size=8GB")),
        Some(&Inventory { disks: vec![bare, disks[2].clone()], ..Inventory::default() }),
    );
    assert_eq!(refused.unwrap_err().reason(), "ROOT_DISK_AMBIGUOUS");
}

#[test]
fn a_list_of_many_disks_is_cut() {
    let many: Vec<_> =
        (0..128).map(|n| disk(&format!("sd{n}"), &"S".repeat(255), n, DiskMedium::Ssd)).collect();
    let text = resolve(None, &many).unwrap_err().to_string();
    assert!(text.ends_with(", 112 more") && text.len() < 2048, "{text}");
}

#[test]
fn hints_are_stored_in_the_form_of_inventories() {
    let normal = |mut hint: DiskHint| {
        let mut wrong = Violations::default();
        normalize(&mut hint, &mut wrong);
        wrong.into_result(hint).map_err(|wrong| wrong.to_string())
    };
    let stored = normal(hint("serial= A1 ,wwn=5000C500A1B2C3D4"));
    assert_eq!(stored, Ok(hint("serial=A1,wwn=0x5000c500a1b2c3d4")));
    assert_eq!(normal(hint("wwn=EUI.0025")), Ok(hint("wwn=eui.0025")));
    let unknown = |medium, choose| DiskHint { medium, choose, ..hint("serial=A1") };
    for (wrong, field) in [
        (DiskHint::default(), ": is empty"),
        (hint("serial= "), "serial: is blank"),
        (hint("serial=a\nb"), "serial: is blank, or has a control character"),
        (hint(&format!("serial={}", "x".repeat(256))), "serial: has 256 bytes"),
        (hint("by-path=/dev/sda"), "by_path: is not a link in /dev/disk/by-path/"),
        (hint("min-size=2GB,max-size=1GB"), "min_size_bytes: 2000000000 is above max_size_bytes"),
        (unknown(9, 0), "medium: is not a value"),
        (unknown(0, 9), "choose: is not a value"),
    ] {
        let text = normal(wrong).unwrap_err();
        assert!(text.starts_with(field), "{field}: {text}");
    }
}

#[test]
fn a_wrong_text_is_refused_with_the_part_at_fault() {
    for (text, part) in [
        ("", "\"\" is none of serial="),
        ("serial", "\"serial\" is none of serial="),
        ("size=1GB", "\"size=1GB\" is none of"),
        ("medium=flash", "\"flash\" is not a medium: hdd, ssd or nvme"),
        ("min-size=1gb", "\"1gb\" is not a size"),
        ("max-size=0", "\"0\" is not a size"),
        ("max-size=+1GB", "\"+1GB\" is not a size"),
        ("max-size=99999999TB", "\"99999999TB\" is not a size"),
        ("choose=first", "\"first\" is not a choice"),
    ] {
        let wrong = text.parse::<DiskHint>().unwrap_err().to_string();
        assert!(wrong.starts_with(part), "{wrong}");
    }
    assert_eq!(hint("min-size=1TiB").min_size_bytes, 1 << 40);
    assert_eq!(hint("min-size=512").to_string(), "min-size=512");
}

prop_compose! {
    fn any_disk()(
        serial in "[AB]?", wwn in "(0x[12])?", size_bytes in 1..4_u64, medium in 0..4_i32,
        removable: bool, path in 0..3_u32,
    ) -> InventoryDisk {
        let by_path = vec![format!("/dev/disk/by-path/{path}")];
        InventoryDisk { serial, wwn, size_bytes, medium, removable, by_path, ..InventoryDisk::default() }
    }
}

prop_compose! {
    fn any_hint()(
        serial in "[AB]?", wwn in "(0x[12])?", min_size_bytes in 0..4_u64, max_size_bytes in 0..4_u64,
        medium in 0..4_i32, choose in 0..3_i32, path in prop::option::of(0..3_u32),
    ) -> DiskHint {
        let by_path = path.map(|path| format!("/dev/disk/by-path/{path}")).unwrap_or_default();
        DiskHint { serial, wwn, min_size_bytes, max_size_bytes, medium, by_path, choose }
    }
}

proptest! {
    #[test]
    fn a_hint_finds_one_disk_that_violates_nothing_in_any_order_of_the_disks(
        hint in any_hint(),
        (disks, shuffled) in prop::collection::vec(any_disk(), 0..6).prop_flat_map(|disks| {
            let named: Vec<_> = disks.into_iter().enumerate()
                .map(|(n, disk)| InventoryDisk { name: format!("sd{n}"), ..disk }).collect();
            (Just(named.clone()), Just(named).prop_shuffle())
        }),
    ) {
        let found = resolve(Some(&hint), &disks);
        let again = resolve(Some(&hint), &shuffled);
        prop_assert_eq!(found.clone().map_err(|it| it.reason()), again.map_err(|it| it.reason()));
        if let Ok(disk) = found {
            prop_assert!(hint.serial.is_empty() || disk.serial == hint.serial);
            prop_assert!(hint.wwn.is_empty() || disk.wwn == hint.wwn);
            prop_assert!(hint.by_path.is_empty() || disk.by_path == [hint.by_path.clone()]);
            prop_assert!(hint.medium == 0 || disk.medium == hint.medium);
            prop_assert!(disk.size_bytes >= hint.min_size_bytes);
            prop_assert!(hint.max_size_bytes == 0 || disk.size_bytes <= hint.max_size_bytes);
        }
    }

    #[test]
    fn a_hint_is_read_as_it_is_written(hint in any_hint(), size in 1..u64::MAX) {
        let hint = DiskHint { max_size_bytes: size, ..hint };
        prop_assert_eq!(hint.to_string().parse(), Ok(hint));
    }
}
