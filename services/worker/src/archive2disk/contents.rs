//! What is in a tar, entry by entry: names and numbers are checked before anything is done with them.
//!
//! The `tar-core` crate makes sense of headers, whatever their form; where it is lenient, this is not.

use std::io::{self, Read};

use tar_core::parse::{Limits, ParseEvent, Parser};

use super::Error;
use super::member::Member;
use super::stream::{BLOCK, Stream, Sums};
use super::target::Target;

/// How many bytes may be headers of one entry. Of its limits the crate has one that lets holes be listed without end.
const LONGEST: usize = 2 << 20;

/// A tar that has been put in place.
#[derive(Debug)]
pub(super) struct Contents {
    /// Entries, whatever they are.
    pub(super) files: u64,
    /// Its sums, where one is wanted.
    pub(super) sums: Option<Sums>,
}

impl Contents {
    /// Puts all of `tar` below the calling thread's root directory, telling `report` before each entry.
    pub(super) fn read(tar: Stream, report: impl Fn()) -> Result<Self, Error> {
        let (mut reader, mut target, mut files) = (Reader::new(tar), Target::default(), 0);
        while let Some(member) = reader.next()? {
            report();
            let padded = member.stored.next_multiple_of(BLOCK as u64);
            let mut content = (&mut reader).take(padded);
            target.put(member, &mut content)?;
            let left = content.limit();
            let passed = io::copy(&mut content, &mut io::sink()).map_err(Error::Damaged)?;
            if passed < left {
                return Err(Error::NoEnd);
            }
            files += 1;
        }
        let sums = reader.tar.finish()?;
        target.finish()?;
        Ok(Self { files, sums })
    }
}

/// Entries and contents in turn.
struct Reader {
    tar: Stream,
    parser: Parser,
    /// What was read of the tar and is still to be understood. Behind a header it may be the beginning of a file.
    ahead: Vec<u8>,
}

impl Reader {
    fn new(tar: Stream) -> Self {
        let mut parser = Parser::new(Limits::default());
        // It takes times before 1970 for errors; the numbers that matter are checked in `member`.
        parser.set_ignore_pax_errors(true);
        Self { tar, parser, ahead: Vec::new() }
    }

    /// The next entry, whose contents come next; none at the end mark.
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
                _ if is_mark(&self.ahead) => {
                    let why =
                        io::Error::new(io::ErrorKind::InvalidData, "more follows its end mark");
                    return Err(Error::Damaged(why));
                }
                ParseEvent::GlobalExtensions { consumed, .. } => (consumed, None),
                ParseEvent::Entry { consumed, entry } => (consumed, Member::of(&entry, None)?),
                ParseEvent::SparseEntry { consumed, entry, sparse_map, real_size } => {
                    (consumed, Member::of(&entry, Some((sparse_map, real_size)))?)
                }
            };
            self.ahead.drain(..consumed.min(self.ahead.len()));
            if member.is_some() {
                return Ok(member);
            }
        }
    }

    /// Reads on until `wanted` bytes are ahead; whether the tar has ended instead, as it may after half of an end mark:
    /// some programs write one block only.
    fn ends_before(&mut self, wanted: usize) -> Result<bool, Error> {
        if wanted > LONGEST {
            let why = format!("an entry has more than {LONGEST} bytes of headers");
            return Err(Error::Damaged(io::Error::new(io::ErrorKind::InvalidData, why)));
        }
        let missing = wanted.saturating_sub(self.ahead.len()) as u64;
        let read = (&mut self.tar).take(missing).read_to_end(&mut self.ahead);
        match read.map_err(Error::Damaged)? as u64 {
            read if read == missing => Ok(false),
            0 if self.ahead.len() == BLOCK && is_mark(&self.ahead) => Ok(true),
            _ => Err(Error::NoEnd),
        }
    }
}

impl Read for &mut Reader {
    /// Contents: first what is ahead of them.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.ahead.is_empty() {
            return self.tar.read(into);
        }
        let read = self.ahead.as_slice().read(into)?;
        self.ahead.drain(..read);
        Ok(read)
    }
}

/// Whether `ahead` begins with a block of the end mark.
fn is_mark(ahead: &[u8]) -> bool {
    ahead.get(..BLOCK).is_some_and(|block| block.iter().all(|byte| *byte == 0))
}

fn damaged(error: &tar_core::parse::ParseError) -> Error {
    Error::Damaged(io::Error::new(io::ErrorKind::InvalidData, error.to_string()))
}
