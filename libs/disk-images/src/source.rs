//! A file that is looked at or converted.

use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::refusal::Refusal;
use crate::sparse::SparseFile;

/// Number of bytes at the beginning of a file that formats are recognized by.
const HEAD_BYTES: usize = 64 << 10;
/// Number of bytes at the end of a file that formats are recognized by.
const TAIL_BYTES: usize = 512;

/// A regular file that does not change.
#[derive(Debug)]
pub(crate) struct Source {
    path: PathBuf,
    file: File,
    bytes: u64,
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl Source {
    /// Opens the file at `path`. Links, devices and pipes are refused.
    pub(crate) fn open(path: &Path) -> Result<Self, Refusal> {
        let opening =
            |error: std::io::Error| Refusal::io(&format!("opening {}", path.display()), &error);
        // Opening a pipe would otherwise wait for its other end.
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let file = File::options().read(true).custom_flags(flags).open(path).map_err(opening)?;
        let metadata = file.metadata().map_err(opening)?;
        if !metadata.is_file() {
            return Err(opening(std::io::Error::other("not a regular file")));
        }
        let bytes = metadata.len();
        let mut source =
            Self { path: path.to_owned(), file, bytes, head: Vec::new(), tail: Vec::new() };
        source.head = source.read(0, HEAD_BYTES)?;
        source.tail = source.read(bytes.saturating_sub(TAIL_BYTES as u64), TAIL_BYTES)?;
        Ok(source)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the length.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the first bytes.
    pub(crate) fn head(&self) -> &[u8] {
        &self.head
    }

    /// Returns the last 512 bytes.
    pub(crate) fn tail(&self) -> &[u8] {
        &self.tail
    }

    /// Returns another handle of the file, at its beginning.
    pub(crate) fn file(&self) -> Result<File, Refusal> {
        let again = self.file.try_clone().and_then(|mut file| file.rewind().map(|()| file));
        again.map_err(|error| reading(&error))
    }

    /// Returns `length` bytes from `offset` on, or fewer at the end of the file.
    pub(crate) fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>, Refusal> {
        let mut bytes = vec![0; length];
        let mut filled = 0;
        while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, offset.saturating_add(filled as u64)) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(reading(&error)),
            }
        }
        bytes.truncate(filled);
        Ok(bytes)
    }

    /// Copies the first `length` bytes to `to`. Returns the number of bytes.
    pub(crate) fn copy(
        &self,
        length: u64,
        mut to: SparseFile,
        progress: &mut dyn FnMut(u64),
    ) -> Result<u64, Refusal> {
        to.copy(&mut self.file()?.take(length), progress, &|error| reading(&error))?;
        to.finish()
    }
}

fn reading(error: &std::io::Error) -> Refusal {
    Refusal::io("reading the source", error)
}
