//! The window of a compressed file: the amount of recent output that its decoder holds. The compressor chose its size.
//!
//! The window is by far the largest allocation of decompression. Without a limit, a machine with little memory would run out
//! of it: the kernel would kill programs, and no action would report the reason.

use std::fs;

/// The largest window in bytes that is allowed on any machine: that of `zstd --long` without an argument.
const MAX_WINDOW_BYTES: u64 = 128 << 20;

/// The limit in bytes on machines with very little free memory: the minimum that RFC 8878 §3.1.1.1.2 requires of decoders.
const MIN_LIMIT_BYTES: u64 = 8 << 20;

/// Returns the largest window in bytes that is allowed on this machine now; a power of two.
pub(crate) fn limit() -> u64 {
    free_memory().map_or(MAX_WINDOW_BYTES, bounded)
}

/// Returns the bytes of memory that are available without swapping, if the kernel says so.
pub(crate) fn free_memory() -> Option<u64> {
    free(&fs::read_to_string("/proc/meminfo").ok()?)
}

/// Returns half of `free` bytes, within the limits, rounded down to a power of two: zstd takes no other limit.
fn bounded(free: u64) -> u64 {
    1 << (free / 2).clamp(MIN_LIMIT_BYTES, MAX_WINDOW_BYTES).ilog2()
}

/// Returns the bytes available without swapping, from /proc/meminfo (proc(5)).
fn free(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// Returns the window in bytes of the zstd frame at the beginning of `head` (RFC 8878 §3.1.1.1), if its header is
/// complete.
pub(super) fn of_zstd(mut head: &[u8]) -> Option<u64> {
    while let [0x50..=0x5f, 0x2a, 0x4d, 0x18, rest @ ..] = head {
        // A skippable frame: its length, then its content.
        let (length, rest) = rest.split_first_chunk::<4>()?;
        head = rest.get(usize::try_from(u32::from_le_bytes(*length)).ok()?..)?;
    }
    let [0x28, 0xb5, 0x2f, 0xfd, descriptor, rest @ ..] = head else { return None };
    if descriptor & 0x20 == 0 {
        let (exponent, mantissa) = (rest.first()? >> 3, rest.first()? & 7);
        let base = 1_u64 << (10 + exponent);
        return Some(base + base / 8 * u64::from(mantissa));
    }
    // A single segment: the whole content is the window.
    let dictionary = [0, 1, 2, 4].get(usize::from(descriptor & 3))?;
    let size = rest.get(*dictionary..)?;
    match descriptor >> 6 {
        0 => size.first().map(|size| u64::from(*size)),
        1 => size.first_chunk().map(|size| u64::from(u16::from_le_bytes(*size)) + 256),
        2 => size.first_chunk().map(|size| u64::from(u32::from_le_bytes(*size))),
        _ => size.first_chunk().map(|size| u64::from_le_bytes(*size)),
    }
}

/// Returns the window in bytes of the first block of the .xz file that begins with `head` (the .xz file format 1.2,
/// §2.1.1, §3.1 and §5.3.1), if its header is complete.
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

/// Parses a number of the .xz format (§1.2) at the beginning of `bytes`. Returns it and the rest.
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
    fn half_of_the_free_memory_is_allowed_within_limits() {
        let mib = |mib: u64| bounded(mib << 20) >> 20;
        assert_eq!([mib(0), mib(40), mib(130), mib(300), mib(1 << 20)], [8, 16, 64, 128, 128]);
    }

    #[test]
    fn free_memory_is_read_from_meminfo() {
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
        assert_eq!(frame(&[0x61, 9, 0, 1]), Some(512)); // after a dictionary id
        assert_eq!(frame(&[0xa0, 0, 0, 0, 0x20]), Some(512 << 20));
        assert_eq!(frame(&[0x04]), None);
    }

    #[test]
    fn skippable_frames_are_skipped() {
        let frames = [0x5a, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 7, 7, 0x28, 0xb5, 0x2f, 0xfd, 0, 0x88];
        assert_eq!(of_zstd(&frames), Some(128 << 20));
        assert_eq!(of_zstd(&frames[..10]), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let begun = |magic: &[u8]| [magic, &bytes[..]].concat();
            let _either = of_zstd(&begun(&[0x28, 0xb5, 0x2f, 0xfd]));
            let _either = of_zstd(&begun(&[0x5a, 0x2a, 0x4d, 0x18]));
            let _either = of_xz(&begun(&[0; 12]));
        }
    }
}
