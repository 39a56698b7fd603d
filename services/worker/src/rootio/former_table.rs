//! The partitions that a disk has before it gets a new table.

use std::ops::Range;

use crate::disk::{self, Disk};
use crate::partition_table::Partition;
use crate::partition_table::gpt::Header;
use crate::partition_table::mbr::{self, Mbr};

/// Returns the range of bytes of each partition in the present table of `disk`, for sectors of
/// `sector` bytes. There are none if the table is not valid. Logical partitions of an MBR are left
/// out: rootio makes none.
pub(super) fn ranges(disk: &mut Disk, sector: u64) -> Result<Vec<Range<u64>>, disk::Error> {
    let partitions = match Mbr::parse(&disk.bytes(0, mbr::BYTES)?) {
        Some(record) if record.is_protective() => gpt_partitions(disk, sector)?,
        Some(record) => record.partitions(),
        None => Vec::new(),
    };
    Ok(partitions.iter().map(|partition| partition.range(sector)).collect())
}

/// Returns the partitions of a GPT: those of the backup if the primary table is damaged.
fn gpt_partitions(disk: &mut Disk, sector: u64) -> Result<Vec<Partition>, disk::Error> {
    let last = (disk.end()? / sector).saturating_sub(1);
    for lba in [1, last] {
        if let Some(partitions) = partitions_of_header(disk, sector, lba)? {
            return Ok(partitions);
        }
    }
    Ok(Vec::new())
}

/// Returns the partitions of the GPT with its header in the sector `lba`, if both are valid.
fn partitions_of_header(
    disk: &mut Disk,
    sector: u64,
    lba: u64,
) -> Result<Option<Vec<Partition>>, disk::Error> {
    let end = disk.end()?;
    let size = usize::try_from(sector).unwrap_or_default();
    let header = Header::parse(&disk.bytes(lba * sector, size)?, lba);
    let Some(header) = header.ok().filter(|header| header.entries_end() <= end) else {
        return Ok(None);
    };
    let length = usize::try_from(header.entries_length()).unwrap_or_default();
    let entries = disk.bytes(header.entries_offset(), length)?;
    Ok(header.partitions(&entries).ok())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use gptman::{GPT, GPTPartitionEntry};
    use tempfile::NamedTempFile;

    use super::*;

    const LENGTH: u64 = 2 << 20;

    /// Returns a disk with a GPT of two partitions, for sectors of `sector` bytes.
    fn gpt_disk(sector: u64) -> NamedTempFile {
        let mut file = NamedTempFile::new().unwrap();
        file.as_file().set_len(LENGTH).unwrap();
        let mut table = GPT::new_from(file.as_file_mut(), sector, [7; 16]).unwrap();
        for (number, first) in [(1_u8, 40), (3, 60)] {
            table[u32::from(number)] = GPTPartitionEntry {
                partition_type_guid: [1; 16],
                unique_partition_guid: [number; 16],
                starting_lba: first,
                ending_lba: first + 9,
                attribute_bits: 0,
                partition_name: "p".into(),
            };
        }
        GPT::write_protective_mbr_into(file.as_file_mut(), sector).unwrap();
        table.write_into(file.as_file_mut()).unwrap();
        file
    }

    fn ranges_on(file: &NamedTempFile, sector: u64) -> Vec<Range<u64>> {
        ranges(&mut Disk::open(file.path(), false).unwrap(), sector).unwrap()
    }

    #[test]
    fn one_valid_copy_of_a_gpt_is_enough() {
        for sector in [512, 4096] {
            let file = gpt_disk(sector);
            let expected = [40, 60].map(|first| first * sector..(first + 10) * sector);
            assert_eq!(ranges_on(&file, sector), expected);
            file.as_file().write_all_at(&[0; 8], sector).unwrap();
            assert_eq!(ranges_on(&file, sector), expected);
            file.as_file().write_all_at(&[0; 8], LENGTH - sector).unwrap();
            assert!(ranges_on(&file, sector).is_empty());
        }
    }

    #[test]
    fn a_gpt_without_its_protective_mbr_has_no_partitions() {
        let file = gpt_disk(512);
        file.as_file().write_all_at(&[0; 2], 510).unwrap();
        assert!(ranges_on(&file, 512).is_empty());
    }

    #[test]
    fn the_partitions_of_an_mbr_are_read() {
        let file = NamedTempFile::new().unwrap();
        file.as_file().set_len(LENGTH).unwrap();
        for (at, entry) in [(446, [0x83, 8, 4]), (478, [0x0c, 16, 9])] {
            let [kind, first, length] = entry;
            let entry = [0, 0, 0, 0, kind, 0, 0, 0, first, 0, 0, 0, length, 0, 0, 0];
            file.as_file().write_all_at(&entry, at).unwrap();
        }
        file.as_file().write_all_at(&[0x55, 0xaa], 510).unwrap();
        assert_eq!(ranges_on(&file, 512), [8 * 512..12 * 512, 16 * 512..25 * 512]);
    }
}
