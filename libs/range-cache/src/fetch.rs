//! Fetch of a range from the origin to the disk, as a task of its own: readers come and go.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tokio::sync::watch;
use tracing::Instrument as _;

use crate::disk::DataFile;
use crate::entry::{BegunFetch, FetchEnd, FetchFailure, FetchProgress, data_name};
use crate::files::CacheFiles;
use crate::origin::{OriginBody, OriginError, RangeOrigin};

/// A running fetch.
pub(crate) struct RangeFetch {
    files: Arc<CacheFiles>,
    origin: Arc<dyn RangeOrigin>,
    begun: BegunFetch,
}

impl RangeFetch {
    /// Starts the fetch `begun`, and returns its progress.
    pub(crate) fn start(
        files: Arc<CacheFiles>,
        origin: Arc<dyn RangeOrigin>,
        begun: BegunFetch,
    ) -> watch::Receiver<FetchProgress> {
        let progress = begun.progress.subscribe();
        let span = tracing::debug_span!("fetch", file = begun.entry.name, range = begun.index);
        tokio::spawn(Self { files, origin, begun }.run().instrument(span));
        progress
    }

    async fn run(mut self) {
        if let Err(failure) = self.steps().await {
            tracing::debug!(?failure, "range not stored");
            // After a failure of the disk, what was written may be lost. A response of another
            // length may be one of another file.
            let is_usable = matches!(failure, FetchFailure::Origin(OriginError::Unavailable(_)));
            if !is_usable && self.begun.end != FetchEnd::Absent {
                self.begun.end = FetchEnd::Partial(0);
            }
            self.begun.failure = Some(failure);
        }
    }

    async fn steps(&mut self) -> Result<(), FetchFailure> {
        let files = self.files.clone();
        let permit = files.fetches.acquire().await;
        let _permit = permit.map_err(|_| FetchFailure::NotStored)?;
        let data = self.prepare().await?;
        self.copy(&data).await?;
        self.store(&data).await
    }

    /// Makes room for the range, makes sure that no record says that it is stored, and opens the
    /// file.
    ///
    /// The kernel reports a failed write to each open file once: a fetch that shared its file with
    /// another one might never hear of it.
    async fn prepare(&mut self) -> Result<Arc<dyn DataFile>, FetchFailure> {
        let BegunFetch { end, index, .. } = self.begun;
        let entry = self.begun.entry.clone();
        let prepare = move |files: &CacheFiles| {
            let data = files.disk.open(&data_name(&entry.name), false)?;
            if end == FetchEnd::Absent {
                let range = entry.layout.range(index);
                return allocate(files, &*data, range).map(|is_room| is_room.then_some(data));
            }
            entry.clear_record(&*files.disk, index)?;
            Ok(Some(data))
        };
        match self.files.run(prepare).await {
            Ok(Some(data)) => {
                self.begun.end = FetchEnd::Partial(end.prefix());
                Ok(data)
            }
            Ok(None) => Err(FetchFailure::NotStored),
            Err(error) => Err(self.disk_failed("prepare a range", &error)),
        }
    }

    /// Writes the bytes of the range that are not yet there.
    async fn copy(&mut self, data: &Arc<dyn DataFile>) -> Result<(), FetchFailure> {
        let mut body = self.request().await?;
        let piece_bytes = self.files.limits.piece_bytes;
        let mut buffer = BytesMut::with_capacity(piece_bytes);
        loop {
            let next = body.next().await;
            if let Ok(Some(bytes)) = &next {
                self.files.origin_bytes.add(bytes.len() as u64);
                buffer.extend_from_slice(bytes);
            }
            let is_last = !matches!(next, Ok(Some(_)));
            if buffer.len() >= piece_bytes || is_last {
                self.write(data, buffer.split().freeze()).await?;
            }
            if next?.is_none() {
                return Ok(());
            }
        }
    }

    /// Requests the bytes of the range that are not yet there.
    async fn request(&self) -> Result<OriginBody, OriginError> {
        let entry = &self.begun.entry;
        let range = entry.layout.range(self.begun.index);
        let missing = range.start + self.begun.end.prefix()..range.end;
        let size = entry.layout.size;
        let request = OriginBody::request(&*self.origin, &entry.name, missing, size).await;
        if let Err(OriginError::WrongLength { .. }) = &request {
            entry.mark_wrong();
        }
        request
    }

    /// Writes `bytes` behind those that are there, and shows them to readers.
    async fn write(&mut self, data: &Arc<dyn DataFile>, bytes: Bytes) -> Result<(), FetchFailure> {
        let before = self.begun.end.prefix();
        let written = before + bytes.len() as u64;
        let offset = self.begun.entry.layout.range(self.begun.index).start + before;
        let data = data.clone();
        if let Err(error) = self.files.run(move |_| data.write_at(&bytes, offset)).await {
            return Err(self.disk_failed("write a range", &error));
        }
        self.begun.end = FetchEnd::Partial(written);
        self.begun.progress.send_modify(|progress| progress.written = written);
        Ok(())
    }

    /// Makes the range durable, then records it.
    async fn store(&mut self, data: &Arc<dyn DataFile>) -> Result<(), FetchFailure> {
        let data = data.clone();
        if let Err(error) = self.files.run(move |_| data.sync()).await {
            return Err(self.disk_failed("make a range durable", &error));
        }
        self.begun.end = FetchEnd::Stored;
        let entry = self.begun.entry.clone();
        let index = self.begun.index;
        let record = move |files: &CacheFiles| entry.set_record(&*files.disk, index);
        match self.files.run(record).await {
            Ok(()) => self.files.disk_worked(),
            // The range is there until the next start.
            Err(error) => self.files.disk_failed("record a range", &error),
        }
        Ok(())
    }

    fn disk_failed(&self, operation: &str, error: &io::Error) -> FetchFailure {
        self.files.disk_failed(operation, error);
        FetchFailure::NotStored
    }
}

/// Allocates the bytes `range`. False: they are over the limit.
fn allocate(files: &CacheFiles, data: &dyn DataFile, range: Range<u64>) -> io::Result<bool> {
    let length = range.end - range.start;
    if !files.reserve(length) {
        return Ok(false);
    }
    let allocated = match files.disk.free() {
        Ok(free) if free < length => Err(io::ErrorKind::StorageFull.into()),
        Ok(_) => data.allocate(range.clone()),
        Err(error) => Err(error),
    };
    if let Err(error) = &allocated {
        // A failed allocation may leave a part, which nobody uses. If it cannot be released either,
        // the limit is exceeded by that part.
        let _ = data.release(range);
        files.release(length);
        if error.kind() == io::ErrorKind::StorageFull {
            files.evict();
        }
    }
    allocated.map(|()| true)
}
