//! Disks that other programs made: sfdisk, mtools and mke2fs.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::*;
use crate::partitions::FileSystem;

const MIB: u64 = 1 << 20;
/// Places of the partitions in MiB: start and size.
const BIOS_BOOT: (u64, u64) = (1, 1);
const ESP: (u64, u64) = (2, 40);
const ROOT: (u64, u64) = (42, 20);
const DISK_MIB: u64 = 64;

fn run(command: &mut Command) {
    command.env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin").env("MTOOLS_SKIP_CHECK", "1");
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| {
        panic!("{command:?}: {error}");
    });
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A disk in a file.
struct Disk {
    place: tempfile::TempDir,
    file: File,
}

impl Disk {
    /// Makes a disk with the partitions that sfdisk(8) makes of `script`.
    fn new(script: &str) -> Self {
        let place = tempfile::tempdir().unwrap();
        let mut options = File::options();
        options.read(true).write(true).create_new(true);
        let file = options.open(place.path().join("disk")).unwrap();
        file.set_len(DISK_MIB * MIB).unwrap();
        let disk = Self { place, file };
        std::fs::write(disk.path("script"), script).unwrap();
        let script = File::open(disk.path("script")).unwrap();
        let mut command = Command::new("/usr/sbin/sfdisk");
        command.arg("-q").arg(disk.path("disk")).stdin(script);
        assert!(command.status().unwrap().success(), "sfdisk");
        disk
    }

    fn gpt() -> Self {
        let line = |(start, size): (u64, u64), kind: &str| {
            format!("start={}, size={}, type={kind}\n", start * 2048, size * 2048)
        };
        let root = line(ROOT, "0FC63DAF-8483-4772-8E79-3D69D8477DE4");
        let bios = line(BIOS_BOOT, "21686148-6449-6E6F-744E-656564454649");
        let esp = line(ESP, "C12A7328-F81F-11D2-BA4B-00A0C93EC93B");
        Self::new(&format!("label: gpt\n{root}{bios}{esp}"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn write(&self, mib: u64, bytes: &[u8]) {
        self.file.write_all_at(bytes, mib * MIB).unwrap();
    }

    /// Makes a FAT with these options of mformat(1) at the place of the ESP, with a program for x86-64
    /// at `path`, a directory and a name.
    fn with_loader(self, options: &[&str], path: [&str; 2]) -> Self {
        let image = self.esp();
        let sectors = (ESP.1 * 2048).to_string();
        run(Command::new("mformat").args(["-i", &image, "-T", &sectors]).args(options).arg("::"));
        let directory = format!("::/EFI/{}", path[0]);
        run(Command::new("mmd").args(["-i", &image, "::/EFI", &directory]));
        // More entries than fit into one cluster.
        let names: Vec<_> = (0..40).map(|number| self.path(&format!("{number}.cfg"))).collect();
        names.iter().for_each(|name| std::fs::write(name, "x").unwrap());
        run(Command::new("mcopy").args(["-i", &image]).args(names).arg(&directory));
        self.with_program(&format!("{}/{}", path[0], path[1]), &program(0x8664))
    }

    /// Returns the EFI system partition as mtools name it.
    fn esp(&self) -> String {
        format!("{}@@{}M", self.path("disk").display(), ESP.0)
    }

    /// Adds a file to the FAT, at `path` below `\EFI`.
    fn with_program(self, path: &str, content: &[u8]) -> Self {
        let program = self.path("program");
        std::fs::write(&program, content).unwrap();
        let target = format!("::/EFI/{path}");
        run(Command::new("mcopy").args(["-o", "-i", &self.esp()]).arg(program).arg(target));
        self
    }

    /// Makes an ext4 with these files at the place of the root.
    fn with_root(self, files: &[(&str, &str)]) -> Self {
        let tree = self.path("tree");
        for (path, content) in files {
            let path = tree.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            match content.strip_prefix("-> ") {
                Some(target) => std::os::unix::fs::symlink(target, path).unwrap(),
                None => std::fs::write(path, content).unwrap(),
            }
        }
        let offset = format!("offset={}", ROOT.0 * MIB);
        let mut command = Command::new("mke2fs");
        command.args(["-q", "-F", "-t", "ext4", "-E", &offset, "-d"]).arg(tree);
        run(command.arg(self.path("disk")).arg(format!("{}M", ROOT.1)));
        self
    }

    fn properties(&self) -> Properties {
        properties(&self.path("disk"))
    }
}

fn properties(path: &Path) -> Properties {
    let disk = Source::open(path).unwrap();
    Properties::read(&disk, &Table::read(&disk).unwrap())
}

/// Returns a program for UEFI with this machine type, and nothing to run.
fn program(machine: u16) -> Vec<u8> {
    let mut program = vec![0; 0x200];
    program[..2].copy_from_slice(b"MZ");
    program[0x3c] = 0x80;
    program[0x80..0x84].copy_from_slice(b"PE\0\0");
    program[0x84..0x86].copy_from_slice(&machine.to_le_bytes());
    program
}

/// Returns the names of the architectures for which UEFI finds a boot loader.
fn architectures(found: &Properties) -> Vec<&str> {
    found.uefi.iter().map(|it| it.name()).collect()
}

/// Returns the files of a system like Debian's cloud image.
fn debian() -> Vec<(&'static str, &'static str)> {
    vec![
        ("etc/os-release", "-> ../usr/lib/os-release"),
        ("usr/lib/os-release", "PRETTY_NAME=\"Debian 12\"\nVERSION_ID=\"12\"\nID=debian\n"),
        ("etc/cloud/cloud.cfg", "users: []\n"),
        ("etc/cloud/cloud.cfg.d/90_a.cfg", "datasource_list: [NoCloud, Ec2]\n"),
        ("etc/cloud/cloud.cfg.d/99_b.cfg", "datasource_list: [ Ec2 ]\n"),
        ("etc/cloud/cloud.cfg.d/README", "datasource_list: [ Azure ]\n"),
    ]
}

#[test]
fn a_disk_for_both_kinds_of_firmware_with_debian_is_described() {
    let disk = Disk::gpt().with_loader(&[], ["BOOT", "BOOTX64.EFI"]).with_root(&debian());
    disk.write(BIOS_BOOT.0, b"\xeb\x63");
    let (offset, bytes) = (ROOT.0 * MIB, ROOT.1 * MIB);
    let expected = Properties {
        partition_table: TableKind::Gpt,
        sector_bytes: 512,
        bios: true,
        uefi: [Architecture::X86_64].into(),
        root: Some(Partition { number: 1, offset, bytes, file_system: FileSystem::Ext4 }),
        system: Some(System {
            id: "debian".into(),
            version: "12".into(),
            name: "Debian 12".into(),
        }),
        cloud_init: Some(CloudInit { data_sources: vec!["Ec2".into()] }),
    };
    assert_eq!(disk.properties(), expected);
}

#[test]
fn a_disk_without_boot_loaders_boots_nowhere() {
    let disk = Disk::gpt().with_loader(&[], ["BOOT", "readme.txt"]).with_root(&[("a", "b")]);
    let found = disk.properties();
    assert!(!found.bios && found.uefi.is_empty());
    assert_eq!((found.system, found.cloud_init), (None, None));
}

#[test]
fn a_loader_is_found_in_every_kind_of_fat_and_directory() {
    // 40 MiB: the size of a cluster decides about the kind.
    for (kind, options) in
        [("FAT12", &["-c", "64"][..]), ("FAT16", &["-c", "4"]), ("FAT32", &["-F", "-c", "1"])]
    {
        for path in [["BOOT", "BOOTX64.EFI"], ["a long directory", "a long name.efi"]] {
            let found = Disk::gpt().with_loader(options, path).properties();
            assert_eq!(
                (architectures(&found), found.bios),
                (vec!["x86_64"], false),
                "{kind} {path:?}"
            );
        }
    }
}

#[test]
fn the_header_of_a_loader_tells_its_architecture_whatever_its_name_is() {
    for (name, machine, expected) in [
        ("BOOTX64.EFI", 0x8664, "x86_64"),
        ("BOOTAA64.EFI", 0xaa64, "aarch64"),
        ("BOOTRISCV64.EFI", 0x5064, "riscv64"),
        ("BOOTIA32.EFI", 0x014c, "i386"),
        ("BOOTX64.EFI", 0xaa64, "aarch64"),
    ] {
        let disk = Disk::gpt().with_loader(&["-F", "-c", "1"], ["BOOT", "BOOTX64.EFI"]);
        let disk = disk.with_program("BOOT/BOOTX64.EFI", b"MZ, and no header");
        assert_eq!(architectures(&disk.properties()), [""; 0]);
        let found = disk.with_program(&format!("BOOT/{name}"), &program(machine)).properties();
        assert_eq!(architectures(&found), [expected], "{name}");
    }
}

#[test]
fn a_disk_for_several_architectures_names_each_once() {
    // Its header is in the fourth cluster.
    let mut late = [program(0), vec![0; 0x400], program(0x014c)].concat();
    late[0x3c..0x3e].copy_from_slice(&0x680_u16.to_le_bytes());
    // iPXE as Debian builds it.
    let ipxe = std::fs::read("/usr/lib/ipxe/snponly.efi").unwrap();
    let disk = Disk::gpt().with_loader(&["-F", "-c", "1"], ["BOOT", "BOOTX64.EFI"]);
    let disk = disk.with_program("BOOT/BOOTAA64.EFI", &program(0xaa64));
    let disk = disk.with_program("BOOT/grubaa64.efi", &program(0xaa64));
    let disk = disk.with_program("BOOT/snponly.efi", &ipxe);
    let disk = disk.with_program("BOOT/BOOTIA32.EFI", &late);
    // No firmware runs these.
    let disk = disk.with_program("BOOT/unknown.efi", &program(0x0200));
    let disk = disk.with_program("BOOT/program.exe", &program(0x5064));
    assert_eq!(architectures(&disk.properties()), ["aarch64", "i386", "x86_64"]);
}

#[test]
fn a_gpt_without_the_protective_mbr_has_no_loader_for_firmware() {
    let disk = Disk::gpt().with_loader(&[], ["BOOT", "BOOTX64.EFI"]);
    disk.write(0, &[0; 512]);
    let found = disk.properties();
    assert_eq!((found.partition_table, found.uefi), (TableKind::Gpt, BTreeSet::new()));
}

#[test]
fn code_in_the_master_boot_record_boots_by_bios() {
    let root = format!("start={}, size={}, type=83, bootable\n", ROOT.0 * 2048, ROOT.1 * 2048);
    let esp = format!("start={}, size={}, type=ef\n", ESP.0 * 2048, ESP.1 * 2048);
    let disk = Disk::new(&format!("label: dos\n{root}{esp}"));
    let found = disk.properties();
    assert_eq!(found.partition_table, TableKind::Mbr);
    assert!(!found.bios && found.uefi.is_empty());
    disk.write(0, b"\xeb\x63");
    let found = disk.with_loader(&[], ["debian", "shimx64.efi"]).with_root(&debian()).properties();
    assert_eq!((found.bios, architectures(&found)), (true, vec!["x86_64"]));
    assert_eq!(found.root.map(|it| it.number), Some(1));
    assert_eq!(found.system.map(|it| it.id).as_deref(), Some("debian"));
}

#[test]
fn a_system_on_a_disk_without_a_table_is_read() {
    let disk = Disk::gpt().with_root(&debian());
    let content = std::fs::read(disk.path("disk")).unwrap();
    let (start, end) = (ROOT.0 * MIB, (ROOT.0 + ROOT.1) * MIB);
    let path = disk.path("volume");
    std::fs::write(&path, &content[start as usize..end as usize]).unwrap();
    let found = properties(&path);
    assert_eq!(found.partition_table, TableKind::None);
    assert_eq!(found.root.map(|it| (it.number, it.bytes)), Some((0, ROOT.1 * MIB)));
    assert_eq!(found.system.map(|it| it.version).as_deref(), Some("12"));
}

#[test]
fn changed_bytes_make_no_reader_panic_or_hang() {
    let disk = Disk::gpt().with_loader(&["-c", "1"], ["BOOT", "BOOTX64.EFI"]).with_root(&debian());
    // Tables, the FAT with its directories, and the ext4 with its superblock, groups and inodes.
    let areas = [(0, 17_408), (ESP.0 * MIB, 4096), (ESP.0 * MIB, 4 << 20), (ROOT.0 * MIB, 4096)];
    let place = (0..areas.len() + 1, 0..1000_u64, prop::collection::vec(any::<u8>(), 1..9));
    let config = ProptestConfig { cases: 400, failure_persistence: None, ..Default::default() };
    let changes = prop::collection::vec(place, 1..5);
    let test = |changes: Vec<(usize, u64, Vec<u8>)>| {
        let mut before = Vec::new();
        for (area, place, bytes) in changes {
            let (start, length) = *areas.get(area).unwrap_or(&(ROOT.0 * MIB, 1 << 20));
            let at = start + length * place / 1000;
            let mut old = vec![0; bytes.len()];
            disk.file.read_exact_at(&mut old, at).unwrap();
            before.push((at, old));
            disk.file.write_all_at(&bytes, at).unwrap();
        }
        let _any = disk.properties();
        for (at, old) in before.into_iter().rev() {
            disk.file.write_all_at(&old, at).unwrap();
        }
        Ok(())
    };
    TestRunner::new(config).run(&changes, test).unwrap();
    assert_eq!(architectures(&disk.properties()), ["x86_64"], "the changes were undone");
}

#[test]
fn a_superblock_of_a_giant_allocates_nothing() {
    let disk = Disk::gpt().with_root(&debian());
    let superblock = ROOT.0 * MIB + 1024;
    // Blocks; blocks in a group: the library would make room for 4 billion groups.
    let changes = [(4, u32::MAX), (32, 1)].map(|(at, value)| {
        let mut old = [0; 4];
        disk.file.read_exact_at(&mut old, superblock + at).unwrap();
        disk.file.write_all_at(&value.to_le_bytes(), superblock + at).unwrap();
        (at, old)
    });
    let found = disk.properties();
    assert!(found.root.is_some() && found.system.is_none());
    // The room is only refused where memory is limited.
    let source = Source::open(&disk.path("disk")).unwrap();
    assert!(!system::is_plausible(&source, &found.root.unwrap()));
    for (at, old) in changes {
        disk.file.write_all_at(&old, superblock + at).unwrap();
    }
    assert!(disk.properties().system.is_some());
}
