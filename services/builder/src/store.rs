//! The stored form of content: what the store gets, and its digests.
//!
//! A disk is stored as seekable zstd with a map. An archive is stored as one zstd stream. Both are
//! made from bytes alone, without a look at their meaning, so that this needs no sandbox.
//!
//! The functions block. They end soon after they are told to stop.

use std::fs::File;
use std::io::{self, BufWriter, Read as _, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk_images::checksums::Sum;
use stored_image::{Digest, EncoderSettings};
use tokio_util::sync::CancellationToken;

use crate::blobs::Blob;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::scratch::BuildScratch;

/// Level of compression of archives.
const ARCHIVE_LEVEL: i32 = 6;
/// Number of bytes that are read at once.
const CHUNK_BYTES: usize = 1 << 20;
/// Number of bytes after which the free space is checked again.
const CHECK_BYTES: u64 = 64 << 20;

/// Content to store.
#[derive(Debug)]
pub(crate) struct Raw {
    pub(crate) path: PathBuf,
    /// The open file, which the sandbox left at the path.
    pub(crate) file: File,
    pub(crate) size_bytes: u64,
}

/// Content in its stored form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) size_bytes: u64,
    /// Bytes that are not in empty blocks.
    pub(crate) used_bytes: u64,
    /// SHA-256 of the content in hexadecimal digits.
    pub(crate) sha256: String,
    pub(crate) file: Blob,
    /// The map of a disk.
    pub(crate) map: Option<Blob>,
}

/// The means to store content.
#[derive(Clone, Debug)]
pub(crate) struct Storing {
    pub(crate) scratch: Arc<BuildScratch>,
    pub(crate) progress: Progress,
    /// Ends the work with an error.
    pub(crate) stop: CancellationToken,
}

impl Storing {
    /// Writes the stored form of a disk and its map.
    pub(crate) fn disk(&self, raw: &Raw) -> Result<Stored, Failure> {
        let path = self.scratch.path().join("stored");
        let out = BufWriter::new(self.output(&path)?);
        let progress = |bytes| self.progress.set(bytes);
        let settings = EncoderSettings::default();
        let image = stored_image::store(&raw.file, raw.size_bytes, out, &settings, progress);
        let image = image.map_err(failed)?;
        let map = image.map.encode();
        let map_path = self.scratch.path().join("map");
        std::fs::write(&map_path, &map).map_err(failed)?;
        let map_sha256 = Digest::of(&map).to_string();
        let stored_sha256 = image.map.stored_sha256().to_string();
        Ok(Stored {
            size_bytes: raw.size_bytes,
            used_bytes: image.used_bytes,
            sha256: image.map.sha256().to_string(),
            file: Blob { path, sha256: stored_sha256, bytes: image.map.stored_bytes() },
            map: Some(Blob { path: map_path, sha256: map_sha256, bytes: map.len() as u64 }),
        })
    }

    /// Writes the stored form of an archive.
    pub(crate) fn archive(&self, raw: &Raw) -> Result<Stored, Failure> {
        let path = self.scratch.path().join("stored");
        let out = Summed { out: self.output(&path)?, sum: Sum::sha256(), bytes: 0 };
        let mut encoder = zstd::Encoder::new(BufWriter::new(out), ARCHIVE_LEVEL).map_err(failed)?;
        encoder.include_checksum(true).map_err(failed)?;
        let mut sum = Sum::sha256();
        let mut bytes = 0;
        let mut buffer = vec![0; CHUNK_BYTES];
        let mut content = (&raw.file).take(raw.size_bytes);
        while let Some(chunk) = next(&mut content, &mut buffer).map_err(failed)? {
            sum.update(chunk);
            encoder.write_all(chunk).map_err(failed)?;
            bytes += chunk.len() as u64;
            self.progress.set(bytes);
        }
        if bytes != raw.size_bytes {
            return Err(failed(format_args!("the archive ends at byte {bytes}")));
        }
        let out = encoder.finish().map_err(failed)?.into_inner().map_err(failed)?;
        let stored_sha256 = out.sum.finish().hex().to_owned();
        Ok(Stored {
            size_bytes: bytes,
            used_bytes: bytes,
            sha256: sum.finish().hex().to_owned(),
            file: Blob { path, sha256: stored_sha256, bytes: out.bytes },
            map: None,
        })
    }

    /// Makes the file at `path`.
    fn output(&self, path: &Path) -> Result<Output, Failure> {
        let file = File::options().write(true).create_new(true).open(path).map_err(failed)?;
        Ok(Output { file, storing: self.clone(), written: 0, next_check: 0 })
    }
}

/// Reads the next bytes into `buffer`; none at the end.
fn next<'a>(from: &mut impl io::Read, buffer: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
    let read = from.read(buffer)?;
    Ok(buffer.get(..read).filter(|bytes| !bytes.is_empty()))
}

/// A file that is not written any more after the stop, or when the disk is nearly full.
struct Output {
    file: File,
    storing: Storing,
    written: u64,
    next_check: u64,
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.storing.stop.is_cancelled() {
            return Err(io::Error::other("stopped"));
        }
        if self.written >= self.next_check {
            let room = self.storing.scratch.room(CHECK_BYTES);
            room.map_err(|failure| io::Error::other(failure.reason))?;
            self.next_check = self.written + CHECK_BYTES;
        }
        let written = self.file.write(bytes)?;
        self.written += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Output with a digest of what was written to it.
struct Summed<W> {
    out: W,
    sum: Sum,
    bytes: u64,
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.sum.update(bytes.get(..written).unwrap_or_default());
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::host("compressing", error)
}
