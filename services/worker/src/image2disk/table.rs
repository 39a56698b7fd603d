//! The last step, after the image was read back: the partition table gets the disk's size, and what
//! a former system left at the disk's end is erased.
//!
//! An image is made for a disk of its own size, so that the backup of its GPT lies in the middle of
//! a larger disk. UEFI 2.10 §5.3.2 wants it in the last sector. The backup is written first, then
//! the primary header that points to it: a power cut between both leaves a table that is as valid
//! as the image's.

use std::ops::Range;

use crate::contents::{self, Destination, UnusableContent};
use crate::disk::{DeviceKind, Disk, leftovers};
use crate::error::Error;
use crate::partition_table::Partition;
use crate::partition_table::gpt::{self, Header, Moved};
use crate::partition_table::mbr::{self, Mbr};

/// Bytes of the footer of a fixed VHD.
const VHD_FOOTER_BYTES: u64 = 512;

/// An image that is on the disk.
#[derive(Clone, Debug)]
pub(super) struct OnDisk {
    /// The redacted URL that it is from.
    pub(super) url: String,
    /// Length in bytes.
    pub(super) bytes: u64,
    /// True if the image may be anything: a table that firmware would reject stays as it is.
    pub(super) is_any: bool,
    /// True if its table may have been completed by an earlier installation.
    pub(super) may_be_completed: bool,
}

/// A partition table on the disk, with its protective MBR.
struct Table {
    sector: u64,
    record: Mbr,
    header: Header,
    entries: Vec<u8>,
    partitions: Vec<Partition>,
}

/// Completes the table of `image` on `disk`. Returns lines for the log.
pub(super) fn complete(disk: &mut Disk, image: &OnDisk) -> Result<Vec<String>, Error> {
    let erased = erase_leftovers(disk, image)?;
    let mut lines = Vec::from_iter(leftovers::line(&erased));
    if disk.kind() != DeviceKind::Partition {
        lines.extend(footer(disk, image)?);
        lines.extend(cut_partitions(disk, image)?);
        lines.extend(move_backup(disk, image)?);
    }
    Ok(lines)
}

/// Erases what a former system left behind `image`. Returns the names of what was erased.
///
/// An image of less than two sectors, such as boot code alone, has no system of its own: the disk
/// may still have one, and RAID metadata at the disk's end belong to it, with any table in sector 0
/// or none. Only a GPT is erased then, if sector 0 does not protect one any more.
fn erase_leftovers(disk: &mut Disk, image: &OnDisk) -> Result<Vec<&'static str>, Error> {
    let sizes = disk.sector_sizes()?;
    let Some(sector) = sizes.into_iter().find(|sector| image.bytes < 2 * *sector) else {
        let preserved = own_backup(disk, image)?;
        return Ok(leftovers::erase(disk, image.bytes, &preserved)?);
    };
    let end = disk.end()?;
    let length = usize::try_from(end).map_or(mbr::BYTES, |end| end.min(mbr::BYTES));
    let record = Mbr::parse(&disk.bytes(0, length)?);
    if record.as_ref().is_some_and(Mbr::is_protective) {
        return Ok(Vec::new());
    }
    // A partition may have a whole disk in it, such as that of a virtual machine.
    let partitions = record.map_or_else(Vec::new, |record| record.partitions());
    let preserved: Vec<_> = partitions.iter().map(|it| it.range(sector)).collect();
    Ok(leftovers::erase_tables(disk, image.bytes, &preserved)?)
}

/// Returns the ranges of bytes of the backup that an earlier installation of `image` made at the end
/// of the disk, if the table is still completed.
fn own_backup(disk: &mut Disk, image: &OnDisk) -> Result<Vec<Range<u64>>, Error> {
    if !image.may_be_completed || disk.kind() == DeviceKind::Partition {
        return Ok(Vec::new());
    }
    for sector in disk.sector_sizes()? {
        let Some(table) = Table::read(disk, sector, image)? else { continue };
        let last = (disk.end()? / sector).saturating_sub(1);
        if let Some(backup) = table.backup_at(disk, last)? {
            let entries = backup.entries_offset()..backup.entries_end();
            return Ok(vec![entries, last * sector..(last + 1) * sector]);
        }
    }
    Ok(Vec::new())
}

/// Returns a line if the image ends with the footer of a virtual disk.
fn footer(disk: &Disk, image: &OnDisk) -> Result<Option<String>, Error> {
    let Some(at) = image.bytes.checked_sub(VHD_FOOTER_BYTES) else { return Ok(None) };
    let is_footer = disk.bytes(at, VHD_FOOTER_BYTES as usize)?.starts_with(b"conectix");
    Ok(is_footer
        .then(|| "the image ends with the footer of a VHD, which is not part of the disk".into()))
}

/// Returns a line for each partition of an MBR behind the image's end. Some images end with the
/// last file system, which is smaller than its partition.
fn cut_partitions(disk: &mut Disk, image: &OnDisk) -> Result<Vec<String>, Error> {
    if image.bytes < mbr::BYTES as u64 {
        return Ok(Vec::new());
    }
    let record = Mbr::parse(&disk.bytes(0, mbr::BYTES)?).filter(|record| !record.is_protective());
    let sector = disk.sector_sizes()?.first().copied().unwrap_or_default();
    let partitions = record.map_or_else(Vec::new, |record| record.partitions());
    let cut = partitions.iter().filter(|partition| partition.end(sector) > image.bytes);
    let line = |cut: &Partition| {
        let ends = format!("partition {} ends at byte {}", cut.number, cut.end(sector));
        format!("{ends}, the image at byte {}", image.bytes)
    };
    Ok(cut.map(line).collect())
}

/// Moves the backup of a GPT to the end of the disk, and verifies it. Returns a line for the log.
fn move_backup(disk: &mut Disk, image: &OnDisk) -> Result<Option<String>, Error> {
    for sector in disk.sector_sizes()? {
        let Some(table) = Table::read(disk, sector, image)? else { continue };
        let end = disk.end()?;
        let last = (end / sector).saturating_sub(1);
        if table.backup_at(disk, last)?.is_some() {
            return Ok(None);
        }
        if has_implanted_checksum(disk, image)? {
            let reason = "the image verifies itself when it boots (implantisomd5)";
            return Ok(Some(format!("backup GPT not moved: {reason}")));
        }
        let Some(moved) = table.header.moved_to(last, &table.partitions) else {
            let needs = table.needs();
            image.accept(contents::too_small(end, needs))?;
            let reason = format!("the disk holds {end} bytes, the table needs {needs}");
            return Ok(Some(format!("backup GPT not moved: {reason}")));
        };
        table.write(disk, &moved, last + 1)?;
        return Ok(Some(format!("backup GPT moved to the end of the disk, sector {last}")));
    }
    Ok(None)
}

fn has_implanted_checksum(disk: &Disk, image: &OnDisk) -> Result<bool, Error> {
    let length = image.bytes.min(contents::DESCRIPTOR_BYTES as u64);
    let head = disk.bytes(0, usize::try_from(length).unwrap_or_default())?;
    Ok(contents::has_implanted_checksum(&head))
}

impl OnDisk {
    /// Fails with `refusal`, unless the image may be anything.
    fn accept(&self, refusal: UnusableContent) -> Result<(), Error> {
        if self.is_any {
            return Ok(());
        }
        Err(Error::Contents { url: self.url.clone(), source: refusal.into() })
    }

    /// Fails unless the image has all of `partitions`, or may be anything.
    fn check_partitions(
        &self,
        partitions: &[Partition],
        sector: u64,
        kind: DeviceKind,
    ) -> Result<(), Error> {
        let target = Destination { kind, sector: None, capacity: None, image: Some(self.bytes) };
        contents::check_partitions(partitions, sector, &target)
            .or_else(|refusal| self.accept(refusal))
    }
}

impl Table {
    /// Reads the GPT of `image` from the disk, for sectors of `sector` bytes. None if there is
    /// none.
    fn read(disk: &mut Disk, sector: u64, image: &OnDisk) -> Result<Option<Self>, Error> {
        let size = usize::try_from(sector).unwrap_or_default();
        if image.bytes < 2 * sector {
            return Ok(None);
        }
        let record = Mbr::parse(&disk.bytes(0, mbr::BYTES)?).filter(Mbr::is_protective);
        let bytes = disk.bytes(sector, size)?;
        let Some(record) = record.filter(|_| gpt::is_header(&bytes)) else { return Ok(None) };
        let header = match Header::parse(&bytes, 1) {
            Ok(header) => header,
            Err(damage) => return image.accept(contents::damaged(damage)).map(|()| None),
        };
        let entries = entries(disk, &header)?;
        let partitions = match header.partitions(&entries) {
            Ok(partitions) => partitions,
            Err(damage) => return image.accept(contents::damaged(damage)).map(|()| None),
        };
        image.check_partitions(&partitions, sector, disk.kind())?;
        Ok(Some(Self { sector, record, header, entries, partitions }))
    }

    /// Returns the backup of this table in the sector `last`, if it is there, and this table points
    /// to it.
    fn backup_at(&self, disk: &Disk, last: u64) -> Result<Option<Header>, Error> {
        if self.header.alternate() != last {
            return Ok(None);
        }
        let bytes = disk.bytes(last * self.sector, self.header.sector().len())?;
        let backup = Header::parse(&bytes, last);
        let Some(backup) = backup.ok().filter(|backup| self.header.is_paired_with(backup)) else {
            return Ok(None);
        };
        let at = backup.entries_offset();
        if at.saturating_add(self.entries.len() as u64) > last * self.sector {
            return Ok(None);
        }
        let has_entries = disk.bytes(at, self.entries.len())? == self.entries;
        Ok(has_entries.then_some(backup))
    }

    /// Returns the size in bytes of the smallest disk for this table.
    fn needs(&self) -> u64 {
        let ends = self.partitions.iter().map(|partition| partition.end(self.sector));
        let end = ends.fold(self.header.entries_end(), u64::max);
        let backup = self.header.backup_sectors().saturating_mul(self.sector);
        end.saturating_add(backup)
    }

    /// Writes the table for a disk of `sectors` sectors, and reads it back.
    fn write(&self, disk: &Disk, moved: &Moved, sectors: u64) -> Result<(), Error> {
        let mut entries = self.entries.clone();
        entries.resize(entries.len().next_multiple_of(self.header.sector().len()), 0);
        let record = self.record.for_disk_of(sectors);
        let backup = [
            (moved.backup.entries_offset(), entries.as_slice()),
            ((sectors - 1) * self.sector, moved.backup.sector()),
        ];
        let primary = [(self.sector, moved.primary.sector()), (0, record.bytes())];
        for part in [backup, primary] {
            for (at, bytes) in part {
                disk.write(at, bytes)?;
            }
            disk.flush()?;
        }
        for (at, bytes) in backup.into_iter().chain(primary) {
            if disk.bytes(at, bytes.len())? != bytes {
                return Err(disk.differs(at, bytes.len() as u64).into());
            }
        }
        Ok(())
    }
}

/// Returns the entries of `header`. None of them if they would be behind the end of the disk: then
/// their checksum is wrong.
fn entries(disk: &mut Disk, header: &Header) -> Result<Vec<u8>, Error> {
    if header.entries_end() > disk.end()? {
        return Ok(Vec::new());
    }
    let length = usize::try_from(header.entries_length()).unwrap_or_default();
    Ok(disk.bytes(header.entries_offset(), length)?)
}
