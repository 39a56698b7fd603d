//! Tar files: archive images, and layers of containers with a disk in them.
//!
//! The crate tar-core parses the headers of all tar formats. Names are checked, but never used to
//! make files.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path};

use tar_core::EntryType;
use tar_core::parse::{ParseEvent, ParsedEntry, Parser};

use crate::format::Format;
use crate::refusal::Refusal;
use crate::source::Source;
use crate::sparse::{Limits, SparseFile};
use crate::text::quoted;

/// Bytes of a block of a tar (POSIX.1-2017, pax, "ustar Interchange Format").
const BLOCK: usize = 512;
/// Maximum number of header bytes of one entry. The crate does not limit the list of holes.
const MAX_HEADER_BYTES: usize = 2 << 20;
/// The directory of the disk in the layer of a container.
const DISK_DIRECTORY: &str = "disk";

/// True for the header of a tar: its checksum is right. Old tars have no magic.
pub(crate) fn is_header(head: &[u8]) -> bool {
    const SUM: std::ops::Range<usize> = 148..156;
    let Some(header) = head.first_chunk::<BLOCK>() else { return false };
    let written = header.get(SUM).and_then(|text| std::str::from_utf8(text).ok());
    let written = written.map(|text| text.trim_matches([' ', '\0']));
    let Some(Ok(written)) = written.map(|octal| u32::from_str_radix(octal, 8)) else {
        return false;
    };
    let counted =
        |(at, byte): (usize, &u8)| u32::from(if SUM.contains(&at) { b' ' } else { *byte });
    header[0] != 0 && header.iter().enumerate().map(counted).sum::<u32>() == written
}

/// Returns an error unless `source` is a whole tar with names that lead nowhere else. The number of
/// entries is not limited: a system has more than 10,000 files, and nothing is made of them here.
pub(crate) fn check(source: &Source) -> Result<(), Refusal> {
    let mut tar = Reader::new(source)?;
    while let Some(entry) = tar.next()? {
        if leads_out(&entry.name) {
            return Err(entry.refused("a name that leads out of the archive"));
        }
        tar.skip(entry.stored)?;
    }
    Ok(())
}

/// Writes the only regular file below `disk/` in the tar `source` to a file that `create` makes.
/// Returns its name. Links, devices, sparse files and names that lead out of the tar are refused.
pub(crate) fn extract_disk(
    source: &Source,
    limits: &Limits,
    create: &dyn Fn() -> Result<SparseFile, Refusal>,
    progress: &mut dyn FnMut(u64),
) -> Result<String, Refusal> {
    let mut tar = Reader::new(source)?;
    let mut found: Option<Entry> = None;
    let mut members = 0;
    while let Some(entry) = tar.next()? {
        members += 1;
        if members > limits.members {
            let archive = Format::Tar.to_string();
            return Err(Refusal::TooManyMembers { archive, members, limit: limits.members });
        }
        entry.check()?;
        if !entry.is_disk() {
            tar.skip(entry.stored)?;
            continue;
        }
        if let Some(first) = &found {
            return Err(choice(format!("{} and {}", quoted(&first.name), quoted(&entry.name))));
        }
        let mut file = create()?;
        tar.copy(entry.stored, &mut file, progress)?;
        file.finish()?;
        found = Some(entry);
    }
    let found = found.ok_or_else(|| choice("no file below disk/".into()))?;
    Ok(found.file_name())
}

fn choice(found: String) -> Refusal {
    Refusal::Choice { archive: Format::Tar.to_string(), found }
}

/// True if `name` is absolute or has `..`.
fn leads_out(name: &[u8]) -> bool {
    let mut parts = Path::new(OsStr::from_bytes(name)).components();
    parts.any(|part| matches!(part, Component::ParentDir))
}

/// Kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    File,
    Directory,
    Other(&'static str),
}

/// An entry before its content.
#[derive(Debug)]
struct Entry {
    name: Vec<u8>,
    kind: Kind,
    /// Bytes of content.
    stored: u64,
}

impl Entry {
    fn new(entry: &ParsedEntry<'_>, is_sparse: bool) -> Self {
        // The forms of POSIX have the list of holes in records, or at the beginning of the content.
        const SPARSE: &[u8] = b"GNU.sparse.";
        let records = entry.pax.unwrap_or_default();
        let is_sparse = is_sparse || records.windows(SPARSE.len()).any(|it| it == SPARSE);
        let kind = match entry.entry_type {
            // Before POSIX, only a trailing slash marked a directory.
            EntryType::Regular if entry.path.ends_with(b"/") => Kind::Directory,
            _ if is_sparse => Kind::Other("a sparse file"),
            EntryType::Regular | EntryType::Continuous => Kind::File,
            EntryType::Directory => Kind::Directory,
            EntryType::Symlink | EntryType::Link => Kind::Other("a link"),
            EntryType::Char | EntryType::Block | EntryType::Fifo => Kind::Other("a device"),
            EntryType::GnuSparse
            | EntryType::GnuLongName
            | EntryType::GnuLongLink
            | EntryType::XHeader
            | EntryType::XGlobalHeader
            | EntryType::Other(_) => Kind::Other("neither a file nor a directory"),
        };
        Self { name: entry.path.to_vec(), kind, stored: entry.size }
    }

    fn check(&self) -> Result<(), Refusal> {
        match self.kind {
            _ if leads_out(&self.name) || self.name.starts_with(b"/") => {
                Err(self.refused("a name that leads out of the archive"))
            }
            Kind::Other(what) => Err(self.refused(what)),
            Kind::File | Kind::Directory => Ok(()),
        }
    }

    /// True for a file below `disk/`.
    fn is_disk(&self) -> bool {
        let mut parts = Path::new(OsStr::from_bytes(&self.name))
            .components()
            .filter(|part| !matches!(part, Component::CurDir));
        let is_below = parts.next() == Some(Component::Normal(OsStr::new(DISK_DIRECTORY)));
        self.kind == Kind::File && is_below && parts.next().is_some()
    }

    /// Returns the last part of the name.
    fn file_name(&self) -> String {
        let name = Path::new(OsStr::from_bytes(&self.name)).file_name();
        name.unwrap_or_default().to_string_lossy().into_owned()
    }

    fn refused(&self, problem: &str) -> Refusal {
        Refusal::Entry {
            archive: Format::Tar.to_string(),
            name: quoted(&self.name),
            problem: format!("{problem}: refused"),
        }
    }
}

/// Reads headers and contents in turn.
struct Reader {
    file: BufReader<File>,
    length: u64,
    parser: Parser,
    /// Bytes that are read but not parsed yet. After a header, they begin the content.
    ahead: Vec<u8>,
}

impl Reader {
    fn new(source: &Source) -> Result<Self, Refusal> {
        let mut parser = Parser::new(tar_core::parse::Limits::default());
        // The parser refuses times before 1970.
        parser.set_ignore_pax_errors(true);
        let file = BufReader::with_capacity(256 << 10, source.file()?);
        Ok(Self { file, length: source.bytes(), parser, ahead: Vec::new() })
    }

    /// Returns the next entry, or `None` at the end mark. The content of the entry follows.
    fn next(&mut self) -> Result<Option<Entry>, Refusal> {
        loop {
            let event = self.parser.parse(&self.ahead);
            let event = event.map_err(|error| Refusal::damaged(Format::Tar, error.to_string()))?;
            let (consumed, entry) = match event {
                ParseEvent::NeedData { min_bytes } => {
                    if self.ends_before(min_bytes)? {
                        return Ok(None);
                    }
                    continue;
                }
                ParseEvent::End { .. } => return Ok(None),
                _ if is_end_mark(&self.ahead) => {
                    return Err(Refusal::damaged(Format::Tar, "data after its end mark"));
                }
                ParseEvent::GlobalExtensions { consumed, .. } => (consumed, None),
                ParseEvent::Entry { consumed, entry } => {
                    (consumed, Some(Entry::new(&entry, false)))
                }
                ParseEvent::SparseEntry { consumed, entry, .. } => {
                    (consumed, Some(Entry::new(&entry, true)))
                }
            };
            self.ahead.drain(..consumed.min(self.ahead.len()));
            if entry.is_some() {
                return Ok(entry);
            }
        }
    }

    /// Reads until `ahead` has `min_bytes` bytes. Returns true if the tar ends before that. This is
    /// allowed after half of an end mark, since some programs write only one of its two blocks.
    fn ends_before(&mut self, min_bytes: usize) -> Result<bool, Refusal> {
        if min_bytes > MAX_HEADER_BYTES {
            let reason = format!("an entry has more than {MAX_HEADER_BYTES} bytes of headers");
            return Err(Refusal::damaged(Format::Tar, reason));
        }
        let missing = min_bytes.saturating_sub(self.ahead.len()) as u64;
        if missing == 0 {
            return Err(Refusal::damaged(Format::Tar, "a header without an end"));
        }
        let read = (&mut self.file).take(missing).read_to_end(&mut self.ahead);
        match read.map_err(|error| reading(&error))? as u64 {
            read if read == missing => Ok(false),
            0 if self.ahead.len() == BLOCK && is_end_mark(&self.ahead) => Ok(true),
            _ => Err(self.truncated("its end mark is missing")),
        }
    }

    /// Skips a content of `stored` bytes and its padding.
    fn skip(&mut self, stored: u64) -> Result<(), Refusal> {
        let mut content = Content { reader: self, left: padded(stored) };
        io::copy(&mut content, &mut io::sink()).map_err(|error| reading(&error))?;
        content.end()
    }

    /// Appends a content of `stored` bytes to `to`, and skips its padding.
    fn copy(
        &mut self,
        stored: u64,
        to: &mut SparseFile,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), Refusal> {
        let mut content = Content { reader: self, left: stored };
        to.copy(&mut content, progress, &|error| reading(&error))?;
        content.end()?;
        let mut padding = Content { reader: self, left: padded(stored) - stored };
        io::copy(&mut padding, &mut io::sink()).map_err(|error| reading(&error))?;
        padding.end()
    }

    fn truncated(&self, needs: &str) -> Refusal {
        Refusal::truncated(Format::Tar, self.length, needs)
    }
}

/// The next bytes of a tar.
struct Content<'a> {
    reader: &'a mut Reader,
    left: u64,
}

impl Content<'_> {
    /// Returns an error if the tar ended before the content.
    fn end(self) -> Result<(), Refusal> {
        match self.left {
            0 => Ok(()),
            _ => Err(self.reader.truncated("a file in it has no end")),
        }
    }
}

impl Read for Content<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(into.len());
        let into = into.get_mut(..most).unwrap_or_default();
        let read = if self.reader.ahead.is_empty() {
            self.reader.file.read(into)?
        } else {
            let read = self.reader.ahead.as_slice().read(into)?;
            self.reader.ahead.drain(..read);
            read
        };
        self.left -= read as u64;
        Ok(read)
    }
}

/// Returns the bytes of a content of `stored` bytes with its padding.
fn padded(stored: u64) -> u64 {
    stored.checked_next_multiple_of(BLOCK as u64).unwrap_or(u64::MAX)
}

/// True if `ahead` begins with a block of the end mark.
fn is_end_mark(ahead: &[u8]) -> bool {
    ahead.get(..BLOCK).is_some_and(|block| block.iter().all(|byte| *byte == 0))
}

fn reading(error: &io::Error) -> Refusal {
    Refusal::io("reading the source", error)
}
