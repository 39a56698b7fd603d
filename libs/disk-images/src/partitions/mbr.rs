//! The master boot record (UEFI 2.10 §5.2): boot code, and four partition entries. An extended
//! partition has more of them, each in a record of its own.

use super::{Entry, Purpose, SECTOR, field};
use crate::refusal::Refusal;
use crate::source::Source;

/// Bytes of the record.
const BYTES: usize = 512;
/// Bytes of the boot code. The disk's signature follows.
const BOOT_CODE_BYTES: usize = 440;
/// Offset of the first partition entry.
const ENTRIES: usize = 446;
const ENTRY_BYTES: usize = 16;
/// The last bytes of the record.
const SIGNATURE: [u8; 2] = [0x55, 0xaa];
/// Type of the entry that covers a GPT.
const PROTECTIVE: u8 = 0xee;
/// Type of an EFI system partition.
const ESP: u8 = 0xef;
/// Types of extended partitions.
const EXTENDED: [u8; 3] = [0x05, 0x0f, 0x85];
/// Boot indicator of the partition that a BIOS boots.
const ACTIVE: u8 = 0x80;
/// Number of the first partition in an extended one.
const FIRST_LOGICAL: u32 = 5;
/// Maximum number of partitions in an extended one, as in Linux.
const MAX_LOGICAL: u32 = 251;

/// A sector with the signature of a boot sector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mbr([u8; BYTES]);

/// A partition entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MbrEntry {
    number: u32,
    indicator: u8,
    kind: u8,
    first: u32,
    sectors: u32,
}

impl Mbr {
    /// Returns the record at the beginning of `head`, if it has the signature.
    pub(crate) fn parse(head: &[u8]) -> Option<Self> {
        let record = head.first_chunk::<BYTES>()?;
        record.ends_with(&SIGNATURE).then_some(Self(*record))
    }

    /// True if there is code for a BIOS to run.
    pub(crate) fn has_boot_code(&self) -> bool {
        self.0.iter().take(BOOT_CODE_BYTES).any(|byte| *byte != 0)
    }

    /// True if an entry protects a GPT: firmware looks for one only then.
    pub(crate) fn is_protective(&self) -> bool {
        self.entries().any(|entry| entry.kind == PROTECTIVE && entry.first == 1)
    }

    /// Returns the used entries. There are none if one of the entries is not valid: boot sectors of
    /// file systems have code or text in their place.
    pub(crate) fn partitions(&self) -> Vec<MbrEntry> {
        if self.entries().any(|entry| entry.indicator & !ACTIVE != 0) {
            return Vec::new();
        }
        self.entries().filter(MbrEntry::is_used).collect()
    }

    fn entries(&self) -> impl Iterator<Item = MbrEntry> {
        let (entries, _) = self.0.get(ENTRIES..).unwrap_or_default().as_chunks::<ENTRY_BYTES>();
        (1..).zip(entries).map(|(number, bytes)| {
            let word = |at| field(bytes, at).map_or(0, u32::from_le_bytes);
            let [indicator, _, _, _, kind, ..] = *bytes;
            MbrEntry { number, indicator, kind, first: word(8), sectors: word(12) }
        })
    }
}

impl MbrEntry {
    /// True for a partition. Hybrid ISO images have an active one of type 0.
    fn is_used(&self) -> bool {
        let is_kind = self.kind != PROTECTIVE && (self.kind != 0 || self.indicator == ACTIVE);
        self.sectors > 0 && is_kind
    }

    /// Returns the partition. Its first sector is counted from the sector `base` on.
    fn partition(&self, number: u32, base: u64) -> Entry {
        let offset = (base + u64::from(self.first)) * SECTOR;
        let purpose = if self.kind == ESP { Purpose::Esp } else { Purpose::Other };
        Entry { number, offset, bytes: u64::from(self.sectors) * SECTOR, purpose }
    }
}

/// Returns the partitions of `disk`, without the extended one.
pub(super) fn read(disk: &Source) -> Result<Vec<Entry>, Refusal> {
    let Some(record) = Mbr::parse(disk.head()) else { return Ok(Vec::new()) };
    let mut partitions = Vec::new();
    for entry in record.partitions() {
        if EXTENDED.contains(&entry.kind) {
            partitions.extend(logical(disk, entry.first.into())?);
        } else {
            partitions.push(entry.partition(entry.number, 0));
        }
    }
    Ok(partitions)
}

/// Returns the partitions of the extended one that begins at sector `start`. Each record has a
/// partition, and the place of the next record.
fn logical(disk: &Source, start: u64) -> Result<Vec<Entry>, Refusal> {
    let mut partitions = Vec::new();
    let mut next = Some(start);
    for _ in 0..MAX_LOGICAL {
        let Some(sector) = next.take() else { break };
        let Some(record) = Mbr::parse(&disk.read(sector * SECTOR, BYTES)?) else { break };
        for entry in record.partitions() {
            if EXTENDED.contains(&entry.kind) {
                next = Some(start + u64::from(entry.first));
            } else {
                let number = FIRST_LOGICAL + u32::try_from(partitions.len()).unwrap_or_default();
                partitions.push(entry.partition(number, sector));
            }
        }
    }
    Ok(partitions)
}
