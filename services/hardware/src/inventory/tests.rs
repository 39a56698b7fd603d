//! Limits, normal forms and differences.

use super::*;

fn disk(name: &str, serial: &str, wwn: &str) -> pb::InventoryDisk {
    pb::InventoryDisk {
        name: name.into(),
        serial: serial.into(),
        wwn: wwn.into(),
        size_bytes: 2_000_000_000,
        medium: pb::DiskMedium::Ssd.into(),
        ..pb::InventoryDisk::default()
    }
}

fn interface(name: &str, mac: &str) -> pb::InventoryInterface {
    pb::InventoryInterface { name: name.into(), mac: mac.into(), ..Default::default() }
}

fn inventory() -> pb::Inventory {
    pb::Inventory {
        uuid: "4c4c4544-0042-3010-8052-b4c04f4d3232".into(),
        memory_bytes: 2 << 30,
        disks: vec![disk("sda", "A1", "0x5000c500a1b2c3d4"), disk("sdb", "A2", "")],
        interfaces: vec![interface("eth0", "02:00:00:00:00:01")],
        ..pb::Inventory::default()
    }
}

fn changes(change: impl FnOnce(&mut pb::Inventory)) -> Vec<String> {
    let mut new = inventory();
    change(&mut new);
    differences(&inventory(), &new)
}

#[test]
fn a_replaced_disk_is_named_by_its_serial_number() {
    let found = changes(|new| new.disks[1] = disk("sdb", "B7", ""));
    assert_eq!(
        found,
        ["disk with serial A2 is gone", "disk with serial B7 is new (sdb, 2 GB, ssd)"]
    );
    let found = changes(|new| new.disks.truncate(1));
    assert_eq!(found, ["disk with serial A2 is gone"]);
}

#[test]
fn disks_and_interfaces_that_only_change_their_names_are_no_difference() {
    let found = changes(|new| {
        (new.disks[0].name, new.disks[1].name) = ("sdb".into(), "sda".into());
        new.interfaces[0].name = "eth1".into();
    });
    assert_eq!(found, [""; 0]);
}

#[test]
fn other_parts_are_named_with_their_values_before_and_after() {
    let found = changes(|new| {
        new.memory_bytes = 1 << 30;
        new.serial = "S".into();
        new.set_firmware_mode(pb::FirmwareMode::Uefi);
        new.disks[0].size_bytes = 1_000_000_000;
        new.interfaces[0].link = true;
        new.interfaces.push(interface("eth1", "02:00:00:00:00:02"));
    });
    let expected = [
        "serial is S, was unknown",
        "firmware is UEFI, was unknown",
        "memory is 1024 MiB, was 2048 MiB",
        "size of disk with serial A1 is 1 GB, was 2 GB",
        "link of interface 02:00:00:00:00:01 is up, was down",
        "interface 02:00:00:00:00:02 is new (eth1)",
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_neighbour_is_kept_while_nothing_is_heard_of_another_one() {
    let neighbour = |port: &str| pb::LldpNeighbour {
        chassis_id: "leaf".into(),
        port_id: port.into(),
        ..Default::default()
    };
    let mut old = inventory();
    old.interfaces[0].lldp_neighbour = Some(neighbour("1"));
    let mut new = inventory();
    keep_neighbours(&old, &mut new);
    assert_eq!(new, old);
    new.interfaces[0].lldp_neighbour = Some(neighbour("2"));
    let other = new.clone();
    keep_neighbours(&old, &mut new);
    assert_eq!(new, other);
    new.interfaces[0].lldp_neighbour.as_mut().unwrap().vlan_id = 7;
    let expected =
        "neighbour of interface 02:00:00:00:00:01 is port 2 of leaf in VLAN 7, was port 1 of leaf";
    assert_eq!(differences(&old, &new), [expected]);
}

#[test]
fn parts_are_stored_sorted_and_in_normal_form() {
    let mut reported = inventory();
    reported.disks.reverse();
    reported.uuid = reported.uuid.to_uppercase();
    reported.interfaces[0].mac = "02-00-00-00-00-01".into();
    assert_eq!(normalize(reported).unwrap(), inventory());
}

#[test]
fn each_limit_is_named_with_its_field() {
    let wrong = |change: fn(&mut pb::Inventory)| {
        let mut reported = inventory();
        change(&mut reported);
        normalize(reported).unwrap_err().to_string()
    };
    for (change, field) in [
        ((|it| it.uuid = "x".into()) as fn(&mut pb::Inventory), "uuid"),
        (|it| it.serial = "s".repeat(256), "serial"),
        (
            |it| {
                let neighbour = pb::LldpNeighbour { vlan_id: 4095, ..Default::default() };
                it.interfaces[0].lldp_neighbour = Some(neighbour);
            },
            "interfaces[0].lldp_neighbour.vlan_id",
        ),
        (|it| it.vendor = "a\nb".into(), "vendor"),
        (|it| it.interfaces[0].mac = "x".into(), "interfaces[0].mac"),
        (|it| it.disks = vec![disk("a", "b", "c"); 129], "disks"),
        (|it| it.disks[1].by_id = vec!["/dev/sda".into()], "disks[1].by_id[0]"),
        (|it| it.disks[1].by_id = vec!["/dev/disk/by-id/a b".into()], "disks[1].by_id[0]"),
    ] {
        let wrong = wrong(change);
        assert!(wrong.contains(field), "{field}: {wrong}");
    }
    let large = wrong(|it| {
        it.disks = (0..128).map(|n| disk(&format!("{n}{}", "d".repeat(250)), "", "")).collect();
        it.disks.iter_mut().for_each(|disk| disk.model = "m".repeat(255));
        it.disks.iter_mut().for_each(|disk| disk.serial = "s".repeat(255));
    });
    assert!(large.contains("65536 bytes"), "{large}");
}
