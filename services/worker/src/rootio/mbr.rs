//! MBR partition tables: four partitions, up to 2 TiB (UEFI 2.10, §5.2.1), without I/O.

use super::layout::PlacedPartition;

/// Bytes of the table. It is at the beginning of the first sector, which may be larger.
pub(super) const SECTOR: usize = 512;

/// Maximum number of partitions. Logical partitions are not supported.
pub(super) const PARTITIONS: u32 = 4;

/// Offset of the disk signature.
const SIGNATURE: usize = 440;

/// Offset of the first partition entry.
const ENTRIES: usize = 446;

/// Invalid cylinder, head and sector: readers use the sector number instead.
const INVALID_CHS: [u8; 3] = [0xfe, 0xff, 0xff];

/// Returns the sector `old` with a new table of `partitions` and the disk `signature`. Its boot code is preserved.
pub(super) fn table(
    old: [u8; SECTOR],
    partitions: &[PlacedPartition],
    signature: u32,
) -> Result<[u8; SECTOR], String> {
    let mut table = old;
    let (_, own) = table.split_at_mut(SIGNATURE);
    own.fill(0);
    put(&mut table, SIGNATURE, &signature.to_le_bytes());
    for partition in partitions {
        let entry = entry(partition)?;
        let place = (partition.number as usize).saturating_sub(1) * entry.len();
        put(&mut table, ENTRIES + place, &entry);
    }
    put(&mut table, SECTOR - 2, &[0x55, 0xaa]);
    Ok(table)
}

fn entry(partition: &PlacedPartition) -> Result<[u8; 16], String> {
    let (kind, active) = kind(&partition.label);
    let number = |value: u64| {
        u32::try_from(value).map_err(|_| {
            format!("partition {} ends beyond the 2 TiB limit of MBR", partition.number)
        })
    };
    let (first, length) = (number(partition.first)?, number(partition.last - partition.first + 1)?);
    let mut entry = [0; 16];
    put(&mut entry, 0, &[if active { 0x80 } else { 0 }]);
    put(&mut entry, 1, &INVALID_CHS);
    put(&mut entry, 4, &[kind]);
    put(&mut entry, 5, &INVALID_CHS);
    put(&mut entry, 8, &first.to_le_bytes());
    put(&mut entry, 12, &length.to_le_bytes());
    Ok(entry)
}

/// Returns the partition type for one of rootio's labels, and true if the partition is active.
fn kind(label: &str) -> (u8, bool) {
    let (name, active) = label.strip_suffix("_ACTIVE").map_or((label, false), |name| (name, true));
    let kind = match name {
        "SWAP" => 0x82,
        "FAT32" => 0x0c,
        "EFI" => 0xef,
        _ => 0x83, // Linux
    };
    (kind, active)
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(target) = bytes.get_mut(at..at + value.len()) {
        target.copy_from_slice(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(number: u32, label: &str, first: u64, last: u64) -> PlacedPartition {
        PlacedPartition { number, label: label.into(), type_guid: None, first, last }
    }

    #[test]
    fn boot_code_is_preserved_and_the_old_table_is_not() {
        let table = table([7; SECTOR], &[placed(2, "", 2048, 4095)], 0x0102_0304).unwrap();
        assert!(table[..440].iter().all(|byte| *byte == 7));
        assert_eq!(table[440..446], [4, 3, 2, 1, 0, 0]);
        assert!(table[446..462].iter().all(|byte| *byte == 0), "partition 1 is empty");
        let entry = [0, 0xfe, 0xff, 0xff, 0x83, 0xfe, 0xff, 0xff, 0, 8, 0, 0, 0, 8, 0, 0];
        assert_eq!(table[462..478], entry);
        assert_eq!(table[510..], [0x55, 0xaa]);
    }

    #[test]
    fn labels_determine_the_type() {
        for (label, expected) in [
            ("SWAP", (0x82, false)),
            ("LINUX_ACTIVE", (0x83, true)),
            ("FAT32", (0x0c, false)),
            ("FAT32_ACTIVE", (0x0c, true)),
            ("EFI", (0xef, false)),
            ("ROOT", (0x83, false)),
        ] {
            assert_eq!(kind(label), expected, "{label}");
        }
    }

    #[test]
    fn sectors_beyond_32_bits_are_refused() {
        let refused = table([0; SECTOR], &[placed(1, "", 1 << 32, (1 << 32) + 1)], 0);
        assert_eq!(refused, Err("partition 1 ends beyond the 2 TiB limit of MBR".into()));
    }
}
