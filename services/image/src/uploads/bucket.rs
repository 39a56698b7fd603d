//! Uploads in a bucket.
//!
//! ```text
//! uploads/<image id>/<upload>/<run>.<part>     an object; keys are never used again
//! image/upload/<image id>                      the upload, with its UUID and its durable bytes
//! image/run/<upload>.<number>                  the bytes that one request sent
//! ```
//!
//! A request stores its body in objects of [`PART_BYTES`], except the last one. After each of them, or
//! at its end if the body counts as a whole, it commits its run and the upload, as they were read. So
//! the bytes of one of two requests count, also if two processes serve them.
//!
//! An upload has a record before it has objects, and loses the record before them. So an object whose
//! upload has no record is garbage whenever it is seen.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use object_store::path::Path;
use object_store::{GetOptions, ObjectStore, ObjectStoreExt as _};
use runtime::Clock;
use store::ScopedStore;
use store::records::{self, Records};
use uuid::Uuid;

use super::{Begin, UPLOADS, UploadFile, UploadStore, UploadWriter};
use crate::blobs::BlobBytes;
use crate::error::Error;
use crate::objects;
use crate::stored::{RunKind, StoredUpload, UploadKind, UploadRun};

/// Bytes of an object.
const PART_BYTES: usize = 8 << 20;
/// Records of one page.
const PAGE_RECORDS: usize = 200;

/// Uploads that a sweep has looked up, and whether they are garbage.
type Lookups = BTreeMap<String, bool>;

/// The bucket and the records of uploads.
#[derive(Clone, Debug)]
pub struct UploadRecords {
    bucket: Arc<dyn ObjectStore>,
    uploads: Records<UploadKind>,
    runs: Records<RunKind>,
    clock: Clock,
}

impl UploadRecords {
    /// The uploads in `bucket`, with records in `store`.
    pub fn new(bucket: Arc<dyn ObjectStore>, store: ScopedStore, clock: Clock) -> Self {
        let runs = Records::new(store.clone());
        Self { bucket, uploads: Records::new(store), runs, clock }
    }

    /// Returns the upload of `image`. Adds one if there is none.
    async fn begun(&self, image: &str) -> Result<StoredUpload, Error> {
        if let Some(upload) = self.uploads.get(image).await? {
            return Ok(upload);
        }
        let upload = StoredUpload {
            id: image.to_owned(),
            uuid: Uuid::new_v4().to_string(),
            write_time: Some(self.clock.wall().into()),
            ..StoredUpload::default()
        };
        let change = self.uploads.to_create(&upload);
        let revision = self.uploads.commit(change).await.map_err(|error| busy(image, error))?;
        Ok(StoredUpload { revision: revision.0.cast_signed(), ..upload })
    }

    /// Returns where the bytes `wanted` of `upload` are, in their order.
    async fn pieces(&self, upload: &StoredUpload, wanted: Range<u64>) -> Result<Vec<Piece>, Error> {
        let counted = run_id(upload, upload.first_run)..run_id(upload, upload.next_run);
        let (mut pieces, mut begin, mut after) = (Vec::new(), 0_u64, String::new());
        loop {
            let (page, more) = self.runs.page(&upload.uuid, &after, PAGE_RECORDS).await?;
            for run in page.iter().filter(|run| counted.contains(&run.id)) {
                let from = wanted.start.saturating_sub(begin);
                let to = wanted.end.saturating_sub(begin).min(run.size_bytes);
                pieces.extend(run_pieces(run, from..to));
                begin = begin.saturating_add(run.size_bytes);
            }
            match page.last().filter(|_| more) {
                Some(last) => after.clone_from(&last.id),
                None => return Ok(pieces),
            }
        }
    }

    /// Removes the runs of which no upload has a record, among those whose ids begin with `prefix`.
    async fn sweep_runs(&self, prefix: &str) -> Result<(), Error> {
        let (mut lookups, mut after) = (Lookups::default(), String::new());
        loop {
            let (page, more) = self.runs.page(prefix, &after, PAGE_RECORDS).await?;
            for run in &page {
                if self.is_garbage(&run.image, &run.upload, &mut lookups).await? {
                    match self.runs.commit(self.runs.to_delete(run)).await {
                        Ok(_) | Err(records::Error::Changed { .. }) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
            }
            match page.last().filter(|_| more) {
                Some(last) => after.clone_from(&last.id),
                None => return Ok(()),
            }
        }
    }

    /// Removes the objects below `folder` of which no upload has a record.
    async fn sweep_objects(&self, folder: &Path) -> Result<(), Error> {
        let mut lookups = Lookups::default();
        let mut objects = self.bucket.list(Some(folder));
        while let Some(object) = objects.try_next().await.map_err(objects::Error::from)? {
            let names: Vec<_> = object.location.parts().collect();
            let [_, image, upload, _] = names.as_slice() else { continue };
            if self.is_garbage(image.as_ref(), upload.as_ref(), &mut lookups).await? {
                self.delete(&object.location).await?;
            }
        }
        Ok(())
    }

    /// True if the record of `image` does not name `upload`, which is never used again then.
    async fn is_garbage(
        &self,
        image: &str,
        upload: &str,
        lookups: &mut Lookups,
    ) -> Result<bool, Error> {
        if let Some(is_garbage) = lookups.get(upload) {
            return Ok(*is_garbage);
        }
        let is_garbage = self.uploads.get(image).await?.is_none_or(|found| found.uuid != upload);
        lookups.insert(upload.to_owned(), is_garbage);
        Ok(is_garbage)
    }

    async fn delete(&self, location: &Path) -> Result<(), objects::Error> {
        match self.bucket.delete(location).await.map_err(objects::Error::from) {
            Ok(()) | Err(objects::Error::Missing(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Uploads in a bucket.
#[derive(Debug)]
pub(super) struct UploadBucket(UploadRecords);

impl UploadBucket {
    /// The uploads of `records`.
    pub(super) fn new(records: UploadRecords) -> Self {
        Self(records)
    }
}

#[async_trait]
impl UploadStore for UploadBucket {
    async fn size(&self, image: &str) -> Result<u64, Error> {
        Ok(self.0.uploads.get(image).await?.map_or(0, |upload| upload.size_bytes))
    }

    async fn read(&self, image: &str, range: Range<u64>) -> Result<BlobBytes, Error> {
        let upload = self.0.uploads.require(image).await?;
        let pieces = self.0.pieces(&upload, range).await?;
        let bucket = self.0.bucket.clone();
        let bytes = stream::iter(pieces).then(move |Piece { object, range }| {
            let bucket = bucket.clone();
            async move {
                let options = GetOptions { range: Some(range.into()), ..GetOptions::default() };
                let found = bucket.get_opts(&object, options).await;
                found.map(object_store::GetResult::into_stream)
            }
        });
        Ok(bytes.try_flatten().map_err(objects::Error::from).boxed())
    }

    async fn write(&self, image: &str, begin: Begin) -> Result<Box<dyn UploadWriter>, Error> {
        let upload = self.0.begun(image).await?;
        if let Begin::Continue(offset) | Begin::Checked(offset) = begin
            && offset != upload.size_bytes
        {
            return Err(Error::Offset { sent: offset, expected: upload.size_bytes });
        }
        let run = UploadRun {
            id: run_id(&upload, upload.next_run),
            image: image.to_owned(),
            upload: upload.uuid.clone(),
            name: Uuid::new_v4().to_string(),
            part_bytes: PART_BYTES as u64,
            ..UploadRun::default()
        };
        let records = self.0.clone();
        let buffer = BytesMut::new();
        Ok(Box::new(RunWriter { records, begin, before: upload.clone(), upload, run, buffer }))
    }

    async fn remove(&self, image: &str) -> Result<(), Error> {
        let Some(upload) = self.0.uploads.get(image).await? else { return Ok(()) };
        match self.0.uploads.commit(self.0.uploads.to_delete(&upload)).await {
            Ok(_) => {}
            // A request wrote to it, or another process removed it: the next look sees that.
            Err(records::Error::Changed { .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        self.0.sweep_runs(&upload.uuid).await?;
        self.0.sweep_objects(&folder(&upload)).await
    }

    async fn list(&self) -> Result<Vec<UploadFile>, Error> {
        let (mut files, mut after) = (Vec::new(), String::new());
        loop {
            let (page, more) = self.0.uploads.page("", &after, PAGE_RECORDS).await?;
            files.extend(page.iter().map(file));
            match page.last().filter(|_| more) {
                Some(last) => after.clone_from(&last.id),
                None => return Ok(files),
            }
        }
    }

    async fn sweep(&self) -> Result<(), Error> {
        self.0.sweep_runs("").await?;
        self.0.sweep_objects(&UPLOADS.into()).await
    }
}

/// A request that writes a run.
struct RunWriter {
    records: UploadRecords,
    begin: Begin,
    /// The upload before the request.
    before: StoredUpload,
    /// The upload as it is stored.
    upload: StoredUpload,
    /// The run, with all objects that were stored. It has a revision once it counts.
    run: UploadRun,
    /// Bytes that are not stored.
    buffer: BytesMut,
}

impl RunWriter {
    /// Stores what is in the buffer as an object.
    async fn put(&mut self) -> Result<(), Error> {
        let bytes = self.buffer.split().freeze();
        let begin = self.run.size_bytes;
        let end = begin + bytes.len() as u64;
        for location in run_parts(&self.run, begin..end) {
            let stored = self.records.bucket.put(&location, bytes.clone().into()).await;
            stored.map_err(objects::Error::from)?;
        }
        self.run.size_bytes = end;
        Ok(())
    }

    /// Lets the stored bytes count.
    async fn commit(&mut self) -> Result<(), Error> {
        let number = self.before.next_run;
        let (first_run, before) = match self.begin {
            Begin::Continue(_) | Begin::Checked(_) => {
                (self.before.first_run, self.before.size_bytes)
            }
            Begin::Replace => (number, 0),
        };
        let upload = StoredUpload {
            size_bytes: before + self.run.size_bytes,
            first_run,
            next_run: number + 1,
            write_time: Some(self.records.clock.wall().into()),
            ..self.upload.clone()
        };
        let UploadRecords { uploads, runs, .. } = &self.records;
        let run = match self.run.revision {
            0 => runs.to_create(&self.run),
            _ => runs.to_replace(&self.run, &self.run),
        };
        let change = uploads.to_replace(&self.upload, &upload).and(run);
        let committed = uploads.commit(change).await;
        let revision = committed.map_err(|error| busy(&self.run.image, error))?;
        self.run.revision = revision.0.cast_signed();
        self.upload = StoredUpload { revision: self.run.revision, ..upload };
        Ok(())
    }
}

#[async_trait]
impl UploadWriter for RunWriter {
    async fn write(&mut self, mut bytes: Bytes) -> Result<(), Error> {
        while !bytes.is_empty() {
            let room = PART_BYTES - self.buffer.len();
            let added = bytes.split_to(room.min(bytes.len()));
            self.buffer.extend_from_slice(&added);
            if added.len() == room {
                self.put().await?;
                if matches!(self.begin, Begin::Continue(_)) {
                    self.commit().await?;
                }
            }
        }
        Ok(())
    }

    async fn finish(mut self: Box<Self>) -> Result<u64, Error> {
        if !self.buffer.is_empty() {
            self.put().await?;
        }
        let counted = self.upload.size_bytes == self.before.size_bytes + self.run.size_bytes;
        if !counted || self.begin == Begin::Replace {
            self.commit().await?;
        }
        Ok(self.upload.size_bytes)
    }

    async fn discard(mut self: Box<Self>) -> Result<(), Error> {
        for location in run_parts(&self.run, 0..self.run.size_bytes) {
            // Best effort: else they go with the upload.
            let _removed = self.records.delete(&location).await;
        }
        Ok(())
    }
}

/// Returns the id of a run.
fn run_id(upload: &StoredUpload, number: u64) -> String {
    format!("{}.{number:020}", upload.uuid)
}

/// Returns the folder of the objects of `upload`.
fn folder(upload: &StoredUpload) -> Path {
    Path::from_iter([UPLOADS, &upload.id, &upload.uuid])
}

/// Bytes of an object.
struct Piece {
    object: Path,
    range: Range<u64>,
}

/// Returns where the bytes `wanted` of `run` are, in their order. There are none if `wanted` is empty.
fn run_pieces(run: &UploadRun, wanted: Range<u64>) -> impl Iterator<Item = Piece> {
    let size = run.part_bytes.max(1);
    let objects = if wanted.is_empty() { 0..0 } else { wanted.clone() };
    let first = objects.start / size;
    run_parts(run, objects).zip(first..).map(move |(object, number)| {
        let begin = number * size;
        let range = wanted.start.saturating_sub(begin)..(wanted.end - begin).min(size);
        Piece { object, range }
    })
}

/// Returns the locations of the objects with the bytes `range` of `run`.
fn run_parts(run: &UploadRun, range: Range<u64>) -> impl Iterator<Item = Path> {
    let size = run.part_bytes.max(1);
    let numbers = range.start / size..range.end.div_ceil(size);
    let UploadRun { image, upload, name, .. } = run.clone();
    numbers.map(move |number| {
        let part = format!("{name}.{number}");
        Path::from_iter([UPLOADS, &image, &upload, &part])
    })
}

fn file(upload: &StoredUpload) -> UploadFile {
    let modified = upload.write_time.and_then(|time| SystemTime::try_from(time).ok());
    UploadFile {
        image_id: upload.id.clone(),
        size: upload.size_bytes,
        modified: modified.unwrap_or(SystemTime::UNIX_EPOCH),
    }
}

/// Returns the error of a commit that another request may have prevented.
fn busy(image: &str, error: records::Error) -> Error {
    let is_late = matches!(
        error,
        records::Error::Changed { .. }
            | records::Error::Exists { .. }
            | records::Error::Missing { .. }
    );
    if is_late { Error::UploadBusy(image.to_owned()) } else { error.into() }
}
