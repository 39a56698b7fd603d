//! The footer of Virtual PC's images (Virtual Hard Disk Image Format Specification 1.0).
//!
//! A fixed image is the raw disk with the footer behind it. A dynamic one has a copy of the footer
//! at its beginning, and the footer itself at its end.

use crate::format::Format;
use crate::refusal::Refusal;

/// The first bytes of a footer.
pub(crate) const COOKIE: &[u8] = b"conectix";
/// Bytes of a footer.
pub(crate) const FOOTER_BYTES: u64 = 512;

const SIZE_AT: usize = 48;
const TYPE_AT: usize = 60;
const CHECKSUM_AT: usize = 64;
const FIXED: u32 = 2;
const DYNAMIC: u32 = 3;
const DIFFERENCING: u32 = 4;

/// Kind of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The raw disk is the beginning of the file.
    Fixed,
    /// The file has tables of blocks.
    Dynamic,
}

/// Footer of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) kind: Kind,
    /// Size of the disk in bytes.
    pub(crate) bytes: u64,
}

impl Footer {
    /// Parses the footer in `tail`, the last bytes of a file of `length` bytes.
    pub(crate) fn parse(tail: &[u8], length: u64) -> Result<Self, Refusal> {
        let footer = tail.first_chunk::<512>().filter(|footer| footer.starts_with(COOKIE));
        let footer = footer
            .ok_or_else(|| Refusal::truncated(Format::Vhd, length, "the footer is missing"))?;
        let number = |at: usize| number(footer, at);
        if number(CHECKSUM_AT) != Some(checksum(footer)) {
            return Err(Refusal::damaged(Format::Vhd, "the checksum of the footer is wrong"));
        }
        let bytes = footer.get(SIZE_AT..).and_then(<[u8]>::first_chunk).copied();
        let bytes = bytes.map_or(0, u64::from_be_bytes);
        let kind = match number(TYPE_AT) {
            Some(FIXED) => Kind::Fixed,
            Some(DYNAMIC) => Kind::Dynamic,
            Some(DIFFERENCING) => {
                return Err(Refusal::RefersElsewhere {
                    format: Format::Vhd,
                    what: "parent disk".into(),
                    name: "of a differencing image".into(),
                });
            }
            other => {
                let feature = format!("disk type {}", other.unwrap_or_default());
                return Err(Refusal::unsupported(Format::Vhd, feature));
            }
        };
        if kind == Kind::Fixed && bytes.checked_add(FOOTER_BYTES) != Some(length) {
            let reason = format!("the footer says {bytes} bytes: the file has {length}");
            return Err(Refusal::damaged(Format::Vhd, reason));
        }
        Ok(Self { kind, bytes })
    }
}

fn number(footer: &[u8], at: usize) -> Option<u32> {
    footer.get(at..)?.first_chunk().copied().map(u32::from_be_bytes)
}

/// Returns the ones' complement of the sum of all bytes without the field of the checksum.
fn checksum(footer: &[u8]) -> u32 {
    let field = CHECKSUM_AT..CHECKSUM_AT + 4;
    let bytes = footer.iter().enumerate().filter(|(at, _)| !field.contains(at));
    !bytes.map(|(_, byte)| u32::from(*byte)).sum::<u32>()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn footer(kind: u32, bytes: u64) -> Vec<u8> {
        let mut footer = vec![0; 512];
        footer[..8].copy_from_slice(COOKIE);
        footer[SIZE_AT..SIZE_AT + 8].copy_from_slice(&bytes.to_be_bytes());
        footer[TYPE_AT..TYPE_AT + 4].copy_from_slice(&kind.to_be_bytes());
        let sum = checksum(&footer);
        footer[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_be_bytes());
        footer
    }

    #[test]
    fn fixed_and_dynamic_images_have_their_size() {
        let parsed = |kind| Footer::parse(&footer(kind, 1 << 20), (1 << 20) + 512);
        assert_eq!(parsed(2), Ok(Footer { kind: Kind::Fixed, bytes: 1 << 20 }));
        assert_eq!(parsed(3), Ok(Footer { kind: Kind::Dynamic, bytes: 1 << 20 }));
        let error = parsed(4).unwrap_err().to_string();
        assert!(error.contains("refers to parent disk of a differencing image"), "{error}");
    }

    #[test]
    fn a_missing_or_damaged_footer_is_refused() {
        let error = Footer::parse(&[0; 512], 9000).unwrap_err().to_string();
        assert_eq!(error, "source: format vhd: truncated at byte 9000: the footer is missing");
        let mut damaged = footer(2, 1024);
        damaged[100] = 1;
        let error = Footer::parse(&damaged, 1536).unwrap_err().to_string();
        assert_eq!(error, "source: format vhd: damaged: the checksum of the footer is wrong");
        let error = Footer::parse(&footer(2, u64::MAX), 1536).unwrap_err().to_string();
        assert!(error.contains("the footer says 18446744073709551615 bytes"), "{error}");
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let _either = Footer::parse(&[COOKIE, &bytes].concat(), 7);
        }
    }
}
