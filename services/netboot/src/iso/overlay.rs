//! Replaces octets at fixed offsets, in any part of a file.

/// Octets of a placeholder.
pub const LENGTH: usize = 1024;

/// Returns `text` with blanks up to the length of a placeholder; none if it is longer, since nothing may be cut.
pub fn padded(text: &str) -> Option<Vec<u8>> {
    let mut patch = text.as_bytes().to_vec();
    if patch.len() > LENGTH {
        return None;
    }
    patch.resize(LENGTH, b' ');
    Some(patch)
}

/// Writes `patch` over each of `places` as far as it lies in `part`, which begins at `offset` of the whole.
pub fn apply(part: &mut [u8], offset: u64, places: &[u64], patch: &[u8]) {
    let end = offset.saturating_add(part.len() as u64);
    for place in places {
        let from = (*place).max(offset);
        let to = place.saturating_add(patch.len() as u64).min(end);
        if from >= to {
            continue;
        }
        let within = |begin: u64| {
            let index = |at: u64| usize::try_from(at - begin).unwrap_or(usize::MAX);
            index(from)..index(to)
        };
        if let (Some(part), Some(patch)) = (part.get_mut(within(offset)), patch.get(within(*place)))
        {
            part.copy_from_slice(patch);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn arguments_are_padded_and_never_cut() {
        let padded = |length| padded(&"x".repeat(length));
        assert_eq!(padded(3).unwrap(), [&b"xxx"[..], &[b' '; 1021]].concat());
        assert_eq!(padded(LENGTH).unwrap().len(), LENGTH);
        assert_eq!(padded(LENGTH + 1), None);
    }

    proptest! {
        #[test]
        fn any_part_is_that_part_of_the_whole(
            places in prop::collection::btree_set(0..6_u64, 0..4),
            from in 0..9000_usize,
            length in 0..9000_usize,
        ) {
            let places: Vec<u64> = places.into_iter().map(|place| place * 1300 + 7).collect();
            let source: Vec<u8> = (0..8192_u32).map(|n| (n % 251) as u8).collect();
            let patch = padded("console=ttyS0").unwrap();
            let mut whole = source.clone();
            for place in &places {
                let place = usize::try_from(*place).unwrap();
                let end = (place + LENGTH).min(whole.len());
                whole[place..end].copy_from_slice(&patch[..end - place]);
            }
            let (from, to) = (from.min(source.len()), (from + length).min(source.len()));
            let mut part = source[from..to].to_vec();
            apply(&mut part, from as u64, &places, &patch);
            prop_assert_eq!(&part, &whole[from..to]);
        }
    }
}
