//! Downloads the frames of blocks, and decodes them.

use bytes::{Bytes, BytesMut};
use stored_image::{BlockDecoder, MAX_RANGE_BYTES, ranges_to_fetch};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::error::Error;
use super::mapped_disk::{MappedDisk, length};
use crate::disk::block::Block;
use crate::download::{AttemptError, Caches, RangeReader, RangeSource};
use crate::error::Error as ActionError;
use crate::progress::Phase;

/// The compressed content of a block.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) index: usize,
    bytes: Bytes,
}

/// The stored file on the server. Its calls are for threads: they wait for the download.
#[derive(Debug)]
pub(super) struct StoredFile<'a> {
    pub(super) target: &'a MappedDisk,
    pub(super) source: &'a RangeSource,
    /// The URL, redacted.
    pub(super) url: &'a str,
    /// Cancelled once the download is of no use any more.
    pub(super) stop: &'a CancellationToken,
    pub(super) runtime: &'a Handle,
}

impl StoredFile<'_> {
    /// Downloads the frames of `blocks`, which ascend. Neighbours are requested together.
    pub(super) fn fetch(
        &self,
        blocks: Vec<usize>,
        frames: mpsc::Sender<Frame>,
    ) -> Result<(), ActionError> {
        self.runtime.block_on(self.send_all(blocks, frames))
    }

    async fn send_all(
        &self,
        blocks: Vec<usize>,
        frames: mpsc::Sender<Frame>,
    ) -> Result<(), ActionError> {
        let ranges = ranges_to_fetch(&self.target.map, blocks, MAX_RANGE_BYTES);
        let mut reader = self.reader(Caches::Allowed);
        for range in ranges.map_err(Error::Decoder)? {
            reader.seek(range.stored);
            for index in range.blocks {
                let frame = self.frame(&mut reader, index).await?;
                let sent = self.stop.run_until_cancelled(frames.send(frame)).await;
                if !matches!(sent, Some(Ok(()))) {
                    return Err(ActionError::Stopped);
                }
            }
        }
        Ok(())
    }

    /// Downloads the frame of the block `index` alone.
    pub(super) fn fetch_one(&self, index: usize, caches: Caches) -> Result<Frame, ActionError> {
        let mut reader = self.reader(caches);
        reader.seek(self.target.block(index)?.stored);
        self.runtime.block_on(self.frame(&mut reader, index))
    }

    /// Decodes `frame` into `content`, and checks the digest of the block. A damaged block is
    /// downloaded once more: a cache may have damaged it.
    pub(super) fn decode(
        &self,
        decoder: &mut BlockDecoder,
        frame: &Frame,
        content: &mut Block,
    ) -> Result<(), ActionError> {
        let Err(first) = self.decode_once(decoder, frame, content) else { return Ok(()) };
        tracing::warn!(url = self.url, error = %first, "block damaged: fetching it without caches");
        let frame = self.fetch_one(frame.index, Caches::Revalidated)?;
        let decoded = self.decode_once(decoder, &frame, content);
        decoded.map_err(|source| Error::Block { url: self.url.to_owned(), source }.into())
    }

    fn decode_once(
        &self,
        decoder: &mut BlockDecoder,
        frame: &Frame,
        content: &mut Block,
    ) -> Result<(), stored_image::Error> {
        let length = length(&self.target.map.block(frame.index)?);
        decoder.decode(&self.target.map, frame.index, &frame.bytes, content.space(length))
    }

    /// Reads the frame of the block `index` from a range that it is in.
    async fn frame(&self, reader: &mut RangeReader, index: usize) -> Result<Frame, ActionError> {
        let stored = self.target.block(index)?.stored;
        let length = usize::try_from(stored.end - stored.start).unwrap_or_default();
        reader.skip_to(stored.start);
        let mut bytes = BytesMut::with_capacity(length);
        while bytes.len() < length {
            let next = reader.next(length - bytes.len());
            let next = self.stop.run_until_cancelled(next).await;
            let next = next.ok_or(ActionError::Cancelled)??;
            self.target.tally.downloaded(next.len() as u64);
            bytes.extend_from_slice(&next);
        }
        Ok(Frame { index, bytes: bytes.freeze() })
    }

    fn reader(&self, caches: Caches) -> RangeReader {
        let tally = self.target.tally.clone();
        let on_wait =
            move |error: &AttemptError, _| tally.report(Phase::Waiting(error.to_string()));
        self.source.reader(caches, Box::new(on_wait))
    }
}
