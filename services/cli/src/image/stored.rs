//! Stored images: a compressed file, and beside it the file with its checksum, which tells where the image is from.
//!
//! ```text
//! debian-12.raw.zst           the image, compressed
//! debian-12.raw.zst.sha256    its checksum for `sha256sum -c`, after comments about its origin
//! .debian-12.HEX.part         a download that is not complete; HEX begins the published checksum
//! .debian-12.raw.tmp          the raw image, until it is compressed; .debian-12.raw.zst.tmp the compressed one, until it is complete
//! ```
//!
//! Files get their names when they are complete. Whoever reads between the two renames sees an image without its checksum, or with an
//! earlier one, never half an image.

use std::fs::File;
use std::io::{self, Read as _, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use disk_images::checksums::{self, Checksum, Sum};
use disk_images::new_file;
use indicatif::{HumanBytes, ProgressBar};
use rustix::fs::FlockOperation;

/// Level of the compression: higher ones take much longer to save little, and each machine unpacks the image.
const ZSTD_LEVEL: i32 = 6;
/// Bytes that are compressed at once.
const CHUNK_BYTES: usize = 1 << 20;

/// Returns the name of the stored file of the image `name`.
pub(super) fn file_name(name: &str) -> String {
    format!("{name}.raw.zst")
}

/// Parses the name of an image.
pub(super) fn image_name(text: &str) -> Result<String, String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let is_valid = !text.is_empty() && text.len() <= 63 && text.chars().all(allowed);
    match is_valid && !text.starts_with(['.', '-']) {
        true => Ok(text.to_owned()),
        false => Err("not a name: letters, digits and ._-, at most 63".into()),
    }
}

/// The directory and the name of a stored image.
#[derive(Clone, Debug)]
pub(super) struct Target {
    directory: PathBuf,
    name: String,
}

/// A stored image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoredImage {
    pub(super) path: PathBuf,
    /// Size of the compressed file, in bytes.
    pub(super) bytes: u64,
    /// Checksum of the compressed file.
    pub(super) checksum: Checksum,
}

impl std::fmt::Display for StoredImage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let size = HumanBytes(self.bytes);
        write!(f, "{} ({size}, {})", self.path.display(), self.checksum)
    }
}

/// The right to write images into a directory, until it is dropped.
#[derive(Debug)]
pub(super) struct DirectoryLock(File);

impl DirectoryLock {
    /// Makes `directory` if it is missing, and locks it. Fails if another process has it.
    pub(super) fn take(directory: &Path) -> anyhow::Result<Self> {
        let context = || directory.display().to_string();
        std::fs::create_dir_all(directory).with_context(context)?;
        let file = File::open(directory).with_context(context)?;
        let locked = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
        let is_free = locked != Err(rustix::io::Errno::WOULDBLOCK);
        anyhow::ensure!(is_free, "another command stores images in {}", directory.display());
        // Some network file systems lock no directories. There, two commands at once have to be avoided by their user.
        Ok(Self(file))
    }
}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        // A program that is being started has a copy of the file until it is executed: closing this one alone would leave the directory locked.
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

/// Removes a temporary file when it is dropped.
#[derive(Debug)]
pub(super) struct TemporaryFile(pub(super) PathBuf);

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        // An error means that it was renamed, or not made.
        drop(std::fs::remove_file(&self.0));
    }
}

impl Target {
    /// The image `name` in `directory`.
    pub(super) fn new(directory: &Path, name: &str) -> Self {
        Self { directory: directory.to_owned(), name: name.to_owned() }
    }

    fn path(&self) -> PathBuf {
        self.directory.join(file_name(&self.name))
    }

    fn checksum_path(&self) -> PathBuf {
        self.directory.join(format!("{}.sha256", file_name(&self.name)))
    }

    /// Returns the path of the raw image, which is removed when it is dropped.
    pub(super) fn raw(&self) -> TemporaryFile {
        TemporaryFile(self.directory.join(format!(".{}.raw.tmp", self.name)))
    }

    /// Returns the path of the part of a download that has this checksum. Parts of other versions of the image are removed.
    pub(super) fn part(&self, checksum: &Checksum) -> anyhow::Result<PathBuf> {
        let prefix = format!(".{}.", self.name);
        let own = format!("{prefix}{}.part", checksum.hex().get(..16).unwrap_or_default());
        let entries = std::fs::read_dir(&self.directory)
            .with_context(|| self.directory.display().to_string())?;
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let middle = name.strip_prefix(&prefix).and_then(|rest| rest.strip_suffix(".part"));
            let is_part = middle.is_some_and(|hex| hex.bytes().all(|it| it.is_ascii_hexdigit()));
            if is_part && name != own {
                let removing = || format!("removing {}", entry.path().display());
                std::fs::remove_file(entry.path()).with_context(removing)?;
            }
        }
        Ok(self.directory.join(own))
    }

    /// Returns the size of the stored file in bytes, if there is one.
    pub(super) fn stored_bytes(&self) -> anyhow::Result<Option<u64>> {
        match std::fs::metadata(self.path()) {
            Ok(metadata) => Ok(Some(metadata.len())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| self.path().display().to_string()),
        }
    }

    /// Returns the stored image if it has this origin and is undamaged.
    pub(super) fn unchanged(&self, origin: &str) -> anyhow::Result<Option<StoredImage>> {
        let Some(bytes) = self.stored_bytes()? else { return Ok(None) };
        let Ok(text) = std::fs::read_to_string(self.checksum_path()) else { return Ok(None) };
        let path = self.path();
        let line = text.strip_prefix(&comments(origin)).filter(|rest| !rest.starts_with('#'));
        let Some(line) = line else { return Ok(None) };
        let Ok(recorded) = checksums::find(line, &file_name(&self.name)) else { return Ok(None) };
        let checksum = checksums::sha256_of_file(&path);
        let checksum = checksum.with_context(|| format!("reading {}", path.display()))?;
        Ok((checksum == recorded).then_some(StoredImage { path, bytes, checksum }))
    }

    /// Stores the raw image at `raw` compressed, with lines about its `origin`, in place of an earlier one. Shows progress in `bar`.
    /// Dropping the future removes the temporary files.
    pub(super) async fn store(
        &self,
        raw: &Path,
        origin: &str,
        bar: &ProgressBar,
    ) -> anyhow::Result<StoredImage> {
        let path = self.path();
        let new = TemporaryFile(self.directory.join(format!(".{}.raw.zst.tmp", self.name)));
        let writing = || format!("writing {}", path.display());
        let checksum = pack(raw, &new.0, bar).await.with_context(writing)?;
        std::fs::rename(&new.0, &path).with_context(writing)?;
        let text = format!("{}{}  {}\n", comments(origin), checksum.hex(), file_name(&self.name));
        replace(&self.checksum_path(), &text)
            .with_context(|| format!("writing {}", self.checksum_path().display()))?;
        let bytes = std::fs::metadata(&path).with_context(writing)?.len();
        Ok(StoredImage { path, bytes, checksum })
    }
}

/// Returns the lines of `origin` as comments, which `sha256sum -c` ignores.
fn comments(origin: &str) -> String {
    origin.lines().map(|line| format!("# {line}\n")).collect()
}

/// Compresses `raw` to a new file at `to`, and returns its checksum. Other futures run after each chunk.
async fn pack(raw: &Path, to: &Path, bar: &ProgressBar) -> io::Result<Checksum> {
    let mut raw = File::open(raw)?;
    let length = raw.metadata()?.len();
    bar.set_length(length);
    let out = Summed { file: new_file(to)?, sum: Sum::sha256() };
    let mut encoder = zstd::Encoder::new(out, ZSTD_LEVEL)?;
    encoder.include_checksum(true)?;
    encoder.set_pledged_src_size(Some(length))?;
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let read = raw.read(&mut buffer)?;
        let Some(bytes) = buffer.get(..read).filter(|bytes| !bytes.is_empty()) else { break };
        encoder.write_all(bytes)?;
        bar.inc(bytes.len() as u64);
        tokio::task::yield_now().await;
    }
    let out = encoder.finish()?;
    out.file.sync_all()?;
    Ok(out.sum.finish())
}

/// Replaces the file at `path` in one step.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let new = TemporaryFile(path.with_file_name(format!(".{name}.tmp")));
    let mut file = new_file(&new.0)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&new.0, path)
}

/// A file, and the checksum of what was written to it.
struct Summed {
    file: File,
    sum: Sum,
}

impl Write for Summed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.sum.update(bytes.get(..written).unwrap_or_default());
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORIGIN: &str = "from: somewhere\nsetting: one";

    async fn stored(directory: &Path, content: &[u8]) -> StoredImage {
        let raw = directory.join("raw");
        std::fs::write(&raw, content).unwrap();
        let target = Target::new(directory, "debian-12");
        target.store(&raw, ORIGIN, &ProgressBar::hidden()).await.unwrap()
    }

    #[tokio::test]
    async fn an_image_is_stored_with_a_checksum_that_sha256sum_accepts() {
        let place = tempfile::tempdir().unwrap();
        let content = vec![7; 3_000_000];
        let image = stored(place.path(), &content).await;
        assert_eq!(image.path, place.path().join("debian-12.raw.zst"));
        assert!(zstd::decode_all(File::open(&image.path).unwrap()).unwrap() == content);
        let mut check = std::process::Command::new("sha256sum");
        check.args(["--check", "--strict", "debian-12.raw.zst.sha256"]).current_dir(place.path());
        assert!(check.output().unwrap().status.success());
        let names = std::fs::read_dir(place.path()).unwrap().count();
        assert_eq!(names, 3, "no temporary file is left");
    }

    #[tokio::test]
    async fn an_image_is_unchanged_only_with_the_same_origin_and_content() {
        let place = tempfile::tempdir().unwrap();
        let target = Target::new(place.path(), "debian-12");
        assert_eq!(target.unchanged(ORIGIN).unwrap(), None);
        let image = stored(place.path(), b"content").await;
        assert_eq!(target.unchanged(ORIGIN).unwrap(), Some(image.clone()));
        assert_eq!(target.unchanged("from: somewhere\nsetting: two").unwrap(), None);
        assert_eq!(target.unchanged("from: somewhere").unwrap(), None);
        let mut damaged = std::fs::read(&image.path).unwrap();
        damaged[9] ^= 1;
        std::fs::write(&image.path, damaged).unwrap();
        assert_eq!(target.unchanged(ORIGIN).unwrap(), None);
        stored(place.path(), b"content").await;
        std::fs::write(place.path().join("debian-12.raw.zst.sha256"), "nonsense").unwrap();
        assert_eq!(target.unchanged(ORIGIN).unwrap(), None);
    }

    #[test]
    fn parts_of_other_versions_are_removed_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let names = [
            ".debian-12.0123456789abcdef.part",
            ".debian-123.0123456789abcdef.part",
            ".debian-12.raw.part",
            "debian-12.raw.zst",
        ];
        for name in names {
            std::fs::write(place.path().join(name), "").unwrap();
        }
        let mut sum = Sum::sha256();
        sum.update(b"abc");
        let part = Target::new(place.path(), "debian-12").part(&sum.finish()).unwrap();
        assert_eq!(part, place.path().join(".debian-12.ba7816bf8f01cfea.part"));
        let left = names.map(|name| place.path().join(name).exists());
        assert_eq!(left, [false, true, true, true]);
    }

    #[test]
    fn a_directory_is_locked_for_one_command() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("new/images");
        let lock = DirectoryLock::take(&directory).unwrap();
        let error = DirectoryLock::take(&directory).unwrap_err().to_string();
        assert_eq!(error, format!("another command stores images in {}", directory.display()));
        drop(lock);
        DirectoryLock::take(&directory).unwrap();
    }

    #[test]
    fn names_that_are_not_file_names_are_refused() {
        for wrong in ["", ".a", "-a", "a/b", "ä", "a b", &"a".repeat(64)] {
            assert!(image_name(wrong).is_err(), "{wrong}");
        }
        assert_eq!(image_name("ubuntu-24.04").unwrap(), "ubuntu-24.04");
        for name in disk_images::catalogue::names() {
            assert_eq!(image_name(name).as_deref(), Ok(name));
        }
    }
}
