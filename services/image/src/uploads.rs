//! Files of uploads: `<directory>/uploads/<image id>`.
//!
//! Bytes are durable before their offset is answered. One request at a time writes to an upload.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use aws_lc_rs::digest;
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use tokio::fs::{self, File, OpenOptions};
use tokio::io::{AsyncSeekExt as _, AsyncWriteExt as _};

use crate::error::Error;
use crate::objects::{self, Objects};

/// Folder of uploads.
const UPLOADS: &str = "uploads";
/// Bytes between two looks at the free space.
const SPACE_CHECK_BYTES: u64 = 16 << 20;

/// The files of uploads.
#[derive(Clone, Debug, Default)]
pub struct Uploads {
    /// None: the site has no object store.
    place: Option<UploadFolder>,
    /// The uploads to which a request writes.
    busy: Arc<Mutex<BTreeSet<String>>>,
}

#[derive(Clone, Debug)]
struct UploadFolder {
    directory: PathBuf,
    objects: Objects,
}

/// A checksum of sent bytes, and their sum so far.
pub struct Checksum {
    expected: Vec<u8>,
    sum: digest::Context,
}

impl Checksum {
    /// Returns the checksum `expected` by `algorithm`: `sha1`, `sha256` or `sha512`; none for another
    /// one.
    pub fn new(algorithm: &str, expected: Vec<u8>) -> Option<Self> {
        let algorithm = match algorithm {
            "sha1" => &digest::SHA1_FOR_LEGACY_USE_ONLY,
            "sha256" => &digest::SHA256,
            "sha512" => &digest::SHA512,
            _ => return None,
        };
        Some(Self { expected, sum: digest::Context::new(algorithm) })
    }

    fn update(&mut self, bytes: &[u8]) {
        self.sum.update(bytes);
    }

    fn matches(self) -> bool {
        self.sum.finish().as_ref() == self.expected
    }
}

impl fmt::Debug for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Checksum")
    }
}

/// A file of an upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadFile {
    /// The image.
    pub image_id: String,
    /// Its bytes.
    pub size: u64,
    /// The time at which the last byte was written.
    pub modified: SystemTime,
}

impl Uploads {
    /// Opens the uploads in `directory`, on the disk of `objects`.
    pub fn open(directory: &Path, objects: Objects) -> Result<Self, objects::Error> {
        let directory = directory.join(UPLOADS);
        std::fs::create_dir_all(&directory)
            .map_err(|error| objects::Error::file(&directory, error))?;
        Ok(Self { place: Some(UploadFolder { directory, objects }), busy: Arc::default() })
    }

    fn place(&self) -> Result<&UploadFolder, Error> {
        self.place.as_ref().ok_or(Error::NoObjectStore)
    }

    /// Returns the durable bytes of the upload of `image`.
    pub async fn offset(&self, image: &str) -> Result<u64, Error> {
        let path = self.place()?.directory.join(image);
        match fs::metadata(&path).await {
            Ok(found) => Ok(found.len()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(objects::Error::file(&path, error).into()),
        }
    }

    /// Opens the upload of `image` for reading.
    pub async fn read(&self, image: &str) -> Result<File, Error> {
        let path = self.place()?.directory.join(image);
        Ok(File::open(&path).await.map_err(|error| objects::Error::file(&path, error))?)
    }

    /// Appends `content` to the upload of `image`, which must end at `offset` and have at most `max`
    /// bytes then. Returns the durable bytes: also what arrived of content that ended early is kept,
    /// unless it has a `checksum`, which all of it must have.
    pub async fn append(
        &self,
        image: &str,
        offset: u64,
        content: impl Stream<Item = Result<Bytes, Error>> + Unpin,
        max: u64,
        checksum: Option<Checksum>,
    ) -> Result<u64, Error> {
        let _turn = self.turn(image)?;
        let found = self.offset(image).await?;
        if found != offset {
            return Err(Error::Offset { sent: offset, expected: found });
        }
        let mut part = self.open_part(image, offset).await?;
        let Some(mut checksum) = checksum else {
            let added = part.add(content, max).await;
            let size = part.sync().await?;
            return added.map(|()| size);
        };
        let summed = content.inspect(|bytes| {
            if let Ok(bytes) = bytes {
                checksum.update(bytes);
            }
        });
        match part.add(summed, max).await {
            Ok(()) if checksum.matches() => {}
            outcome => {
                part.cut(offset).await?;
                return outcome.and(Err(Error::Checksum));
            }
        }
        part.sync().await
    }

    /// Replaces the upload of `image` by `content`, with at most `max` bytes. Returns its bytes.
    pub async fn replace(
        &self,
        image: &str,
        content: impl Stream<Item = Result<Bytes, Error>> + Unpin,
        max: u64,
    ) -> Result<u64, Error> {
        let _turn = self.turn(image)?;
        let mut part = self.open_part(image, 0).await?;
        part.add(content, max).await?;
        part.sync().await
    }

    async fn open_part(&self, image: &str, offset: u64) -> Result<Part, Error> {
        let UploadFolder { directory, objects } = self.place()?;
        objects.check_space()?;
        let path = directory.join(image);
        let opened = async {
            let mut options = OpenOptions::new();
            let mut file = options.create(true).truncate(false).write(true).open(&path).await?;
            file.set_len(offset).await?;
            file.seek(std::io::SeekFrom::End(0)).await?;
            // The name of a new file is durable, too.
            File::open(directory).await?.sync_all().await?;
            Ok(file)
        };
        let file = opened.await.map_err(|error| objects::Error::file(&path, error))?;
        Ok(Part { file, path, size: offset, objects: objects.clone() })
    }

    /// Removes the upload of `image`, if there is one.
    pub async fn remove(&self, image: &str) -> Result<(), Error> {
        let Some(place) = &self.place else { return Ok(()) };
        let path = place.directory.join(image);
        match fs::remove_file(&path).await {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(objects::Error::file(&path, error).into()),
        }
    }

    /// Lists all uploads.
    pub async fn list(&self) -> Result<Vec<UploadFile>, Error> {
        let Some(place) = &self.place else { return Ok(Vec::new()) };
        let listed = async {
            let (mut entries, mut files) = (fs::read_dir(&place.directory).await?, Vec::new());
            while let Some(entry) = entries.next_entry().await? {
                // It may be removed meanwhile.
                let Ok(found) = entry.metadata().await else { continue };
                files.push(UploadFile {
                    image_id: entry.file_name().to_string_lossy().into_owned(),
                    size: found.len(),
                    modified: found.modified()?,
                });
            }
            Ok(files)
        };
        Ok(listed.await.map_err(|error| objects::Error::file(&place.directory, error))?)
    }

    /// Takes the turn to write to the upload of `image`.
    pub(crate) fn turn(&self, image: &str) -> Result<Turn, Error> {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        match busy.insert(image.to_owned()) {
            true => Ok(Turn { busy: self.busy.clone(), image: image.to_owned() }),
            false => Err(Error::UploadBusy(image.to_owned())),
        }
    }
}

/// The turn of a request that writes to an upload.
#[derive(Debug)]
pub(crate) struct Turn {
    busy: Arc<Mutex<BTreeSet<String>>>,
    image: String,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.image);
    }
}

/// An upload that is being written.
struct Part {
    file: File,
    path: PathBuf,
    size: u64,
    objects: Objects,
}

impl Part {
    async fn add(
        &mut self,
        mut content: impl Stream<Item = Result<Bytes, Error>> + Unpin,
        max: u64,
    ) -> Result<(), Error> {
        let mut unchecked = 0;
        while let Some(bytes) = content.next().await {
            let bytes = bytes?;
            let added = bytes.len() as u64;
            if self.size + added > max {
                return Err(Error::TooLong { max });
            }
            unchecked += added;
            if unchecked >= SPACE_CHECK_BYTES {
                unchecked = 0;
                self.objects.check_space()?;
            }
            let written = self.file.write_all(&bytes).await;
            written.map_err(|error| objects::Error::file(&self.path, error))?;
            self.size += added;
        }
        Ok(())
    }

    /// Removes what was written from `offset` on.
    async fn cut(mut self, offset: u64) -> Result<(), Error> {
        let cut = async {
            self.file.flush().await?;
            self.file.set_len(offset).await?;
            self.file.sync_all().await
        };
        Ok(cut.await.map_err(|error| objects::Error::file(&self.path, error))?)
    }

    /// Makes what was written durable. Returns the bytes of the file.
    async fn sync(mut self) -> Result<u64, Error> {
        let synced = async {
            self.file.flush().await?;
            self.file.sync_all().await
        };
        synced.await.map_err(|error| objects::Error::file(&self.path, error))?;
        Ok(self.size)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    fn content(parts: &[&'static str]) -> impl Stream<Item = Result<Bytes, Error>> + Unpin {
        let parts: Vec<_> =
            parts.iter().map(|part| Ok(Bytes::from_static(part.as_bytes()))).collect();
        stream::iter(parts)
    }

    fn open(folder: &Path) -> Uploads {
        let objects = Objects::open(folder).unwrap();
        Uploads::open(folder, objects).unwrap()
    }

    #[tokio::test]
    async fn an_upload_goes_on_where_it_ended() {
        let folder = tempfile::tempdir().unwrap();
        let uploads = open(folder.path());
        let broken = content(&["abc"]).chain(stream::iter([Err(Error::Busy)]));
        assert!(uploads.append("i", 0, broken, 100, None).await.is_err());
        assert_eq!(uploads.offset("i").await.unwrap(), 3);
        let wrong = uploads.append("i", 2, content(&["x"]), 100, None).await;
        assert!(matches!(wrong, Err(Error::Offset { sent: 2, expected: 3 })), "{wrong:?}");
        assert_eq!(uploads.append("i", 3, content(&["de", "f"]), 6, None).await.unwrap(), 6);
        let longer = uploads.append("i", 6, content(&["g"]), 6, None).await;
        assert!(matches!(longer, Err(Error::TooLong { max: 6 })), "{longer:?}");
        assert_eq!(std::fs::read(folder.path().join("uploads/i")).unwrap(), b"abcdef");
        assert_eq!(uploads.replace("i", content(&["new"]), 6).await.unwrap(), 3);
        assert_eq!(std::fs::read(folder.path().join("uploads/i")).unwrap(), b"new");
    }

    #[tokio::test]
    async fn bytes_with_another_checksum_are_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let uploads = open(folder.path());
        let sum = |text: &str| digest::digest(&digest::SHA256, text.as_bytes()).as_ref().to_vec();
        let append = async |offset, text: &'static str, expected: &str| {
            let checksum = Checksum::new("sha256", sum(expected));
            uploads.append("i", offset, content(&[text]), 100, checksum).await
        };
        assert_eq!(append(0, "abc", "abc").await.unwrap(), 3);
        assert!(matches!(append(3, "def", "dex").await, Err(Error::Checksum)));
        assert_eq!(uploads.offset("i").await.unwrap(), 3);
        assert_eq!(append(3, "def", "def").await.unwrap(), 6);
        assert!(Checksum::new("md5", Vec::new()).is_none());
    }

    #[tokio::test]
    async fn one_request_at_a_time_writes() {
        let folder = tempfile::tempdir().unwrap();
        let uploads = open(folder.path());
        let turn = uploads.turn("i").unwrap();
        let busy = uploads.append("i", 0, content(&["x"]), 9, None).await;
        assert!(matches!(busy, Err(Error::UploadBusy(_))), "{busy:?}");
        uploads.append("other", 0, content(&["x"]), 9, None).await.unwrap();
        drop(turn);
        uploads.append("i", 0, content(&["x"]), 9, None).await.unwrap();
    }
}
