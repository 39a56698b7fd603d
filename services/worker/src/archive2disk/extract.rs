//! Extracts a tar, entry by entry. Names and numbers are validated before they are used.
//!
//! The `tar-core` crate parses the headers of all tar formats. This module also refuses some invalid tars that the crate
//! accepts.

use std::io::{self, Read};

use tar_core::parse::{Limits, ParseEvent, Parser};

use super::Error;
use super::member::Member;
use super::stream::{BLOCK, TarStream, TarSums};
use super::target::Target;

/// Maximum number of header bytes of one entry. The crate itself does not limit the list of holes.
const MAX_HEADER_BYTES: usize = 2 << 20;

/// The result of an extraction.
#[derive(Debug)]
pub(super) struct Extracted {
    /// Number of entries of any kind.
    pub(super) files: u64,
    /// Checksums of the tar, if needed.
    pub(super) sums: Option<TarSums>,
}

/// Extracts `tar` below the calling thread's root directory, and calls `report` before each entry.
pub(super) fn extract(tar: TarStream, report: impl Fn()) -> Result<Extracted, Error> {
    let (mut reader, mut target, mut files) = (Reader::new(tar), Target::default(), 0);
    while let Some(member) = reader.next()? {
        report();
        let padded = member.stored.next_multiple_of(BLOCK as u64);
        let mut content = (&mut reader).take(padded);
        target.put(member, &mut content)?;
        let left = content.limit();
        let skipped = io::copy(&mut content, &mut io::sink()).map_err(Error::Damaged)?;
        if skipped < left {
            return Err(Error::NoEnd);
        }
        files += 1;
    }
    let sums = reader.tar.finish()?;
    target.finish()?;
    Ok(Extracted { files, sums })
}

/// Reads headers and contents in turn.
struct Reader {
    tar: TarStream,
    parser: Parser,
    /// Bytes that are read but not parsed yet. After a header, they are the beginning of the contents.
    ahead: Vec<u8>,
}

impl Reader {
    fn new(tar: TarStream) -> Self {
        let mut parser = Parser::new(Limits::default());
        // The parser refuses times before 1970; `member` validates the numbers that are used.
        parser.set_ignore_pax_errors(true);
        Self { tar, parser, ahead: Vec::new() }
    }

    /// Returns the next entry, whose contents follow, or `None` at the end mark.
    fn next(&mut self) -> Result<Option<Member>, Error> {
        loop {
            let event = self.parser.parse(&self.ahead);
            let (consumed, member) = match event.map_err(|error| damaged(&error))? {
                ParseEvent::NeedData { min_bytes } => {
                    if self.ends_before(min_bytes)? {
                        return Ok(None);
                    }
                    continue;
                }
                ParseEvent::End { .. } => return Ok(None),
                _ if is_end_mark(&self.ahead) => {
                    let why = io::Error::new(io::ErrorKind::InvalidData, "data after its end mark");
                    return Err(Error::Damaged(why));
                }
                ParseEvent::GlobalExtensions { consumed, .. } => (consumed, None),
                ParseEvent::Entry { consumed, entry } => (consumed, Member::parse(&entry, None)?),
                ParseEvent::SparseEntry { consumed, entry, sparse_map, real_size } => {
                    (consumed, Member::parse(&entry, Some((sparse_map, real_size)))?)
                }
            };
            self.ahead.drain(..consumed.min(self.ahead.len()));
            if member.is_some() {
                return Ok(member);
            }
        }
    }

    /// Reads until `ahead` has `min_bytes` bytes. Returns true if the tar ends before that. This is allowed after half of an
    /// end mark, since some programs write only one of its two blocks.
    fn ends_before(&mut self, min_bytes: usize) -> Result<bool, Error> {
        if min_bytes > MAX_HEADER_BYTES {
            let why = format!("an entry has more than {MAX_HEADER_BYTES} bytes of headers");
            return Err(Error::Damaged(io::Error::new(io::ErrorKind::InvalidData, why)));
        }
        let missing = min_bytes.saturating_sub(self.ahead.len()) as u64;
        let read = (&mut self.tar).take(missing).read_to_end(&mut self.ahead);
        match read.map_err(Error::Damaged)? as u64 {
            read if read == missing => Ok(false),
            0 if self.ahead.len() == BLOCK && is_end_mark(&self.ahead) => Ok(true),
            _ => Err(Error::NoEnd),
        }
    }
}

impl Read for &mut Reader {
    /// Reads contents: first the bytes in `ahead`, then the tar.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.ahead.is_empty() {
            return self.tar.read(into);
        }
        let read = self.ahead.as_slice().read(into)?;
        self.ahead.drain(..read);
        Ok(read)
    }
}

/// True if `ahead` begins with a block of the end mark.
fn is_end_mark(ahead: &[u8]) -> bool {
    ahead.get(..BLOCK).is_some_and(|block| block.iter().all(|byte| *byte == 0))
}

fn damaged(error: &tar_core::parse::ParseError) -> Error {
    Error::Damaged(io::Error::new(io::ErrorKind::InvalidData, error.to_string()))
}
