//! Writes archives.

use std::io::Write;

use tar_core::EntryType;
use tar_core::builder::EntryBuilder;

use crate::digest::{Digest, Sum};
use crate::error::{Error, refused};
use crate::list::{ListedFile, check_name, list_text};
use crate::members::BLOCK;
use crate::{LIST, SIGNATURE};

/// Permissions of the files.
const MODE: u32 = 0o644;
/// Time of the files: 1980-01-01. Equal inputs give equal bytes, and `tar` finds nothing odd.
const TIME: u64 = 315_532_800;

/// An archive that is being written, file by file in the order of its list.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    /// The files that are not written yet, the next one last.
    rest: Vec<ListedFile>,
    current: Option<Current>,
}

/// The file that is being written.
#[derive(Debug)]
struct Current {
    file: ListedFile,
    sum: Sum,
    written: u64,
}

impl<W: Write> Writer<W> {
    /// Begins an archive of `files` with the `signature` of their list.
    pub fn new(out: W, files: Vec<ListedFile>, signature: Option<&str>) -> Result<Self, Error> {
        files.iter().try_for_each(|file| check_name(&file.name))?;
        let list = list_text(&files);
        let mut writer = Self { out, rest: files, current: None };
        writer.rest.reverse();
        writer.own(LIST, list.as_bytes())?;
        signature.map_or(Ok(()), |text| writer.own(SIGNATURE, text.as_bytes()))?;
        Ok(writer)
    }

    /// Begins the next file, which has to be `name`.
    pub fn begin(&mut self, name: &str) -> Result<(), Error> {
        let next = self.rest.pop().filter(|next| next.name == name && self.current.is_none());
        let file = next.ok_or_else(|| refused(name, "not the next file of the list"))?;
        self.header(&file.name, file.bytes)?;
        self.current = Some(Current { file, sum: Sum::default(), written: 0 });
        Ok(())
    }

    /// Appends `bytes` to the present file.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let Some(current) = &mut self.current else {
            return Err(refused("", "content without a file"));
        };
        current.written += bytes.len() as u64;
        if current.written > current.file.bytes {
            return Err(refused(&current.file.name, "changed: it has become longer"));
        }
        current.sum.update(bytes);
        self.out.write_all(bytes).map_err(Error::Write)
    }

    /// Ends the present file. Fails if its content is not the listed one.
    pub fn end(&mut self) -> Result<(), Error> {
        let Some(Current { file, sum, written }) = self.current.take() else {
            return Err(refused("", "the end of no file"));
        };
        if written != file.bytes {
            return Err(refused(&file.name, "changed: it has become shorter"));
        }
        let (found, listed): (Digest, Digest) = (sum.finish(), file.sha256);
        if found != listed {
            return Err(Error::Changed { name: file.name, found, listed });
        }
        self.pad(written)
    }

    /// Ends the archive, and returns the output. Fails if a file is missing.
    pub fn finish(mut self) -> Result<W, Error> {
        if let Some(next) = self.rest.last() {
            return Err(refused(&next.name, "not written"));
        }
        if self.current.is_some() {
            return Err(refused("", "a file without an end"));
        }
        self.out.write_all(&[0; 2 * BLOCK]).map_err(Error::Write)?;
        self.out.flush().map_err(Error::Write)?;
        Ok(self.out)
    }

    /// Writes a file of the archive itself.
    fn own(&mut self, name: &str, content: &[u8]) -> Result<(), Error> {
        self.header(name, content.len() as u64)?;
        self.out.write_all(content).map_err(Error::Write)?;
        self.pad(content.len() as u64)
    }

    fn header(&mut self, name: &str, bytes: u64) -> Result<(), Error> {
        // The form of GNU has sizes of more than 8 GiB without further headers.
        let mut builder = EntryBuilder::new_gnu();
        builder.path(name).entry_type(EntryType::Regular);
        let fields = [
            builder.mode(MODE).is_ok(),
            builder.uid(0).is_ok(),
            builder.gid(0).is_ok(),
            builder.mtime(TIME).is_ok(),
            builder.size(bytes).is_ok(),
        ];
        if fields.contains(&false) {
            return Err(refused(name, "too large for a tar"));
        }
        self.out.write_all(&builder.finish_bytes()).map_err(Error::Write)
    }

    /// Fills the last block of a content of `bytes` bytes.
    fn pad(&mut self, bytes: u64) -> Result<(), Error> {
        let rest = usize::try_from(bytes % BLOCK as u64).unwrap_or_default();
        let missing = if rest == 0 { 0 } else { BLOCK - rest };
        let zeros = [0; BLOCK];
        self.out.write_all(zeros.get(..missing).unwrap_or_default()).map_err(Error::Write)
    }
}
