//! GUID partition tables (UEFI 2.10 §5.3): a header in sector 1 with its entries, and a backup of
//! both at the disk's end.

use super::{Partition, field};

/// Maximum size in bytes of the entries of a table: 8,192 of the usual size.
const MAX_ENTRIES_BYTES: u64 = 1 << 20;

const SIGNATURE: &[u8; 8] = b"EFI PART";
/// Bytes of the fields of a header. `HeaderSize` may be larger, up to a sector.
const MIN_HEADER_BYTES: usize = 92;
/// Minimum size in bytes of an entry.
const MIN_ENTRY_BYTES: u32 = 128;

/// Offsets of the header's fields (UEFI 2.10 §5.3.2, table 5.5).
const HEADER_SIZE: usize = 12;
const HEADER_CRC: usize = 16;
const MY_LBA: usize = 24;
const ALTERNATE_LBA: usize = 32;
const LAST_USABLE_LBA: usize = 48;
const DISK_GUID: usize = 56;
const ENTRIES_LBA: usize = 72;
const ENTRY_COUNT: usize = 80;
const ENTRY_SIZE: usize = 84;
const ENTRIES_CRC: usize = 88;

/// The part of a table that firmware would reject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Damage {
    #[error("no GPT header in sector 1")]
    Missing,
    #[error("the size of the GPT header is invalid")]
    HeaderSize,
    #[error("the checksum of the GPT header is wrong")]
    HeaderChecksum,
    #[error("the GPT header is for another sector")]
    Position,
    #[error("the number or size of the GPT entries is invalid")]
    EntrySize,
    #[error("the checksum of the GPT entries is wrong")]
    EntriesChecksum,
}

/// A valid header, with the sector that it is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    sector: Vec<u8>,
    /// Bytes of the header; the rest of the sector is reserved.
    length: usize,
}

/// The headers of a table on a disk of another size.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) primary: Header,
    pub(crate) backup: Header,
}

/// True if `sector` begins with the signature of a header.
pub(crate) fn is_header(sector: &[u8]) -> bool {
    sector.starts_with(SIGNATURE)
}

impl Header {
    /// Parses the header in `sector`, which is the sector `lba`.
    pub(crate) fn parse(sector: &[u8], lba: u64) -> Result<Self, Damage> {
        if !is_header(sector) {
            return Err(Damage::Missing);
        }
        let size = field(sector, HEADER_SIZE).map_or(0, u32::from_le_bytes);
        let length = usize::try_from(size).unwrap_or_default();
        if !(MIN_HEADER_BYTES..=sector.len()).contains(&length) {
            return Err(Damage::HeaderSize);
        }
        let header = Self { sector: sector.to_vec(), length };
        if header.number(HEADER_CRC) != header.checksum() {
            return Err(Damage::HeaderChecksum);
        }
        if header.lba(MY_LBA) != lba {
            return Err(Damage::Position);
        }
        let entry = header.number(ENTRY_SIZE);
        let is_valid = entry >= MIN_ENTRY_BYTES && entry.is_power_of_two();
        let fits = (1..=MAX_ENTRIES_BYTES).contains(&header.entries_length());
        if is_valid && fits { Ok(header) } else { Err(Damage::EntrySize) }
    }

    /// Returns the whole sector of the header.
    pub(crate) fn sector(&self) -> &[u8] {
        &self.sector
    }

    /// Returns the sector of the other header.
    pub(crate) fn alternate(&self) -> u64 {
        self.lba(ALTERNATE_LBA)
    }

    /// Returns the offset of the entries in bytes.
    pub(crate) fn entries_offset(&self) -> u64 {
        self.lba(ENTRIES_LBA).saturating_mul(self.sector.len() as u64)
    }

    /// Returns the number of bytes of all entries, which is at most 1 MiB in a valid header.
    pub(crate) fn entries_length(&self) -> u64 {
        u64::from(self.number(ENTRY_COUNT)) * u64::from(self.number(ENTRY_SIZE))
    }

    /// Returns the used partitions in `entries`, the bytes at [`Header::entries_offset`].
    pub(crate) fn partitions(&self, entries: &[u8]) -> Result<Vec<Partition>, Damage> {
        if crc32fast::hash(entries) != self.number(ENTRIES_CRC) {
            return Err(Damage::EntriesChecksum);
        }
        let size = usize::try_from(self.number(ENTRY_SIZE)).unwrap_or(usize::MAX);
        let used = |entry: &&[u8]| entry.iter().take(16).any(|byte| *byte != 0);
        let numbered = (1..).zip(entries.chunks_exact(size)).filter(|(_, entry)| used(entry));
        let partition = |(number, entry): (usize, &[u8])| {
            let lba = |at| field(entry, at).map_or(0, u64::from_le_bytes);
            Partition { number, first: lba(32), last: lba(40) }
        };
        Ok(numbered.map(partition).collect())
    }

    /// Returns the offset of the first byte behind the entries.
    pub(crate) fn entries_end(&self) -> u64 {
        self.entries_offset().saturating_add(self.entries_length())
    }

    /// Returns the number of sectors that the backup takes at the end of a disk: entries and
    /// header.
    pub(crate) fn backup_sectors(&self) -> u64 {
        self.entries_length().div_ceil(self.sector.len() as u64) + 1
    }

    /// Returns both headers of this primary one for a disk whose last sector is `last`. None if
    /// this table and its `partitions` do not leave room for the backup.
    pub(crate) fn moved_to(&self, last: u64, partitions: &[Partition]) -> Option<Moved> {
        let entries = last.checked_add(1)?.checked_sub(self.backup_sectors())?;
        let last_usable = entries.checked_sub(1)?;
        let table_end = self.entries_end().div_ceil(self.sector.len() as u64);
        let is_occupied = partitions.iter().any(|partition| partition.last > last_usable);
        if is_occupied || entries < table_end {
            return None;
        }
        let primary = self.with(&[(ALTERNATE_LBA, last), (LAST_USABLE_LBA, last_usable)]);
        let mut backup = primary.with(&[
            (MY_LBA, last),
            (ALTERNATE_LBA, self.lba(MY_LBA)),
            (ENTRIES_LBA, entries),
        ]);
        // What follows the header of the image is not copied: UEFI reserves it.
        backup.sector.iter_mut().skip(backup.length).for_each(|byte| *byte = 0);
        Some(Moved { primary, backup })
    }

    /// True if `other` is the other header of the same table.
    pub(crate) fn is_paired_with(&self, other: &Self) -> bool {
        let table = |header: &Self| {
            let guid: Option<[u8; 16]> = field(&header.sector, DISK_GUID);
            (guid, header.entries_length(), header.number(ENTRIES_CRC))
        };
        table(self) == table(other) && other.alternate() == self.lba(MY_LBA)
    }

    /// Returns this header with other values of the 64-bit fields at these offsets, and with its
    /// checksum.
    fn with(&self, fields: &[(usize, u64)]) -> Self {
        let mut header = self.clone();
        for (at, value) in fields {
            header.put(*at, &value.to_le_bytes());
        }
        let checksum = header.checksum();
        header.put(HEADER_CRC, &checksum.to_le_bytes());
        header
    }

    fn put(&mut self, at: usize, value: &[u8]) {
        if let Some(field) = self.sector.get_mut(at..at + value.len()) {
            field.copy_from_slice(value);
        }
    }

    /// Returns the checksum of the header, in which its own field counts as zero.
    fn checksum(&self) -> u32 {
        let header = self.sector.get(..self.length).unwrap_or_default();
        let (before, rest) = header.split_at_checked(HEADER_CRC).unwrap_or_default();
        let after = rest.get(4..).unwrap_or_default();
        let mut sum = crc32fast::Hasher::new();
        [before, &[0; 4], after].iter().for_each(|part| sum.update(part));
        sum.finalize()
    }

    fn lba(&self, at: usize) -> u64 {
        field(&self.sector, at).map_or(0, u64::from_le_bytes)
    }

    fn number(&self, at: usize) -> u32 {
        field(&self.sector, at).map_or(0, u32::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Seek as _, SeekFrom};

    use gptman::{GPT, GPTHeader, GPTPartitionEntry};
    use proptest::prelude::*;

    use super::*;

    /// Returns a disk of `sectors` sectors with a table that gptman made.
    fn disk(sector: u64, sectors: u64) -> Vec<u8> {
        let mut disk = Cursor::new(vec![0; usize::try_from(sector * sectors).unwrap()]);
        let mut table = GPT::new_from(&mut disk, sector, [7; 16]).unwrap();
        for number in [1, 3] {
            table[number] = GPTPartitionEntry {
                partition_type_guid: [1; 16],
                unique_partition_guid: [number as u8; 16],
                starting_lba: 40 + u64::from(number) * 10,
                ending_lba: 44 + u64::from(number) * 10,
                attribute_bits: 0,
                partition_name: "p".into(),
            };
        }
        GPT::write_protective_mbr_into(&mut disk, sector).unwrap();
        table.write_into(&mut disk).unwrap();
        disk.into_inner()
    }

    fn parsed(disk: &[u8], sector: usize) -> Result<(Header, Vec<Partition>), Damage> {
        let header = Header::parse(&disk[sector..2 * sector], 1)?;
        let at = usize::try_from(header.entries_offset()).unwrap();
        let entries = &disk[at..at + usize::try_from(header.entries_length()).unwrap()];
        let partitions = header.partitions(entries)?;
        Ok((header, partitions))
    }

    #[test]
    fn a_table_of_another_program_is_parsed() {
        for sector in [512, 4096] {
            let (header, partitions) = parsed(&disk(sector, 200), sector as usize).unwrap();
            let numbers = partitions.iter().map(|it| (it.number, it.first, it.last));
            assert_eq!(numbers.collect::<Vec<_>>(), [(1, 50, 54), (3, 70, 74)]);
            assert_eq!((header.alternate(), header.entries_length()), (199, 128 * 128));
        }
    }

    #[test]
    fn another_program_accepts_the_moved_headers() {
        for sector in [512_usize, 4096] {
            let mut disk = disk(sector as u64, 200);
            let (header, partitions) = parsed(&disk, sector).unwrap();
            let moved = header.moved_to(999, &partitions).unwrap();
            assert!(moved.primary.is_paired_with(&moved.backup), "{sector}");
            disk.resize(1000 * sector, 0xdd);
            disk[sector..2 * sector].copy_from_slice(moved.primary.sector());
            disk[999 * sector..].copy_from_slice(moved.backup.sector());
            let at = usize::try_from(moved.backup.entries_offset()).unwrap();
            disk.copy_within(2 * sector..2 * sector + 128 * 128, at);
            let mut disk = Cursor::new(disk);
            let copies = [1, 999].map(|lba| {
                disk.seek(SeekFrom::Start(lba * sector as u64)).unwrap();
                let header = GPTHeader::read_from(&mut disk).unwrap();
                let entries = header.read_partitions(&mut disk, sector as u64).unwrap();
                assert_eq!(entries.iter().filter(|entry| entry.is_used()).count(), 2);
                (header.primary_lba, header.backup_lba, header.last_usable_lba)
            });
            let last_usable = 999 - (128 * 128 / sector as u64) - 1;
            assert_eq!(copies, [(1, 999, last_usable), (999, 1, last_usable)]);
        }
    }

    #[test]
    fn a_partition_in_the_room_of_the_backup_prevents_the_move() {
        let (header, partitions) = parsed(&disk(512, 200), 512).unwrap();
        assert!(header.moved_to(74 + 33, &partitions).is_some());
        assert_eq!(header.moved_to(74 + 32, &partitions), None);
        assert_eq!(header.moved_to(5, &[]), None);
    }

    #[test]
    fn the_backup_is_not_moved_onto_the_table_itself() {
        let (header, _) = parsed(&disk(512, 200), 512).unwrap();
        // Both headers, the protective MBR, and twice 32 sectors of entries.
        assert!(header.moved_to(66, &[]).is_some());
        assert_eq!(header.moved_to(65, &[]), None);
        assert_eq!(header.moved_to(33, &[]), None);
    }

    #[test]
    fn each_damage_is_named() {
        let changed = |at: usize| {
            let mut disk = disk(512, 200);
            disk[at] ^= 1;
            parsed(&disk, 512).unwrap_err()
        };
        assert_eq!(changed(512), Damage::Missing);
        assert_eq!(changed(512 + HEADER_SIZE + 3), Damage::HeaderSize);
        assert_eq!(changed(512 + LAST_USABLE_LBA), Damage::HeaderChecksum);
        assert_eq!(changed(1024 + 33), Damage::EntriesChecksum);
        assert_eq!(Header::parse(&disk(512, 200)[512..1024], 2), Err(Damage::Position));
    }

    #[test]
    fn a_header_of_a_billion_entries_is_refused() {
        let (header, _) = parsed(&disk(512, 200), 512).unwrap();
        for (count, size) in [(1_u32 << 30, 128_u32), (0, 128), (128, 64), (128, 200), (2, 1 << 30)]
        {
            let both = u64::from(count) | u64::from(size) << 32;
            let sector = header.with(&[(ENTRY_COUNT, both)]).sector;
            assert_eq!(Header::parse(&sector, 1), Err(Damage::EntrySize), "{count} {size}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(
            mut bytes in prop::collection::vec(any::<u8>(), 0..600),
            entries in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            bytes.splice(0..0, *SIGNATURE);
            let length = bytes.len();
            let header = Header { sector: bytes, length };
            let _either = Header::parse(&header.sector, 1);
            let sealed = header.with(&[]);
            if let Ok(header) = Header::parse(&sealed.sector, sealed.lba(MY_LBA)) {
                let _either = header.partitions(&entries);
                let _either = header.moved_to(9, &[]);
            }
        }
    }
}
