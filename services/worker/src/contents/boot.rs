//! The parts of a disk that firmware reads: boot sector and partition table.

use super::{Destination, Reason, format};
use crate::disk::block::is_zero;
use crate::partition_table::gpt::{self, Damage, Header};
use crate::partition_table::mbr::Mbr;
use crate::partition_table::{Partition, SECTOR_SIZES};

/// Sizes in bytes of the sectors that images are made for, besides the disk's own.
const IMAGE_SECTOR_SIZES: [u64; 2] = [512, 4096];

/// Bytes at the beginning of a partition. If they are all zero, it has no raw data.
const RAW_DATA_BYTES: usize = 4096;

/// Returns an error unless firmware finds something to run on a disk that begins with `head`.
pub(super) fn check(head: &[u8], target: &Destination) -> Result<(), Reason> {
    let Some(record) = Mbr::parse(head) else { return Err(without_boot_sector(head)) };
    let partitions = record.partitions();
    if record.is_protective() {
        check_gpt(head, target)
    } else if partitions.is_empty() {
        check_boot_sector(head, &record, target)
    } else {
        check_mbr(head, &partitions, target)
    }
}

/// Returns an error for a partition that begins with `head` if nothing finds what is in it.
pub(super) fn check_partition(head: &[u8]) -> Result<(), Reason> {
    // The boot sector of a file system may have a valid table in its code.
    if format::of_file_system(head).is_some() {
        return Ok(());
    }
    if is_zero(head) {
        return Err(Reason::Zeroes(head.len()));
    }
    let has_table = |record: Mbr| record.is_protective() || !record.partitions().is_empty();
    if Mbr::parse(head).is_some_and(has_table) { Err(Reason::Nested) } else { Ok(()) }
}

/// Returns an error for a volume that begins with `head` if its GPT is not valid there. Such a GPT
/// is completed after the image is written, and that must not fail then. Anything else passes, also
/// a GPT for sectors of another size, which is not completed: a volume may have what a disk or a
/// partition may have.
pub(super) fn check_volume(head: &[u8], target: &Destination) -> Result<(), Reason> {
    let is_protective = Mbr::parse(head).is_some_and(|record| record.is_protective());
    let is_completed = match target.sector {
        Some(sector) => has_gpt(head, sector),
        None => IMAGE_SECTOR_SIZES.into_iter().any(|sector| has_gpt(head, sector)),
    };
    if is_protective && is_completed { check_gpt(head, target) } else { Ok(()) }
}

/// Returns the reason to refuse a disk that begins with `head`, which has no boot sector.
fn without_boot_sector(head: &[u8]) -> Reason {
    if gpt_sector_size(head).is_some() {
        Reason::Unprotected
    } else if let Some(format) = format::of_file_system(head) {
        Reason::Format(format)
    } else if is_zero(head) {
        Reason::Zeroes(head.len())
    } else {
        Reason::Unknown
    }
}

/// Checks a boot sector without partitions: code of a BIOS, or the beginning of a file system.
fn check_boot_sector(head: &[u8], record: &Mbr, target: &Destination) -> Result<(), Reason> {
    if gpt_sector_size(head).is_some() {
        return Err(Reason::Unprotected);
    }
    if !record.has_boot_code() || is_exfat_without_code(record) {
        return Err(format::of_file_system(head).map_or(Reason::Empty, Reason::Format));
    }
    match (file_system_sector_size(record), target.sector) {
        (Some(image), Some(disk)) if image < disk => Err(Reason::SectorSize { image, disk }),
        _ => check_room(fat_size(record), target),
    }
}

/// Returns the size in bytes of a FAT, as its boot sector says.
fn fat_size(record: &Mbr) -> Option<u64> {
    let bytes = record.bytes();
    let is_fat = bytes.get(54..57) == Some(b"FAT") || bytes.get(82..85) == Some(b"FAT");
    let sector = file_system_sector_size(record).filter(|_| is_fat)?;
    let short: [u8; 2] = *bytes.get(19..)?.first_chunk()?;
    let long: [u8; 4] = *bytes.get(32..)?.first_chunk()?;
    let sectors = match u16::from_le_bytes(short) {
        0 => u32::from_le_bytes(long),
        short => short.into(),
    };
    Some(u64::from(sectors) * sector)
}

/// True for an exFAT without boot code: firmware does not read this file system. The fill byte is
/// the instruction `hlt`.
fn is_exfat_without_code(record: &Mbr) -> bool {
    let code = record.bytes().get(120..510).unwrap_or_default();
    record.bytes().get(3..11) == Some(b"EXFAT   ")
        && code.iter().all(|byte| matches!(byte, 0 | 0xf4))
}

/// Returns the sector size in the boot sector of a FAT or NTFS.
fn file_system_sector_size(record: &Mbr) -> Option<u64> {
    let [0xeb | 0xe9, _, _, _, _, _, _, _, _, _, _, low, high, ..] = *record.bytes() else {
        return None;
    };
    Some(u64::from(u16::from_le_bytes([low, high]))).filter(|size| SECTOR_SIZES.contains(size))
}

fn check_mbr(head: &[u8], partitions: &[Partition], target: &Destination) -> Result<(), Reason> {
    if let Some(disk) = target.sector {
        let made_for = mbr_sector_size(head, partitions, disk);
        if let Some(image) = made_for.filter(|image| *image != disk) {
            return Err(Reason::SectorSize { image, disk });
        }
    }
    let sector = target.sector.unwrap_or(SECTOR_SIZES[0]);
    check_room(partitions.iter().map(|it| it.end(sector)).max(), target)
}

/// Returns the sector size of the disk that an MBR was made for, as far as `head` tells: the table
/// itself counts in sectors. If something begins where the first partition is with `disk` as the
/// size, the answer is that.
///
/// With another size, something must begin there, too. If the first partition has raw data with
/// `disk` as the size, such as a boot loader, and another partition begins at the same place with
/// `disk` as the size, the content may belong to that one. Then a further partition must confirm
/// the other size.
fn mbr_sector_size(head: &[u8], partitions: &[Partition], disk: u64) -> Option<u64> {
    if format::is_iso(head) {
        return Some(SECTOR_SIZES[0]); // Hybrid images are made for the sectors of USB sticks.
    }
    let first = partitions.first()?;
    let begins = |it: &Partition, size: u64| content(head, it, size).is_some_and(begins_partition);
    if begins(first, disk) {
        return Some(disk);
    }
    let has_raw_data = content(head, first, disk)
        .is_some_and(|bytes| !is_zero(bytes.get(..RAW_DATA_BYTES).unwrap_or(bytes)));
    let begins_at = |at: u64| partitions.iter().any(|it| it.range(disk).start == at);
    IMAGE_SECTOR_SIZES.into_iter().find(|size| {
        let confirms = |it: &Partition| {
            begins(it, *size) && !(has_raw_data && begins_at(it.range(*size).start))
        };
        begins(first, *size) && partitions.iter().any(confirms)
    })
}

/// Returns what is in `head` from the place of `partition` on, for sectors of `sector` bytes.
fn content<'a>(head: &'a [u8], partition: &Partition, sector: u64) -> Option<&'a [u8]> {
    head.get(usize::try_from(partition.range(sector).start).ok()?..)
}

/// True if `head` begins a known file system, a boot sector or a further table.
fn begins_partition(head: &[u8]) -> bool {
    Mbr::parse(head).is_some()
        || format::of_file_system(head).is_some()
        || format::of_beginning(head).is_some()
}

fn check_gpt(head: &[u8], target: &Destination) -> Result<(), Reason> {
    let image = gpt_sector_size(head);
    let sector = match (image, target.sector) {
        (_, Some(disk)) if has_gpt(head, disk) => disk,
        (Some(image), Some(disk)) => return Err(Reason::SectorSize { image, disk }),
        (Some(image), None) => image,
        (None, _) => return Err(Damage::Missing.into()),
    };
    let size = usize::try_from(sector).unwrap_or(usize::MAX);
    let bytes = head.get(size..).and_then(|rest| rest.get(..size)).unwrap_or_default();
    let header = Header::parse(bytes, 1)?;
    let Some(entries) = entries(head, &header) else {
        return Ok(()); // Behind the first block. They are verified after writing.
    };
    let partitions = header.partitions(entries)?;
    check_partitions(&partitions, sector, target)?;
    let last = partitions.iter().map(|it| it.last).max().unwrap_or_default();
    let sectors = last.saturating_add(1).saturating_add(header.backup_sectors());
    check_room(Some(sectors.saturating_mul(sector)), target)
}

/// Returns an error if the table has no partition, or the image ends before one of them does.
pub(super) fn check_partitions(
    partitions: &[Partition],
    sector: u64,
    target: &Destination,
) -> Result<(), Reason> {
    if partitions.is_empty() {
        return Err(Reason::Empty);
    }
    let Some(image) = target.image else { return Ok(()) };
    match partitions.iter().find(|it| it.end(sector) > image) {
        Some(it) => Err(Reason::Incomplete { number: it.number, end: it.end(sector), image }),
        None => Ok(()),
    }
}

fn check_room(needs: Option<u64>, target: &Destination) -> Result<(), Reason> {
    match (target.capacity, needs) {
        (Some(capacity), Some(needs)) if needs > capacity => {
            Err(Reason::TooSmall { capacity, needs })
        }
        _ => Ok(()),
    }
}

/// Returns the entries of `header` in `head`.
fn entries<'a>(head: &'a [u8], header: &Header) -> Option<&'a [u8]> {
    let at = usize::try_from(header.entries_offset()).ok()?;
    head.get(at..)?.get(..usize::try_from(header.entries_length()).ok()?)
}

/// Returns the sector size of the GPT in `head`, if there is one.
fn gpt_sector_size(head: &[u8]) -> Option<u64> {
    SECTOR_SIZES.into_iter().find(|sector| has_gpt(head, *sector))
}

fn has_gpt(head: &[u8], sector: u64) -> bool {
    let second = usize::try_from(sector).ok().and_then(|at| head.get(at..));
    second.is_some_and(gpt::is_header)
}
