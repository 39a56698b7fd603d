//! The master boot record (UEFI 2.10 §5.2): boot code, and four partition entries.

use super::{Partition, field};

/// Bytes of the record, at the beginning of the first sector, which may be larger.
pub(crate) const BYTES: usize = 512;

/// Bytes of the boot code. The disk's signature follows.
const BOOT_CODE_BYTES: usize = 440;
/// Offset of the first partition entry.
const ENTRIES: usize = 446;
/// Bytes of an entry.
const ENTRY_BYTES: usize = 16;
/// Offset of the number of sectors in an entry.
const ENTRY_LENGTH: usize = 12;
/// The last bytes of the record.
const SIGNATURE: [u8; 2] = [0x55, 0xaa];
/// Type of the entry that covers a GPT.
const PROTECTIVE: u8 = 0xee;
/// Boot indicator of the partition that a BIOS boots.
const ACTIVE: u8 = 0x80;

/// A first sector with the signature of a boot sector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mbr([u8; BYTES]);

/// A partition entry.
#[derive(Clone, Copy, Debug)]
struct MbrEntry {
    indicator: u8,
    kind: u8,
    first: u32,
    length: u32,
}

impl Mbr {
    /// Returns the record at the beginning of `head`, if it has the signature.
    pub(crate) fn parse(head: &[u8]) -> Option<Self> {
        let record = head.first_chunk::<BYTES>()?;
        record.ends_with(&SIGNATURE).then_some(Self(*record))
    }

    /// Returns the record.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// True if there is code for a BIOS to run.
    pub(crate) fn has_boot_code(&self) -> bool {
        self.0.iter().take(BOOT_CODE_BYTES).any(|byte| *byte != 0)
    }

    /// True if an entry protects a GPT: firmware and kernels look for one only then.
    pub(crate) fn is_protective(&self) -> bool {
        self.entries().any(|entry| entry.is_protective())
    }

    /// Returns the used partitions. There are none if one of the entries is not valid: boot sectors
    /// of file systems have code or text in their place.
    pub(crate) fn partitions(&self) -> Vec<Partition> {
        if self.entries().any(|entry| entry.indicator & !ACTIVE != 0) {
            return Vec::new();
        }
        let numbered = (1..).zip(self.entries()).filter(|(_, entry)| entry.is_used());
        let partition = |(number, entry): (usize, MbrEntry)| {
            let first = u64::from(entry.first);
            Partition { number, first, last: first + u64::from(entry.length) - 1 }
        };
        numbered.map(partition).collect()
    }

    /// Returns the record for a disk of `sectors` sectors. Only a record whose single used entry
    /// protects a GPT changes: the entry covers the disk (UEFI 2.10 §5.2.3). A hybrid record is
    /// left as its maker wants it. An entry of type 0 is unused here: xorriso adds an active one
    /// with `--mbr-force-bootable`, for a BIOS that requires an active entry.
    pub(crate) fn for_disk_of(&self, sectors: u64) -> Self {
        let mut record = self.clone();
        let is_used = |entry: &MbrEntry| entry.length > 0 && entry.kind != 0;
        let mut used = (0..).zip(self.entries()).filter(|(_, entry)| is_used(entry));
        let (Some((index, entry)), None) = (used.next(), used.next()) else { return record };
        if entry.is_protective() {
            let length = u32::try_from(sectors.saturating_sub(1)).unwrap_or(u32::MAX);
            let at = ENTRIES + index * ENTRY_BYTES + ENTRY_LENGTH;
            if let Some(field) = record.0.get_mut(at..at + 4) {
                field.copy_from_slice(&length.to_le_bytes());
            }
        }
        record
    }

    fn entries(&self) -> impl Iterator<Item = MbrEntry> {
        let (entries, _) = self.0.get(ENTRIES..).unwrap_or_default().as_chunks::<ENTRY_BYTES>();
        entries.iter().map(|bytes| {
            let number = |at| field(bytes, at).map_or(0, u32::from_le_bytes);
            let [indicator, _, _, _, kind, ..] = *bytes;
            MbrEntry { indicator, kind, first: number(8), length: number(ENTRY_LENGTH) }
        })
    }
}

impl MbrEntry {
    /// True for the entry by which firmware and Linux recognise a GPT.
    fn is_protective(&self) -> bool {
        self.kind == PROTECTIVE && self.first == 1
    }

    /// True for a partition. Hybrid ISO images have an active one of type 0 that begins at sector
    /// 0.
    fn is_used(&self) -> bool {
        let is_kind = self.kind != PROTECTIVE && (self.kind != 0 || self.indicator == ACTIVE);
        self.length > 0 && is_kind
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns a record with `entries`: indicator, type, first sector, number of sectors.
    fn record(entries: &[(u8, u8, u32, u32)]) -> Mbr {
        let mut bytes = [0; BYTES];
        bytes[510..].copy_from_slice(&SIGNATURE);
        for ((indicator, kind, first, length), entry) in
            entries.iter().zip(bytes[ENTRIES..].chunks_mut(ENTRY_BYTES))
        {
            entry[0] = *indicator;
            entry[4] = *kind;
            entry[8..12].copy_from_slice(&first.to_le_bytes());
            entry[12..16].copy_from_slice(&length.to_le_bytes());
        }
        Mbr::parse(&bytes).unwrap()
    }

    #[test]
    fn used_partitions_have_their_number_and_sectors() {
        let table = record(&[(0, 0, 0, 0), (0x80, 0x83, 2048, 100), (0, 0, 7, 7)]);
        assert_eq!(table.partitions(), [Partition { number: 2, first: 2048, last: 2147 }]);
        let hybrid_iso = record(&[(0x80, 0, 0, 64)]);
        assert_eq!(hybrid_iso.partitions(), [Partition { number: 1, first: 0, last: 63 }]);
    }

    #[test]
    fn code_in_place_of_the_entries_is_no_partition() {
        assert!(record(&[(0x41, 0x20, 0x2065_6220, 7), (0, 0x83, 1, 1)]).partitions().is_empty());
    }

    #[test]
    fn an_entry_of_the_type_of_a_gpt_protects_only_from_sector_1() {
        assert!(record(&[(0, 0xee, 1, 99)]).is_protective());
        assert!(record(&[(0, 0x83, 64, 9), (0, 0xee, 1, 63)]).is_protective());
        let other = record(&[(0, 0xee, 0, 99)]);
        assert!(!other.is_protective() && other.partitions().is_empty());
    }

    #[test]
    fn only_a_lone_protective_entry_is_enlarged_to_the_disk() {
        let lone = record(&[(0x80, 0xee, 1, 99)]);
        assert_eq!(lone.for_disk_of(5000), record(&[(0x80, 0xee, 1, 4999)]));
        assert_eq!(lone.for_disk_of(1 << 40), record(&[(0x80, 0xee, 1, u32::MAX)]));
        let dummy = (0x80, 0, 0, 1);
        let bootable = record(&[(0, 0xee, 1, 99), dummy]);
        assert_eq!(bootable.for_disk_of(5000), record(&[(0, 0xee, 1, 4999), dummy]));
        let bootable = record(&[dummy, (0, 0xee, 1, 99)]);
        assert_eq!(bootable.for_disk_of(5000), record(&[dummy, (0, 0xee, 1, 4999)]));
        let hybrid = record(&[(0, 0xee, 1, 63), (0x80, 0x83, 64, 900)]);
        assert_eq!(hybrid.for_disk_of(5000), hybrid);
        let plain = record(&[(0x80, 0x83, 64, 900)]);
        assert_eq!(plain.for_disk_of(5000), plain);
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(mut bytes in prop::collection::vec(any::<u8>(), 512)) {
            bytes[510..].copy_from_slice(&SIGNATURE);
            let record = Mbr::parse(&bytes).unwrap();
            prop_assert!(record.partitions().len() <= 4);
            let _either = (record.is_protective(), record.for_disk_of(u64::MAX));
        }
    }
}
