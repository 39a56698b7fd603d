//! The list of files, as `sha256sum` writes and reads it, and the rules for names.

use std::collections::HashSet;

use crate::digest::Digest;
use crate::error::{Error, refused};
use crate::{LIST, SIGNATURE};

/// Maximum number of files.
const MAX_FILES: usize = 10_000;
/// Maximum length of a name in bytes.
pub(crate) const MAX_NAME_BYTES: usize = 1024;
/// Maximum length of a part of a name in bytes, as in most file systems.
const MAX_PART_BYTES: usize = 255;
/// Between digest and name: a space, and a space for text mode.
const SEPARATOR: &str = "  ";

/// A file of the list, with its size, which the list does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedFile {
    /// Its name, with slashes between its parts.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// Its digest.
    pub sha256: Digest,
}

/// Returns the list of `files`, which is signed.
pub fn list_text(files: &[ListedFile]) -> String {
    files.iter().map(|file| format!("{}{SEPARATOR}{}\n", file.sha256, file.name)).collect()
}

/// Parses a list. Each name is there once.
pub(crate) fn parse(text: &[u8]) -> Result<Vec<(String, Digest)>, Error> {
    let text = std::str::from_utf8(text).map_err(|_| wrong(0, "not text"))?;
    if !text.ends_with('\n') && !text.is_empty() {
        return Err(wrong(text.lines().count().saturating_sub(1), "without a line end"));
    }
    let (mut files, mut names) = (Vec::new(), HashSet::new());
    for (at, line) in text.split_terminator('\n').enumerate() {
        if files.len() == MAX_FILES {
            return Err(wrong(at, "more than 10,000 files"));
        }
        let (digest, name) = line.split_once(SEPARATOR).ok_or(wrong(at, "no digest and name"))?;
        let digest = digest.parse().map_err(|_| wrong(at, "no SHA-256"))?;
        if !names.insert(name) {
            return Err(refused(name, "listed twice"));
        }
        check_name(name)?;
        files.push((name.to_owned(), digest));
    }
    Ok(files)
}

fn wrong(at: usize, problem: &'static str) -> Error {
    Error::Line { line: at + 1, problem }
}

/// Passes if a file may have this name: `sha256sum` reads it as it is, and it leads nowhere else.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    let is_plain = |byte: u8| (byte.is_ascii_graphic() || byte == b' ') && byte != b'\\';
    let is_outside = |part: &str| matches!(part, "" | "." | "..");
    if name.starts_with('/') {
        return Err(refused(name, "an absolute name"));
    }
    if name.split('/').any(is_outside) {
        return Err(refused(name, "a name with an empty part, `.` or `..`"));
    }
    if !name.bytes().all(is_plain) {
        return Err(refused(name, "a name with other characters than visible ASCII and spaces"));
    }
    let is_long = name.split('/').any(|part| part.len() > MAX_PART_BYTES);
    if is_long || name.len() > MAX_NAME_BYTES {
        return Err(refused(name, "a name that is too long"));
    }
    match name {
        LIST | SIGNATURE => Err(refused(name, "a name that the archive itself has")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file(name: &str) -> ListedFile {
        ListedFile { name: name.into(), bytes: 1, sha256: Digest::of(name.as_bytes()) }
    }

    #[test]
    fn a_list_has_a_line_for_each_file() {
        let (a, b) = (file("osie/vmlinuz-x86_64"), file("files/a b"));
        let text = list_text(&[a.clone(), b.clone()]);
        assert_eq!(text, format!("{}  {}\n{}  {}\n", a.sha256, a.name, b.sha256, b.name));
        let read = parse(text.as_bytes()).unwrap();
        assert_eq!(read, [(a.name, a.sha256), (b.name, b.sha256)]);
        assert!(parse(b"").unwrap().is_empty());
    }

    #[test]
    fn a_list_in_another_form_is_refused_with_its_line() {
        let good = list_text(&[file("a")]);
        for (text, reason) in [
            (good.trim_end().to_owned(), "SHA256SUMS: line 1: without a line end"),
            (format!("{good}\n"), "SHA256SUMS: line 2: no digest and name"),
            (good.replace("  ", " *"), "SHA256SUMS: line 1: no digest and name"),
            (good.to_uppercase(), "SHA256SUMS: line 1: no SHA-256"),
            (format!("\\{good}"), "SHA256SUMS: line 1: no SHA-256"),
            (format!("{good}{good}"), "a: listed twice"),
        ] {
            assert_eq!(parse(text.as_bytes()).unwrap_err().to_string(), reason, "{text}");
        }
        assert!(parse(b"\xff\n").is_err());
        let many: String = (0..=MAX_FILES).map(|n| list_text(&[file(&n.to_string())])).collect();
        let reason = parse(many.as_bytes()).unwrap_err().to_string();
        assert_eq!(reason, "SHA256SUMS: line 10001: more than 10,000 files");
    }

    #[test]
    fn a_name_leads_nowhere_else() {
        for name in ["a", "a/b.c", "..a", "a..", "...", ".a/b", "a b", "-rf", "~", &"a".repeat(255)]
        {
            assert!(check_name(name).is_ok(), "{name}");
        }
        let long = "a/".repeat(MAX_NAME_BYTES);
        for name in [
            "",
            ".",
            "..",
            "/",
            "/etc/passwd",
            "a/../b",
            "../a",
            "a/..",
            "a//b",
            "a/",
            "./a",
            "a\\b",
            "a\nb",
            "a\0",
            "ä",
            "\u{1b}[2J",
            LIST,
            SIGNATURE,
            &"a".repeat(256),
            &long,
        ] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
    }

    proptest! {
        #[test]
        fn a_list_is_read_as_it_was_written(names in prop::collection::hash_set("[a-zA-Z0-9._ -]{1,9}(/[a-z]{1,9}){0,3}", 0..20)) {
            let files: Vec<_> = names.iter().map(|name| file(name)).collect();
            prop_assume!(files.iter().all(|file| check_name(&file.name).is_ok()));
            let read = parse(list_text(&files).as_bytes()).unwrap();
            let written: Vec<_> = files.into_iter().map(|file| (file.name, file.sha256)).collect();
            prop_assert_eq!(read, written);
        }
    }
}
