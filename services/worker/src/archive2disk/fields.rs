//! Parsing of names, times and extended header records of a tar.

use std::path::{Component, Path, PathBuf};

use rustix::fs::Timespec;

/// Returns the path of `name` below the root directory, or `None` if the name contains `..`. Absolute names, which
/// `tar --absolute-names` writes, are also placed below the root directory.
pub(super) fn destination(name: &Path) -> Option<PathBuf> {
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

/// Parses a time in seconds since 1970 with a fraction (POSIX.1-2017, pax, "pax Header File Times").
pub(super) fn parse_time(text: &str) -> Option<Timespec> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let (tv_sec, nanoseconds): (i64, i64) = (seconds.parse().ok()?, digits.parse().ok()?);
    if !seconds.starts_with('-') || nanoseconds == 0 {
        return Some(Timespec { tv_sec, tv_nsec: nanoseconds });
    }
    // -0.5 is second -1 plus 0.5 s.
    Some(Timespec { tv_sec: tv_sec.checked_sub(1)?, tv_nsec: 1_000_000_000 - nanoseconds })
}

/// Parses the records of an extended header into keys and values (POSIX.1-2017, pax, "pax Extended Header"). Returns `None`
/// if any part of it is malformed. Values are arbitrary bytes.
pub(super) fn parse_records(mut header: &[u8]) -> Option<Vec<(&[u8], &[u8])>> {
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
            assert_eq!(destination(Path::new(name)), Some(path.into()), "{name}");
        }
        for name in ["..", "../a", "a/../../b", "/..", "a/.."] {
            assert_eq!(destination(Path::new(name)), None, "{name}");
        }
    }

    #[test]
    fn times_have_fractions_and_may_be_before_1970() {
        let time = |text| parse_time(text).map(|time| (time.tv_sec, time.tv_nsec));
        assert_eq!(time("1700000000.123456789"), Some((1_700_000_000, 123_456_789)));
        assert_eq!(time("1700000000.5"), Some((1_700_000_000, 500_000_000)));
        assert_eq!(time("1700000000.12345678999"), Some((1_700_000_000, 123_456_789)));
        assert_eq!(time("12"), Some((12, 0)));
        assert_eq!(time("-1.25"), Some((-2, 750_000_000)));
        assert_eq!(time("-0.5"), Some((-1, 500_000_000)));
        for malformed in ["", "x", "1.x", "1.-5", "9999999999999999999999"] {
            assert_eq!(time(malformed), None, "{malformed}");
        }
    }

    #[test]
    fn records_hold_any_value_and_follow_each_other_directly() {
        let header = b"14 path=a b=\n\n12 user=\n\0\n\n";
        let expected: &[(&[u8], &[u8])] = &[(b"path", b"a b=\n"), (b"user", b"\n\0\n")];
        assert_eq!(parse_records(header).as_deref(), Some(expected));
        assert_eq!(parse_records(b""), Some(vec![]));
        for malformed in
            [&b"x"[..], b"5 a=b", b"6 a=b\nx", b"5 ab\n", b"0 a=b\n", b"99999999999999999999 a=b\n"]
        {
            assert_eq!(parse_records(malformed), None);
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_record_parser_panic(header in "[0-9]{1,2} [a=]{0,9}\n?|\\PC{0,20}") {
            let _either = parse_records(header.as_bytes());
        }

        #[test]
        fn no_name_and_no_time_makes_the_parsers_panic(text in "[-./a0-9]{0,24}|\\PC{0,20}") {
            prop_assert!(destination(Path::new(&text)).is_none_or(|path| path.is_absolute()));
            prop_assert!(parse_time(&text).is_none_or(|time| (0..1_000_000_000).contains(&time.tv_nsec)));
        }
    }
}
