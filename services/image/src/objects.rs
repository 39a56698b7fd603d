//! The object store: content as objects with names that are never used again.
//!
//! ```text
//! blobs/<first two digits>/<digest>.<UUID>       an object
//! blobs/<first two digits>/<digest>.<UUID>#<n>   an object that is being written to a directory
//! uploads/…                                      uploads (module `uploads`)
//! ```
//!
//! The names are paths in a directory, or keys in a bucket. An object is durable before its writer's
//! [`Writer::finish`] returns. A bucket keeps the parts of an object that is being written until the
//! multipart upload is completed or aborted, and does not list them: [`Writer::upload_id`] names it.

use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use file_stream::FileStream;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::local::LocalFileSystem;
use object_store::{
    GetOptions, GetResultPayload, ObjectStore, ObjectStoreExt as _, WriteMultipart, path,
};
use uuid::Uuid;

use crate::s3::{Bucket, BucketUpload};

/// Folder of objects.
const BLOBS: &str = "blobs";
/// Minimum size in bytes of the parts in which an object is written.
const PART_BYTES: usize = 8 << 20;
/// Parts that are written at the same time.
const MAX_CONCURRENT_PARTS: usize = 2;
/// Space that stays free for other uses of the disk, in bytes.
const RESERVED_BYTES: u64 = 2 << 30;
/// Divisor of the size of a small disk: a twentieth of it stays free.
const RESERVED_SHARE: u64 = 20;
/// Number of parts that the largest content has in a bucket. S3 allows 10,000.
const PARTS_OF_LARGEST: u64 = 9000;
/// Texts in errors of S3 servers that are full, or whose quota is used up.
const FULL_TEXTS: [&str; 3] = ["QuotaExceeded</Code>", "StorageFull</Code>", "status code: 507"];

/// Text in errors of S3 servers without the bucket.
const NO_BUCKET_TEXT: &str = "NoSuchBucket</Code>";

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
        if causes(&error).any(is_full) {
            return Self::Full;
        }
        if let object_store::Error::NotFound { path, source } = &error
            && !is_bucket_missing(&**source)
        {
            return Self::Missing(path.clone());
        }
        Self::Store(error)
    }
}

/// Returns `error` and its causes.
fn causes<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |error| std::error::Error::source(*error))
}

/// True if `error` is the error of a full disk or of a full S3 server, which is known by its text.
fn is_full(error: &(dyn std::error::Error + 'static)) -> bool {
    match error.downcast_ref::<io::Error>() {
        Some(file) => file.kind() == io::ErrorKind::StorageFull,
        None => {
            let text = error.to_string();
            FULL_TEXTS.iter().any(|full| text.contains(full))
        }
    }
}

/// True if an S3 server has no bucket of this name: then nothing is known of the object.
fn is_bucket_missing(error: &(dyn std::error::Error + 'static)) -> bool {
    causes(error).any(|error| error.to_string().contains(NO_BUCKET_TEXT))
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
    medium: Medium,
    /// Size in bytes of the parts in which an object is written.
    part_bytes: usize,
}

/// Properties that differ between stores.
#[derive(Clone, Debug)]
enum Medium {
    /// A directory. A part of its disk stays free.
    Directory(PathBuf),
    /// A bucket. Multipart uploads have to be completed or aborted.
    Bucket(Bucket),
    /// A store of a test.
    Other,
}

impl Objects {
    /// Opens the objects in `directory`, which is created if it is missing. Removes what a former
    /// process did not write to its end.
    pub fn open(directory: &Path) -> Result<Self, Error> {
        let blobs = directory.join(BLOBS);
        create_private(&blobs).map_err(|error| Error::file(&blobs, error))?;
        remove_unfinished(&blobs).map_err(|error| Error::file(&blobs, error))?;
        let store = LocalFileSystem::new_with_prefix(directory)?.with_fsync(true);
        let medium = Medium::Directory(directory.to_owned());
        Ok(Self { store: Arc::new(store), medium, part_bytes: PART_BYTES })
    }

    /// The objects in `bucket`, each with at most `max_bytes`.
    pub(crate) fn in_bucket(bucket: Bucket, max_bytes: u64) -> Self {
        let part_bytes = usize::try_from(max_bytes / PARTS_OF_LARGEST).unwrap_or(usize::MAX);
        let part_bytes = part_bytes.max(PART_BYTES);
        Self { store: bucket.clone(), medium: Medium::Bucket(bucket), part_bytes }
    }

    /// The objects in `store`.
    pub fn new(store: Arc<dyn ObjectStore>) -> Self {
        Self { store, medium: Medium::Other, part_bytes: PART_BYTES }
    }

    /// Returns a new name for an object with the content `digest`.
    pub fn new_name(digest: &str) -> String {
        format!("{digest}.{}", Uuid::new_v4())
    }

    /// Begins to write the object `name`.
    pub async fn write(&self, name: &str) -> Result<Writer, Error> {
        self.check_space()?;
        let location = location(name);
        let (upload, upload_id) = match &self.medium {
            Medium::Bucket(bucket) => {
                let upload = BucketUpload::begin(bucket.clone(), location).await?;
                let id = upload.id().to_owned();
                (Box::new(upload) as _, id)
            }
            Medium::Directory(_) | Medium::Other => {
                (self.store.put_multipart(&location).await?, String::new())
            }
        };
        let upload = WriteMultipart::new_with_chunk_size(upload, self.part_bytes);
        Ok(Writer { upload, upload_id, objects: self.clone(), unchecked: 0 })
    }

    /// Aborts the multipart upload `id` of the object `name`, unless it has ended.
    pub(crate) async fn abort(&self, name: &str, id: &str) -> Result<(), Error> {
        let Medium::Bucket(bucket) = &self.medium else { return Ok(()) };
        match BucketUpload::abort(bucket, &location(name), id).await.map_err(Error::from) {
            Ok(()) | Err(Error::Missing(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Returns the bytes `range` of the object `name`, and its size.
    pub async fn read(
        &self,
        name: &str,
        range: Option<Range<u64>>,
    ) -> Result<BoxStream<'static, Result<Bytes, Error>>, Error> {
        let options = GetOptions { range: range.map(Into::into), ..GetOptions::default() };
        let found = self.store.get_opts(&location(name), options).await?;
        let range = found.range.clone();
        match found.payload {
            GetResultPayload::File(file, path) => {
                let bytes = FileStream::new(file, range);
                Ok(bytes.map_err(move |error| Error::file(&path, error)).boxed())
            }
            GetResultPayload::Stream(bytes) => Ok(bytes.map_err(Error::from).boxed()),
        }
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
        let Medium::Directory(directory) = &self.medium else { return Ok(()) };
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
    /// Empty in a store that forgets an unfinished object.
    upload_id: String,
    objects: Objects,
    /// Bytes since the last look at the free space.
    unchecked: usize,
}

impl Writer {
    /// Returns the id of the multipart upload, which has to be completed or aborted; empty if there
    /// is none.
    pub(crate) fn upload_id(&self) -> &str {
        &self.upload_id
    }

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

/// Returns the location of the object `name` in the store.
fn location(name: &str) -> path::Path {
    let folder = name.get(..2).unwrap_or("__");
    path::Path::from_iter([BLOBS, folder, name])
}

/// Creates `directory` if it is missing, for this user only: tenants trust it with their disks.
pub(crate) fn create_private(directory: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
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

    #[test]
    fn a_missing_bucket_is_no_missing_object() {
        for (code, is_missing) in [("NoSuchKey", true), ("NoSuchBucket", false)] {
            let source = format!("404 Not Found: <Error><Code>{code}</Code></Error>").into();
            let error = Error::from(object_store::Error::NotFound { path: "x".into(), source });
            assert_eq!(matches!(error, Error::Missing(_)), is_missing, "{error:?}");
        }
    }

    #[test]
    fn a_full_server_is_known_by_its_answer() {
        for (text, is_full) in [
            ("status code: 507 Insufficient Storage: ", true),
            ("status code: 403 Forbidden: <Error><Code>QuotaExceeded</Code></Error>", true),
            ("status code: 507: <Error><Code>XMinioStorageFull</Code></Error>", true),
            ("status code: 403 Forbidden: <Error><Code>AccessDenied</Code></Error>", false),
        ] {
            let source = text.into();
            let error = Error::from(object_store::Error::Generic { store: "S3", source });
            assert_eq!(matches!(error, Error::Full), is_full, "{text}");
        }
    }
}
