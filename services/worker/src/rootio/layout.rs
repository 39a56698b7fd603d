//! Where partitions go. Pure.
//!
//! Each takes exactly its size, and begins at a whole MiB: behind the one before it, or where it says.

use super::metadata::Partition;

/// What partitions are aligned to, in bytes.
const ALIGN: u64 = 1 << 20;

/// What sizes and places are counted in, in bytes.
const UNIT: u64 = 512;

/// The sectors of a disk that partitions may use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Bytes in a sector.
    pub(super) sector: u64,
    pub(super) first: u64,
    pub(super) last: u64,
    /// How many partitions a table can have.
    pub(super) partitions: u32,
}

/// A partition in its place: from its first to its last sector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) number: u32,
    pub(super) label: String,
    pub(super) type_guid: Option<String>,
    pub(super) first: u64,
    pub(super) last: u64,
}

/// Where `partitions` go, in their order, or why they do not fit.
pub(super) fn place(partitions: &[Partition], room: Room) -> Result<Vec<Placed>, String> {
    if partitions.is_empty() {
        return Err("no partitions are given".into());
    }
    let mut placed: Vec<Placed> = Vec::new();
    for partition in partitions {
        let before = placed.last();
        let next = before.map_or(1, |before| before.number + 1);
        let number = partition.number.filter(|number| *number > 0).unwrap_or(next);
        if number > room.partitions {
            return Err(format!("there is no partition {number} in such a table"));
        }
        if placed.iter().any(|placed| placed.number == number) {
            return Err(format!("there are two partitions {number}"));
        }
        let behind = before.map_or(room.first, |before| before.last.saturating_add(1));
        let (first, last) = range(partition, behind, room).map_err(|why| {
            let label = partition.label.as_deref().unwrap_or_default();
            format!("partition {number} {label:?} {why}")
        })?;
        let label = partition.label.clone().unwrap_or_default();
        let type_guid = partition.type_guid.clone().filter(|guid| !guid.is_empty());
        placed.push(Placed { number, label, type_guid, first, last });
    }
    Ok(placed)
}

/// The first and last sector of `partition`, with nothing free before `behind`.
fn range(partition: &Partition, behind: u64, room: Room) -> Result<(u64, u64), String> {
    let sectors = |units: u64| {
        let bytes = units.checked_mul(UNIT).ok_or("is larger than any disk")?;
        Ok::<_, String>(bytes.div_ceil(room.sector))
    };
    let first = match partition.start.filter(|start| *start > 0) {
        Some(start) => sectors(start)?,
        None => behind.next_multiple_of((ALIGN / room.sector).max(1)),
    };
    if first < behind {
        return Err(format!("begins before sector {behind}, where there is room"));
    }
    let left = room.last.saturating_add(1).saturating_sub(first);
    let length = match partition.size.filter(|size| *size > 0) {
        Some(size) => sectors(size)?,
        None => left,
    };
    if length == 0 || length > left {
        let (needs, sector) = (length.max(1), room.sector);
        return Err(format!("needs {needs} sectors of {sector} bytes, and {left} are left"));
    }
    Ok((first, first + length - 1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ROOM: Room = Room { sector: 512, first: 34, last: 204_766, partitions: 128 };

    fn sized(size: u64) -> Partition {
        Partition { size: Some(size), ..Partition::default() }
    }

    fn ranges(partitions: &[Partition], room: Room) -> Result<Vec<(u64, u64)>, String> {
        let placed = place(partitions, room)?;
        Ok(placed.iter().map(|placed| (placed.first, placed.last)).collect())
    }

    #[test]
    fn each_has_its_size_and_the_last_one_the_rest() {
        let ranges = ranges(&[sized(2048), sized(5), sized(0)], ROOM);
        assert_eq!(ranges, Ok(vec![(2048, 4095), (4096, 4100), (6144, 204_766)]));
    }

    #[test]
    fn sizes_are_in_units_of_512_bytes_whatever_the_sectors() {
        let room = Room { sector: 4096, first: 6, last: 25_594, partitions: 128 };
        let ranges = ranges(&[sized(2048), sized(1), sized(0)], room);
        assert_eq!(ranges, Ok(vec![(256, 511), (512, 512), (768, 25_594)]));
    }

    #[test]
    fn what_does_not_fit_says_what_is_left() {
        let sentence = |partitions: &[Partition]| ranges(partitions, ROOM).unwrap_err();
        assert_eq!(
            sentence(&[sized(300_000)]),
            r#"partition 1 "" needs 300000 sectors of 512 bytes, and 202719 are left"#
        );
        assert_eq!(
            sentence(&[sized(0), sized(0)]),
            r#"partition 2 "" needs 1 sectors of 512 bytes, and 0 are left"#
        );
        let overlapping = Partition { start: Some(3000), ..sized(1) };
        assert_eq!(
            sentence(&[sized(2048), overlapping]),
            r#"partition 2 "" begins before sector 4096, where there is room"#
        );
        assert_eq!(sentence(&[]), "no partitions are given");
    }

    #[test]
    fn numbers_are_the_partitions_own_and_none_comes_twice() {
        let numbered = |number| Partition { number: Some(number), ..sized(1) };
        let numbers = |partitions: &[Partition]| {
            let placed = place(partitions, ROOM)?;
            Ok::<_, String>(placed.iter().map(|placed| placed.number).collect::<Vec<_>>())
        };
        assert_eq!(numbers(&[numbered(15), numbered(1), sized(1)]), Ok(vec![15, 1, 2]));
        assert_eq!(numbers(&[sized(1), numbered(1)]), Err("there are two partitions 1".into()));
        let beyond = "there is no partition 129 in such a table".to_owned();
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
            let room = Room { sector, ..ROOM };
            let mut behind = room.first;
            for placed in place(&partitions, room).unwrap_or_default() {
                prop_assert!(behind <= placed.first && placed.first <= placed.last);
                prop_assert!(placed.last <= room.last);
                behind = placed.last + 1;
            }
        }
    }
}
