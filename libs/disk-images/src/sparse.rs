//! Files with holes for zeros, and limits on what is written.
//!
//! The ratio of expansion counts data only, not zeros. A disk is mostly empty: 2 GiB of it compress
//! to some MiB, 1000:1, and that is an honest image. Its zeros become holes and take no room. The
//! limit on the length applies to all bytes.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use crate::refusal::Refusal;

/// Blocks of zeros of this size are left out: they are holes of the file.
const BLOCK_BYTES: usize = 4096;
/// Bytes that are copied at once.
pub(crate) const CHUNK_BYTES: usize = 1 << 20;
/// Minimum amount of data in bytes that the ratio applies to: a small file may repeat itself.
const RATIO_FLOOR_BYTES: u64 = 16 << 20;

const ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];

/// Limits on an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Maximum size of the raw disk or the tar in bytes, and of each file that is unpacked on the
    /// way.
    pub raw_bytes: u64,
    /// Maximum ratio of data, without zeros, to the size of the source.
    pub ratio: u64,
    /// Maximum number of entries of a zip, or of the layer of a container.
    pub members: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { raw_bytes: 64 << 30, ratio: 200, members: 10_000 }
    }
}

/// Limits on a file that is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// Maximum length.
    pub(crate) max_bytes: u64,
    ratio: u64,
    source_bytes: u64,
}

impl Budget {
    /// Returns the budget of contents of a source with `source_bytes` bytes.
    pub(crate) fn new(limits: &Limits, source_bytes: u64) -> Self {
        Self { max_bytes: limits.raw_bytes, ratio: limits.ratio, source_bytes }
    }

    /// Returns an error if `bytes` is too large. `what` names it.
    pub(crate) fn check_size(&self, what: &str, bytes: u64) -> Result<(), Refusal> {
        let limit = self.max_bytes;
        match bytes > limit {
            true => Err(Refusal::TooLarge { what: what.into(), bytes, limit }),
            false => Ok(()),
        }
    }

    /// Returns an error if `bytes` bytes of data are too many for the source.
    pub(crate) fn check_data(&self, bytes: u64) -> Result<(), Refusal> {
        let Self { ratio, source_bytes, .. } = *self;
        match bytes > RATIO_FLOOR_BYTES.max(source_bytes.saturating_mul(ratio)) {
            true => Err(Refusal::Ratio { bytes, source_bytes, ratio }),
            false => Ok(()),
        }
    }
}

/// A new file that is written from its beginning to its end.
#[derive(Debug)]
pub(crate) struct SparseFile {
    file: File,
    budget: Budget,
    position: u64,
    /// Bytes in blocks that are not zero.
    data: u64,
}

impl SparseFile {
    /// Makes the file at `path`, as [`new_file`] does.
    pub(crate) fn create(path: &Path, budget: Budget) -> Result<Self, Refusal> {
        let file = new_file(path).map_err(|error| writing(path, &error))?;
        Ok(Self { file, budget, position: 0, data: 0 })
    }

    /// Returns the number of bytes so far.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Appends `bytes`.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        self.budget.check_size("content", self.position.saturating_add(bytes.len() as u64))?;
        let mut rest = bytes;
        while !rest.is_empty() {
            let zeros = self.blocks(rest, |block| Some(block) == ZEROS.get(..block.len()));
            self.position += zeros as u64;
            rest = rest.get(zeros..).unwrap_or_default();
            let length = self.blocks(rest, |block| Some(block) != ZEROS.get(..block.len()));
            let (data, after) = rest.split_at_checked(length).unwrap_or_default();
            self.append(data)?;
            rest = after;
        }
        Ok(())
    }

    /// Appends the rest of `reader`, and calls `progress` with the position after each chunk.
    /// `failed` describes an error of the reader.
    pub(crate) fn copy(
        &mut self,
        reader: &mut dyn Read,
        progress: &mut dyn FnMut(u64),
        failed: &dyn Fn(io::Error) -> Refusal,
    ) -> Result<(), Refusal> {
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let read = match reader.read(&mut chunk) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read.map_err(failed)?,
            };
            let Some(bytes) = chunk.get(..read).filter(|bytes| !bytes.is_empty()) else {
                return Ok(());
            };
            self.write(bytes)?;
            progress(self.position);
        }
    }

    /// Sets the length, and returns it.
    pub(crate) fn finish(self) -> Result<u64, Refusal> {
        let ended = self.file.set_len(self.position);
        ended.map_err(|error| Refusal::io("writing the image", &error))?;
        Ok(self.position)
    }

    /// Returns the number of bytes at the beginning of `bytes` in blocks that fulfil `is_it`. Blocks
    /// are counted from the beginning of the file.
    fn blocks(&self, bytes: &[u8], is_it: impl Fn(&[u8]) -> bool) -> usize {
        let within = usize::try_from(self.position % BLOCK_BYTES as u64).unwrap_or_default();
        let (first, rest) = bytes.split_at((BLOCK_BYTES - within).min(bytes.len()));
        let blocks = std::iter::once(first).chain(rest.chunks(BLOCK_BYTES));
        blocks.take_while(|block| is_it(block)).map(<[u8]>::len).sum()
    }

    fn append(&mut self, data: &[u8]) -> Result<(), Refusal> {
        self.data += data.len() as u64;
        self.budget.check_data(self.data)?;
        let written = self.file.write_all_at(data, self.position);
        written.map_err(|error| Refusal::io("writing the image", &error))?;
        self.position += data.len() as u64;
        Ok(())
    }
}

/// Makes an empty file at `path`. A file or link there is removed, not followed: somebody else may
/// have made the link.
pub fn new_file(path: &Path) -> io::Result<File> {
    match File::create_new(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            std::fs::remove_file(path)?;
            File::create_new(path)
        }
        made => made,
    }
}

/// Removes a file when it is dropped. A sandbox removes nothing: there the file is emptied.
#[derive(Debug)]
pub(crate) struct Scratch {
    pub(crate) path: PathBuf,
    is_kept: bool,
}

impl Scratch {
    /// Takes the file at `path`, which may be made later.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, is_kept: false }
    }

    /// Leaves the file.
    pub(crate) fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.is_kept {
            // An error means that it was not made. Somebody else may have made a link there.
            let no_links = OFlags::NOFOLLOW.bits().cast_signed();
            let mut options = File::options();
            options.write(true).truncate(true).custom_flags(no_links);
            drop(options.open(&self.path));
            drop(std::fs::remove_file(&self.path));
        }
    }
}

/// Returns the refusal of a file that cannot be written.
pub(crate) fn writing(path: &Path, error: &io::Error) -> Refusal {
    Refusal::io(&format!("writing {}", path.display()), error)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use proptest::prelude::*;

    use super::*;

    fn written(pieces: &[&[u8]], limits: &Limits) -> Result<(Vec<u8>, u64), Refusal> {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("image");
        let mut file = SparseFile::create(&path, Budget::new(limits, 100))?;
        for piece in pieces {
            file.write(piece)?;
        }
        let data = file.data;
        assert_eq!(file.finish()?, std::fs::metadata(&path).unwrap().len());
        Ok((std::fs::read(path).unwrap(), data))
    }

    #[test]
    fn zeros_are_holes() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("image");
        let mut file = SparseFile::create(&path, Budget::new(&Limits::default(), 100)).unwrap();
        file.write(&vec![0; 8 << 20]).unwrap();
        file.write(&[7; 512]).unwrap();
        file.write(&vec![0; 1 << 20]).unwrap();
        assert_eq!(file.finish().unwrap(), (9 << 20) + 512);
        let metadata = std::fs::metadata(&path).unwrap();
        assert_eq!(metadata.len(), (9 << 20) + 512);
        assert!(metadata.blocks() * 512 <= 64 << 10, "{metadata:?}");
    }

    #[test]
    fn the_length_is_limited() {
        let limits = Limits { raw_bytes: 1000, ..Limits::default() };
        assert!(written(&[&[1; 999], &[0]], &limits).is_ok());
        let error = written(&[&[0; 999], &[0; 2]], &limits).unwrap_err().to_string();
        assert_eq!(error, "source: content: 1001 B: the limit is 1000 B");
    }

    #[test]
    fn the_ratio_counts_data_from_16_mib_on_but_no_zeros() {
        let (zeros, ones) = (vec![0; 32 << 20], vec![1; 8 << 20]);
        assert!(written(&[&zeros, &ones, &zeros, &ones], &Limits::default()).is_ok());
        let error = written(&[&ones, &ones, b"1"], &Limits::default()).unwrap_err().to_string();
        let expected =
            "source: expansion: more than 200 times: 16.00 MiB of data from a file of 100 B";
        assert_eq!(error, expected);
        let generous = Limits { ratio: 1 << 20, ..Limits::default() };
        assert!(written(&[&ones, &ones, b"1"], &generous).is_ok());
    }

    #[test]
    fn a_link_in_the_place_of_a_new_file_is_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let (other, path) = (place.path().join("other"), place.path().join("new"));
        std::fs::write(&other, "kept").unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        let mut file = SparseFile::create(&path, Budget::new(&Limits::default(), 1)).unwrap();
        file.write(b"new").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(std::fs::read(&other).unwrap(), b"kept");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn pieces_of_any_size_give_the_same_file(
            runs in prop::collection::vec((0..3_u8, 1..9000_usize), 0..8),
            piece in 1..10_000_usize,
        ) {
            let content: Vec<u8> =
                runs.iter().flat_map(|(byte, length)| vec![*byte; *length]).collect();
            let pieces: Vec<_> = content.chunks(piece).collect();
            let (file, data) = written(&pieces, &Limits::default()).unwrap();
            prop_assert!(file == content);
            let nonzero = content.iter().filter(|byte| **byte != 0).count() as u64;
            prop_assert!(data >= nonzero);
        }
    }
}
