//! The partition of a disk image that has the root file system.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use gptman::GPT;

/// Size of a sector of an image, in bytes.
pub(super) const SECTOR: u64 = 512;

/// A file system that can have a Linux system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileSystem {
    Ext4,
    Xfs,
    Btrfs,
}

/// A partition, by its number and the offset of its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Partition {
    pub(super) number: u32,
    pub(super) offset: u64,
    pub(super) file_system: FileSystem,
}

impl FileSystem {
    /// Magic numbers: offset in bytes, and content. ext2 and ext3 have the same as ext4.
    const MAGIC: [(Self, u64, &[u8]); 3] = [
        (Self::Ext4, 1024 + 56, &[0x53, 0xef]),
        (Self::Xfs, 0, b"XFSB"),
        (Self::Btrfs, (64 << 10) + 64, b"_BHRfS_M"),
    ];

    /// Returns the name that the actions use.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    /// Returns the file system that begins at `offset`.
    fn at(file: &mut File, offset: u64) -> io::Result<Option<Self>> {
        for (file_system, position, magic) in Self::MAGIC {
            let mut found = Vec::new();
            file.seek(SeekFrom::Start(offset + position))?;
            file.take(magic.len() as u64).read_to_end(&mut found)?;
            if found == magic {
                return Ok(Some(file_system));
            }
        }
        Ok(None)
    }
}

/// Returns the largest partition of `image` with a Linux file system: cloud images have the root file system there. None if there is no
/// such partition, or no GPT.
pub(super) fn root(image: &Path) -> io::Result<Option<Partition>> {
    let mut file = File::open(image)?;
    let Ok(table) = GPT::read_from(&mut file, SECTOR) else { return Ok(None) };
    let (mut root, mut sectors) = (None, 0);
    for (number, entry) in table.iter().filter(|(_, entry)| entry.is_used()) {
        let size = entry.size().unwrap_or_default();
        let offset = entry.starting_lba.saturating_mul(SECTOR);
        if size > sectors
            && let Some(file_system) = FileSystem::at(&mut file, offset)?
        {
            (root, sectors) = (Some(Partition { number, offset, file_system }), size);
        }
    }
    Ok(root)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use gptman::GPTPartitionEntry;

    use super::*;

    /// Makes an image with partitions of these numbers, first sectors and sizes in sectors.
    fn image(partitions: &[(u32, u64, u64)]) -> tempfile::NamedTempFile {
        let mut image = tempfile::NamedTempFile::new().unwrap();
        let file = image.as_file_mut();
        file.set_len(8 << 20).unwrap();
        let mut table = GPT::new_from(file, SECTOR, [1; 16]).unwrap();
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
        let image = image(&[(1, 2048, 100), (2, 4096, 1000), (3, 6144, 2000), (4, 10240, 4000)]);
        let file = image.as_file();
        file.write_all_at(b"XFSB", 4096 * SECTOR).unwrap();
        file.write_all_at(b"XFSB", 6144 * SECTOR).unwrap();
        let root = root(image.path()).unwrap().unwrap();
        let offset = 6144 * SECTOR;
        assert_eq!(root, Partition { number: 3, offset, file_system: FileSystem::Xfs });
    }

    #[test]
    fn each_file_system_is_recognized_at_the_end_of_a_disk_too() {
        let image = image(&[(7, 2048, 4096)]);
        let none = root(image.path()).unwrap();
        assert_eq!(none, None);
        for (file_system, position, magic) in FileSystem::MAGIC {
            image.as_file().write_all_at(&[0; 70 << 10], 2048 * SECTOR).unwrap();
            image.as_file().write_all_at(magic, 2048 * SECTOR + position).unwrap();
            let root = root(image.path()).unwrap().unwrap();
            assert_eq!((root.number, root.file_system), (7, file_system));
        }
    }

    #[test]
    fn an_image_without_a_partition_table_has_no_root() {
        let image = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(root(image.path()).unwrap(), None);
        image.as_file().set_len(1 << 20).unwrap();
        assert_eq!(root(image.path()).unwrap(), None);
    }
}
