//! Zip files with one image.
//!
//! The image is the only file, or the only one with the name of an image. Of several, it is the
//! last `*.vmdk` in the order of names in the directory that is named like the zip, as virtual
//! appliances have it. Names are checked, but never used to make files.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;

use zip::ZipArchive;
use zip::result::ZipError;

use crate::format::{Format, Wrapping};
use crate::magic;
use crate::refusal::Refusal;
use crate::source::Source;
use crate::sparse::{Limits, SparseFile};
use crate::text::quoted;

/// Bits of a file's type in a mode (POSIX.1-2017, sys/stat.h), and the types that are allowed.
const TYPE_MASK: u32 = 0o170_000;
const ALLOWED_TYPES: [u32; 3] = [0, 0o100_000, 0o040_000];
/// Signature and length of the record at a zip's end (APPNOTE.TXT 4.3.16).
const END: &[u8] = b"PK\x05\x06";
const END_BYTES: usize = 22;
/// Maximum length of the comment behind that record.
const MAX_COMMENT_BYTES: usize = 0xffff;
/// Signature of the record that tells where the record of a large zip is (APPNOTE.TXT 4.3.15).
const LOCATOR: &[u8] = b"PK\x06\x07";
const LOCATOR_BYTES: usize = 20;

/// A zip.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Zip<'a> {
    pub(crate) source: &'a Source,
    /// Name of the zip, or empty.
    pub(crate) name: &'a str,
}

impl Zip<'_> {
    /// Appends the image to `to`, and returns its name. `is_wanted` tells the formats to look for.
    pub(crate) fn extract(
        &self,
        is_wanted: &dyn Fn(Format) -> bool,
        limits: &Limits,
        to: &mut SparseFile,
        progress: &mut dyn FnMut(u64),
    ) -> Result<String, Refusal> {
        let length = self.source.bytes();
        let failed = |error: ZipError| failed(length, &error);
        // The crate allocates for each entry.
        check_members(entry_count(self.source)?, limits)?;
        let mut archive = ZipArchive::new(self.source.file()?).map_err(failed)?;
        check_members(archive.len() as u64, limits)?;
        if archive.has_duplicate_names() {
            return Err(Refusal::damaged(Wrapping::Zip, "two entries have the same name"));
        }
        let files = files(&archive).map_err(failed)??;
        let chosen = choose(&files, self.name, is_wanted)?;
        let mut file = archive.by_index(chosen.index).map_err(failed)?;
        let bytes = file.size();
        if bytes > limits.raw_bytes {
            let what = format!("size of entry {}", quoted(chosen.name.as_bytes()));
            return Err(Refusal::TooLarge { what, bytes, limit: limits.raw_bytes });
        }
        let start = to.position();
        to.copy(&mut file, progress, &|error| failed(ZipError::Io(error)))?;
        let found = to.position() - start;
        match found == bytes {
            true => Ok(chosen.base().to_owned()),
            false => {
                let reason = format!("an entry of {bytes} bytes has {found}");
                Err(Refusal::damaged(Wrapping::Zip, reason))
            }
        }
    }
}

/// A regular file in a zip.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Member {
    index: usize,
    name: String,
}

impl Member {
    /// Returns the directory and the last part of the name.
    fn split(&self) -> (&str, &str) {
        self.name.rsplit_once('/').unwrap_or(("", &self.name))
    }

    fn base(&self) -> &str {
        self.split().1
    }

    fn format(&self) -> Option<Format> {
        magic::of_extension(self.base())
    }
}

/// Returns the regular files. Any other entry but a directory is refused.
fn files(archive: &ZipArchive<File>) -> Result<Result<Vec<Member>, Refusal>, ZipError> {
    let mut files = Vec::new();
    for index in 0..archive.len() {
        let entry = archive.by_index_data(index)?;
        let name = entry.name_raw();
        let mode = entry.unix_mode().unwrap_or_default();
        let problem = match () {
            () if leads_out(name) => "a name that leads out of the archive",
            () if entry.encrypted() => "encrypted",
            () if !ALLOWED_TYPES.contains(&(mode & TYPE_MASK)) => "neither a file nor a directory",
            () if entry.is_dir() => continue,
            () => {
                files.push(Member { index, name: String::from_utf8_lossy(name).into_owned() });
                continue;
            }
        };
        return Ok(Err(Refusal::Entry {
            archive: Wrapping::Zip.to_string(),
            name: quoted(name),
            problem: format!("{problem}: refused"),
        }));
    }
    Ok(Ok(files))
}

/// True for an absolute name, for one with `..`, and for one of another system with a drive. A
/// backslash separates parts there.
fn leads_out(name: &[u8]) -> bool {
    let is_separator = |byte: &u8| matches!(byte, b'/' | b'\\');
    let mut parts = name.split(is_separator);
    name.first().is_none_or(is_separator)
        || name.contains(&0)
        || name.get(1) == Some(&b':')
        || parts.any(|part| part == b"..")
}

/// Returns the image among `files` of the zip `archive`.
fn choose<'a>(
    files: &'a [Member],
    archive: &str,
    is_wanted: &dyn Fn(Format) -> bool,
) -> Result<&'a Member, Refusal> {
    if let [only] = files {
        return Ok(only);
    }
    let images: Vec<_> = files.iter().filter(|it| it.format().is_some_and(is_wanted)).collect();
    if let [only] = images[..] {
        return Ok(only);
    }
    let directory = archive.rsplit_once('.').map_or(archive, |(stem, _)| stem);
    let is_appliance = |it: &&&Member| {
        it.split().0 == directory && it.format() == Some(Format::Vmdk) && !directory.is_empty()
    };
    if let Some(last) = images.iter().filter(is_appliance).max_by_key(|it| &it.name) {
        return Ok(last);
    }
    let found = match &images[..] {
        [] => format!("{} files, none with the name of an image", files.len()),
        images => {
            let names: BTreeSet<_> = images.iter().map(|it| it.name.as_str()).collect();
            let names: Vec<_> = names.into_iter().take(3).map(|it| quoted(it.as_bytes())).collect();
            format!("{} images, such as {}", images.len(), names.join(", "))
        }
    };
    Err(Refusal::Choice { archive: Wrapping::Zip.to_string(), found })
}

fn check_members(members: u64, limits: &Limits) -> Result<(), Refusal> {
    let archive = Wrapping::Zip.to_string();
    match members > limits.members {
        true => Err(Refusal::TooManyMembers { archive, members, limit: limits.members }),
        false => Ok(()),
    }
}

/// Returns the number of entries in the record at the end.
fn entry_count(source: &Source) -> Result<u64, Refusal> {
    let length = END_BYTES + MAX_COMMENT_BYTES + LOCATOR_BYTES;
    let start = source.bytes().saturating_sub(length as u64);
    let tail = source.read(start, length)?;
    let end = tail.windows(END.len()).rposition(|it| it == END);
    let end = end.filter(|at| tail.len() - at >= END_BYTES).ok_or_else(|| {
        let needs = "the directory at the end is missing";
        Refusal::truncated(Wrapping::Zip, source.bytes(), needs)
    })?;
    let field = |at: usize| tail.get(end + at..).and_then(<[u8]>::first_chunk).copied();
    let count = field(10).map_or(0, u16::from_le_bytes);
    let locator = end.checked_sub(LOCATOR_BYTES).and_then(|at| tail.get(at..end));
    let Some(locator) = locator.filter(|it| it.starts_with(LOCATOR)) else {
        return Ok(count.into());
    };
    let at = locator.get(8..).and_then(<[u8]>::first_chunk).copied().map_or(0, u64::from_le_bytes);
    let record = source.read(at, 56)?;
    let large = record.get(32..).and_then(<[u8]>::first_chunk).copied();
    Ok(large.map_or(count.into(), u64::from_le_bytes))
}

/// Returns the refusal of a zip of `length` bytes.
fn failed(length: u64, error: &ZipError) -> Refusal {
    if let ZipError::Io(error) = error
        && error.kind() == io::ErrorKind::UnexpectedEof
    {
        return Refusal::truncated(Wrapping::Zip, length, "an entry has no end");
    }
    if let ZipError::UnsupportedArchive(feature) = error {
        return Refusal::unsupported(Wrapping::Zip, *feature);
    }
    if let ZipError::CompressionMethodNotSupported(method) = error {
        return Refusal::unsupported(Wrapping::Zip, format!("compression method {method}"));
    }
    Refusal::damaged(Wrapping::Zip, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(names: &[&str], archive: &str) -> Result<String, String> {
        let member = |(index, name): (usize, &&str)| Member { index, name: (*name).into() };
        let files: Vec<_> = names.iter().enumerate().map(member).collect();
        let chosen = choose(&files, archive, &|format| format != Format::Tar);
        chosen.map(|it| it.name.clone()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_only_file_or_the_only_image_is_chosen() {
        assert_eq!(chosen(&["a"], "").as_deref(), Ok("a"));
        assert_eq!(chosen(&["README", "d/a.qcow2.xz", "b.tar"], "").as_deref(), Ok("d/a.qcow2.xz"));
    }

    #[test]
    fn the_last_vmdk_of_an_appliance_is_chosen() {
        let names = ["app/b-s002.vmdk", "app/b-s001.vmdk", "z.vmdk", "app/c.img"];
        assert_eq!(chosen(&names, "app.zip").as_deref(), Ok("app/b-s002.vmdk"));
        let error = chosen(&names, "other.zip").unwrap_err();
        let expected = "source: zip: 4 images, such as \"app/b-s001.vmdk\", \"app/b-s002.vmdk\", \"app/c.img\": expected exactly one image";
        assert_eq!(error, expected);
    }

    #[test]
    fn several_files_without_the_name_of_an_image_are_refused() {
        let error = chosen(&["a", "b.tar"], "").unwrap_err();
        let expected =
            "source: zip: 2 files, none with the name of an image: expected exactly one image";
        assert_eq!(error, expected);
        assert!(chosen(&[], "").unwrap_err().contains("0 files"));
    }

    #[test]
    fn names_that_lead_out_are_found() {
        for name in ["/a", "\\a", "a/../b", "..\\b", "..", "C:\\a", "c:a", "", "a\0b"] {
            assert!(leads_out(name.as_bytes()), "{name:?}");
        }
        for name in ["a", "a/b", "a..b", "..a/b"] {
            assert!(!leads_out(name.as_bytes()), "{name:?}");
        }
    }
}
