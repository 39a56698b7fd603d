//! The window of a packed file: how far back its unpacker has to remember, which whoever packed it chose.
//!
//! It is the only memory that unpacking takes in earnest, and it is allocated at once: without a bound, a machine with
//! little of it would have its programs killed instead of an action that says why.

use std::fs;

/// The largest window that is allowed on any machine: what `zstd --long` asks for if it is not told more.
const LARGEST: u64 = 128 << 20;

/// The smallest that is, however little memory is free: what RFC 8878 §3.1.1.1.2 wants every unpacker to support.
const SMALLEST: u64 = 8 << 20;

/// The largest window in bytes, a power of two, that this machine has room for now.
pub(crate) fn limit() -> u64 {
    fs::read_to_string("/proc/meminfo").ok().and_then(|text| free(&text)).map_or(LARGEST, bounded)
}

/// Half of `free` bytes, within the bounds. A power of two, since that is what zstd can be told.
fn bounded(free: u64) -> u64 {
    1 << (free / 2).clamp(SMALLEST, LARGEST).ilog2()
}

/// How many bytes can be had without swapping, according to /proc/meminfo (proc(5)).
fn free(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// The window in bytes of the zstd frame that `head` begins with (RFC 8878 §3.1.1.1), if that much of it is there.
pub(super) fn of_zstd(mut head: &[u8]) -> Option<u64> {
    while let [0x50..=0x5f, 0x2a, 0x4d, 0x18, rest @ ..] = head {
        // A frame of no concern to anybody, and its length before it.
        let (length, rest) = rest.split_first_chunk::<4>()?;
        head = rest.get(usize::try_from(u32::from_le_bytes(*length)).ok()?..)?;
    }
    let [0x28, 0xb5, 0x2f, 0xfd, descriptor, rest @ ..] = head else { return None };
    if descriptor & 0x20 == 0 {
        let (exponent, mantissa) = (rest.first()? >> 3, rest.first()? & 7);
        let base = 1_u64 << (10 + exponent);
        return Some(base + base / 8 * u64::from(mantissa));
    }
    // A single segment: all of it is the window.
    let dictionary = [0, 1, 2, 4].get(usize::from(descriptor & 3))?;
    let size = rest.get(*dictionary..)?;
    match descriptor >> 6 {
        0 => size.first().map(|size| u64::from(*size)),
        1 => size.first_chunk().map(|size| u64::from(u16::from_le_bytes(*size)) + 256),
        2 => size.first_chunk().map(|size| u64::from(u32::from_le_bytes(*size))),
        _ => size.first_chunk().map(|size| u64::from_le_bytes(*size)),
    }
}

/// The window in bytes of the first block of the .xz file that begins with `head` (the .xz file format 1.2, §2.1.1,
/// §3.1 and §5.3.1), if that much of it is there.
pub(super) fn of_xz(head: &[u8]) -> Option<u64> {
    const STREAM_HEADER: usize = 12;
    const LZMA2: u64 = 0x21;
    let block = head.get(STREAM_HEADER..)?;
    let flags = block.get(1)?;
    let mut rest = block.get(2..)?;
    for present in [flags & 0x40, flags & 0x80] {
        if present != 0 {
            (_, rest) = number(rest)?;
        }
    }
    for _ in 0..=(flags & 3) {
        let (filter, after) = number(rest)?;
        let (length, after) = number(after)?;
        let (properties, after) = after.split_at_checked(usize::try_from(length).ok()?)?;
        if filter == LZMA2 {
            let bits = u32::from(properties.first()? & 0x3f);
            return (bits <= 40).then(|| u64::from(2 | bits & 1) << (bits / 2 + 11));
        }
        rest = after;
    }
    None
}

/// A number of the .xz format (§1.2) at the beginning of `bytes`, and what follows it.
fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let length = 1 + bytes.iter().take(9).position(|byte| byte & 0x80 == 0)?;
    let (digits, rest) = bytes.split_at_checked(length)?;
    let value = digits.iter().rev().fold(0, |value, digit| value << 7 | u64::from(digit & 0x7f));
    Some((value, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn half_of_what_is_free_is_allowed_within_bounds() {
        let mib = |mib: u64| bounded(mib << 20) >> 20;
        assert_eq!([mib(0), mib(40), mib(130), mib(300), mib(1 << 20)], [8, 16, 64, 128, 128]);
    }

    #[test]
    fn free_memory_is_read_as_the_kernel_tells_it() {
        let meminfo = "MemTotal:        4005324 kB\nMemAvailable:    3521240 kB\nBuffers: 12 kB\n";
        assert_eq!(free(meminfo), Some(3_521_240 * 1024));
        assert_eq!(free("MemTotal: 1 kB\n"), None);
    }

    #[test]
    fn a_zstd_window_is_an_exponent_and_a_mantissa_or_the_content() {
        let frame = |rest: &[u8]| of_zstd(&[&[0x28, 0xb5, 0x2f, 0xfd], rest].concat());
        assert_eq!(frame(&[0x04, 0x88]), Some(128 << 20)); // exponent 17
        assert_eq!(frame(&[0x04, 0x8b]), Some((128 << 20) / 8 * 11)); // mantissa 3
        assert_eq!(frame(&[0x24, 200]), Some(200));
        assert_eq!(frame(&[0x61, 9, 0, 1]), Some(512)); // behind the number of a dictionary
        assert_eq!(frame(&[0xa0, 0, 0, 0, 0x20]), Some(512 << 20));
        assert_eq!(frame(&[0x04]), None);
    }

    #[test]
    fn a_frame_to_skip_is_skipped() {
        let frames = [0x5a, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 7, 7, 0x28, 0xb5, 0x2f, 0xfd, 0, 0x88];
        assert_eq!(of_zstd(&frames), Some(128 << 20));
        assert_eq!(of_zstd(&frames[..10]), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reading_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let begun = |magic: &[u8]| [magic, &bytes[..]].concat();
            let _either = of_zstd(&begun(&[0x28, 0xb5, 0x2f, 0xfd]));
            let _either = of_zstd(&begun(&[0x5a, 0x2a, 0x4d, 0x18]));
            let _either = of_xz(&begun(&[0; 12]));
        }
    }
}
