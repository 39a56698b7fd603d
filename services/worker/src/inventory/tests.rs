//! Inventories of trees with the files that guests of QEMU have, and the links to their disks.

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use tempfile::TempDir;
use tinwright::hardware::v1::{DiskMedium, FirmwareMode};

use super::*;

/// A tree of files.
struct Tree(TempDir);

impl Tree {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn file(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn files(&self, folder: &str, files: &[(&str, &str)]) {
        for (name, content) in files {
            self.file(&format!("{folder}/{name}"), format!("{content}\n"));
        }
    }

    fn link(&self, path: &str, target: &str) {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }

    /// Adds a disk with `files`, at `device` below sys/devices.
    fn disk(&self, name: &str, device: &str, block: &str, files: &[(&str, &str)]) {
        let folder = format!("sys/devices/{device}/{block}{name}");
        self.files(&folder, files);
        self.link(&format!("sys/block/{name}"), &format!("../devices/{device}/{block}{name}"));
        self.link(&format!("{folder}/device"), if block.is_empty() { ".." } else { "../.." });
    }
}

const SATA: &str = "pci0000:00/0000:00:1f.2/ata3/host2/target2:0:0/2:0:0:0";
const SCSI: &str = "pci0000:00/0000:00:05.0/virtio2/host6/target6:0:1/6:0:1:0";

/// The page 80h with a serial number.
fn page_80(serial: &str) -> Vec<u8> {
    [&[0, 0x80, 0, u8::try_from(serial.len()).unwrap()], serial.as_bytes()].concat()
}

/// The page 89h with a model.
fn page_89(model: &str) -> Vec<u8> {
    let padded = format!("{model:<40}");
    let swapped = padded.as_bytes().chunks(2).flat_map(|word| [word[1], word[0]]);
    [0; 60 + 54].into_iter().chain(swapped).chain([0; 400]).collect()
}

/// A guest of QEMU's q35 with UEFI and disks on four buses.
fn guest() -> Tree {
    let tree = Tree::new();
    tree.files(
        "sys/class/dmi/id",
        &[
            ("product_uuid", "4C4C4544-0042-3010-8052-B4C04F4D3232"),
            ("product_serial", "Not Specified"),
            ("sys_vendor", "QEMU"),
            ("product_name", "Standard PC (Q35 + ICH9, 2009)"),
        ],
    );
    tree.file("sys/firmware/efi/fw_platform_size", "64\n");
    tree.file("sys/firmware/dmi/tables/DMI", tables());
    tree.file("sys/class/tpm/tpm0/tpm_version_major", "2\n");
    tree.file("proc/cpuinfo", "processor\t: 0\nmodel name\t: QEMU TCG CPU version 2.5+\n");
    for (thread, core) in [(0, 0), (1, 0), (2, 1), (3, 1)] {
        let folder = format!("sys/devices/system/cpu/cpu{thread}/topology");
        tree.files(&folder, &[("physical_package_id", "0"), ("core_id", &core.to_string())]);
    }
    tree.disk(
        "vda",
        "pci0000:00/0000:00:03.0/virtio0",
        "block/",
        &[
            ("size", "4194304"),
            ("serial", "ROOT1"),
            ("queue/rotational", "1"),
            ("vda1/partition", "1"),
            ("removable", "0"),
        ],
    );
    tree.files("sys/devices/pci0000:00/0000:00:03.0/virtio0", &[("vendor", "0x1af4")]);
    tree.disk("sda", SATA, "block/", &[("size", "2097152"), ("queue/rotational", "1")]);
    tree.files(
        &format!("sys/devices/{SATA}"),
        &[("vendor", "ATA     "), ("model", "QEMU HARDDISK   "), ("wwid", "naa.5000c500a1b2c3d4")],
    );
    tree.file(&format!("sys/devices/{SATA}/vpd_pg80"), page_80("QM00005             "));
    tree.file(&format!("sys/devices/{SATA}/vpd_pg89"), page_89("QEMU HARDDISK OF FORTY"));
    tree.file("sys/devices/pci0000:00/0000:00:1f.2/ata3/ata_port/ata3/port_no", "1\n");
    tree.disk("sdb", SCSI, "block/", &[("size", "2097152"), ("queue/rotational", "0")]);
    tree.files(
        &format!("sys/devices/{SCSI}"),
        &[
            ("vendor", "QEMU"),
            ("model", "QEMU HARDDISK"),
            ("wwid", "t10.QEMU    QEMU HARDDISK   S7"),
        ],
    );
    tree.file(&format!("sys/devices/{SCSI}/vpd_pg80"), page_80("S7"));
    let nvme = "pci0000:00/0000:00:06.0/nvme/nvme0";
    tree.disk(
        "nvme0n1",
        nvme,
        "",
        &[
            ("size", "2097152"),
            ("queue/rotational", "0"),
            ("nsid", "1"),
            ("wwid", "eui.0025385B21403A5C"),
            ("nvme0n1p2/partition", "2"),
        ],
    );
    tree.files(&format!("sys/devices/{nvme}"), &[("model", "QEMU NVMe Ctrl"), ("serial", "N1")]);
    for other in ["sr0", "loop0"] {
        tree.disk(other, &format!("virtual/{other}"), "block/", &[("size", "2097152")]);
    }
    tree.disk("sdz", "virtual/empty", "block/", &[("size", "0")]);
    tree.files(
        "sys/devices/virtio9/net/eth0",
        &[("address", "52:54:00:AB:00:01"), ("carrier", "1"), ("speed", "-1")],
    );
    tree.link("sys/class/net/eth0", "../../devices/virtio9/net/eth0");
    tree.link("sys/devices/virtio9/net/eth0/device", "../..");
    tree.link("sys/devices/virtio9/driver", "../../../bus/virtio/drivers/virtio_net");
    tree.files("sys/class/net/lo", &[("address", "00:00:00:00:00:00")]);
    tree
}

/// Tables with two memory devices, an empty socket, and a Redfish host interface.
fn tables() -> Vec<u8> {
    let memory = |size: u16, extended: u32| {
        let mut fields = vec![0; 0x28];
        (fields[0], fields[1]) = (17, 0x28);
        fields[0x0c..0x0e].copy_from_slice(&size.to_le_bytes());
        fields[0x1c..0x20].copy_from_slice(&extended.to_le_bytes());
        [fields, b"DIMM 0\0QEMU\0\0".to_vec()].concat()
    };
    let mut redfish = vec![0; 91];
    redfish[51] = 1;
    redfish[52..56].copy_from_slice(&[192, 0, 2, 9]);
    redfish[84..86].copy_from_slice(&443_u16.to_le_bytes());
    let mut interface = vec![42, 0, 0, 0, 0x40, 2, 2, 0, 2, 1, 1, 0, 4, 91];
    interface.extend(redfish);
    interface[1] = u8::try_from(interface.len()).unwrap();
    let bios = [vec![0, 4, 0, 0], b"SeaBIOS\0\0".to_vec()].concat();
    let end = vec![127, 4, 0, 0, 0, 0];
    let memories = [memory(1024, 0), memory(0, 0), memory(0x7fff, 32768)].concat();
    [bios, memories, interface, vec![0, 0], end].concat()
}

#[test]
fn identity_processors_memory_firmware_and_tpm_are_those_of_the_guest() {
    let found = collect(guest().path());
    assert_eq!(found.uuid, "4c4c4544-0042-3010-8052-b4c04f4d3232");
    assert_eq!((found.serial.as_str(), found.vendor.as_str()), ("", "QEMU"));
    assert_eq!(found.product, "Standard PC (Q35 + ICH9, 2009)");
    assert_eq!(found.firmware_mode(), FirmwareMode::Uefi);
    assert_eq!(found.memory_bytes, (1024 + 32768) << 20);
    assert_eq!(found.bmc_url, "https://192.0.2.9:443");
    assert_eq!(found.tpm_version, "2.0");
    let model = "QEMU TCG CPU version 2.5+".into();
    assert_eq!(found.processors, Some(pb::Processors { model, sockets: 1, cores: 2, threads: 4 }));
}

#[test]
fn an_interface_is_listed_with_driver_and_link() {
    let expected = pb::InventoryInterface {
        name: "eth0".into(),
        mac: "52:54:00:ab:00:01".into(),
        driver: "virtio_net".into(),
        link: true,
        ..pb::InventoryInterface::default()
    };
    assert_eq!(collect(guest().path()).interfaces, [expected]);
}

#[test]
fn disks_of_each_bus_have_serial_wwn_size_medium_and_the_links_of_udev() {
    let disks = collect(guest().path()).disks;
    let names: Vec<_> = disks.iter().map(|disk| disk.name.as_str()).collect();
    assert_eq!(names, ["nvme0n1", "sda", "sdb", "vda"]);
    let [nvme, sata, scsi, virtio] = &disks[..] else { panic!("{disks:?}") };
    let identity =
        |disk: &pb::InventoryDisk| (disk.serial.clone(), disk.wwn.clone(), disk.medium());
    let expected = |serial: &str, wwn: &str, medium| (serial.to_owned(), wwn.to_owned(), medium);
    assert_eq!(identity(nvme), expected("N1", "eui.0025385b21403a5c", DiskMedium::Nvme));
    assert_eq!(identity(sata), expected("QM00005", "0x5000c500a1b2c3d4", DiskMedium::Hdd));
    assert_eq!(identity(scsi), expected("S7", "", DiskMedium::Ssd));
    assert_eq!(identity(virtio), expected("ROOT1", "", DiskMedium::Hdd));
    assert_eq!((virtio.size_bytes, sata.size_bytes), (2 << 30, 1 << 30));
    let by_id = |disk: &pb::InventoryDisk| disk.by_id.join(" ").replace("/dev/disk/by-id/", "");
    assert_eq!(by_id(nvme), "nvme-eui.0025385b21403a5c nvme-QEMU_NVMe_Ctrl_N1");
    assert_eq!(by_id(sata), "wwn-0x5000c500a1b2c3d4 ata-QEMU_HARDDISK_OF_FORTY_QM00005");
    assert_eq!(by_id(scsi), "scsi-SQEMU_QEMU_HARDDISK_S7");
    assert_eq!(by_id(virtio), "virtio-ROOT1");
    let by_path =
        |disk: &pb::InventoryDisk| disk.by_path.join(" ").replace("/dev/disk/by-path/", "");
    assert_eq!(by_path(nvme), "pci-0000:00:06.0-nvme-1");
    assert_eq!(by_path(sata), "pci-0000:00:1f.2-ata-1");
    assert_eq!(by_path(scsi), "pci-0000:00:05.0-scsi-0:0:1:0");
    assert_eq!(by_path(virtio), "pci-0000:00:03.0 virtio-pci-0000:00:03.0");
}

#[test]
fn links_lead_to_disks_and_partitions_and_those_of_removed_disks_are_gone() {
    let tree = guest();
    refresh_disk_links(tree.path()).unwrap();
    let target = |link: &str| fs::read_link(tree.path().join("dev/disk").join(link)).ok();
    let device = |name: &str| Some(PathBuf::from("../..").join(name));
    assert_eq!(target("by-id/wwn-0x5000c500a1b2c3d4"), device("sda"));
    assert_eq!(target("by-id/virtio-ROOT1-part1"), device("vda1"));
    assert_eq!(target("by-path/pci-0000:00:06.0-nvme-1-part2"), device("nvme0n1p2"));
    fs::remove_file(tree.path().join("sys/block/sda")).unwrap();
    tree.file("sys/block/vda/vda2/partition", "2\n");
    tree.file("sys/devices/pci0000:00/0000:00:06.0/nvme/nvme0/serial", "N2\n");
    refresh_disk_links(tree.path()).unwrap();
    assert_eq!(target("by-id/wwn-0x5000c500a1b2c3d4"), None);
    assert_eq!(target("by-id/virtio-ROOT1-part2"), device("vda2"));
    assert_eq!(target("by-id/nvme-QEMU_NVMe_Ctrl_N1"), None);
    assert_eq!(target("by-id/nvme-QEMU_NVMe_Ctrl_N2"), device("nvme0n1"));
}

#[test]
fn a_machine_that_shows_nothing_has_the_inventory_of_its_kernel() {
    let tree = Tree::new();
    tree.file("proc/meminfo", "MemTotal:        1009876 kB\n");
    tree.file("sys/firmware/dmi/tables/DMI", [17, 200, 0, 0]);
    let expected = pb::Inventory {
        firmware_mode: FirmwareMode::Bios.into(),
        memory_bytes: 1_009_876 * 1024,
        architecture: std::env::consts::ARCH.into(),
        ..pb::Inventory::default()
    };
    assert_eq!(collect(tree.path()), expected);
}

proptest::proptest! {
    #[test]
    fn any_tables_of_the_firmware_are_read_without_a_panic(bytes: Vec<u8>, at in 0_usize..300, byte: u8) {
        let mut tables = tables();
        if let Some(changed) = tables.get_mut(at) {
            *changed = byte;
        }
        for tables in [bytes, tables] {
            smbios::memory_bytes(&tables);
            smbios::redfish_url(&tables);
        }
    }
}
