//! GUID partition tables (UEFI 2.10 §5.3): a header in sector 1, and its entries. Both have
//! checksums.

use super::{Entry, Purpose, field};
use crate::refusal::Refusal;
use crate::source::Source;

const SIGNATURE: &[u8; 8] = b"EFI PART";
/// Bytes of the fields of a header. `HeaderSize` may be larger, up to a sector.
const MIN_HEADER_BYTES: usize = 92;
/// Minimum size in bytes of an entry.
const MIN_ENTRY_BYTES: u32 = 128;
/// Maximum size in bytes of the entries of a table: 8,192 of the usual size.
const MAX_ENTRIES_BYTES: u64 = 1 << 20;

/// Offsets of the header's fields (UEFI 2.10 §5.3.2, table 5.5).
const HEADER_SIZE: usize = 12;
const HEADER_CRC: usize = 16;
const MY_LBA: usize = 24;
const ENTRIES_LBA: usize = 72;
const ENTRY_COUNT: usize = 80;
const ENTRY_SIZE: usize = 84;
const ENTRIES_CRC: usize = 88;

/// Types of partitions, as they are stored: C12A7328-F81F-11D2-BA4B-00A0C93EC93B and
/// 21686148-6449-6E6F-744E-656564454649.
const ESP: [u8; 16] = *b"\x28\x73\x2a\xc1\x1f\xf8\xd2\x11\xba\x4b\x00\xa0\xc9\x3e\xc9\x3b";
const BIOS_BOOT: [u8; 16] = *b"Hah!IdontNeedEFI";

/// Returns the used entries of the valid table of `disk` with sectors of `sector` bytes.
pub(super) fn read(disk: &Source, sector: u64) -> Result<Option<Vec<Entry>>, Refusal> {
    let header = disk.read(sector, usize::try_from(sector).unwrap_or_default())?;
    let Some((offset, length)) = place_of_entries(&header, sector) else { return Ok(None) };
    let entries = disk.read(offset, usize::try_from(length).unwrap_or_default())?;
    let is_whole = entries.len() as u64 == length;
    let sum = field(&header, ENTRIES_CRC).map(u32::from_le_bytes);
    if !is_whole || sum != Some(crc32fast::hash(&entries)) {
        return Ok(None);
    }
    let size = field(&header, ENTRY_SIZE).map_or(0, u32::from_le_bytes) as usize;
    let numbered = (1..).zip(entries.chunks_exact(size.max(1)));
    Ok(Some(numbered.filter_map(|(number, entry)| parse(number, entry, sector)).collect()))
}

/// Returns the offset and length in bytes of the entries of a valid header.
fn place_of_entries(header: &[u8], sector: u64) -> Option<(u64, u64)> {
    let number = |at| field(header, at).map(u32::from_le_bytes);
    let lba = |at| field(header, at).map(u64::from_le_bytes);
    let length = usize::try_from(number(HEADER_SIZE)?).ok()?;
    let is_header = header.starts_with(SIGNATURE) && length >= MIN_HEADER_BYTES;
    if !is_header || lba(MY_LBA) != Some(1) || number(HEADER_CRC)? != checksum(header, length)? {
        return None;
    }
    let size = number(ENTRY_SIZE)?;
    let bytes = u64::from(number(ENTRY_COUNT)?) * u64::from(size);
    let is_valid = size >= MIN_ENTRY_BYTES && size.is_power_of_two();
    let fits = (1..=MAX_ENTRIES_BYTES).contains(&bytes);
    (is_valid && fits).then_some((lba(ENTRIES_LBA)?.checked_mul(sector)?, bytes))
}

/// Returns the checksum of the first `length` bytes of `header`. The field of the checksum counts
/// as zero.
fn checksum(header: &[u8], length: usize) -> Option<u32> {
    let (before, rest) = header.get(..length)?.split_at_checked(HEADER_CRC)?;
    let mut sum = crc32fast::Hasher::new();
    [before, &[0; 4], rest.get(4..)?].iter().for_each(|part| sum.update(part));
    Some(sum.finalize())
}

fn parse(number: u32, entry: &[u8], sector: u64) -> Option<Entry> {
    let kind: [u8; 16] = field(entry, 0)?;
    let first = u64::from_le_bytes(field(entry, 32)?);
    let last = u64::from_le_bytes(field(entry, 40)?);
    let sectors = last.checked_sub(first)?.checked_add(1)?;
    let purpose = match kind {
        [0, ..] if kind == [0; 16] => return None,
        ESP => Purpose::Esp,
        BIOS_BOOT => Purpose::BiosBoot,
        _ => Purpose::Other,
    };
    let offset = first.saturating_mul(sector);
    Some(Entry { number, offset, bytes: sectors.saturating_mul(sector), purpose })
}
