//! Properties of a raw disk: what boots it, and the system on it.
//!
//! Reading them never fails a conversion: what cannot be read is not known. Firmware finds
//! something to run
//!
//! - by BIOS: code in the boot sector, or in a BIOS boot partition;
//! - by UEFI: a boot loader in the FAT of an EFI system partition. A GPT needs the protective MBR.

mod fat;
mod program;
mod system;

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;

use serde::{Deserialize, Serialize};

use crate::partitions::mbr::Mbr;
use crate::partitions::{Entry, Partition, Purpose, SECTOR, Table, TableKind};
use crate::source::Source;

pub use program::Architecture;
pub use system::{CloudInit, System};

/// Bytes at the beginning of a BIOS boot partition. If they are all zero, it has no code.
const BOOT_CODE_BYTES: usize = 4096;

/// Properties of a raw disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Properties {
    /// Kind of the partition table.
    pub partition_table: TableKind,
    /// Size of the sectors that the partition table is made for, in bytes.
    pub sector_bytes: u64,
    /// True if BIOS finds something to run.
    pub bios: bool,
    /// Architectures for which UEFI finds a boot loader.
    pub uefi: BTreeSet<Architecture>,
    /// Partition with the root file system.
    pub root: Option<Partition>,
    /// Operating system, if the root file system is an ext4 that can be read.
    pub system: Option<System>,
    /// Settings of cloud-init, if it is installed there.
    pub cloud_init: Option<CloudInit>,
}

impl Default for Properties {
    /// Returns the properties of an unknown disk.
    fn default() -> Self {
        Self {
            partition_table: TableKind::None,
            sector_bytes: SECTOR,
            bios: false,
            uefi: BTreeSet::new(),
            root: None,
            system: None,
            cloud_init: None,
        }
    }
}

impl Properties {
    /// Reads the properties of `disk`, which has the partition `table`.
    pub(crate) fn read(disk: &Source, table: &Table) -> Self {
        let record = Mbr::parse(disk.head());
        let is_protected = record.as_ref().is_some_and(Mbr::is_protective);
        let root = table.root(disk).unwrap_or_default();
        // The reader of ext4 is a library: a panic in it must not end the conversion.
        let read = AssertUnwindSafe(|| root.and_then(|root| system::read(disk, &root)));
        let (system, cloud_init) =
            std::panic::catch_unwind(read).ok().flatten().unwrap_or_default();
        Self {
            partition_table: table.kind,
            sector_bytes: table.sector_bytes,
            bios: record.is_some_and(|it| it.has_boot_code()) || has_bios_boot_code(disk, table),
            uefi: boot_loaders(disk, table, is_protected),
            root,
            system,
            cloud_init,
        }
    }
}

/// True if a BIOS boot partition has code.
fn has_bios_boot_code(disk: &Source, table: &Table) -> bool {
    let begins = |entry: &Entry| disk.read(entry.offset, BOOT_CODE_BYTES).unwrap_or_default();
    let has_code = |entry: &Entry| begins(entry).iter().any(|byte| *byte != 0);
    let mut partitions = table.entries.iter().filter(|it| it.purpose == Purpose::BiosBoot);
    partitions.any(has_code)
}

/// Returns the architectures for which UEFI finds a boot loader. Without a partition table, the FAT
/// may fill the disk.
fn boot_loaders(disk: &Source, table: &Table, is_protected: bool) -> BTreeSet<Architecture> {
    match table.kind {
        TableKind::Gpt if !is_protected => BTreeSet::new(),
        TableKind::None => fat::boot_loaders(disk, 0),
        TableKind::Gpt | TableKind::Mbr => {
            let esps = table.entries.iter().filter(|it| it.purpose == Purpose::Esp);
            esps.flat_map(|esp| fat::boot_loaders(disk, esp.offset)).collect()
        }
    }
}

#[cfg(test)]
mod tests;
