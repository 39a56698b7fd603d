//! Directories of a FAT file system (Microsoft, "FAT32 File System Specification"), as far as they
//! tell if there are boot loaders: programs in the directories of `\EFI`.
//!
//! Every file has a short name. Only its extension matters, so that long names are skipped.

use std::collections::BTreeSet;

use super::program::Architecture;
use crate::partitions::field;
use crate::source::Source;

const ENTRY_BYTES: usize = 32;
/// Maximum size of a directory in bytes that is read.
const MAX_DIRECTORY_BYTES: usize = 1 << 20;
/// Maximum number of directories in `\EFI` that are looked into.
const MAX_VENDORS: usize = 64;
/// Maximum number of programs that are looked into.
const MAX_PROGRAMS: usize = 256;
/// Bytes at the beginning of a program that are read. Loaders have the header in the first 512.
const PROGRAM_HEAD_BYTES: usize = 4096;
/// Attributes of an entry.
const VOLUME_LABEL: u8 = 0x08;
const DIRECTORY: u8 = 0x10;
/// Numbers of clusters below this one have other meanings.
const FIRST_CLUSTER: u32 = 2;
/// Minimum numbers of clusters of the kinds with wider entries in the table (§3.5).
const FAT16_CLUSTERS: u32 = 4085;
const FAT32_CLUSTERS: u32 = 65_525;

/// Returns the architectures of the programs in the directories of `\EFI`, such as
/// `\EFI\BOOT\BOOTX64.EFI`, of the FAT at `offset`.
pub(super) fn boot_loaders(disk: &Source, offset: u64) -> BTreeSet<Architecture> {
    let Some(fat) = Fat::open(disk, offset) else { return BTreeSet::new() };
    let root = fat.root_directory();
    let Some(efi) = root.iter().find(|it| it.is_directory && it.name == *b"EFI        ") else {
        return BTreeSet::new();
    };
    let vendors = fat.directory(efi.cluster).into_iter();
    // `.` and `..` are directories, too.
    let vendors = vendors.filter(|it| it.is_directory && it.name[0] != b'.').take(MAX_VENDORS);
    let files = vendors.flat_map(|it| fat.directory(it.cluster));
    let programs = files.filter(|it| !it.is_directory && it.name.ends_with(b"EFI"));
    let heads = programs.take(MAX_PROGRAMS).map(|it| fat.head(&it));
    heads.filter_map(|head| Architecture::of_program(&head)).collect()
}

/// A file or directory.
#[derive(Clone, Debug, PartialEq, Eq)]
struct File {
    /// Short name: eight letters and three of the extension, filled with spaces.
    name: [u8; 11],
    is_directory: bool,
    cluster: u32,
    bytes: u32,
}

/// A file system.
struct Fat<'a> {
    disk: &'a Source,
    /// Offset of the first table.
    table: u64,
    /// Offset of the root directory, unless it is in clusters, and its size.
    root: (u64, usize),
    /// First cluster of the root directory.
    root_cluster: u32,
    /// Offset of the first cluster.
    data: u64,
    cluster_bytes: usize,
    clusters: u32,
    is_fat32: bool,
}

impl<'a> Fat<'a> {
    /// Reads the boot sector at `offset`.
    fn open(disk: &'a Source, offset: u64) -> Option<Self> {
        let sector = disk.read(offset, 512).ok()?;
        let byte = |at: usize| sector.get(at).copied();
        let word = |at: usize| field(&sector, at).map(u16::from_le_bytes);
        let long = |at: usize| field(&sector, at).map(u32::from_le_bytes);
        let sector_bytes = u64::from(word(11)?);
        let per_cluster = u64::from(byte(13)?);
        let is_geometry = [512, 1024, 2048, 4096].contains(&sector_bytes);
        let is_boot_sector = sector.ends_with(&[0x55, 0xaa]) && offset < disk.bytes();
        if !is_geometry || !per_cluster.is_power_of_two() || !is_boot_sector {
            return None;
        }
        let either =
            |short: u16, long: u32| if short == 0 { u64::from(long) } else { short.into() };
        let table_sectors = either(word(22)?, long(36)?);
        let root_bytes = usize::from(word(17)?) * ENTRY_BYTES;
        let table = offset.checked_add(u64::from(word(14)?) * sector_bytes)?;
        let root = table + u64::from(byte(16)?) * table_sectors * sector_bytes;
        let data = root + (root_bytes as u64).next_multiple_of(sector_bytes);
        let total = either(word(19)?, long(32)?) * sector_bytes;
        let data_bytes = total.checked_sub(data.checked_sub(offset)?)?;
        let cluster_bytes = per_cluster * sector_bytes;
        Some(Self {
            disk,
            table,
            root: (root, root_bytes),
            root_cluster: long(44)?,
            data,
            cluster_bytes: usize::try_from(cluster_bytes).ok()?,
            clusters: u32::try_from(data_bytes / cluster_bytes).ok()?,
            is_fat32: root_bytes == 0,
        })
    }

    fn root_directory(&self) -> Vec<File> {
        match self.is_fat32 {
            true => self.directory(self.root_cluster),
            false => files(&self.disk.read(self.root.0, self.root.1).unwrap_or_default()),
        }
    }

    /// Returns the files in the directory that begins with the cluster `first`. What cannot be read
    /// is left out.
    fn directory(&self, first: u32) -> Vec<File> {
        files(&self.content(first, MAX_DIRECTORY_BYTES))
    }

    /// Returns the first bytes of `file`.
    fn head(&self, file: &File) -> Vec<u8> {
        let bytes = usize::try_from(file.bytes).unwrap_or(usize::MAX);
        self.content(file.cluster, bytes.min(PROGRAM_HEAD_BYTES))
    }

    /// Returns at most `max` bytes of the content that begins with the cluster `first`.
    fn content(&self, first: u32, max: usize) -> Vec<u8> {
        let mut content = Vec::new();
        let mut seen = BTreeSet::new();
        let mut next = Some(first);
        while let Some(cluster) = next.filter(|it| self.is_cluster(*it) && seen.insert(*it)) {
            let offset = u64::from(cluster - FIRST_CLUSTER) * self.cluster_bytes as u64;
            let length = self.cluster_bytes.min(max.saturating_sub(content.len()));
            content.extend(self.disk.read(self.data + offset, length).unwrap_or_default());
            if content.len() >= max {
                break;
            }
            next = self.after(cluster);
        }
        content
    }

    fn is_cluster(&self, number: u32) -> bool {
        number.checked_sub(FIRST_CLUSTER).is_some_and(|index| index < self.clusters)
    }

    /// Returns the cluster after `cluster` in its file.
    fn after(&self, cluster: u32) -> Option<u32> {
        let number = u64::from(cluster);
        if self.is_fat32 || self.clusters >= FAT32_CLUSTERS {
            let entry = self.disk.read(self.table + number * 4, 4).ok()?;
            return field(&entry, 0).map(|it| u32::from_le_bytes(it) & 0x0fff_ffff);
        }
        let is_fat16 = self.clusters >= FAT16_CLUSTERS;
        let at = if is_fat16 { number * 2 } else { number + number / 2 };
        let entry = self.disk.read(self.table + at, 2).ok()?;
        let entry = u16::from_le_bytes(field(&entry, 0)?);
        Some(match number.is_multiple_of(2) {
            _ if is_fat16 => entry.into(),
            true => u32::from(entry & 0x0fff),
            false => u32::from(entry >> 4),
        })
    }
}

/// Parses the entries of a directory.
fn files(content: &[u8]) -> Vec<File> {
    let (entries, _) = content.as_chunks::<ENTRY_BYTES>();
    let used = entries.iter().take_while(|entry| entry[0] != 0).filter(|entry| entry[0] != 0xe5);
    // Long names have the attribute of a label.
    let files = used.filter(|entry| entry[11] & VOLUME_LABEL == 0);
    files.filter_map(|entry| file(entry)).collect()
}

fn file(entry: &[u8]) -> Option<File> {
    let half = |at| field(entry, at).map(u16::from_le_bytes).map(u32::from);
    Some(File {
        name: field(entry, 0)?,
        is_directory: entry.get(11)? & DIRECTORY != 0,
        cluster: half(20)? << 16 | half(26)?,
        bytes: field(entry, 28).map(u32::from_le_bytes)?,
    })
}
