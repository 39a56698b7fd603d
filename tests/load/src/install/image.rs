//! Stored images with the content of the files in `/usr`.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};
use stored_image::{Digest, Encoder, EncoderSettings};

/// The content of this folder is much like that of an image.
const SOURCE: &str = "/usr";
/// Size of a piece in bytes, which has content or zeros.
const PIECE_BYTES: usize = 64 << 20;

/// Which pieces have content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    /// All.
    Dense,
    /// Every other one.
    HalfEmpty,
}

/// A stored image with its map, in files.
#[derive(Debug)]
pub(super) struct StoredImage {
    pub(super) file: PathBuf,
    pub(super) map_file: PathBuf,
    /// SHA-256 of the map in hexadecimal digits.
    pub(super) map_sha256: String,
    /// SHA-256 of the disk.
    pub(super) sha256: String,
}

impl StoredImage {
    /// Stores an image of `size` bytes in `folder`.
    pub(super) fn make(folder: &Path, pattern: Pattern, size: u64) -> anyhow::Result<Self> {
        let (file, map_file) = (folder.join("image.raw.zst"), folder.join("image.map"));
        let out = BufWriter::new(File::create(&file)?);
        let mut encoder = Encoder::start(out, &EncoderSettings::default())?;
        let mut source = Source::new(Path::new(SOURCE));
        let mut sum = Sha256::new();
        let mut piece = vec![0; PIECE_BYTES];
        let pieces = usize::try_from(size)? / PIECE_BYTES;
        for number in 0..pieces {
            match pattern == Pattern::HalfEmpty && number % 2 == 1 {
                true => piece.fill(0),
                false => source.fill(&mut piece)?,
            }
            sum.update(&piece);
            encoder.write_all(&piece)?;
        }
        let map = encoder.finish()?.map.encode();
        fs::write(&map_file, &map)?;
        let sha256 = sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { file, map_file, map_sha256: Digest::of(&map).to_string(), sha256 })
    }

    /// Removes the files.
    pub(super) fn remove(self) -> io::Result<()> {
        fs::remove_file(self.file)?;
        fs::remove_file(self.map_file)
    }
}

/// The content of all files below a folder, and again from the first.
struct Source {
    root: PathBuf,
    waiting: Vec<PathBuf>,
    open: Option<File>,
}

impl Source {
    fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), waiting: Vec::new(), open: None }
    }

    /// Fills `piece`.
    fn fill(&mut self, piece: &mut [u8]) -> anyhow::Result<()> {
        let mut rest = piece;
        while !rest.is_empty() {
            let count = match &mut self.open {
                Some(file) => file.read(rest)?,
                None => 0,
            };
            if count == 0 {
                self.open = Some(self.next_file()?);
            }
            rest = rest.get_mut(count..).unwrap_or_default();
        }
        Ok(())
    }

    /// Opens the next file in alphabetical order.
    fn next_file(&mut self) -> anyhow::Result<File> {
        if self.waiting.is_empty() {
            self.waiting.push(self.root.clone());
        }
        while let Some(path) = self.waiting.pop() {
            let kind = fs::symlink_metadata(&path)?.file_type();
            if kind.is_file() {
                return Ok(File::open(path)?);
            }
            if kind.is_dir() {
                let mut inner = fs::read_dir(path)?
                    .map(|entry| Ok(entry?.path()))
                    .collect::<io::Result<Vec<_>>>()?;
                inner.sort_unstable_by(|one, other| other.cmp(one));
                self.waiting.extend(inner);
            }
        }
        None.with_context(|| format!("{} has no files", self.root.display()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn content_is_that_of_the_files_in_order_and_from_the_first_again() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("b")).unwrap();
        for (name, text) in [("a", "1"), ("b/c", "23"), ("d", ""), ("e", "4")] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let mut source = Source::new(folder.path());
        for expected in [b"123", b"412", b"341"] {
            let mut piece = [0; 3];
            source.fill(&mut piece).unwrap();
            assert_eq!(&piece, expected);
        }
    }
}
