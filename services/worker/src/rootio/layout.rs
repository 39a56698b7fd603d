//! Computes the layout of partitions, without I/O.
//!
//! Each partition gets exactly its configured size. It begins at its configured start, or at the next whole MiB after the
//! previous partition.

use super::metadata::Partition;

/// Alignment of partitions in bytes.
const ALIGN: u64 = 1 << 20;

/// Unit of sizes and starts, in bytes.
const UNIT: u64 = 512;

/// The sectors of a disk that partitions may use.
#[derive(Clone, Copy, Debug)]
pub(super) struct UsableSectors {
    /// Bytes in a sector.
    pub(super) sector: u64,
    pub(super) first: u64,
    pub(super) last: u64,
    /// Maximum number of partitions in the table.
    pub(super) partitions: u32,
}

/// A partition with its first and last sector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlacedPartition {
    pub(super) number: u32,
    pub(super) label: String,
    pub(super) type_guid: Option<String>,
    pub(super) first: u64,
    pub(super) last: u64,
}

/// Places `partitions` in their order. Fails with a reason if they do not fit.
pub(super) fn place(
    partitions: &[Partition],
    room: UsableSectors,
) -> Result<Vec<PlacedPartition>, String> {
    if partitions.is_empty() {
        return Err("no partitions".into());
    }
    let mut placed: Vec<PlacedPartition> = Vec::new();
    for partition in partitions {
        let before = placed.last();
        let next = before.map_or(1, |before| before.number + 1);
        let number = partition.number.filter(|number| *number > 0).unwrap_or(next);
        if number > room.partitions {
            return Err(format!("partition number {number} is too large for this table"));
        }
        if placed.iter().any(|placed| placed.number == number) {
            return Err(format!("partition number {number} is used twice"));
        }
        let behind = before.map_or(room.first, |before| before.last.saturating_add(1));
        let (first, last) = range(partition, behind, room).map_err(|reason| {
            let label = partition.label.as_deref().unwrap_or_default();
            format!("partition {number} {label:?} {reason}")
        })?;
        let label = partition.label.clone().unwrap_or_default();
        let type_guid = partition.type_guid.clone().filter(|guid| !guid.is_empty());
        placed.push(PlacedPartition { number, label, type_guid, first, last });
    }
    Ok(placed)
}

/// Returns the first and last sector of `partition`. `behind` is the first sector after the previous partition.
fn range(partition: &Partition, behind: u64, room: UsableSectors) -> Result<(u64, u64), String> {
    let sectors = |units: u64| {
        let bytes = units.checked_mul(UNIT).ok_or("is larger than any disk")?;
        Ok::<_, String>(bytes.div_ceil(room.sector))
    };
    let first = match partition.start.filter(|start| *start > 0) {
        Some(start) => sectors(start)?,
        None => behind.next_multiple_of((ALIGN / room.sector).max(1)),
    };
    if first < behind {
        return Err(format!("begins before sector {behind}, the first free one"));
    }
    let left = room.last.saturating_add(1).saturating_sub(first);
    let length = match partition.size.filter(|size| *size > 0) {
        Some(size) => sectors(size)?,
        None => left,
    };
    if length == 0 || length > left {
        let (needs, sector) = (length.max(1), room.sector);
        return Err(format!("needs {needs} sectors of {sector} bytes; {left} are left"));
    }
    Ok((first, first + length - 1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ROOM: UsableSectors =
        UsableSectors { sector: 512, first: 34, last: 204_766, partitions: 128 };

    fn sized(size: u64) -> Partition {
        Partition { size: Some(size), ..Partition::default() }
    }

    fn ranges(partitions: &[Partition], room: UsableSectors) -> Result<Vec<(u64, u64)>, String> {
        let placed = place(partitions, room)?;
        Ok(placed.iter().map(|placed| (placed.first, placed.last)).collect())
    }

    #[test]
    fn each_partition_has_its_size_and_the_last_one_the_rest() {
        let ranges = ranges(&[sized(2048), sized(5), sized(0)], ROOM);
        assert_eq!(ranges, Ok(vec![(2048, 4095), (4096, 4100), (6144, 204_766)]));
    }

    #[test]
    fn sizes_are_in_units_of_512_bytes_whatever_the_sectors() {
        let room = UsableSectors { sector: 4096, first: 6, last: 25_594, partitions: 128 };
        let ranges = ranges(&[sized(2048), sized(1), sized(0)], room);
        assert_eq!(ranges, Ok(vec![(256, 511), (512, 512), (768, 25_594)]));
    }

    #[test]
    fn the_error_names_the_remaining_sectors() {
        let sentence = |partitions: &[Partition]| ranges(partitions, ROOM).unwrap_err();
        assert_eq!(
            sentence(&[sized(300_000)]),
            r#"partition 1 "" needs 300000 sectors of 512 bytes; 202719 are left"#
        );
        assert_eq!(
            sentence(&[sized(0), sized(0)]),
            r#"partition 2 "" needs 1 sectors of 512 bytes; 0 are left"#
        );
        let overlapping = Partition { start: Some(3000), ..sized(1) };
        assert_eq!(
            sentence(&[sized(2048), overlapping]),
            r#"partition 2 "" begins before sector 4096, the first free one"#
        );
        assert_eq!(sentence(&[]), "no partitions");
    }

    #[test]
    fn numbers_are_configurable_and_unique() {
        let numbered = |number| Partition { number: Some(number), ..sized(1) };
        let numbers = |partitions: &[Partition]| {
            let placed = place(partitions, ROOM)?;
            Ok::<_, String>(placed.iter().map(|placed| placed.number).collect::<Vec<_>>())
        };
        assert_eq!(numbers(&[numbered(15), numbered(1), sized(1)]), Ok(vec![15, 1, 2]));
        assert_eq!(
            numbers(&[sized(1), numbered(1)]),
            Err("partition number 1 is used twice".into())
        );
        let beyond = "partition number 129 is too large for this table".to_owned();
        assert_eq!(numbers(&[numbered(129)]), Err(beyond));
    }

    proptest! {
        #[test]
        fn partitions_never_overlap_and_stay_within_the_room(
            wanted in prop::collection::vec((0..400_000_u64, 0..5000_u64, 0..6_u32), 0..6),
            sector in prop::sample::select(vec![512_u64, 4096]),
        ) {
            let partitions: Vec<_> = wanted
                .into_iter()
                .map(|(start, size, number)| Partition {
                    start: Some(start),
                    size: Some(size),
                    number: Some(number),
                    ..Partition::default()
                })
                .collect();
            let room = UsableSectors { sector, ..ROOM };
            let mut behind = room.first;
            for placed in place(&partitions, room).unwrap_or_default() {
                prop_assert!(behind <= placed.first && placed.first <= placed.last);
                prop_assert!(placed.last <= room.last);
                behind = placed.last + 1;
            }
        }
    }
}
