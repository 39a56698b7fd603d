//! The partitions of a built image, as Debian's cloud images have them: the root is number 1 and the last on the disk, so that
//! cloud-init can enlarge it.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use anyhow::Context as _;
use disk_images::partitions::SECTOR;
use gptman::{GPT, GPTPartitionEntry};
use uuid::Uuid;

use super::Ids;
use crate::image::interrupt::Interrupt;
use crate::image::programs;

/// Sectors of a MiB.
const MIB: u64 = (1 << 20) / SECTOR;
/// Type of a BIOS boot partition, by GRUB's manual.
const BIOS_BOOT: Uuid = Uuid::from_u128(0x2168_6148_6449_6e6f_744e_6565_6445_4649);
/// Type of an EFI system partition (UEFI 2.10, table 5.7).
const EFI_SYSTEM: Uuid = Uuid::from_u128(0xc12a_7328_f81f_11d2_ba4b_00a0_c93e_c93b);
/// Type of a root file system for x86-64, by the Discoverable Partitions Specification.
const LINUX_ROOT: Uuid = Uuid::from_u128(0x4f68_bce3_e8cd_4db1_96e7_fbca_f984_b709);
/// Features of the file system: those that GRUB of Debian 12 reads, whatever this host's mke2fs.conf has.
const MKE2FS_CONF: &str = "[defaults]
\tbase_features = sparse_super,large_file,filetype,resize_inode,dir_index,ext_attr
\tdefault_mntopts = acl,user_xattr
\tenable_periodic_fsck = 0
\tblocksize = 4096
\tinode_size = 256
\tinode_ratio = 16384
[fs_types]
\text4 = {
\t\tfeatures = has_journal,extent,huge_file,flex_bg,metadata_csum,64bit,dir_nlink,extra_isize
\t}
";
/// Files of the root directory that are copied into the EFI system partition. The signed GRUB reads its configuration in EFI/debian.
const ESP_FILES: [(&str, &str); 6] = [
    ("usr/lib/shim/shimx64.efi.signed", "EFI/BOOT/BOOTX64.EFI"),
    ("usr/lib/shim/mmx64.efi.signed", "EFI/BOOT/mmx64.efi"),
    ("usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed", "EFI/BOOT/grubx64.efi"),
    ("usr/lib/shim/shimx64.efi.signed", "EFI/debian/shimx64.efi"),
    ("usr/lib/shim/mmx64.efi.signed", "EFI/debian/mmx64.efi"),
    ("usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed", "EFI/debian/grubx64.efi"),
];

/// A run of sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) first: u64,
    sectors: u64,
}

impl Extent {
    /// Returns its size in bytes.
    pub(super) fn bytes(self) -> u64 {
        self.sectors * SECTOR
    }

    /// Returns its offset in bytes.
    fn offset(self) -> u64 {
        self.first * SECTOR
    }
}

/// The places of the partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) bios_boot: Extent,
    esp: Extent,
    root: Extent,
}

impl Layout {
    /// The layout for a root file system of this size.
    pub(super) fn new(root_bytes: u64) -> Self {
        Self {
            bios_boot: Extent { first: MIB, sectors: 3 * MIB },
            esp: Extent { first: 4 * MIB, sectors: 124 * MIB },
            root: Extent { first: 128 * MIB, sectors: root_bytes / SECTOR },
        }
    }

    /// Returns the size of the disk in bytes: a MiB after the last partition has the second copy of the table.
    fn disk_bytes(&self) -> u64 {
        self.root.offset() + self.root.bytes() + MIB * SECTOR
    }
}

/// A disk image that is made of a system.
#[derive(Clone, Copy, Debug)]
pub(super) struct DiskImage<'a> {
    /// The file of the image, raw.
    pub(super) raw: &'a Path,
    pub(super) layout: Layout,
    /// The directory of the system.
    pub(super) root: &'a Path,
    pub(super) ids: Ids,
    /// A directory for temporary files.
    pub(super) work: &'a Path,
}

impl DiskImage<'_> {
    /// Makes the image with a partition table and nothing else.
    pub(super) fn write_partition_table(&self) -> anyhow::Result<()> {
        let writing = || format!("writing {}", self.raw.display());
        let file = File::options().read(true).write(true).create_new(true).open(self.raw);
        let mut file = file.with_context(writing)?;
        file.set_len(self.layout.disk_bytes()).with_context(writing)?;
        let guid = Uuid::new_v4().to_bytes_le();
        let mut table = GPT::new_from(&mut file, SECTOR, guid).with_context(writing)?;
        for (number, extent, kind, name) in [
            (1, self.layout.root, LINUX_ROOT, "root"),
            (14, self.layout.bios_boot, BIOS_BOOT, "bios"),
            (15, self.layout.esp, EFI_SYSTEM, "esp"),
        ] {
            table[number] = GPTPartitionEntry {
                partition_type_guid: kind.to_bytes_le(),
                unique_partition_guid: Uuid::new_v4().to_bytes_le(),
                starting_lba: extent.first,
                ending_lba: extent.first + extent.sectors - 1,
                attribute_bits: 0,
                partition_name: name.into(),
            };
        }
        GPT::write_protective_mbr_into(&mut file, SECTOR).with_context(writing)?;
        table.write_into(&mut file).map(|_| ()).with_context(writing)
    }

    /// Writes the EFI system partition: the boot loaders of the system.
    pub(super) async fn write_esp(&self, interrupt: &mut Interrupt) -> anyhow::Result<()> {
        let (esp, settings) = (self.work.join("esp"), self.work.join("grub.cfg"));
        let writing = || format!("writing {}", esp.display());
        let file = File::create(&esp).with_context(writing)?;
        file.set_len(self.layout.esp.bytes()).with_context(writing)?;
        let text = format!("{}configfile $prefix/grub.cfg\n", super::system::find_root(self.ids));
        std::fs::write(&settings, text).with_context(|| settings.display().to_string())?;
        let mtools = |program: &str, arguments: &[&OsStr]| {
            let mut command = programs::command(program);
            command.arg("-i").arg(&esp).args(arguments);
            command
        };
        let serial = format!("{:08x}", self.ids.esp);
        let sectors = self.layout.esp.sectors.to_string();
        let format = ["-F", "-T", &sectors, "-v", "EFI", "-N", &serial, "::"];
        interrupt.run(mtools("mformat", &format.map(AsRef::as_ref))).await?;
        let directories = ["::/EFI", "::/EFI/BOOT", "::/EFI/debian"];
        interrupt.run(mtools("mmd", &directories.map(AsRef::as_ref))).await?;
        let files = ESP_FILES.map(|(from, to)| (self.root.join(from), format!("::/{to}")));
        let settings = (settings, "::/EFI/debian/grub.cfg".to_owned());
        for (from, to) in files.into_iter().chain([settings]) {
            interrupt.run(mtools("mcopy", &[from.as_os_str(), to.as_ref()])).await?;
        }
        let content = std::fs::read(&esp).with_context(|| esp.display().to_string())?;
        let writing = || format!("writing {}", self.raw.display());
        let raw = File::options().write(true).open(self.raw).with_context(writing)?;
        raw.write_all_at(&content, self.layout.esp.offset()).with_context(writing)
    }

    /// Writes the root file system: an ext4 with the files of the system.
    pub(super) async fn write_root(&self, interrupt: &mut Interrupt) -> anyhow::Result<()> {
        let settings = self.work.join("mke2fs.conf");
        std::fs::write(&settings, MKE2FS_CONF).with_context(|| settings.display().to_string())?;
        let mut mke2fs = programs::command("mke2fs");
        mke2fs.env("MKE2FS_CONFIG", settings).args(["-q", "-t", "ext4", "-L", "root", "-m", "1"]);
        let offset = format!("offset={}", self.layout.root.offset());
        mke2fs.args(["-U", &self.ids.root.to_string(), "-E", &offset, "-d"]);
        mke2fs.arg(self.root).arg(self.raw).arg(format!("{}k", self.layout.root.bytes() >> 10));
        let output = interrupt.output(mke2fs).await?;
        programs::check("mke2fs", &output).context("making the root file system (see --size)")
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use disk_images::partitions;

    use super::*;

    /// A directory with an empty system, and room for its image.
    struct Place {
        directory: tempfile::TempDir,
        raw: PathBuf,
        root: PathBuf,
    }

    impl Place {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let (raw, root) = (directory.path().join("raw"), directory.path().join("root"));
            std::fs::create_dir(&root).unwrap();
            Self { directory, raw, root }
        }

        fn image(&self, root_bytes: u64) -> DiskImage<'_> {
            let (layout, work) = (Layout::new(root_bytes), self.directory.path());
            DiskImage { raw: &self.raw, layout, root: &self.root, ids: Ids::new(), work }
        }
    }

    #[tokio::test]
    async fn the_partition_table_is_valid_and_the_root_is_number_1_and_last() {
        let place = Place::new();
        let (raw, image) = (&place.raw, place.image(64 << 20));
        image.write_partition_table().unwrap();
        let mut sfdisk = programs::command("sfdisk");
        let (printed, _) = programs::run(sfdisk.args(["--dump", "--quiet"]).arg(raw)).unwrap();
        let lines: Vec<_> = printed.lines().filter(|line| line.contains("start=")).collect();
        assert_eq!(lines.len(), 3, "{printed}");
        for (number, place, kind) in [
            ("1 ", "start=      262144, size=      131072", LINUX_ROOT),
            ("14 ", "start=        2048, size=        6144", BIOS_BOOT),
            ("15 ", "start=        8192, size=      253952", EFI_SYSTEM),
        ] {
            let of = |line: &&&str| line.contains(&format!("raw{number}"));
            let line = lines.iter().find(of).unwrap();
            let kind = kind.to_string().to_uppercase();
            assert!(line.contains(place) && line.contains(&kind), "{line}");
        }
        let mut verify = programs::command("sfdisk");
        let (printed, _) = programs::run(verify.arg("--verify").arg(raw)).unwrap();
        assert!(printed.contains("No errors detected"), "{printed}");
        image.write_root(&mut Interrupt::never()).await.unwrap();
        let root = partitions::root(raw).unwrap().unwrap();
        assert_eq!((root.number, root.offset), (1, image.layout.root.offset()));
    }

    #[tokio::test]
    async fn a_root_that_does_not_fit_is_an_error_that_names_the_option() {
        let place = Place::new();
        let large: Vec<u8> = (0..16 << 20).map(|n: u32| n.to_le_bytes()[0] | 1).collect();
        std::fs::write(place.root.join("large"), large).unwrap();
        let image = place.image(12 << 20);
        image.write_partition_table().unwrap();
        let error = image.write_root(&mut Interrupt::never()).await.unwrap_err();
        assert!(error.to_string().contains("--size"), "{error:#}");
    }
}
