//! Uploads as files: `<directory>/uploads/<image id>`.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _};
use tokio::fs::{self, File, OpenOptions};
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _, AsyncWriteExt as _};
use tokio_util::io::ReaderStream;

use super::{Begin, UPLOADS, UploadFile, UploadStore, UploadWriter};
use crate::blobs::BlobBytes;
use crate::error::Error;
use crate::objects::{self, Objects, create_private};

/// Bytes that are read of a file at once.
const READ_BYTES: usize = 256 << 10;
/// Bytes between two looks at the free space.
const SPACE_CHECK_BYTES: u64 = 16 << 20;

/// The files of uploads.
#[derive(Clone, Debug)]
pub(super) struct UploadFolder {
    directory: PathBuf,
    objects: Objects,
}

impl UploadFolder {
    /// Opens the uploads in `directory`, on the disk of `objects`.
    pub(super) fn open(directory: &Path, objects: Objects) -> Result<Self, objects::Error> {
        let directory = directory.join(UPLOADS);
        create_private(&directory).map_err(|error| objects::Error::file(&directory, error))?;
        Ok(Self { directory, objects })
    }
}

#[async_trait]
impl UploadStore for UploadFolder {
    async fn size(&self, image: &str) -> Result<u64, Error> {
        let path = self.directory.join(image);
        match fs::metadata(&path).await {
            Ok(found) => Ok(found.len()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(objects::Error::file(&path, error).into()),
        }
    }

    async fn read(&self, image: &str, range: Range<u64>) -> Result<BlobBytes, Error> {
        let path = self.directory.join(image);
        let opened = async {
            let mut file = File::open(&path).await?;
            file.seek(io::SeekFrom::Start(range.start)).await?;
            Ok(file.take(range.end.saturating_sub(range.start)))
        };
        let file = opened.await.map_err(|error| objects::Error::file(&path, error))?;
        let bytes = ReaderStream::with_capacity(file, READ_BYTES);
        Ok(bytes.map_err(move |error| objects::Error::file(&path, error)).boxed())
    }

    async fn write(&self, image: &str, begin: Begin) -> Result<Box<dyn UploadWriter>, Error> {
        self.objects.check_space()?;
        let offset = match begin {
            Begin::Continue(offset) | Begin::Checked(offset) => offset,
            Begin::Replace => 0,
        };
        let path = self.directory.join(image);
        let opened = async {
            let mut options = OpenOptions::new();
            let mut file = options.create(true).truncate(false).write(true).open(&path).await?;
            file.set_len(offset).await?;
            file.seek(io::SeekFrom::End(0)).await?;
            // The name of a new file is durable, too.
            File::open(&self.directory).await?.sync_all().await?;
            Ok(file)
        };
        let file = opened.await.map_err(|error| objects::Error::file(&path, error))?;
        let objects = self.objects.clone();
        Ok(Box::new(FileWriter { file, path, begin, size: offset, unchecked: 0, objects }))
    }

    async fn remove(&self, image: &str) -> Result<(), Error> {
        let path = self.directory.join(image);
        match fs::remove_file(&path).await {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(objects::Error::file(&path, error).into()),
        }
    }

    async fn list(&self) -> Result<Vec<UploadFile>, Error> {
        let listed = async {
            let (mut entries, mut files) = (fs::read_dir(&self.directory).await?, Vec::new());
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
        Ok(listed.await.map_err(|error| objects::Error::file(&self.directory, error))?)
    }

    /// Does nothing: a removed file is gone, and one that no image needs is removed.
    async fn sweep(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// A file that is being written.
struct FileWriter {
    file: File,
    path: PathBuf,
    begin: Begin,
    size: u64,
    /// Bytes since the last look at the free space.
    unchecked: u64,
    objects: Objects,
}

#[async_trait]
impl UploadWriter for FileWriter {
    async fn write(&mut self, bytes: Bytes) -> Result<(), Error> {
        let added = bytes.len() as u64;
        self.unchecked += added;
        if self.unchecked >= SPACE_CHECK_BYTES {
            self.unchecked = 0;
            self.objects.check_space()?;
        }
        let written = self.file.write_all(&bytes).await;
        written.map_err(|error| objects::Error::file(&self.path, error))?;
        self.size += added;
        Ok(())
    }

    async fn finish(mut self: Box<Self>) -> Result<u64, Error> {
        let synced = async {
            self.file.flush().await?;
            self.file.sync_all().await
        };
        synced.await.map_err(|error| objects::Error::file(&self.path, error))?;
        Ok(self.size)
    }

    /// Cuts off bytes without their checksum. The file of a broken replacement stays: the next one
    /// begins anew.
    async fn discard(mut self: Box<Self>) -> Result<(), Error> {
        let Begin::Checked(offset) = self.begin else { return Ok(()) };
        let cut = async {
            self.file.flush().await?;
            self.file.set_len(offset).await?;
            self.file.sync_all().await
        };
        Ok(cut.await.map_err(|error| objects::Error::file(&self.path, error))?)
    }
}
