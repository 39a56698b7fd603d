//! Names, times and records as a tar writes them. Pure.

use std::path::{Component, Path, PathBuf};

use rustix::fs::Timespec;

/// Where `name` is put, below the root directory; none if it goes up. What a tar made with `--absolute-names` has is
/// put there like everything else.
pub(super) fn inside(name: &Path) -> Option<PathBuf> {
    let mut path = PathBuf::from("/");
    for part in name.components() {
        match part {
            Component::RootDir | Component::CurDir => {}
            Component::Normal(part) => path.push(part),
            Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    Some(path)
}

/// A time in seconds since 1970 with a fraction (POSIX.1-2017, pax, "pax Header File Times").
pub(super) fn time(text: &str) -> Option<Timespec> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let (tv_sec, nanoseconds): (i64, i64) = (seconds.parse().ok()?, digits.parse().ok()?);
    if !seconds.starts_with('-') || nanoseconds == 0 {
        return Some(Timespec { tv_sec, tv_nsec: nanoseconds });
    }
    // Half a second before 1970 is the second before, and half a second.
    Some(Timespec { tv_sec: tv_sec.checked_sub(1)?, tv_nsec: 1_000_000_000 - nanoseconds })
}

/// The records of an extended header, keys and values (POSIX.1-2017, pax, "pax Extended Header"); none unless all of it
/// is made of them. Values are any bytes.
pub(super) fn records(mut header: &[u8]) -> Option<Vec<(&[u8], &[u8])>> {
    let mut records = Vec::new();
    while !header.is_empty() {
        let space = header.iter().position(|byte| *byte == b' ')?;
        let length: usize = std::str::from_utf8(header.get(..space)?).ok()?.parse().ok()?;
        let (record, rest) = header.split_at_checked(length)?;
        let record = record.get(space + 1..)?.strip_suffix(b"\n")?;
        let equals = record.iter().position(|byte| *byte == b'=')?;
        records.push((record.get(..equals)?, record.get(equals + 1..)?));
        header = rest;
    }
    Some(records)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_stay_below_the_root() {
        for (name, path) in [
            ("./etc/passwd", "/etc/passwd"),
            ("/etc//passwd", "/etc/passwd"),
            ("etc/./passwd/", "/etc/passwd"),
            ("./", "/"),
            ("a/..b", "/a/..b"),
        ] {
            assert_eq!(inside(Path::new(name)), Some(path.into()), "{name}");
        }
        for name in ["..", "../a", "a/../../b", "/..", "a/.."] {
            assert_eq!(inside(Path::new(name)), None, "{name}");
        }
    }

    #[test]
    fn times_have_fractions_and_may_be_before_1970() {
        let time = |text| time(text).map(|time| (time.tv_sec, time.tv_nsec));
        assert_eq!(time("1700000000.123456789"), Some((1_700_000_000, 123_456_789)));
        assert_eq!(time("1700000000.5"), Some((1_700_000_000, 500_000_000)));
        assert_eq!(time("1700000000.12345678999"), Some((1_700_000_000, 123_456_789)));
        assert_eq!(time("12"), Some((12, 0)));
        assert_eq!(time("-1.25"), Some((-2, 750_000_000)));
        assert_eq!(time("-0.5"), Some((-1, 500_000_000)));
        for nonsense in ["", "x", "1.x", "1.-5", "9999999999999999999999"] {
            assert_eq!(time(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn records_have_any_value_and_nothing_between_them() {
        let header = b"14 path=a b=\n\n12 user=\n\0\n\n";
        let expected: &[(&[u8], &[u8])] = &[(b"path", b"a b=\n"), (b"user", b"\n\0\n")];
        assert_eq!(records(header).as_deref(), Some(expected));
        assert_eq!(records(b""), Some(vec![]));
        for nonsense in
            [&b"x"[..], b"5 a=b", b"6 a=b\nx", b"5 ab\n", b"0 a=b\n", b"99999999999999999999 a=b\n"]
        {
            assert_eq!(records(nonsense), None);
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reading_of_records_panic(header in "[0-9]{1,2} [a=]{0,9}\n?|\\PC{0,20}") {
            let _either = records(header.as_bytes());
        }

        #[test]
        fn no_name_and_no_time_makes_the_reading_panic(text in "[-./a0-9]{0,24}|\\PC{0,20}") {
            prop_assert!(inside(Path::new(&text)).is_none_or(|path| path.is_absolute()));
            prop_assert!(time(&text).is_none_or(|time| (0..1_000_000_000).contains(&time.tv_nsec)));
        }
    }
}
