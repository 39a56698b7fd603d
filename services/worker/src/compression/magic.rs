//! The first bytes of streams. They tell a later stream of a file from bytes that are no part of
//! it.

use super::Compression;

/// Maximum number of bytes that the functions here look at.
pub(super) const MAX_BYTES: usize = 10;

/// A byte of a magic: the bits that are fixed, and their values.
type Pattern = (u8, u8);

const fn fixed(byte: u8) -> Pattern {
    (0xff, byte)
}

const fn bits(mask: u8, byte: u8) -> Pattern {
    (mask, byte)
}

/// Any byte.
const ANY: Pattern = bits(0, 0);

/// RFC 1952 §2.3.1: the magic, and the method deflate.
const GZIP: &[Pattern] = &[fixed(0x1f), fixed(0x8b), fixed(8)];
/// The .xz file format 1.2 §2.1.1.
const XZ: &[Pattern] = &[fixed(0xfd), fixed(b'7'), fixed(b'z'), fixed(b'X'), fixed(b'Z'), fixed(0)];
/// RFC 8878 §3.1.1.
const ZSTD: &[Pattern] = &[fixed(0x28), fixed(0xb5), fixed(0x2f), fixed(0xfd)];
/// RFC 8878 §3.1.2.
const SKIPPABLE: &[Pattern] = &[bits(0xf0, 0x50), fixed(0x2a), fixed(0x4d), fixed(0x18)];
/// The beginning of a file, a digit, and the magic of a block.
const BZIP2: &[Pattern] = &[
    fixed(b'B'),
    fixed(b'Z'),
    fixed(b'h'),
    ANY,
    fixed(0x31),
    fixed(0x41),
    fixed(0x59),
    fixed(0x26),
    fixed(0x53),
    fixed(0x59),
];
/// The beginning of an empty file: a footer in place of a block.
const EMPTY_BZIP2: &[Pattern] = &[
    fixed(b'B'),
    fixed(b'Z'),
    fixed(b'h'),
    ANY,
    fixed(0x17),
    fixed(0x72),
    fixed(0x45),
    fixed(0x38),
    fixed(0x50),
    fixed(0x90),
];

fn magics(format: Compression) -> &'static [&'static [Pattern]] {
    match format {
        Compression::Gzip => &[GZIP],
        Compression::Xz => &[XZ],
        Compression::Zstd => &[ZSTD, SKIPPABLE],
        Compression::Bzip2 => &[BZIP2, EMPTY_BZIP2],
    }
}

/// True if `head` begins a stream of `format`, possibly with one wrong byte in its magic: a damaged
/// stream must not pass for the end of the file. `head` has [`MAX_BYTES`], unless the file ends
/// before; then all of it has to match.
pub(super) fn begins_stream(format: Compression, head: &[u8]) -> bool {
    magics(format).iter().any(|magic| {
        let matching = magic.iter().zip(head).filter(|(pattern, byte)| matches(**pattern, **byte));
        let required = if head.len() < magic.len() { head.len() } else { magic.len() - 1 };
        !head.is_empty() && matching.count() >= required
    })
}

/// True if a stream of `format` begins anywhere in `bytes`. The fields behind the magic are
/// compared too, so that other data does not look like one.
pub(super) fn has_stream(format: Compression, bytes: &[u8]) -> bool {
    bytes.windows(MAX_BYTES).any(|window| {
        let is_magic = magics(format).first().is_some_and(|magic| {
            magic.iter().zip(window).all(|(pattern, byte)| matches(*pattern, *byte))
        });
        is_magic && has_valid_fields(format, window)
    })
}

fn has_valid_fields(format: Compression, window: &[u8]) -> bool {
    match (format, window) {
        // Flags, time, extra flags of the compressor, operating system.
        (Compression::Gzip, [_, _, _, flags, _, _, _, _, extra, system, ..]) => {
            flags & 0xe0 == 0 && matches!(extra, 0 | 2 | 4) && matches!(system, 0..=13 | 255)
        }
        (Compression::Xz, [_, _, _, _, _, _, 0, check, ..]) => *check < 16,
        (Compression::Zstd, [_, _, _, _, descriptor, ..]) => descriptor & 0x08 == 0,
        (Compression::Bzip2, [_, _, _, digit, ..]) => matches!(digit, b'1'..=b'9'),
        (Compression::Gzip | Compression::Xz | Compression::Zstd | Compression::Bzip2, _) => false,
    }
}

fn matches((mask, value): Pattern, byte: u8) -> bool {
    byte & mask == value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wrong_byte_leaves_the_beginning_of_a_stream() {
        let xz = b"\xfd7zXZ\0\0\x04\x01\x02";
        for at in 0..6 {
            let mut head = *xz;
            head[at] ^= 0x11;
            assert!(begins_stream(Compression::Xz, &head), "{at}");
            head[(at + 1) % 6] ^= 0x11;
            assert!(!begins_stream(Compression::Xz, &head), "{at}");
        }
    }

    #[test]
    fn the_end_of_a_file_is_compared_as_far_as_it_goes() {
        for length in 1..6 {
            assert!(begins_stream(Compression::Xz, &b"\xfd7zXZ\0"[..length]), "{length}");
        }
        assert!(!begins_stream(Compression::Xz, b"\xfd7a"));
        assert!(!begins_stream(Compression::Gzip, b""));
        assert!(begins_stream(Compression::Zstd, b"\x5a\x2a\x4d\x18\x02\0\0\0\0\0"));
    }

    #[test]
    fn a_stream_is_found_by_magic_and_fields() {
        let gzip = [0x1f, 0x8b, 8, 0, 1, 2, 3, 4, 0, 3];
        assert!(has_stream(Compression::Gzip, &[&b"behind"[..], &gzip].concat()));
        for (at, byte) in [(2, 7), (3, 0x20), (8, 1), (9, 99)] {
            let mut other = gzip;
            other[at] = byte;
            assert!(!has_stream(Compression::Gzip, &other), "{at}");
        }
        assert!(!has_stream(Compression::Gzip, &gzip[..9]));
    }
}
