//! The stages, each on threads of its own: they fetch, decode, write, zero and read back blocks.
//!
//! ```text
//! fetch ─frames─▶ decode (processors) ─▶ write ─┐
//!                    ▲     empty blocks    │    ├─▶ read back ─▶ blocks that need a flush before
//!                    └─────────────────────┘    │
//!                                   zero ───────┘
//! ```

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use stored_image::BlockDecoder;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::compare::MissingBlocks;
use super::error::Error;
use super::frames::{Frame, StoredFile};
use super::mapped_disk::{MappedDisk, length};
use super::tally::Origin;
use super::threads::{self, outcome};
use crate::disk::block::{Block, fingerprint};
use crate::error::Error as ActionError;
use crate::image2disk::runs::write;

/// Blocks in circulation besides one for each decoding thread: one being written, others queued.
const QUEUED_BLOCKS: usize = 4;
/// Maximum number of downloaded frames that wait for a thread.
const MAX_QUEUED_FRAMES: usize = 4;
/// Maximum number of written blocks that are not read back yet.
const MAX_UNVERIFIED: usize = 64;
/// Maximum number of neighbouring blocks that are zeroed by one command.
const MAX_ZEROED: usize = 64;

/// A block in memory, to be written.
#[derive(Debug)]
pub(super) struct DecodedBlock {
    index: usize,
    content: Block,
    fingerprint: u64,
}

/// A block on the disk, to be read back.
#[derive(Clone, Copy, Debug)]
pub(super) struct WrittenBlock {
    index: usize,
    fingerprint: u64,
    origin: Origin,
}

/// The stages.
pub(super) struct Stages<'a> {
    pub(super) target: &'a MappedDisk,
    pub(super) file: StoredFile<'a>,
    /// False if nothing is read back.
    pub(super) verify: bool,
    /// Cancelled by the first stage that fails, too.
    pub(super) stop: &'a CancellationToken,
}

impl DecodedBlock {
    pub(super) fn new(index: usize, content: Block) -> Self {
        Self { index, fingerprint: fingerprint(content.content()), content }
    }
}

impl Stages<'_> {
    /// Writes `first`, if there is one, and the `missing` blocks. Returns the blocks to read back
    /// once the disk is flushed.
    pub(super) fn run(
        &self,
        missing: MissingBlocks,
        first: Option<DecodedBlock>,
    ) -> Result<Vec<WrittenBlock>, ActionError> {
        let MissingBlocks { used, zero } = missing;
        let (frames_in, frames) = mpsc::channel(MAX_QUEUED_FRAMES);
        let (written_in, written) = sync_channel(MAX_UNVERIFIED);
        let zeroed_in = written_in.clone();
        thread::scope(|scope| {
            let fetching = scope.spawn(|| self.halting(self.file.fetch(used, frames_in)));
            let zeroing = scope.spawn(|| self.halting(self.zero(&zero, zeroed_in)));
            let reading = scope.spawn(|| self.halting(self.read_back(written)));
            let written = self.decode_and_write(frames, first, written_in);
            let (read, unverified) = end_and_value(outcome(reading));
            first_cause([outcome(fetching), written, outcome(zeroing), read])?;
            Ok(unverified)
        })
    }

    fn decode_and_write(
        &self,
        frames: mpsc::Receiver<Frame>,
        first: Option<DecodedBlock>,
        written: SyncSender<WrittenBlock>,
    ) -> Result<(), ActionError> {
        let block_count = threads::count() + QUEUED_BLOCKS;
        let (empty_in, empty) = sync_channel(block_count + 1);
        let (decoded_in, decoded) = sync_channel(block_count + 1);
        (0..block_count).for_each(|_| empty_in.send(Block::new()).unwrap_or_default());
        first.into_iter().for_each(|first| decoded_in.send(first).unwrap_or_default());
        let frames = &Mutex::new(frames);
        let empty = &Mutex::new(empty);
        thread::scope(|scope| {
            let decoding = vec![decoded_in; threads::count()].into_iter().map(|decoded| {
                scope.spawn(move || self.halting(self.decode(frames, empty, decoded)))
            });
            let decoding: Vec<_> = decoding.collect();
            let writing = self.halting(self.write(decoded, empty_in, written));
            first_cause(decoding.into_iter().map(outcome).chain([writing]))
        })
    }

    /// Reads `blocks` back after a flush.
    pub(super) fn verify_flushed(&self, blocks: &[WrittenBlock]) -> Result<(), ActionError> {
        let mut content = Block::new();
        blocks.iter().try_for_each(|block| self.verify(block, &mut content))
    }

    fn decode(
        &self,
        frames: &Mutex<mpsc::Receiver<Frame>>,
        empty: &Mutex<Receiver<Block>>,
        decoded: SyncSender<DecodedBlock>,
    ) -> Result<(), ActionError> {
        let mut decoder = BlockDecoder::new().map_err(Error::Decoder)?;
        loop {
            let Some(frame) = locked(frames).blocking_recv() else { return Ok(()) };
            let Ok(mut content) = locked(empty).recv() else { return Err(ActionError::Stopped) };
            self.file.decode(&mut decoder, &frame, &mut content)?;
            if decoded.send(DecodedBlock::new(frame.index, content)).is_err() {
                return Err(ActionError::Stopped);
            }
        }
    }

    fn write(
        &self,
        decoded: Receiver<DecodedBlock>,
        empty: SyncSender<Block>,
        written: SyncSender<WrittenBlock>,
    ) -> Result<(), ActionError> {
        for DecodedBlock { index, content, fingerprint } in decoded {
            self.check_running()?;
            let at = self.target.block(index)?.raw.start;
            write(&self.target.disk, at, content.content())?;
            let block = WrittenBlock { index, fingerprint, origin: Origin::Fetched };
            written.send(block).map_err(|_| ActionError::Stopped)?;
            // The decoders ended if nobody needs it.
            let _closed = empty.send(content);
        }
        Ok(())
    }

    /// Zeroes `blocks`, which ascend.
    fn zero(&self, blocks: &[usize], written: SyncSender<WrittenBlock>) -> Result<(), ActionError> {
        let zeroes = Block::new();
        for neighbours in blocks.chunk_by(|before, next| before + 1 == *next) {
            for run in neighbours.chunks(MAX_ZEROED) {
                self.check_running()?;
                self.zero_run(run)?;
                for index in run.iter().copied() {
                    let bytes = length(&self.target.block(index)?);
                    let content = zeroes.capacity().get(..bytes).unwrap_or_default();
                    let fingerprint = fingerprint(content);
                    let block = WrittenBlock { index, fingerprint, origin: Origin::Zero };
                    written.send(block).map_err(|_| ActionError::Stopped)?;
                }
            }
        }
        Ok(())
    }

    /// Zeroes neighbouring blocks.
    fn zero_run(&self, run: &[usize]) -> Result<(), ActionError> {
        let Some((first, last)) = run.first().zip(run.last()) else { return Ok(()) };
        let start = self.target.block(*first)?.raw.start;
        let end = self.target.block(*last)?.raw.end;
        Ok(self.target.disk.zero(start, end - start)?)
    }

    /// Verifies the blocks that arrive. Returns blocks whose content is in the page cache until a
    /// flush: they would not be read from the disk now.
    fn read_back(&self, written: Receiver<WrittenBlock>) -> Result<Vec<WrittenBlock>, ActionError> {
        let mut content = Block::new();
        let mut unflushed = Vec::new();
        for block in written {
            if self.verify && !self.target.disk.bypasses_cache() {
                unflushed.push(block);
                continue;
            }
            self.verify(&block, &mut content)?;
        }
        Ok(unflushed)
    }

    /// Compares a block on the disk with what was written, and counts it.
    fn verify(&self, written: &WrittenBlock, content: &mut Block) -> Result<(), ActionError> {
        self.check_running()?;
        let block = self.target.block(written.index)?;
        if self.verify {
            self.target.verify(&block, written.fingerprint, content)?;
        }
        self.target.tally.count(written.origin, length(&block) as u64);
        Ok(())
    }

    fn check_running(&self) -> Result<(), ActionError> {
        if self.stop.is_cancelled() { Err(ActionError::Cancelled) } else { Ok(()) }
    }

    /// Ends the other stages after a failure.
    fn halting<T>(&self, result: Result<T, ActionError>) -> Result<T, ActionError> {
        result.inspect_err(|_| self.stop.cancel())
    }
}

/// Returns the error that made the other stages end, if there is one.
fn first_cause(ends: impl IntoIterator<Item = Result<(), ActionError>>) -> Result<(), ActionError> {
    let is_consequence =
        |error: &ActionError| matches!(error, ActionError::Cancelled | ActionError::Stopped);
    let (consequences, causes): (Vec<_>, Vec<_>) =
        ends.into_iter().filter_map(Result::err).partition(is_consequence);
    match causes.into_iter().next() {
        Some(cause) => Err(cause),
        None if consequences.is_empty() => Ok(()),
        None => Err(ActionError::Cancelled),
    }
}

/// Splits the result of a stage into its end and its value.
fn end_and_value<T: Default>(result: Result<T, ActionError>) -> (Result<(), ActionError>, T) {
    match result {
        Ok(value) => (Ok(()), value),
        Err(error) => (Err(error), T::default()),
    }
}

fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
