//! Reader of a cached file: from disk, from a running fetch, or from the origin if the range cannot
//! be stored.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, stream};
use tokio::sync::watch;

use crate::entry::{FetchFailure, FetchProgress, RangeAccess};
use crate::fetch::RangeFetch;
use crate::files::{CacheFiles, OpenEntry};
use crate::layout::RangeLayout;
use crate::origin::{OriginBody, OriginError, RangeOrigin};

/// An open file of a cache. None of its ranges is removed while it or a reader of it exists.
#[derive(Clone)]
pub struct CachedFile {
    files: Arc<CacheFiles>,
    origin: Arc<dyn RangeOrigin>,
    name: Arc<str>,
    layout: RangeLayout,
    /// None: the file cannot be stored.
    open: Option<OpenEntry>,
}

/// Whether bytes on disk may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// They are used.
    Cached,
    /// Ranges are fetched again, and replaced on disk: the reader found wrong bytes. A fetch that
    /// is running already counts as fresh.
    Refetched,
}

impl CachedFile {
    /// Returns the file `name` with `size` bytes. Bytes that are not on disk come from `origin`.
    pub(crate) fn new(
        files: Arc<CacheFiles>,
        origin: Arc<dyn RangeOrigin>,
        name: &str,
        size: u64,
        open: Option<OpenEntry>,
    ) -> Self {
        let layout = RangeLayout { size, range_bytes: files.limits.range_bytes };
        Self { files, origin, name: name.into(), layout, open }
    }

    /// Returns the size of the file.
    pub fn size(&self) -> u64 {
        self.layout.size
    }

    /// Returns the bytes of `range` that the file has. Nothing is fetched before the stream is
    /// polled. The stream ends after an error.
    pub fn read(
        &self,
        range: Range<u64>,
        freshness: Freshness,
    ) -> impl Stream<Item = Result<Bytes, OriginError>> + Send + 'static {
        let reader = RangeReader {
            file: self.clone(),
            position: range.start,
            end: range.end.min(self.size()),
            freshness,
            source: None,
        };
        stream::unfold(reader, |mut reader| async move { Some((reader.next().await?, reader)) })
    }

    /// Returns the source of the range `index`. None: the range cannot be stored.
    fn source(&self, index: u64, freshness: Freshness) -> Option<RangeSource> {
        let open = self.open.as_ref()?;
        Some(match open.entry.access(index, freshness == Freshness::Refetched) {
            RangeAccess::Stored => RangeSource::Disk,
            RangeAccess::Joined(progress) => RangeSource::Fetch(progress, false),
            RangeAccess::Begun(begun) => {
                let origin = self.origin.clone();
                RangeSource::Fetch(RangeFetch::start(self.files.clone(), origin, begun), true)
            }
        })
    }

    /// Returns the first bytes of `range`, which is stored. None: the disk failed.
    async fn stored_piece(&self, range: Range<u64>) -> Option<Bytes> {
        let bytes = self.read_disk(range).await?;
        self.files.hit_bytes.add(bytes.len() as u64);
        Some(bytes)
    }

    /// Returns the first bytes of `range`, which is being fetched. None: it is not stored.
    async fn fetched_piece(
        &self,
        range: Range<u64>,
        progress: &mut watch::Receiver<FetchProgress>,
        is_own: bool,
    ) -> Result<Option<Bytes>, OriginError> {
        let start = self.layout.range(self.layout.index(range.start)).start;
        let written = match written_beyond(progress, range.start - start).await {
            Ok(written) => written,
            Err(FetchFailure::Origin(error)) => return Err(error),
            Err(FetchFailure::NotStored) => return Ok(None),
        };
        let readable = range.start..range.end.min(start + written);
        match is_own {
            true => Ok(self.read_disk(readable).await),
            false => Ok(self.stored_piece(readable).await),
        }
    }

    /// Requests `range` from the origin, not to be stored.
    async fn request(&self, range: Range<u64>) -> Result<OriginBody, OriginError> {
        OriginBody::request(&*self.origin, &self.name, range, self.layout.size).await
    }

    /// Returns the first bytes of `range`, which is on disk. None: the disk failed.
    async fn read_disk(&self, range: Range<u64>) -> Option<Bytes> {
        let OpenEntry { entry, data } = self.open.clone()?;
        let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let length = length.min(self.files.limits.piece_bytes);
        let read = move |_: &CacheFiles| {
            let mut bytes = vec![0; length];
            data.read_at(&mut bytes, range.start)?;
            Ok(Bytes::from(bytes))
        };
        let read = self.files.run(read).await.inspect_err(|error| {
            self.files.disk_failed("read a range", error);
            entry.forget(self.layout.index(range.start));
        });
        read.ok()
    }
}

impl fmt::Debug for CachedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { files: _, origin: _, name, layout, open } = self;
        let mut all = f.debug_struct("CachedFile");
        all.field("name", name).field("layout", layout).field("open", open).finish_non_exhaustive()
    }
}

/// Position in a file.
struct RangeReader {
    file: CachedFile,
    position: u64,
    end: u64,
    freshness: Freshness,
    /// Source of the range that is being read.
    source: Option<RangeSource>,
}

/// Source of the bytes of a range.
enum RangeSource {
    /// They are on disk.
    Disk,
    /// A fetch writes them. True: this reader started it.
    Fetch(watch::Receiver<FetchProgress>, bool),
    /// They come from the origin, up to the end of the range.
    Origin(OriginBody),
}

impl RangeReader {
    /// Returns the next bytes, or None at the end.
    async fn next(&mut self) -> Option<Result<Bytes, OriginError>> {
        if self.position >= self.end {
            return None;
        }
        let piece = self.piece().await;
        match &piece {
            Ok(bytes) => {
                let index = self.file.layout.index(self.position);
                self.position += bytes.len() as u64;
                if self.file.layout.index(self.position) != index {
                    self.source = None;
                }
            }
            Err(_) => self.end = self.position,
        }
        Some(piece)
    }

    /// Returns the next bytes. They are of one range.
    async fn piece(&mut self) -> Result<Bytes, OriginError> {
        let Self { file, position, end, freshness, source } = self;
        let index = file.layout.index(*position);
        let range = *position..file.layout.range(index).end.min(*end);
        let mut current = source.take().or_else(|| file.source(index, *freshness));
        let cached = match &mut current {
            Some(RangeSource::Disk) => file.stored_piece(range.clone()).await,
            Some(RangeSource::Fetch(progress, is_own)) => {
                file.fetched_piece(range.clone(), progress, *is_own).await?
            }
            Some(RangeSource::Origin(_)) | None => None,
        };
        if let Some(bytes) = cached {
            *source = current;
            return Ok(bytes);
        }
        let mut body = match current {
            Some(RangeSource::Origin(body)) => body,
            Some(RangeSource::Disk | RangeSource::Fetch(..)) | None => file.request(range).await?,
        };
        let bytes = body.next().await?.unwrap_or_default();
        file.files.origin_bytes.add(bytes.len() as u64);
        *source = Some(RangeSource::Origin(body));
        Ok(bytes)
    }
}

/// Waits until a fetch has written more than `length` bytes, and returns their number.
async fn written_beyond(
    progress: &mut watch::Receiver<FetchProgress>,
    length: u64,
) -> Result<u64, FetchFailure> {
    let is_ready = |now: &FetchProgress| now.written > length || now.failure.is_some();
    let Ok(now) = progress.wait_for(is_ready).await else {
        return Err(OriginError::Unavailable("the fetch ended early".into()).into());
    };
    match &now.failure {
        Some(FetchFailure::NotStored) => Err(FetchFailure::NotStored),
        Some(failure) if now.written <= length => Err(failure.clone()),
        Some(FetchFailure::Origin(_)) | None => Ok(now.written),
    }
}
