//! The encoder: raw bytes in, stored file and map out.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Write};
use std::num::NonZero;

use tinwright::image::v1 as pb;

use crate::digest::{Digest, Sum};
use crate::error::Error;
use crate::map::{self, CheckedMap, DEFAULT_BLOCK_BYTES, MAX_BLOCK_BYTES, MAX_BLOCKS};
use crate::workers::{Work, Workers};
use crate::{frame, seek_table, zeros};

/// Level of compression, unless another one is chosen.
const DEFAULT_LEVEL: i32 = 6;
/// Blocks in memory for each thread: one that it compresses, one that waits.
const BLOCKS_PER_THREAD: usize = 2;
/// Operation that errors of the output name.
const WRITING: &str = "writing the stored image";

/// Settings of an [`Encoder`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncoderSettings {
    /// Level of compression of zstd. The default is 6.
    pub level: i32,
    /// Number of threads that compress. The default is the number of processors.
    pub threads: NonZero<usize>,
    /// Raw size of a block in bytes: a power of two from 64 KiB to 16 MiB. The default is 4 MiB.
    pub block_bytes: u32,
}

impl Default for EncoderSettings {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
        Self { level: DEFAULT_LEVEL, threads, block_bytes: DEFAULT_BLOCK_BYTES }
    }
}

impl EncoderSettings {
    fn check(&self) -> Result<(), Error> {
        let invalid = |field, problem, value: i64| Err(Error::Settings { field, problem, value });
        if !map::is_block_size(self.block_bytes) {
            let range = format!("{}..={MAX_BLOCK_BYTES}", map::MIN_BLOCK_BYTES);
            let problem = format!("not a power of two in {range}");
            return invalid("block_bytes", problem, self.block_bytes.into());
        }
        match frame::levels().contains(&self.level) {
            true => Ok(()),
            false => invalid("level", format!("not in {:?}", frame::levels()), self.level.into()),
        }
    }
}

/// A stored image that was written completely.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedImage {
    /// Map of the image.
    pub map: CheckedMap,
    /// Number of raw bytes in blocks that are not all zeros.
    pub used_bytes: u64,
}

/// Writes the stored form of the raw bytes that are written to it. [`finish`](Self::finish) writes
/// the end and returns the map.
///
/// Blocks are compressed by several threads and written in order. Memory holds a few blocks for
/// each thread. After an error the stored file is incomplete, and `finish` fails.
pub struct Encoder<W> {
    out: W,
    settings: EncoderSettings,
    workers: Workers,
    /// Block that is being filled, with fewer bytes than a block has.
    open: Work,
    /// Buffers without a block.
    spare: Vec<Work>,
    /// Blocks that are compressed and not written yet.
    pending: VecDeque<Pending>,
    /// Frame of a whole block of zeros.
    zero_frame: Vec<u8>,
    raw_sum: Sum,
    stored_sum: Sum,
    stored_bytes: u64,
    size_bytes: u64,
    blocks: Vec<pb::Block>,
    /// Compressed and raw sizes of the frames.
    sizes: Vec<(u32, u32)>,
    /// True after an error, and while blocks are queued and written.
    is_broken: bool,
}

/// A block that is not written yet.
#[derive(Clone, Copy, Debug)]
enum Pending {
    /// A whole block of zeros.
    Zeros,
    /// A block that a thread compresses.
    Compressing,
}

impl<W: Write> Encoder<W> {
    /// Starts the threads of an encoder that writes to `out`.
    pub fn start(out: W, settings: &EncoderSettings) -> Result<Self, Error> {
        settings.check()?;
        let starting = "starting compression threads";
        let workers = Workers::start(settings.threads, settings.level);
        Ok(Self {
            out,
            settings: settings.clone(),
            workers: workers.map_err(Error::io(starting))?,
            open: Work::default(),
            spare: Vec::new(),
            pending: VecDeque::new(),
            zero_frame: zero_frame(settings).map_err(Error::io(starting))?,
            raw_sum: Sum::default(),
            stored_sum: Sum::default(),
            stored_bytes: 0,
            size_bytes: 0,
            blocks: Vec::new(),
            sizes: Vec::new(),
            is_broken: false,
        })
    }

    /// Appends `content` to the raw disk.
    pub fn append(&mut self, content: &[u8]) -> Result<(), Error> {
        let mut rest = content;
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(self.room().min(rest.len()));
            self.raw_sum.update(piece);
            self.size_bytes += piece.len() as u64;
            self.open.raw.extend_from_slice(piece);
            if self.room() == 0 {
                self.close_block()?;
            }
            rest = after;
        }
        Ok(())
    }

    /// Appends `bytes` zeros to the raw disk. Whole blocks of them are neither allocated nor
    /// compressed.
    pub fn append_zeros(&mut self, bytes: u64) -> Result<(), Error> {
        let block_bytes = u64::from(self.settings.block_bytes);
        let head = if self.open.raw.is_empty() { 0 } else { bytes.min(self.room() as u64) };
        zeros::chunks(head).try_for_each(|chunk| self.append(chunk))?;
        let rest = bytes - head;
        for _ in 0..rest / block_bytes {
            self.raw_sum.update_zeros(block_bytes);
            self.size_bytes += block_bytes;
            self.queue(Pending::Zeros)?;
        }
        zeros::chunks(rest % block_bytes).try_for_each(|chunk| self.append(chunk))
    }

    /// Writes what is pending and the seek table, and flushes the output. Returns the map.
    pub fn finish(mut self) -> Result<EncodedImage, Error> {
        if !self.open.raw.is_empty() {
            self.close_block()?;
        }
        self.check_unbroken()?;
        while let Some(pending) = self.pending.pop_front() {
            self.write_block(pending)?;
        }
        self.write_stored(&seek_table::encode(&self.sizes))?;
        self.out.flush().map_err(Error::io(WRITING))?;
        let map = pb::Map {
            size_bytes: self.size_bytes,
            sha256: self.raw_sum.finish().to_vec(),
            stored_bytes: self.stored_bytes,
            stored_sha256: self.stored_sum.finish().to_vec(),
            block_bytes: self.settings.block_bytes,
            blocks: self.blocks,
        };
        let map = CheckedMap::check(map)?;
        Ok(EncodedImage { used_bytes: map.used_bytes(), map })
    }

    /// Returns the number of bytes that the open block lacks.
    fn room(&self) -> usize {
        (self.settings.block_bytes as usize).saturating_sub(self.open.raw.len())
    }

    /// Queues the open block, and opens another one.
    fn close_block(&mut self) -> Result<(), Error> {
        if self.room() == 0 && zeros::is_all(&self.open.raw) {
            self.open.raw.clear();
            return self.queue(Pending::Zeros);
        }
        let next = self.spare.pop().unwrap_or_default();
        let work = std::mem::replace(&mut self.open, next);
        self.open.raw.clear();
        self.workers.send(work).map_err(Error::io("compressing"))?;
        self.queue(Pending::Compressing)
    }

    /// Queues a block. Writes the oldest ones if there are too many.
    fn queue(&mut self, block: Pending) -> Result<(), Error> {
        self.check_unbroken()?;
        self.is_broken = true;
        if self.blocks.len() + self.pending.len() >= MAX_BLOCKS {
            let problem = format!("the limit is {MAX_BLOCKS} blocks of this size");
            let value = self.settings.block_bytes.into();
            return Err(Error::Settings { field: "block_bytes", problem, value });
        }
        self.pending.push_back(block);
        while self.pending.len() > self.settings.threads.get().saturating_mul(BLOCKS_PER_THREAD) {
            let Some(oldest) = self.pending.pop_front() else { break };
            self.write_block(oldest)?;
        }
        self.is_broken = false;
        Ok(())
    }

    /// Returns an error if an earlier call failed: a block may be missing in the output.
    fn check_unbroken(&self) -> Result<(), Error> {
        let failed = || io::Error::other("an earlier call of the encoder failed");
        (!self.is_broken).then_some(()).ok_or_else(failed).map_err(Error::io(WRITING))
    }

    /// Writes a block. Waits for its thread first.
    fn write_block(&mut self, block: Pending) -> Result<(), Error> {
        match block {
            Pending::Zeros => {
                let frame = std::mem::take(&mut self.zero_frame);
                let written = self.write_frame(&frame, self.settings.block_bytes as usize, None);
                self.zero_frame = frame;
                written
            }
            Pending::Compressing => {
                let work = self.workers.receive().map_err(Error::io("compressing"))?;
                // The last block may be shorter. Its zeros were not looked for so far.
                let digest = (!zeros::is_all(&work.raw)).then_some(work.digest);
                self.write_frame(&work.frame, work.raw.len(), digest)?;
                self.spare.push(work);
                Ok(())
            }
        }
    }

    fn write_frame(
        &mut self,
        frame: &[u8],
        raw_bytes: usize,
        digest: Option<Digest>,
    ) -> Result<(), Error> {
        let too_large = |_| io::Error::other("the frame has more than 32 bits of bytes");
        let length = u32::try_from(frame.len()).map_err(too_large);
        let length = length.map_err(Error::io("compressing"))?;
        let raw = u32::try_from(raw_bytes).unwrap_or(self.settings.block_bytes);
        let sha256 = digest.map(Digest::to_vec).unwrap_or_default();
        self.blocks.push(pb::Block { offset: self.stored_bytes, length, sha256 });
        self.sizes.push((length, raw));
        self.write_stored(frame)
    }

    fn write_stored(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.stored_sum.update(bytes);
        self.stored_bytes += bytes.len() as u64;
        self.out.write_all(bytes).map_err(Error::io(WRITING))
    }
}

fn zero_frame(settings: &EncoderSettings) -> io::Result<Vec<u8>> {
    let mut frame = Vec::new();
    let zeros = vec![0; settings.block_bytes as usize];
    frame::compress(&mut frame::compressor(settings.level)?, &zeros, &mut frame)?;
    frame.shrink_to_fit();
    Ok(frame)
}

impl<W: Write> Write for Encoder<W> {
    fn write(&mut self, content: &[u8]) -> io::Result<usize> {
        self.append(content)?;
        Ok(content.len())
    }

    /// Flushes the output. Blocks that are not complete or not yet compressed stay in memory.
    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl<W> fmt::Debug for Encoder<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut encoder = f.debug_struct("Encoder");
        encoder.field("settings", &self.settings).field("size_bytes", &self.size_bytes);
        encoder.finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
