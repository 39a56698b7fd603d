//! The bytes of a file as a stream, for responses.
//!
//! Bytes in the kernel's page cache are read at once: many machines request the same file, and handing
//! each piece to another thread takes longer than reading it. Other bytes are read by a thread that may
//! block.
//!
//! ```text
//! poll ─▶ is the end of the piece in the page cache? ─yes─▶ read it here
//!                                                    └no──▶ read a larger piece on a thread, and wait
//! ```

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::Stream;
use rustix::buffer::spare_capacity;
use rustix::io::{ReadWriteFlags, pread, preadv2, retry_on_intr};
use tokio::task::JoinHandle;

/// Size in bytes of a piece that is in the page cache. It is copied from there and to the socket while
/// it is in the processor's cache.
const CACHED_BYTES: u64 = 64 << 10;
/// Size of a piece that is on the disk.
const DISK_BYTES: u64 = 256 << 10;

/// Streams a part of a file. It ends after an error.
#[derive(Debug)]
pub struct FileStream {
    file: Arc<File>,
    /// The bytes that are not returned yet.
    rest: Range<u64>,
    /// A read from the disk.
    reading: Option<JoinHandle<io::Result<Bytes>>>,
}

impl FileStream {
    /// Streams the bytes `range` of `file`. It is an error if the file ends before the range does.
    pub fn new(file: File, range: Range<u64>) -> Self {
        Self { file: Arc::new(file), rest: range, reading: None }
    }

    /// Reads the next piece if it is in the page cache.
    fn read_cached(&self) -> Option<io::Result<Bytes>> {
        let end = self.rest.end.min(self.rest.start.saturating_add(CACHED_BYTES));
        let is_cached = is_cached(&self.file, end.saturating_sub(1));
        is_cached.then(|| read(&self.file, self.rest.start..end))
    }

    /// Begins to read the next piece on a thread that may block.
    fn read_disk(&self) -> JoinHandle<io::Result<Bytes>> {
        let end = self.rest.end.min(self.rest.start.saturating_add(DISK_BYTES));
        let (file, piece) = (self.file.clone(), self.rest.start..end);
        tokio::task::spawn_blocking(move || read(&file, piece))
    }
}

impl Stream for FileStream {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        let cached = if self.reading.is_none() { self.read_cached() } else { None };
        let piece = match cached {
            Some(piece) => piece,
            None => {
                let started = self.reading.take().unwrap_or_else(|| self.read_disk());
                let reading = self.reading.insert(started);
                let piece = ready!(Pin::new(reading).poll(context));
                self.reading = None;
                piece.unwrap_or_else(|ended| Err(io::Error::other(ended)))
            }
        };
        match &piece {
            Ok(bytes) => self.rest.start += bytes.len() as u64,
            Err(_) => self.rest.start = self.rest.end,
        }
        Poll::Ready(Some(piece))
    }
}

/// True if the byte at `offset` is in the page cache. False if the file system cannot tell. Bytes before
/// it are hardly ever absent then; if they are, the read waits for the disk.
fn is_cached(file: &File, offset: u64) -> bool {
    let mut byte = [0];
    let mut parts = [IoSliceMut::new(&mut byte)];
    preadv2(file, &mut parts, offset, ReadWriteFlags::NOWAIT) == Ok(1)
}

/// Reads the first bytes of `range`, which is not empty.
fn read(file: &File, range: Range<u64>) -> io::Result<Bytes> {
    let length = usize::try_from(range.end - range.start).map_err(io::Error::other)?;
    let mut bytes = Vec::with_capacity(length);
    retry_on_intr(|| pread(file, spare_capacity(&mut bytes), range.start))?;
    // The allocation may be larger than what was asked for.
    bytes.truncate(length);
    match bytes.is_empty() {
        true => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file was cut")),
        false => Ok(bytes.into()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::FileExt as _;

    use futures_util::TryStreamExt as _;
    use rustix::fs::{Advice, fadvise};

    use super::*;

    const SIZE: u64 = 5 * DISK_BYTES + 17;

    fn content() -> Vec<u8> {
        (0..SIZE).map(|at| (at / 7 % 251) as u8).collect()
    }

    fn file() -> File {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&content(), 0).unwrap();
        file.sync_all().unwrap();
        file
    }

    async fn all(file: File, range: Range<u64>) -> Vec<Bytes> {
        FileStream::new(file, range).try_collect().await.unwrap()
    }

    #[tokio::test]
    async fn any_range_is_streamed_from_the_page_cache_and_from_the_disk() {
        let ranges =
            [0..SIZE, 0..0, 0..1, 3..CACHED_BYTES + 4, CACHED_BYTES..DISK_BYTES, SIZE - 1..SIZE];
        for range in ranges {
            for is_cold in [false, true] {
                let file = file();
                if is_cold {
                    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
                }
                let expected = &content()[range.start as usize..range.end as usize];
                assert!(all(file, range.clone()).await.concat() == expected, "{range:?}");
            }
        }
    }

    #[tokio::test]
    async fn cached_bytes_are_read_by_this_thread() {
        let file = file();
        let mut stream = FileStream::new(file, 0..SIZE);
        let first = stream.try_next().await.unwrap().unwrap();
        assert_eq!(first.len() as u64, CACHED_BYTES);
        assert!(stream.reading.is_none());
    }

    #[tokio::test]
    async fn a_file_that_is_cut_is_an_error_and_the_end() {
        let file = file();
        file.set_len(CACHED_BYTES + 1).unwrap();
        let mut stream = FileStream::new(file, 0..SIZE);
        let mut received = 0;
        let error = loop {
            match stream.try_next().await {
                Ok(bytes) => received += bytes.unwrap().len() as u64,
                Err(error) => break error,
            }
        };
        assert_eq!((received, error.kind()), (CACHED_BYTES + 1, io::ErrorKind::UnexpectedEof));
        assert!(stream.try_next().await.unwrap().is_none());
    }
}
