//! Partition tables of raw disks, and the partition with the root file system.
//!
//! The crate gptman is not used for images of strangers, because it allocates and panics as a
//! foreign header says.

mod gpt;
pub(crate) mod mbr;

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::refusal::Refusal;
use crate::source::Source;

/// Size of a sector of an image, in bytes.
pub const SECTOR: u64 = 512;
/// Sizes of sectors that tables are looked for with.
const SECTOR_SIZES: [u64; 2] = [SECTOR, 4096];

/// File system that may have a Linux system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileSystem {
    /// ext2, ext3 and ext4, which have the same magic.
    Ext4,
    /// XFS.
    Xfs,
    /// Btrfs.
    Btrfs,
}

/// Partition with a file system that may have a Linux system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partition {
    /// Number as in the names of devices, or 0 if the file system fills the disk, which has no
    /// partition table then.
    pub number: u32,
    /// Offset of the first byte.
    pub offset: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Kind of the file system.
    pub file_system: FileSystem,
}

/// Kind of a partition table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TableKind {
    /// GUID partition table.
    Gpt,
    /// Master boot record.
    Mbr,
    /// No table.
    None,
}

/// Type of a partition, as far as it matters for booting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// EFI system partition.
    Esp,
    /// Partition with a part of the boot loader for BIOS.
    BiosBoot,
    Other,
}

/// An entry of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) number: u32,
    /// Offset of the first byte.
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) purpose: Purpose,
}

/// A partition table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) kind: TableKind,
    /// Size of the sectors that the table counts in, in bytes.
    pub(crate) sector_bytes: u64,
    pub(crate) entries: Vec<Entry>,
}

impl FileSystem {
    /// Magics: offset in bytes, and content.
    const MAGIC: [(Self, u64, &[u8]); 3] = [
        (Self::Ext4, 1024 + 56, &[0x53, 0xef]),
        (Self::Xfs, 0, b"XFSB"),
        (Self::Btrfs, (64 << 10) + 64, b"_BHRfS_M"),
    ];

    /// Returns the name that the actions use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    /// Returns the file system that begins at `offset`.
    fn at(disk: &Source, offset: u64) -> Result<Option<Self>, Refusal> {
        for (file_system, position, magic) in Self::MAGIC {
            if disk.read(offset.saturating_add(position), magic.len())? == magic {
                return Ok(Some(file_system));
            }
        }
        Ok(None)
    }
}

impl Table {
    /// Reads the table of `disk`.
    pub(crate) fn read(disk: &Source) -> Result<Self, Refusal> {
        for sector_bytes in SECTOR_SIZES {
            if let Some(entries) = gpt::read(disk, sector_bytes)? {
                return Ok(Self { kind: TableKind::Gpt, sector_bytes, entries });
            }
        }
        let entries = mbr::read(disk)?;
        let kind = if entries.is_empty() { TableKind::None } else { TableKind::Mbr };
        Ok(Self { kind, sector_bytes: SECTOR, entries })
    }

    /// Returns the largest partition with a Linux file system: cloud images have the root file
    /// system there.
    pub(crate) fn root(&self, disk: &Source) -> Result<Option<Partition>, Refusal> {
        if self.kind == TableKind::None {
            let file_system = FileSystem::at(disk, 0)?;
            let whole =
                |file_system| Partition { number: 0, offset: 0, bytes: disk.bytes(), file_system };
            return Ok(file_system.map(whole));
        }
        let mut root: Option<Partition> = None;
        for Entry { number, offset, bytes, .. } in self.entries.iter().copied() {
            if root.is_none_or(|root| bytes > root.bytes)
                && let Some(file_system) = FileSystem::at(disk, offset)?
            {
                root = Some(Partition { number, offset, bytes, file_system });
            }
        }
        Ok(root)
    }

    /// Returns an error if a partition of a GPT ends behind the disk: the file is truncated. An MBR
    /// may count whole cylinders.
    pub(crate) fn check_length(&self, disk: &Source) -> Result<(), Refusal> {
        let end = |it: &Entry| it.offset.saturating_add(it.bytes);
        let outside = self.entries.iter().find(|it| end(it) > disk.bytes());
        match outside.filter(|_| self.kind == TableKind::Gpt) {
            Some(entry) => {
                let needs = format!("partition {} ends at byte {}", entry.number, end(entry));
                Err(Refusal::truncated("raw", disk.bytes(), needs))
            }
            None => Ok(()),
        }
    }
}

/// Returns the largest partition of the raw disk `image` with a Linux file system: cloud images
/// have the root file system there. Without a partition table it is the file system that fills the
/// disk. None if there is no such file system.
pub fn root(image: &Path) -> Result<Option<Partition>, Refusal> {
    let disk = Source::open(image)?;
    Table::read(&disk)?.root(&disk)
}

/// Returns the `N` bytes of `bytes` at `at`, if they are there.
pub(crate) fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use gptman::{GPT, GPTPartitionEntry};

    use super::*;

    /// Makes an image of 8 MiB with partitions of these numbers, first sectors and sizes in
    /// sectors.
    fn image(partitions: &[(u32, u64, u64)], sector: u64) -> tempfile::NamedTempFile {
        let mut image = tempfile::NamedTempFile::new().unwrap();
        let file = image.as_file_mut();
        file.set_len(8 << 20).unwrap();
        let mut table = GPT::new_from(file, sector, [1; 16]).unwrap();
        for (number, first, sectors) in partitions {
            table[*number] = GPTPartitionEntry {
                partition_type_guid: [2; 16],
                unique_partition_guid: [u8::try_from(*number).unwrap(); 16],
                starting_lba: *first,
                ending_lba: first + sectors - 1,
                attribute_bits: 0,
                partition_name: "".into(),
            };
        }
        table.write_into(file).unwrap();
        image
    }

    #[test]
    fn the_largest_linux_file_system_is_the_root() {
        // As in Rocky Linux: a system partition for EFI, /boot and the root, both xfs.
        let partitions = [(1, 2048, 100), (2, 4096, 1000), (3, 6144, 2000), (4, 10240, 4000)];
        let image = image(&partitions, SECTOR);
        let file = image.as_file();
        file.write_all_at(b"XFSB", 4096 * SECTOR).unwrap();
        file.write_all_at(b"XFSB", 6144 * SECTOR).unwrap();
        let root = root(image.path()).unwrap().unwrap();
        let (offset, bytes) = (6144 * SECTOR, 2000 * SECTOR);
        let expected = Partition { number: 3, offset, bytes, file_system: FileSystem::Xfs };
        assert_eq!(root, expected);
    }

    #[test]
    fn each_file_system_is_recognized_at_the_end_of_a_disk_too() {
        let image = image(&[(7, 2048, 4096)], SECTOR);
        assert_eq!(root(image.path()).unwrap(), None);
        for (file_system, position, magic) in FileSystem::MAGIC {
            image.as_file().write_all_at(&[0; 70 << 10], 2048 * SECTOR).unwrap();
            image.as_file().write_all_at(magic, 2048 * SECTOR + position).unwrap();
            let root = root(image.path()).unwrap().unwrap();
            assert_eq!((root.number, root.file_system), (7, file_system));
        }
    }

    #[test]
    fn an_image_without_a_partition_table_has_a_root_only_if_a_file_system_fills_it() {
        let image = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(root(image.path()).unwrap(), None);
        image.as_file().set_len(1 << 20).unwrap();
        assert_eq!(root(image.path()).unwrap(), None);
        image.as_file().write_all_at(&[0x53, 0xef], 1080).unwrap();
        let root = root(image.path()).unwrap().unwrap();
        assert_eq!((root.number, root.bytes, root.file_system), (0, 1 << 20, FileSystem::Ext4));
    }

    #[test]
    fn a_table_in_sectors_of_4096_bytes_is_read() {
        let image = image(&[(1, 256, 512)], 4096);
        let table = Table::read(&Source::open(image.path()).unwrap()).unwrap();
        let offset = 256 * 4096;
        let entry = Entry { number: 1, offset, bytes: 512 * 4096, purpose: Purpose::Other };
        let expected = Table { kind: TableKind::Gpt, sector_bytes: 4096, entries: vec![entry] };
        assert_eq!(table, expected);
    }

    #[test]
    fn a_disk_that_ends_before_a_partition_is_truncated() {
        let image = image(&[(5, 2048, 4096)], SECTOR);
        let checked = |bytes| {
            image.as_file().set_len(bytes).unwrap();
            let disk = Source::open(image.path()).unwrap();
            let checked = Table::read(&disk).unwrap().check_length(&disk);
            checked.map_err(|error| error.to_string())
        };
        assert_eq!(checked(3 << 20), Ok(()));
        let expected =
            "source: format raw: truncated at byte 3145216: partition 5 ends at byte 3145728";
        assert_eq!(checked((3 << 20) - 512), Err(expected.into()));
    }

    #[test]
    fn partitions_in_an_extended_one_are_numbered_from_5_on() {
        let image = tempfile::NamedTempFile::new().unwrap();
        image.as_file().set_len(8 << 20).unwrap();
        let record = |at: u64, entries: &[(u8, u32, u32)]| {
            let mut sector = [0; 512];
            for (number, (kind, first, sectors)) in entries.iter().enumerate() {
                let entry = &mut sector[446 + 16 * number..][..16];
                entry[4] = *kind;
                entry[8..12].copy_from_slice(&first.to_le_bytes());
                entry[12..16].copy_from_slice(&sectors.to_le_bytes());
            }
            sector[510..].copy_from_slice(&[0x55, 0xaa]);
            image.as_file().write_all_at(&sector, at * SECTOR).unwrap();
        };
        record(0, &[(0xef, 100, 10), (0x05, 1000, 9000)]);
        record(1000, &[(0x83, 10, 20), (0x05, 500, 600)]);
        // The last record leads back to the first: the chain has an end all the same.
        record(1500, &[(0x83, 10, 30), (0x05, 0, 500)]);
        let table = Table::read(&Source::open(image.path()).unwrap()).unwrap();
        let first: Vec<_> = table.entries.iter().take(3).map(|it| (it.number, it.offset)).collect();
        assert_eq!(first, [(1, 100 * 512), (5, 1010 * 512), (6, 1510 * 512)]);
        assert_eq!(table.entries[0].purpose, Purpose::Esp);
        assert!(table.entries.len() < 300, "{}", table.entries.len());
    }
}
