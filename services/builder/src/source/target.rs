//! The file that a source is written to.

use std::path::Path;

use disk_images::checksums::{Checksum, Sum};
use http::HeaderValue;
use tokio::fs::File;
use tokio::io::{AsyncSeekExt as _, AsyncWriteExt as _};

use crate::failure::Failure;
use crate::scratch::BuildScratch;

/// Number of bytes after which the free space is checked again.
const CHECK_BYTES: u64 = 64 << 20;

/// A file that is written from its beginning to its end.
#[derive(Debug)]
pub(crate) struct Target<'a> {
    file: File,
    scratch: &'a BuildScratch,
    /// Bytes that the file has.
    length: u64,
    /// Bytes received, earlier beginnings included.
    received: u64,
    /// Length at which the free space is checked.
    next_check: u64,
    sha256: Sum,
    expected: Option<(Checksum, Sum)>,
    max_bytes: u64,
    /// Strong ETag of the file that was begun.
    pub(crate) validator: Option<HeaderValue>,
}

impl<'a> Target<'a> {
    /// Makes the file at `path`, in `scratch`. It may have `max_bytes` bytes.
    pub(crate) async fn create(
        path: &Path,
        scratch: &'a BuildScratch,
        expected: Option<Checksum>,
        max_bytes: u64,
    ) -> Result<Self, Failure> {
        let file = File::options().write(true).create_new(true).open(path).await;
        let expected = expected.map(|checksum| (checksum.clone(), checksum.sum()));
        let mut target = Self {
            file: file.map_err(writing)?,
            scratch,
            length: 0,
            received: 0,
            next_check: 0,
            sha256: Sum::sha256(),
            expected,
            max_bytes,
            validator: None,
        };
        target.check_room()?;
        Ok(target)
    }

    /// Returns the number of bytes so far.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Returns the number of bytes received, earlier beginnings included.
    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    /// True if the checksum tells if two parts belong together.
    pub(crate) fn has_checksum(&self) -> bool {
        self.expected.is_some()
    }

    /// Begins anew.
    pub(crate) async fn restart(&mut self) -> Result<(), Failure> {
        if self.length > 0 {
            self.file.set_len(0).await.map_err(writing)?;
            self.file.rewind().await.map_err(writing)?;
        }
        self.length = 0;
        self.next_check = 0;
        self.sha256 = Sum::sha256();
        self.expected.iter_mut().for_each(|(checksum, sum)| *sum = checksum.sum());
        self.validator = None;
        Ok(())
    }

    /// Checks that `rest` more bytes may come.
    pub(crate) fn expect(&self, rest: u64) -> Result<(), Failure> {
        self.check_size(self.length.saturating_add(rest))?;
        self.scratch.room(rest).map(drop)
    }

    /// Appends `bytes`.
    pub(crate) async fn append(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.check_size(self.length + bytes.len() as u64)?;
        self.check_room()?;
        self.file.write_all(bytes).await.map_err(writing)?;
        self.sha256.update(bytes);
        self.expected.iter_mut().for_each(|(_, sum)| sum.update(bytes));
        self.length += bytes.len() as u64;
        self.received += bytes.len() as u64;
        Ok(())
    }

    /// Ends the file and compares its checksum. Returns its SHA-256 in hexadecimal digits.
    pub(crate) async fn finish(mut self) -> Result<String, Failure> {
        self.file.flush().await.map_err(writing)?;
        if let Some((expected, sum)) = self.expected {
            let actual = sum.finish();
            if actual != expected {
                let problem = format!("source.checksum: {expected}: the file has {actual}");
                return Err(Failure::permanent(problem));
            }
        }
        Ok(self.sha256.finish().hex().to_owned())
    }

    fn check_size(&self, bytes: u64) -> Result<(), Failure> {
        match bytes > self.max_bytes {
            true => Err(Failure::permanent(format_args!(
                "source: size: at least {bytes} bytes: the limit is {} bytes",
                self.max_bytes
            ))),
            false => Ok(()),
        }
    }

    fn check_room(&mut self) -> Result<(), Failure> {
        if self.length >= self.next_check {
            self.scratch.room(CHECK_BYTES)?;
            self.next_check = self.length + CHECK_BYTES;
        }
        Ok(())
    }
}

fn writing(error: std::io::Error) -> Failure {
    Failure::host("writing the source", error)
}
