//! Writes and verifies partition tables.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::ops::Range;

use gptman::{GPT, GPTHeader, GPTPartitionEntry};
use uuid::Uuid;

use super::layout::{PlacedPartition, UsableSectors, place};
use super::metadata::{self, Storage};
use super::{Error, former_table, io_error, mbr, open, wipe};
use crate::context::Context;
use crate::disk::{self, Disk, leftovers};
use crate::error::{self, joined};
use crate::partition_table::Partition;
use crate::partition_table::mbr::Mbr;

/// Maximum length of a partition name, in UTF-16 code units.
const MAX_NAME_UNITS: usize = 36;

/// Minimum size in bytes of a disk with a table: the first partition begins after one MiB.
const MIN_DISK_BYTES: u64 = 2 << 20;

/// Partition types (UEFI 2.10 §5.3.3; the UAPI group's Discoverable Partitions Specification for Linux's).
const SWAP: &str = "0657fd6d-a4ab-43c4-84e5-0933c84b4f4f";
const BIOS_BOOT: &str = "21686148-6449-6e6f-744e-656564454649";
const EFI_SYSTEM: &str = "c12a7328-f81f-11d2-ba4b-00a0c93ec93b";
const LINUX: &str = "0fc63daf-8483-4772-8e79-3d69d8477de4";

/// Writes all partition tables.
pub(super) async fn run(
    storage: Storage,
    mbr: bool,
    context: &Context,
) -> Result<(), error::Error> {
    let progress = context.progress.clone();
    joined(tokio::task::spawn_blocking(move || {
        if storage.disks.is_empty() {
            return Err(Error::Empty("disks").into());
        }
        let mut disks = open(storage.disks.iter().map(|spec| spec.device.as_path()))?;
        let tables = disks
            .iter_mut()
            .zip(&storage.disks)
            .map(|(disk, spec)| if mbr { Table::mbr(disk, spec) } else { Table::gpt(disk, spec) });
        let tables = tables.collect::<Result<Vec<_>, _>>()?;
        for ((disk, spec), table) in disks.iter_mut().zip(&storage.disks).zip(tables) {
            if spec.wipe_table {
                wipe::zero_ends(disk)?;
            }
            let (device, count) = (spec.device.display(), spec.partitions.len());
            if let Some(line) = erase_superblocks(disk, &table)? {
                progress.output(format!("{device}: {line}\n").as_bytes());
            }
            write(disk, table, spec)?;
            progress.output(format!("{device}: {count} partitions\n").as_bytes());
        }
        Ok(())
    }))
    .await?
}

/// Erases the superblocks of former systems on `disk`, before `table` is written. A partition that
/// the former table has too, with the same first and last sector, keeps its content: the superblock
/// in it may be its own. Any other new partition has nothing to keep. Returns a line for the log.
fn erase_superblocks(disk: &mut Disk, table: &Table) -> Result<Option<String>, disk::Error> {
    let sector = disk.sector_size()?;
    let former = former_table::ranges(disk, sector)?;
    let mut preserved = table.ranges(sector);
    preserved.retain(|range| former.contains(range));
    Ok(leftovers::line(&leftovers::erase_superblocks(disk, &preserved)?))
}

/// Returns a function that converts a reason into the error for a disk that cannot get its table.
fn layout_error<E: Display>(spec: &metadata::Disk) -> impl FnOnce(E) -> error::Error {
    |reason| Error::Layout { disk: spec.device.clone(), reason: reason.to_string() }.into()
}

/// A new partition table.
enum Table {
    Gpt(Box<GPT>),
    Mbr(Box<[u8; mbr::SECTOR]>),
}

impl Table {
    fn gpt(disk: &mut Disk, spec: &metadata::Disk) -> Result<Self, error::Error> {
        let sector = sector_size(disk, spec)?;
        let guid = Uuid::new_v4().to_bytes_le();
        let table = GPT::new_from(disk.cached(), sector, guid);
        let mut table = table.map_err(layout_error(spec))?;
        let GPTHeader { first_usable_lba: first, last_usable_lba: last, .. } = table.header;
        let partitions = table.header.number_of_partition_entries;
        let room = UsableSectors { sector, first, last, partitions };
        for placed in place(&spec.partitions, room).map_err(layout_error(spec))? {
            table[placed.number] = entry(&placed).map_err(layout_error(spec))?;
        }
        Ok(Self::Gpt(Box::new(table)))
    }

    fn mbr(disk: &mut Disk, spec: &metadata::Disk) -> Result<Self, error::Error> {
        let sector = sector_size(disk, spec)?;
        let sectors = disk.capacity().unwrap_or_default() / sector;
        let last = sectors.saturating_sub(1);
        let room = UsableSectors { sector, first: 1, last, partitions: mbr::PARTITIONS };
        let placed = place(&spec.partitions, room).map_err(layout_error(spec))?;
        let mut old = [0; mbr::SECTOR];
        let read = disk.cached().seek(SeekFrom::Start(0));
        read.and_then(|_| disk.cached().read_exact(&mut old)).map_err(layout_error(spec))?;
        let (signature, _) = Uuid::new_v4().as_u64_pair();
        let table = mbr::table(old, &placed, signature as u32).map_err(layout_error(spec))?;
        Ok(Self::Mbr(Box::new(table)))
    }

    /// Returns the range of bytes of each partition, for sectors of `sector` bytes.
    fn ranges(&self, sector: u64) -> Vec<Range<u64>> {
        let partition = |(number, entry): (u32, &GPTPartitionEntry)| {
            let number = number as usize;
            Partition { number, first: entry.starting_lba, last: entry.ending_lba }
        };
        let partitions: Vec<_> = match self {
            Self::Gpt(table) => {
                table.iter().filter(|(_, entry)| entry.is_used()).map(partition).collect()
            }
            Self::Mbr(table) => {
                Mbr::parse(table.as_slice()).map_or_else(Vec::new, |record| record.partitions())
            }
        };
        partitions.iter().map(|partition| partition.range(sector)).collect()
    }
}

/// Returns the sector size of `disk`, which must be large enough.
fn sector_size(disk: &mut Disk, spec: &metadata::Disk) -> Result<u64, error::Error> {
    match disk.capacity().unwrap_or_default() {
        MIN_DISK_BYTES.. => Ok(disk.sector_size()?),
        capacity => {
            let reason = format!("has {capacity} bytes, too few for partitions");
            Err(layout_error(spec)(reason))
        }
    }
}

fn entry(placed: &PlacedPartition) -> Result<GPTPartitionEntry, String> {
    if placed.label.encode_utf16().count() > MAX_NAME_UNITS {
        return Err(format!(
            "partition {}'s label is longer than {MAX_NAME_UNITS} characters",
            placed.number
        ));
    }
    let kind = placed.type_guid.as_deref().unwrap_or(match placed.label.as_str() {
        "SWAP" => SWAP,
        "BIOS" => BIOS_BOOT,
        "EFI" => EFI_SYSTEM,
        _ => LINUX,
    });
    let kind = Uuid::parse_str(kind)
        .map_err(|_| format!("partition {}'s type_guid {kind:?} is not a GUID", placed.number))?;
    Ok(GPTPartitionEntry {
        partition_type_guid: kind.to_bytes_le(),
        unique_partition_guid: Uuid::new_v4().to_bytes_le(),
        starting_lba: placed.first,
        ending_lba: placed.last,
        attribute_bits: 0,
        partition_name: placed.label.as_str().into(),
    })
}

/// Writes and verifies `table`, and makes the kernel re-read it.
fn write(disk: &mut Disk, mut table: Table, spec: &metadata::Disk) -> Result<(), error::Error> {
    let sector = disk.sector_size()?;
    let written = put(disk.cached(), &mut table, sector);
    written.map_err(|source| disk.io("write the partition table".into(), source))?;
    disk.flush()?;
    let same = is_written(disk.cached(), &table, sector);
    if !same.map_err(|source| disk.io("read the partition table back".into(), source))? {
        return Err(Error::Table(spec.device.clone()).into());
    }
    disk.reread_partitions();
    Ok(())
}

fn put(file: &mut File, table: &mut Table, sector: u64) -> io::Result<()> {
    match table {
        Table::Gpt(table) => {
            GPT::write_protective_mbr_into(file, sector).map_err(io_error)?;
            table.write_into(file).map_err(io_error)?;
        }
        Table::Mbr(table) => {
            // Erases the headers of an old GPT, which some programs would still find.
            let last = file.seek(SeekFrom::End(0))?.saturating_sub(sector);
            let zeroes = vec![0; usize::try_from(sector).unwrap_or(mbr::SECTOR)];
            for header in [sector, last] {
                file.seek(SeekFrom::Start(header))?;
                file.write_all(&zeroes)?;
            }
            file.seek(SeekFrom::Start(0))?;
            file.write_all(&**table)?;
        }
    }
    Ok(())
}

/// True if the disk has `table`, including its backup copy.
fn is_written(file: &mut File, table: &Table, sector: u64) -> io::Result<bool> {
    let mut first = [0; mbr::SECTOR];
    file.seek(SeekFrom::Start(0))?;
    file.read_exact(&mut first)?;
    let table = match table {
        Table::Mbr(table) => return Ok(first == **table),
        Table::Gpt(table) => table,
    };
    let protected = first.get(450) == Some(&0xee) && first.ends_with(&[0x55, 0xaa]);
    let copies = [table.header.primary_lba, table.header.backup_lba].map(|at| {
        file.seek(SeekFrom::Start(at * sector))?;
        let header = GPTHeader::read_from(file).map_err(io_error)?;
        let entries = header.read_partitions(file, sector).map_err(io_error)?;
        let expected = table.iter().map(|(_, entry)| entry);
        Ok::<_, io::Error>(header.disk_guid == table.header.disk_guid && expected.eq(&entries))
    });
    let [primary, backup] = copies;
    Ok(protected && primary? && backup?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use super::*;

    const SECTOR: u64 = 512;
    const LENGTH: u64 = 8 << 20;

    /// Returns a file with a table on it.
    fn written() -> (File, Table) {
        let mut file = tempfile::tempfile().unwrap();
        file.set_len(LENGTH).unwrap();
        let mut table = GPT::new_from(&mut file, SECTOR, [7; 16]).unwrap();
        let placed = PlacedPartition {
            number: 1,
            label: "ROOT".into(),
            type_guid: None,
            first: 2048,
            last: 4095,
        };
        table[1] = entry(&placed).unwrap();
        let mut table = Table::Gpt(Box::new(table));
        put(&mut file, &mut table, SECTOR).unwrap();
        (file, table)
    }

    #[test]
    fn a_written_table_is_verified() {
        let (mut file, table) = written();
        assert!(is_written(&mut file, &table, SECTOR).unwrap());
    }

    #[test]
    fn a_changed_bit_is_found_in_both_copies() {
        // In the protective MBR, in either header, in either list of partitions.
        for at in [450, 510, 512 + 60, 1024 + 3, LENGTH - 512 + 60, LENGTH - 33 * 512 + 3] {
            let (mut file, table) = written();
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 1], at).unwrap();
            assert!(!is_written(&mut file, &table, SECTOR).is_ok_and(|same| same), "{at}");
        }
    }

    #[test]
    fn both_tables_tell_the_bytes_of_their_partitions() {
        let placed = |number: u32, first: u64, last: u64| PlacedPartition {
            number,
            label: "ROOT".into(),
            type_guid: None,
            first,
            last,
        };
        let (_, gpt) = written();
        assert_eq!(gpt.ranges(SECTOR).first(), Some(&(1 << 20..2 << 20)));
        let old = [0; mbr::SECTOR];
        let table = mbr::table(old, &[placed(1, 2048, 4095), placed(3, 4096, 4096)], 1).unwrap();
        let table = Table::Mbr(Box::new(table));
        assert_eq!(table.ranges(4096), [8 << 20..16 << 20, 16 << 20..(16 << 20) + 4096]);
    }

    #[test]
    fn labels_and_type_guids_determine_the_type() {
        let kind = |label: &str, type_guid: Option<&str>| {
            let type_guid = type_guid.map(str::to_owned);
            let placed =
                PlacedPartition { number: 1, label: label.into(), type_guid, first: 1, last: 1 };
            entry(&placed).map(|entry| Uuid::from_bytes_le(entry.partition_type_guid).to_string())
        };
        assert_eq!(kind("EFI", None).as_deref(), Ok(EFI_SYSTEM));
        assert_eq!(kind("BIOS", None).as_deref(), Ok(BIOS_BOOT));
        assert_eq!(kind("root", None).as_deref(), Ok(LINUX));
        assert_eq!(kind("EFI", Some(SWAP)).as_deref(), Ok(SWAP));
        assert_eq!(
            kind("a", Some("8300")),
            Err("partition 1's type_guid \"8300\" is not a GUID".into())
        );
        let long = "x".repeat(37);
        assert_eq!(
            kind(&long, None),
            Err("partition 1's label is longer than 36 characters".into())
        );
    }
}
