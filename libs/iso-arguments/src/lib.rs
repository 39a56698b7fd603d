//! Kernel arguments of one machine in an image for virtual media.
//!
//! A source image has placeholders of 1024 octets in place of the kernel's arguments. [`scan()`]
//! finds their offsets, and the image's digest, once. [`Scanned::overlay`] then writes the
//! [`Arguments`] of a machine, padded with blanks, over each placeholder in any part of the image.
//! ISO 9660 has no checksum over the contents of files.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod scan;

use std::fmt::Write as _;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

pub use scan::{PLACEHOLDER, Scanned, scan};

/// Octets of a placeholder.
pub const PLACEHOLDER_BYTES: usize = 1024;

/// Kernel arguments of a machine, as they replace a placeholder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arguments(Arc<[u8]>);

/// The arguments are longer than a placeholder: nothing may be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("kernel arguments: too long: {0} octets, the maximum is {PLACEHOLDER_BYTES}")]
pub struct TooLong(pub usize);

impl Arguments {
    /// Returns `text` with blanks up to the length of a placeholder.
    pub fn new(text: &str) -> Result<Self, TooLong> {
        let mut padded = text.as_bytes().to_vec();
        if padded.len() > PLACEHOLDER_BYTES {
            return Err(TooLong(padded.len()));
        }
        padded.resize(PLACEHOLDER_BYTES, b' ');
        Ok(Self(padded.into()))
    }
}

impl Scanned {
    /// Returns the ETag of the image with `arguments`: it differs if any octet may differ.
    pub fn tag(&self, arguments: &Arguments) -> String {
        let of_arguments = hex(&Sha256::digest(&arguments.0));
        format!("\"{}-{}\"", self.digest, of_arguments.get(..16).unwrap_or_default())
    }

    /// Writes `arguments` over each placeholder as far as it lies in `part`, which begins at
    /// `offset` of the image.
    pub fn overlay(&self, part: &mut [u8], offset: u64, arguments: &Arguments) {
        let Arguments(patch) = arguments;
        let end = offset.saturating_add(part.len() as u64);
        for place in &self.places {
            let from = (*place).max(offset);
            let to = place.saturating_add(patch.len() as u64).min(end);
            if from >= to {
                continue;
            }
            let within = |begin: u64| {
                let index = |at: u64| usize::try_from(at - begin).unwrap_or(usize::MAX);
                index(from)..index(to)
            };
            if let (Some(part), Some(patch)) =
                (part.get_mut(within(offset)), patch.get(within(*place)))
            {
                part.copy_from_slice(patch);
            }
        }
    }
}

fn hex(octets: &[u8]) -> String {
    octets.iter().fold(String::with_capacity(2 * octets.len()), |mut text, octet| {
        let _ = write!(text, "{octet:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn scanned(places: Vec<u64>) -> Scanned {
        Scanned { size: 8192, digest: "d1".into(), places }
    }

    #[test]
    fn arguments_are_padded_and_never_cut() {
        let padded = |length| Arguments::new(&"x".repeat(length));
        assert_eq!(&*padded(3).unwrap().0, [&b"xxx"[..], &[b' '; 1021]].concat());
        assert_eq!(padded(PLACEHOLDER_BYTES).unwrap().0.len(), PLACEHOLDER_BYTES);
        assert_eq!(padded(PLACEHOLDER_BYTES + 1), Err(TooLong(1025)));
    }

    #[test]
    fn the_tag_names_the_image_and_the_arguments() {
        let tag = |text| scanned(Vec::new()).tag(&Arguments::new(text).unwrap());
        assert!(tag("a").starts_with("\"d1-") && tag("a").len() == 21, "{}", tag("a"));
        assert_ne!(tag("a"), tag("b"));
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
            let arguments = Arguments::new("console=ttyS0").unwrap();
            let mut whole = source.clone();
            for place in &places {
                let place = usize::try_from(*place).unwrap();
                let end = (place + PLACEHOLDER_BYTES).min(whole.len());
                whole[place..end].copy_from_slice(&arguments.0[..end - place]);
            }
            let (from, to) = (from.min(source.len()), (from + length).min(source.len()));
            let mut part = source[from..to].to_vec();
            scanned(places).overlay(&mut part, from as u64, &arguments);
            prop_assert_eq!(&part, &whole[from..to]);
        }
    }
}
