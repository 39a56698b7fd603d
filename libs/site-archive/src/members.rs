//! The files of a tar, one after another.

use std::io::{Read, Seek, SeekFrom};

use tar_core::EntryType;
use tar_core::parse::{Limits, ParseEvent, ParsedEntry, Parser};

use crate::error::{Error, refused};
use crate::list::MAX_NAME_BYTES;

/// Bytes of a block of a tar (POSIX.1-2017, pax, "ustar Interchange Format").
pub(crate) const BLOCK: usize = 512;
/// Maximum number of header bytes of one file.
const MAX_HEADER_BYTES: usize = 16 << 10;
/// Maximum number of bytes of a long name or of headers of pax.
const MAX_METADATA_BYTES: u32 = 8 << 10;
/// Bytes that are read at once.
pub(crate) const CHUNK_BYTES: usize = 1 << 20;

/// A file of a tar, before its content.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    /// Where the content begins.
    pub(crate) offset: u64,
}

/// Reads headers. Only regular files are accepted.
pub(crate) struct Members<'a, R> {
    source: &'a mut R,
    parser: Parser,
    /// Where the next header begins.
    at: u64,
}

impl<'a, R: Read + Seek> Members<'a, R> {
    pub(crate) fn new(source: &'a mut R) -> Self {
        let limits = Limits {
            max_metadata_size: MAX_METADATA_BYTES,
            max_path_len: Some(MAX_NAME_BYTES as u32),
            max_pending_entries: 2,
            ..Limits::default()
        };
        Self { source, parser: Parser::new(limits), at: 0 }
    }

    /// Returns the next file, or `None` at the end of the archive.
    pub(crate) fn next(&mut self) -> Result<Option<Member>, Error> {
        let mut head = Vec::new();
        self.source.seek(SeekFrom::Start(self.at)).map_err(Error::Read)?;
        loop {
            let event = self.parser.parse(&head);
            match event.map_err(|error| Error::Damaged(error.to_string()))? {
                ParseEvent::NeedData { min_bytes } => self.fill(&mut head, min_bytes)?,
                ParseEvent::End { .. } => return self.end().map(|()| None),
                _ if is_zero(head.get(..BLOCK).unwrap_or_default()) => return Err(Error::Trailing),
                ParseEvent::GlobalExtensions { .. } => {
                    return Err(Error::Damaged("a global header of pax".into()));
                }
                ParseEvent::SparseEntry { entry, .. } => {
                    return Err(refused(&entry.path_lossy(), "a sparse file"));
                }
                ParseEvent::Entry { consumed, entry } => {
                    let member = member(&entry, self.at + consumed as u64)?;
                    let padded = member.bytes.checked_next_multiple_of(BLOCK as u64);
                    let next = padded.and_then(|padded| member.offset.checked_add(padded));
                    self.at = next.ok_or(Error::Truncated)?;
                    return Ok(Some(member));
                }
            }
        }
    }

    /// Reads the content of `member`, and calls `each` with its parts.
    pub(crate) fn content(
        &mut self,
        member: &Member,
        each: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        content(self.source, member.offset, member.bytes, each)
    }

    /// Reads until `head` has `min_bytes` bytes.
    fn fill(&mut self, head: &mut Vec<u8>, min_bytes: usize) -> Result<(), Error> {
        if min_bytes > MAX_HEADER_BYTES || min_bytes <= head.len() {
            return Err(Error::Damaged("a header without an end".into()));
        }
        let missing = (min_bytes - head.len()) as u64;
        let read = self.source.take(missing).read_to_end(head).map_err(Error::Read)?;
        if read as u64 == missing { Ok(()) } else { Err(Error::Truncated) }
    }

    /// Passes if only zeros follow, which fill the last record of a tar.
    fn end(&mut self) -> Result<(), Error> {
        let mut buffer = vec![0; CHUNK_BYTES];
        loop {
            let read = self.source.read(&mut buffer).map_err(Error::Read)?;
            match buffer.get(..read).unwrap_or_default() {
                [] => return Ok(()),
                rest if is_zero(rest) => {}
                _ => return Err(Error::Trailing),
            }
        }
    }
}

/// Reads `bytes` bytes of `source` from `offset` on, and calls `each` with their parts.
pub(crate) fn content<R: Read + Seek>(
    source: &mut R,
    offset: u64,
    bytes: u64,
    each: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    source.seek(SeekFrom::Start(offset)).map_err(Error::Read)?;
    let mut left = bytes;
    let mut buffer = vec![0; usize::try_from(left).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES)];
    while left > 0 {
        let most = usize::try_from(left).unwrap_or(CHUNK_BYTES).min(buffer.len());
        let into = buffer.get_mut(..most).unwrap_or_default();
        let read = match source.read(into) {
            Ok(0) => return Err(Error::Truncated),
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Error::Read(error)),
        };
        each(into.get(..read).unwrap_or_default())?;
        left -= read as u64;
    }
    Ok(())
}

/// Returns the file with the header `entry`.
fn member(entry: &ParsedEntry<'_>, offset: u64) -> Result<Member, Error> {
    let name = entry.path_lossy().into_owned();
    let problem = match entry.entry_type {
        // Before POSIX, only a trailing slash marked a directory.
        EntryType::Regular if name.ends_with('/') => Some("a directory"),
        // Another program could find another name or size in them.
        EntryType::Regular if entry.pax.is_some() => Some("a file with headers of pax"),
        EntryType::Regular => None,
        EntryType::Directory => Some("a directory"),
        EntryType::Symlink | EntryType::Link => Some("a link"),
        EntryType::Char | EntryType::Block | EntryType::Fifo => Some("a device"),
        EntryType::Continuous
        | EntryType::GnuSparse
        | EntryType::GnuLongName
        | EntryType::GnuLongLink
        | EntryType::XHeader
        | EntryType::XGlobalHeader
        | EntryType::Other(_) => Some("not a regular file"),
    };
    match problem {
        Some(problem) => Err(refused(&name, problem)),
        None => Ok(Member { name, bytes: entry.size, offset }),
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}
