//! Leftovers of a former system at the end of a disk: tables and superblocks that firmware or the
//! kernel would still find.
//!
//! By UEFI 2.10 §5.3.2 firmware restores a damaged partition table from the backup in the last
//! sector, and Linux assembles an array, or reports a pool, from a superblock that lies there
//! alone. What the new content covers is never touched, and of the rest only what is recognised: a
//! disk may have data that nobody wants to lose. The tables of other firmware arrays than Intel's
//! and DDF's are not known here.

use std::ops::Range;

use super::block::Block;
use super::{DeviceKind, Disk, Error};
use crate::partition_table::gpt::{self, Header};

/// Bytes at the beginning that are searched, where an image of a boot sector alone leaves a GPT.
const HEAD_BYTES: u64 = 8 << 10;
/// Bytes at the end of a disk that are searched: the superblock that lies farthest from the end is
/// a label of ZFS.
const TAIL_BYTES: u64 = 1 << 20;
/// Alignment in bytes of the search, which suits all sector sizes.
const TAIL_ALIGN: u64 = 4096;

/// Magic number of md's superblocks.
const MD_MAGIC: u32 = 0xa92b_4efc;
/// Bytes of a superblock of md.
const MD_BYTES: u64 = 4096;
/// Reserved bytes at the end of a member of an array of version 0.90, and their alignment.
const MD_RESERVED_BYTES: u64 = 64 << 10;
/// Offset of `super_offset` in a superblock of version 1.
const MD_SUPER_OFFSET: usize = 144;
/// First bytes of the anchor header of SNIA's Common RAID Disk Data Format, which is in the last
/// sector.
const DDF_MAGIC: [u8; 4] = [0xde, 0x11, 0xde, 0x11];
/// First bytes of the anchor of Intel's arrays, which is in the last sector but one.
const INTEL_MAGIC: &[u8] = b"Intel Raid ISM Cfg Sig. ";
/// Bytes of a label of ZFS. Two are at the end of a device.
const ZFS_LABEL_BYTES: u64 = 256 << 10;
/// Offset of the uberblocks in a label.
const ZFS_UBERBLOCKS: usize = 128 << 10;
/// Minimum size in bytes of an uberblock.
const ZFS_UBERBLOCK_BYTES: usize = 1 << 10;
const ZFS_MAGIC: u64 = 0x00ba_b10c;

/// Names of what was erased.
type Names = Vec<&'static str>;

/// The geometry of a device.
#[derive(Clone, Copy, Debug)]
struct Geometry {
    end: u64,
    sector: u64,
    /// True for a whole disk: only there, firmware has tables of its own.
    is_whole: bool,
}

/// The end of a device, or any other part of it.
struct Window<'a> {
    start: u64,
    bytes: &'a [u8],
}

/// Recognised bytes of a former system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Leftover {
    name: &'static str,
    at: u64,
    length: u64,
    /// True for a part of a partition table.
    is_table: bool,
    /// True for a superblock that names its own place, which is that of a superblock of the whole
    /// device: it is not the superblock of a partition that ends where the device does.
    is_of_device: bool,
}

/// Erases what a former system left on `disk` behind its first `covered` bytes: superblocks, and
/// tables outside of its `own` ranges. Verifies that they are gone, and returns their names.
pub(crate) fn erase(disk: &mut Disk, covered: u64, own: &[Range<u64>]) -> Result<Names, Error> {
    let mut found = search(disk, covered)?;
    found.retain(|it| !it.is_table || !it.overlaps(own));
    erase_found(disk, found)
}

/// Erases the GPT that a former system left on `disk` behind its first `covered` bytes, except in
/// the `preserved` ranges of bytes. Verifies that it is gone, and returns its names.
pub(crate) fn erase_tables(
    disk: &mut Disk,
    covered: u64,
    preserved: &[Range<u64>],
) -> Result<Names, Error> {
    let mut found = search(disk, covered)?;
    found.retain(|it| it.is_table && !it.overlaps(preserved));
    erase_found(disk, found)
}

/// Erases the superblocks that a former system left at the end of `disk`, which gets a new
/// partition table or file system. In the `preserved` ranges of bytes, only superblocks of the
/// whole device are erased. Verifies that they are gone, and returns their names.
pub(crate) fn erase_superblocks(disk: &mut Disk, preserved: &[Range<u64>]) -> Result<Names, Error> {
    let mut found = search(disk, 0)?;
    found.retain(|it| !it.is_table && (it.is_of_device || !it.overlaps(preserved)));
    erase_found(disk, found)
}

/// Returns the line of a log for the names of what was erased, if there are any.
pub(crate) fn line(erased: &[&str]) -> Option<String> {
    let names = erased.join(", ");
    (!erased.is_empty())
        .then(|| format!("erased at the end of the disk, from a former system: {names}"))
}

/// Returns what is recognised at both ends of `disk`, and is not in its first `covered` bytes.
fn search(disk: &mut Disk, covered: u64) -> Result<Vec<Leftover>, Error> {
    let end = disk.end()?;
    let is_whole = disk.kind() != DeviceKind::Partition;
    let sectors = disk.sector_sizes()?;
    let geometries = sectors.into_iter().map(|sector| Geometry { end, sector, is_whole });
    let mut found = Vec::new();
    for (start, length) in [(0, HEAD_BYTES), (end.saturating_sub(TAIL_BYTES), TAIL_BYTES)] {
        let start = start - start % TAIL_ALIGN;
        let length = (end - start).min(length + TAIL_ALIGN);
        if covered >= start + length {
            continue;
        }
        let mut bytes = disk.bytes(start, usize::try_from(length).unwrap_or_default())?;
        let own = usize::try_from(covered.saturating_sub(start)).unwrap_or(usize::MAX);
        bytes.iter_mut().take(own).for_each(|byte| *byte = 0);
        let window = Window { start, bytes: &bytes };
        found.extend(geometries.clone().flat_map(|geometry| find(&window, geometry)));
    }
    for it in &mut found {
        let behind = (it.at + it.length).min(end);
        it.at = it.at.max(covered).min(behind);
        it.length = behind - it.at;
    }
    Ok(found)
}

fn erase_found(disk: &Disk, mut found: Vec<Leftover>) -> Result<Names, Error> {
    if found.is_empty() {
        return Ok(Vec::new());
    }
    found.sort_unstable_by_key(|it| it.at);
    for it in &found {
        disk.zero(it.at, it.length)?;
    }
    disk.flush()?;
    let mut block = Block::new();
    for it in &found {
        disk.check_zero(it.at, &mut block, usize::try_from(it.length).unwrap_or_default())?;
    }
    let mut names = Vec::new();
    for it in found {
        if !names.contains(&it.name) {
            names.push(it.name);
        }
    }
    Ok(names)
}

impl Leftover {
    /// True if one of its bytes is in one of `ranges`.
    fn overlaps(&self, ranges: &[Range<u64>]) -> bool {
        let end = self.at + self.length;
        ranges.iter().any(|range| self.at < range.end && range.start < end)
    }
}

/// Returns what is recognised in `window`.
fn find(window: &Window<'_>, geometry: Geometry) -> Vec<Leftover> {
    let of_firmware = [
        tables(window, geometry),
        anchor(window, geometry, 1, &DDF_MAGIC, "header of a firmware RAID (DDF)"),
        anchor(window, geometry, 2, INTEL_MAGIC, "header of a firmware RAID (Intel)"),
    ];
    let of_kernels = [md_1_0(window, geometry), md_0_90(window, geometry), zfs(window, geometry)];
    let of_firmware = of_firmware.into_iter().filter(|_| geometry.is_whole);
    of_firmware.chain(of_kernels).flatten().collect()
}

impl Window<'_> {
    /// Returns the `length` bytes at the offset `at` of the device, if they are in the window.
    fn get(&self, at: u64, length: u64) -> Option<&[u8]> {
        let begin = usize::try_from(at.checked_sub(self.start)?).ok()?;
        self.bytes.get(begin..)?.get(..usize::try_from(length).ok()?)
    }
}

/// Returns the headers of a GPT in the second and in the last sector, with their entries.
fn tables(window: &Window<'_>, Geometry { end, sector, .. }: Geometry) -> Vec<Leftover> {
    let backup = (end / sector).saturating_sub(1);
    let mut found = Vec::new();
    for (lba, name) in [(1, "GPT"), (backup, "backup GPT")] {
        let at = lba * sector;
        let Some(bytes) = window.get(at, sector).filter(|bytes| gpt::is_header(bytes)) else {
            continue;
        };
        found.push(Leftover { name, at, length: sector, is_table: true, is_of_device: false });
        if let Ok(header) = Header::parse(bytes, lba) {
            let at = header.entries_offset().min(end);
            let length = header.entries_length().next_multiple_of(sector);
            found.push(Leftover { name, at, length, is_table: true, is_of_device: false });
        }
    }
    found
}

/// Returns the sector that is the number `from_end` from the end, counted from 1, if it begins with
/// `magic`.
fn anchor(
    window: &Window<'_>,
    Geometry { end, sector, .. }: Geometry,
    from_end: u64,
    magic: &[u8],
    name: &'static str,
) -> Vec<Leftover> {
    let at = (end / sector).saturating_sub(from_end) * sector;
    let found = window.get(at, sector).is_some_and(|bytes| bytes.starts_with(magic));
    let anchor = Leftover { name, at, length: sector, is_table: false, is_of_device: false };
    Vec::from_iter(found.then_some(anchor))
}

/// Returns the superblock of a member of an array of version 1.0. It tells its own place.
fn md_1_0(window: &Window<'_>, Geometry { end, .. }: Geometry) -> Vec<Leftover> {
    let sector = (end / 512).saturating_sub(16) & !7;
    let is_it = |bytes: &&[u8]| {
        let place = bytes.get(MD_SUPER_OFFSET..).and_then(|rest| rest.first_chunk());
        little_endian(bytes, 0) == Some(MD_MAGIC)
            && little_endian(bytes, 4) == Some(1)
            && place.is_some_and(|place| u64::from_le_bytes(*place) == sector)
    };
    let mut found = md(window, sector * 512, is_it);
    found.iter_mut().for_each(|it| it.is_of_device = true);
    found
}

/// Returns the superblock of a member of an array of version 0.90. Its byte order is that of the
/// machine that made it.
fn md_0_90(window: &Window<'_>, Geometry { end, .. }: Geometry) -> Vec<Leftover> {
    let reserved = end - end % MD_RESERVED_BYTES;
    let at = reserved.saturating_sub(MD_RESERVED_BYTES);
    md(window, at, |bytes| {
        let magic = little_endian(bytes, 0);
        let is_magic = magic == Some(MD_MAGIC) || magic == Some(MD_MAGIC.swap_bytes());
        is_magic && little_endian(bytes, 4) == Some(0)
    })
}

fn md(window: &Window<'_>, at: u64, is_it: impl Fn(&&[u8]) -> bool) -> Vec<Leftover> {
    let name = "superblock of a software RAID (md)";
    let found = window.get(at, MD_BYTES).filter(is_it);
    let superblock = Leftover { name, at, length: MD_BYTES, is_table: false, is_of_device: false };
    Vec::from_iter(found.map(|_| superblock))
}

fn little_endian(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

/// Returns the two labels of a pool at the end of the device.
fn zfs(window: &Window<'_>, Geometry { end, .. }: Geometry) -> Vec<Leftover> {
    let end = end - end % ZFS_LABEL_BYTES;
    let places = [2, 1].map(|number| end.saturating_sub(number * ZFS_LABEL_BYTES));
    let has_uberblock = |label: &[u8]| {
        let uberblocks = label.get(ZFS_UBERBLOCKS..).unwrap_or_default();
        uberblocks.chunks(ZFS_UBERBLOCK_BYTES).any(|block| {
            let magic = block.first_chunk().map(|magic| u64::from_le_bytes(*magic));
            magic == Some(ZFS_MAGIC) || magic == Some(ZFS_MAGIC.swap_bytes())
        })
    };
    let found =
        places.into_iter().filter(|at| window.get(*at, ZFS_LABEL_BYTES).is_some_and(has_uberblock));
    let name = "label of a ZFS pool";
    let label =
        |at| Leftover { name, at, length: ZFS_LABEL_BYTES, is_table: false, is_of_device: false };
    found.map(label).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use tempfile::NamedTempFile;

    use super::*;

    const END: u64 = (8 << 20) + 512 * 3;
    const WHOLE: Geometry = Geometry { end: END, sector: 512, is_whole: true };

    /// Returns the names of what is recognised on a disk that has `magic` at the offset `at`.
    fn recognised(at: u64, magic: &[u8], geometry: Geometry) -> Vec<&'static str> {
        let mut bytes = vec![0xdd; usize::try_from(END).unwrap()];
        let at = usize::try_from(at).unwrap();
        bytes[at..at + magic.len()].copy_from_slice(magic);
        find(&Window { start: 0, bytes: &bytes }, geometry).iter().map(|it| it.name).collect()
    }

    /// Returns a superblock of md with a major version and its own place, in sectors.
    fn superblock(major: u32, place: u64) -> Vec<u8> {
        let mut bytes = vec![0; 256];
        bytes[..4].copy_from_slice(&MD_MAGIC.to_le_bytes());
        bytes[4..8].copy_from_slice(&major.to_le_bytes());
        bytes[MD_SUPER_OFFSET..152].copy_from_slice(&place.to_le_bytes());
        bytes
    }

    #[test]
    fn headers_of_firmware_are_recognised_on_whole_disks_only() {
        let partition = Geometry { is_whole: false, ..WHOLE };
        for (from_end, magic) in [(1, &b"EFI PART"[..]), (1, &DDF_MAGIC), (2, INTEL_MAGIC)] {
            let at = END - from_end * 512;
            assert_eq!(recognised(at, magic, WHOLE).len(), 1, "{magic:?}");
            assert_eq!(recognised(at, magic, partition).len(), 0, "{magic:?}");
            assert_eq!(recognised(at - 512 * 4, magic, WHOLE).len(), 0, "{magic:?}");
        }
    }

    #[test]
    fn superblocks_are_recognised_where_the_size_of_the_device_puts_them() {
        let (in_sectors, old) = ((END / 512 - 16) & !7, (8 << 20) - (64 << 10));
        let new = superblock(1, in_sectors);
        assert_eq!(recognised(in_sectors * 512, &new, WHOLE).len(), 1);
        assert_eq!(recognised(in_sectors * 512 - 4096, &new, WHOLE).len(), 0);
        let of_a_partition = superblock(1, in_sectors - 2048);
        assert_eq!(recognised(in_sectors * 512, &of_a_partition, WHOLE).len(), 0);
        assert_eq!(recognised(old, &superblock(0, 0), WHOLE).len(), 1);
        assert_eq!(recognised(old, &superblock(1, 0), WHOLE).len(), 0);
    }

    #[test]
    fn what_is_covered_stays_and_the_rest_is_zeroed() {
        for (covered, left) in [(END, b"EFI PART"), (END - 512, &[0; 8])] {
            let file = NamedTempFile::new().unwrap();
            file.as_file().set_len(END).unwrap();
            let at = (END / 512 - 1) * 512;
            file.as_file().write_all_at(b"EFI PART", at).unwrap();
            let mut disk = Disk::open(file.path(), false).unwrap();
            let erased = erase(&mut disk, covered, &[]).unwrap();
            assert_eq!(erased.is_empty(), left == b"EFI PART");
            let mut bytes = [0; 8];
            file.as_file().read_exact_at(&mut bytes, at).unwrap();
            assert_eq!(&bytes, left);
        }
    }

    #[test]
    fn what_overlaps_a_preserved_range_stays() {
        let at = (8 << 20) - MD_RESERVED_BYTES;
        let (inside, before, behind) = (1 << 20..at + 1, 1 << 20..at, at + MD_BYTES..END);
        for (preserved, stays) in [(inside, true), (before, false), (behind, false)] {
            let file = NamedTempFile::new().unwrap();
            file.as_file().set_len(END).unwrap();
            file.as_file().write_all_at(&superblock(0, 0), at).unwrap();
            let mut disk = Disk::open(file.path(), false).unwrap();
            let preserved = std::slice::from_ref(&preserved);
            assert_eq!(erase_superblocks(&mut disk, preserved).unwrap().is_empty(), stays);
            assert_eq!(erase(&mut disk, 0, &[]).unwrap().is_empty(), !stays);
        }
    }

    #[test]
    fn the_superblock_of_the_whole_device_is_erased_from_a_preserved_range() {
        let place = (END / 512 - 16) & !7;
        let file = NamedTempFile::new().unwrap();
        file.as_file().set_len(END).unwrap();
        file.as_file().write_all_at(&superblock(1, place), place * 512).unwrap();
        let mut disk = Disk::open(file.path(), false).unwrap();
        let preserved = 0..END;
        let erased = erase_superblocks(&mut disk, std::slice::from_ref(&preserved)).unwrap();
        assert_eq!(erased, ["superblock of a software RAID (md)"]);
    }

    #[test]
    fn tables_are_erased_without_superblocks() {
        let last = (END / 512 - 1) * 512;
        for (preserved, names) in [(0..last, &["backup GPT"][..]), (0..END, &[])] {
            let file = NamedTempFile::new().unwrap();
            file.as_file().set_len(END).unwrap();
            file.as_file().write_all_at(b"EFI PART", last).unwrap();
            file.as_file().write_all_at(&superblock(0, 0), (8 << 20) - MD_RESERVED_BYTES).unwrap();
            let mut disk = Disk::open(file.path(), false).unwrap();
            let preserved = std::slice::from_ref(&preserved);
            assert_eq!(erase_tables(&mut disk, 0, preserved).unwrap(), names);
            let left = erase_superblocks(&mut disk, &[]).unwrap();
            assert_eq!(left, ["superblock of a software RAID (md)"]);
        }
    }

    #[test]
    fn an_empty_or_tiny_file_has_nothing_to_erase() {
        for length in [0, 1, 511, 4097] {
            let file = NamedTempFile::new().unwrap();
            file.as_file().set_len(length).unwrap();
            let mut disk = Disk::open(file.path(), false).unwrap();
            assert!(erase(&mut disk, 0, &[]).unwrap().is_empty(), "{length}");
        }
    }
}
