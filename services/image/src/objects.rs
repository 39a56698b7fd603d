//! The object store: content as objects with names that are never used again.
//!
//! ```text
//! <directory>/blobs/<first two digits>/<digest>.<UUID>       an object
//! <directory>/blobs/<first two digits>/<digest>.<UUID>#<n>   an object that is being written
//! <directory>/uploads/<image id>                             an upload (module `uploads`)
//! ```
//!
//! An object is durable before its writer's [`Writer::finish`] returns.

use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::local::LocalFileSystem;
use object_store::{GetOptions, ObjectStore, ObjectStoreExt as _, WriteMultipart, path};
use uuid::Uuid;

/// Folder of objects.
const BLOBS: &str = "blobs";
/// Bytes of a part of an object that is written at once.
const PART_BYTES: usize = 8 << 20;
/// Parts that are written at the same time.
const MAX_CONCURRENT_PARTS: usize = 2;
/// Space that stays free for other uses of the disk, in bytes.
const RESERVED_BYTES: u64 = 2 << 30;
/// Divisor of the size of a small disk: a twentieth of it stays free.
const RESERVED_SHARE: u64 = 20;

/// An error of the object store.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The object store has no space.
    #[error("the object store is full")]
    Full,
    /// The object does not exist.
    #[error("object {0} is missing")]
    Missing(String),
    /// The content is not what it is stored as.
    #[error("content {0} is damaged")]
    Damaged(String, #[source] stored_image::Error),
    /// The object store failed.
    #[error("object store failed")]
    Store(#[source] object_store::Error),
    /// A file cannot be read or written.
    #[error("{path}")]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
}

impl Error {
    /// The error for the file `path`.
    pub(crate) fn file(path: &Path, source: io::Error) -> Self {
        let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
        match full.contains(&source.kind()) {
            true => Self::Full,
            false => Self::File { path: path.to_owned(), source },
        }
    }
}

impl From<object_store::Error> for Error {
    fn from(error: object_store::Error) -> Self {
        if let object_store::Error::NotFound { path, .. } = error {
            return Self::Missing(path);
        }
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
        while let Some(reason) = cause {
            let file = reason.downcast_ref::<io::Error>();
            if file.is_some_and(|it| it.kind() == io::ErrorKind::StorageFull) {
                return Self::Full;
            }
            cause = reason.source();
        }
        Self::Store(error)
    }
}

/// An object in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Name of the object.
    pub name: String,
    /// The time at which it was written.
    pub modified: SystemTime,
}

/// The objects of a site.
#[derive(Clone, Debug)]
pub struct Objects {
    store: Arc<dyn ObjectStore>,
    /// The directory with the objects; none in another kind of store.
    directory: Option<PathBuf>,
}

impl Objects {
    /// Opens the objects in `directory`, which is created if it is missing. Removes what a former
    /// process did not write to its end.
    pub fn open(directory: &Path) -> Result<Self, Error> {
        let blobs = directory.join(BLOBS);
        fs::create_dir_all(&blobs).map_err(|error| Error::file(&blobs, error))?;
        remove_unfinished(&blobs).map_err(|error| Error::file(&blobs, error))?;
        let store = LocalFileSystem::new_with_prefix(directory)?.with_fsync(true);
        Ok(Self { store: Arc::new(store), directory: Some(directory.to_owned()) })
    }

    /// The objects in `store`.
    pub fn new(store: Arc<dyn ObjectStore>) -> Self {
        Self { store, directory: None }
    }

    /// Returns a new name for an object with the content `digest`.
    pub fn new_name(digest: &str) -> String {
        format!("{digest}.{}", Uuid::new_v4())
    }

    /// Begins to write the object `name`.
    pub async fn write(&self, name: &str) -> Result<Writer, Error> {
        self.check_space()?;
        let upload = self.store.put_multipart(&location(name)).await?;
        Ok(Writer {
            upload: WriteMultipart::new_with_chunk_size(upload, PART_BYTES),
            objects: self.clone(),
            unchecked: 0,
        })
    }

    /// Returns the bytes `range` of the object `name`, and its size.
    pub async fn read(
        &self,
        name: &str,
        range: Option<Range<u64>>,
    ) -> Result<BoxStream<'static, Result<Bytes, Error>>, Error> {
        let options = GetOptions { range: range.map(Into::into), ..GetOptions::default() };
        let found = self.store.get_opts(&location(name), options).await?;
        Ok(found.into_stream().map_err(Error::from).boxed())
    }

    /// True if the object `name` exists with `size` bytes.
    pub async fn exists(&self, name: &str, size: u64) -> Result<bool, Error> {
        match self.store.head(&location(name)).await.map_err(Error::from) {
            Ok(found) => Ok(found.size == size),
            Err(Error::Missing(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes the object `name`, if it exists.
    pub async fn remove(&self, name: &str) -> Result<(), Error> {
        match self.store.delete(&location(name)).await.map_err(Error::from) {
            Ok(()) | Err(Error::Missing(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Lists all objects.
    pub fn list(&self) -> BoxStream<'static, Result<Object, Error>> {
        let objects = self.store.list(Some(&BLOBS.into())).map_err(Error::from);
        let object = |found: object_store::ObjectMeta| Object {
            name: found.location.filename().unwrap_or_default().to_owned(),
            modified: found.last_modified.into(),
        };
        objects.map_ok(object).boxed()
    }

    /// Passes if the store has space for more content.
    pub(crate) fn check_space(&self) -> Result<(), Error> {
        let Some(directory) = &self.directory else { return Ok(()) };
        let error = |error: rustix::io::Errno| Error::file(directory, error.into());
        let disk = rustix::fs::statvfs(directory).map_err(error)?;
        let size = disk.f_blocks.saturating_mul(disk.f_frsize);
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let reserve = RESERVED_BYTES.min(size / RESERVED_SHARE);
        if free > reserve { Ok(()) } else { Err(Error::Full) }
    }
}

/// An object that is being written.
#[derive(Debug)]
pub struct Writer {
    upload: WriteMultipart,
    objects: Objects,
    /// Bytes since the last look at the free space.
    unchecked: usize,
}

impl Writer {
    /// Appends `bytes`.
    pub async fn write(&mut self, bytes: Bytes) -> Result<(), Error> {
        self.unchecked += bytes.len();
        if self.unchecked >= PART_BYTES {
            self.unchecked = 0;
            self.objects.check_space()?;
        }
        self.upload.wait_for_capacity(MAX_CONCURRENT_PARTS).await?;
        self.upload.put(bytes);
        Ok(())
    }

    /// Makes the object durable, under its name.
    pub async fn finish(self) -> Result<(), Error> {
        self.upload.finish().await?;
        Ok(())
    }

    /// Removes what was written.
    pub async fn abort(self) -> Result<(), Error> {
        Ok(self.upload.abort().await?)
    }
}

/// Returns the place of the object `name` in the store.
fn location(name: &str) -> path::Path {
    let folder = name.get(..2).unwrap_or("__");
    path::Path::from_iter([BLOBS, folder, name])
}

/// Removes the files below `blobs` of objects that were not written to their end.
fn remove_unfinished(blobs: &Path) -> io::Result<()> {
    for folder in fs::read_dir(blobs)? {
        let folder = folder?;
        if !folder.file_type()?.is_dir() {
            continue;
        }
        for file in fs::read_dir(folder.path())? {
            let file = file?;
            if file.file_name().to_string_lossy().contains('#') {
                fs::remove_file(file.path())?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn bytes(stream: BoxStream<'static, Result<Bytes, Error>>) -> Vec<u8> {
        stream.try_collect::<Vec<_>>().await.unwrap().concat()
    }

    #[tokio::test]
    async fn an_object_has_its_bytes_until_it_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let objects = Objects::open(folder.path()).unwrap();
        let name = Objects::new_name("ab12");
        let mut writer = objects.write(&name).await.unwrap();
        writer.write(Bytes::from_static(b"hello ")).await.unwrap();
        writer.write(Bytes::from_static(b"world")).await.unwrap();
        assert!(objects.list().try_collect::<Vec<_>>().await.unwrap().is_empty());
        writer.finish().await.unwrap();
        assert!(objects.exists(&name, 11).await.unwrap());
        assert!(!objects.exists(&name, 12).await.unwrap());
        assert_eq!(bytes(objects.read(&name, None).await.unwrap()).await, b"hello world");
        assert_eq!(bytes(objects.read(&name, Some(6..11)).await.unwrap()).await, b"world");
        let listed: Vec<_> = objects.list().try_collect().await.unwrap();
        assert_eq!(listed.iter().map(|it| &it.name).collect::<Vec<_>>(), [&name]);
        objects.remove(&name).await.unwrap();
        objects.remove(&name).await.unwrap();
        assert!(matches!(objects.read(&name, None).await, Err(Error::Missing(_))));
    }

    #[tokio::test]
    async fn what_a_former_process_did_not_finish_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let objects = Objects::open(folder.path()).unwrap();
        let name = Objects::new_name("ab12");
        let mut writer = objects.write(&name).await.unwrap();
        writer.write(Bytes::from(vec![1; PART_BYTES])).await.unwrap();
        let files = || fs::read_dir(folder.path().join("blobs/ab")).unwrap().count();
        assert_eq!(files(), 1);
        std::mem::forget(writer); // as if the process were killed
        Objects::open(folder.path()).unwrap();
        assert_eq!(files(), 0);
    }
}
