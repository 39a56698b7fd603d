//! Uploads: bytes that clients send, until a builder has read them.
//!
//! - `directory`: a file for each upload, in the directory of the objects.
//! - `bucket`: objects for each upload, which records name. Any process continues it.
//!
//! Bytes are durable before their offset is answered. One request at a time writes to an upload.

mod bucket;
mod directory;

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use async_trait::async_trait;
use aws_lc_rs::digest;
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};

use self::bucket::UploadBucket;
use self::directory::UploadFolder;
use crate::blobs::BlobBytes;
use crate::error::Error;
use crate::objects::{self, Objects};

pub use self::bucket::UploadRecords;

/// Folder of uploads.
const UPLOADS: &str = "uploads";

/// The uploads of a site.
#[derive(Clone, Debug, Default)]
pub struct Uploads {
    /// None: the site has no object store.
    store: Option<Arc<dyn UploadStore>>,
    /// The uploads to which a request of this process writes.
    busy: Arc<Mutex<BTreeSet<String>>>,
}

/// A store of uploads.
#[async_trait]
trait UploadStore: fmt::Debug + Send + Sync {
    /// Returns the durable bytes of the upload of `image`.
    async fn size(&self, image: &str) -> Result<u64, Error>;

    /// Reads `range` of the upload of `image`, which has these bytes.
    async fn read(&self, image: &str, range: Range<u64>) -> Result<BlobBytes, Error>;

    /// Begins to write to the upload of `image`.
    async fn write(&self, image: &str, begin: Begin) -> Result<Box<dyn UploadWriter>, Error>;

    /// Removes the upload of `image`, if there is one.
    async fn remove(&self, image: &str) -> Result<(), Error>;

    /// Lists all uploads.
    async fn list(&self) -> Result<Vec<UploadFile>, Error>;

    /// Removes what removals and broken requests left.
    async fn sweep(&self) -> Result<(), Error>;
}

/// The way in which a request writes to an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begin {
    /// Continues it at this offset. What arrives counts also if the request fails.
    Continue(u64),
    /// Continues it at this offset. What arrives counts only if all of it has its checksum.
    Checked(u64),
    /// Replaces it.
    Replace,
}

/// A request that writes to an upload.
#[async_trait]
trait UploadWriter: Send {
    /// Appends `bytes`.
    async fn write(&mut self, bytes: Bytes) -> Result<(), Error>;

    /// Makes what was written durable. Returns the bytes of the upload.
    async fn finish(self: Box<Self>) -> Result<u64, Error>;

    /// Ends a request whose bytes do not count.
    async fn discard(self: Box<Self>) -> Result<(), Error>;
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

/// An upload in a listing.
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
        Ok(Self::new(UploadFolder::open(directory, objects)?))
    }

    /// The uploads in the bucket of `records`.
    pub fn in_bucket(records: UploadRecords) -> Self {
        Self::new(UploadBucket::new(records))
    }

    fn new(store: impl UploadStore + 'static) -> Self {
        Self { store: Some(Arc::new(store)), busy: Arc::default() }
    }

    fn store(&self) -> Result<&dyn UploadStore, Error> {
        self.store.as_deref().ok_or(Error::NoObjectStore)
    }

    /// Returns the durable bytes of the upload of `image`.
    pub async fn offset(&self, image: &str) -> Result<u64, Error> {
        self.store()?.size(image).await
    }

    /// Reads `range` of the upload of `image`, which has these bytes.
    pub async fn read(&self, image: &str, range: Range<u64>) -> Result<BlobBytes, Error> {
        self.store()?.read(image, range).await
    }

    /// Appends `content` to the upload of `image`, which must end at `offset` and have at most `max`
    /// bytes then. Returns the durable bytes: also what arrived of content that ended early is kept,
    /// unless it has a `checksum`, which all of it must have.
    pub async fn append(
        &self,
        image: &str,
        offset: u64,
        content: impl Stream<Item = Result<Bytes, Error>> + Send + Unpin,
        max: u64,
        checksum: Option<Checksum>,
    ) -> Result<u64, Error> {
        let _turn = self.turn(image)?;
        let store = self.store()?;
        let found = store.size(image).await?;
        if found != offset {
            return Err(Error::Offset { sent: offset, expected: found });
        }
        let rest = max.saturating_sub(offset);
        let Some(mut checksum) = checksum else {
            let mut writer = store.write(image, Begin::Continue(offset)).await?;
            let added = copy(content, &mut *writer, rest, max).await;
            let size = writer.finish().await?;
            return added.map(|()| size);
        };
        let summed = content.inspect(|bytes| {
            if let Ok(bytes) = bytes {
                checksum.update(bytes);
            }
        });
        let mut writer = store.write(image, Begin::Checked(offset)).await?;
        match copy(summed, &mut *writer, rest, max).await {
            Ok(()) if checksum.matches() => {}
            outcome => {
                writer.discard().await?;
                return outcome.and(Err(Error::Checksum));
            }
        }
        writer.finish().await
    }

    /// Replaces the upload of `image` by `content`, with at most `max` bytes. Returns its bytes.
    pub async fn replace(
        &self,
        image: &str,
        content: impl Stream<Item = Result<Bytes, Error>> + Send + Unpin,
        max: u64,
    ) -> Result<u64, Error> {
        let _turn = self.turn(image)?;
        let mut writer = self.store()?.write(image, Begin::Replace).await?;
        match copy(content, &mut *writer, max, max).await {
            Ok(()) => writer.finish().await,
            Err(error) => {
                writer.discard().await?;
                Err(error)
            }
        }
    }

    /// Removes the upload of `image`, if there is one.
    pub async fn remove(&self, image: &str) -> Result<(), Error> {
        match &self.store {
            Some(store) => store.remove(image).await,
            None => Ok(()),
        }
    }

    /// Lists all uploads.
    pub async fn list(&self) -> Result<Vec<UploadFile>, Error> {
        match &self.store {
            Some(store) => store.list().await,
            None => Ok(Vec::new()),
        }
    }

    /// Removes what removals and broken requests left.
    pub async fn sweep(&self) -> Result<(), Error> {
        match &self.store {
            Some(store) => store.sweep().await,
            None => Ok(()),
        }
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

/// Writes `content`, which has at most `rest` bytes. The whole upload has at most `max`.
async fn copy(
    mut content: impl Stream<Item = Result<Bytes, Error>> + Send + Unpin,
    writer: &mut dyn UploadWriter,
    mut rest: u64,
    max: u64,
) -> Result<(), Error> {
    while let Some(bytes) = content.next().await {
        let bytes = bytes?;
        rest = rest.checked_sub(bytes.len() as u64).ok_or(Error::TooLong { max })?;
        writer.write(bytes).await?;
    }
    Ok(())
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
