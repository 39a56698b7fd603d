//! The last stage: blocks onto the disk, and back for comparison. Runs on a thread of its own.

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{BLOCKS, Piece};
use crate::action::Error;
use crate::disk::Disk;
use crate::disk::block::{Block, Run, SIZE, fingerprint, runs};
use crate::progress::{Meter, Phase, Report};

/// What writes, and what it needs for that.
pub(super) struct Writer {
    pub(super) disk: Disk,
    pub(super) meter: Meter,
    pub(super) stop: CancellationToken,
    /// Whether what does not fit is dropped instead of refused.
    pub(super) force: bool,
    /// The length of the download.
    pub(super) total: Option<u64>,
}

/// The disk's end of the blocks' way round.
pub(super) struct Blocks {
    pub(super) writing: mpsc::Receiver<Piece>,
    pub(super) emptied: mpsc::Sender<Block>,
}

/// What is on the disk now.
pub(super) struct Written {
    /// Bytes of the image, from the disk's beginning.
    pub(super) bytes: u64,
    /// One fingerprint per block of [`SIZE`] bytes; the last block may be shorter.
    fingerprints: Vec<u64>,
}

impl Writer {
    /// Writes the blocks that come until no more do.
    pub(super) fn run(&self, mut blocks: Blocks) -> Result<Written, Error> {
        for _ in 0..BLOCKS {
            let _gone = blocks.emptied.try_send(Block::new());
        }
        let mut written = Written { bytes: 0, fingerprints: Vec::new() };
        while let Some(mut piece) = blocks.writing.blocking_recv() {
            if self.stop.is_cancelled() {
                return Err(Error::Cancelled);
            }
            self.cut_to_size(&mut piece)?;
            self.write(piece.at, piece.block.content())?;
            written.bytes += piece.block.content().len() as u64;
            written.fingerprints.push(fingerprint(piece.block.content()));
            let (done, total) = (piece.downloaded, self.total);
            self.meter.report(|| Report { phase: Phase::Writing, done, total });
            let _gone = blocks.emptied.blocking_send(piece.block);
        }
        Ok(written)
    }

    fn cut_to_size(&self, piece: &mut Piece) -> Result<(), Error> {
        let room =
            self.disk.capacity().map_or(u64::MAX, |capacity| capacity.saturating_sub(piece.at));
        if piece.block.content().len() as u64 <= room {
            return Ok(());
        }
        if !self.force {
            return Err(self.disk.too_small("more").into());
        }
        piece.block.truncate(usize::try_from(room).unwrap_or(usize::MAX));
        Ok(())
    }

    /// Writes `bytes` at `at`; long zeroes by having the disk make them, which leaves nothing of what was there.
    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Error> {
        for Run { range, zero } in runs(bytes) {
            let place = at + range.start as u64;
            if zero && self.disk.capacity().is_some() {
                self.disk.zero(place, range.len() as u64)?;
            } else {
                self.disk.write(place, bytes.get(range).unwrap_or_default())?;
            }
        }
        Ok(())
    }

    /// Flushes the disk, compares it with what was written if that is wanted, and shows the kernel its partitions.
    pub(super) fn finish(mut self, written: &Written, verify: bool) -> Result<(), Error> {
        self.disk.settle()?;
        if verify {
            self.verify(written)?;
        }
        self.disk.reread_partitions();
        Ok(())
    }

    fn verify(&self, written: &Written) -> Result<(), Error> {
        let mut block = Block::new();
        let mut at = 0;
        for wanted in &written.fingerprints {
            if self.stop.is_cancelled() {
                return Err(Error::Cancelled);
            }
            let length = (written.bytes - at).min(SIZE as u64);
            self.disk.read(at, &mut block, usize::try_from(length).unwrap_or(SIZE))?;
            block.truncate(usize::try_from(length).unwrap_or(SIZE));
            if fingerprint(block.content()) != *wanted {
                return Err(self.disk.differs(at, length).into());
            }
            at += length;
            let total = Some(written.bytes);
            self.meter.report(|| Report { phase: Phase::Verifying, done: at, total });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::sync::Arc;
    use std::time::Duration;

    use tempfile::NamedTempFile;

    use super::*;
    use crate::progress::Silent;

    fn writer(file: &NamedTempFile) -> Writer {
        let disk = Disk::open(file.path(), false).unwrap();
        let meter = Meter::new(Arc::new(Silent), Duration::ZERO);
        Writer { disk, meter, stop: CancellationToken::new(), force: false, total: None }
    }

    /// Two blocks, the second a short one, on the disk and remembered.
    fn written(writer: &Writer) -> Written {
        let (filled, writing) = mpsc::channel(BLOCKS);
        // Room for these two besides the writer's own.
        let (emptied, _empties) = mpsc::channel(BLOCKS + 2);
        for (at, length) in [(0, SIZE), (SIZE as u64, 5000)] {
            let mut block = Block::new();
            block.space(length).fill(7);
            filled.try_send(Piece { at, block, downloaded: 0 }).unwrap();
        }
        drop(filled);
        writer.run(Blocks { writing, emptied }).unwrap()
    }

    #[test]
    fn what_was_written_reads_back() {
        let file = NamedTempFile::new().unwrap();
        let writer = writer(&file);
        let written = written(&writer);
        assert_eq!(written.bytes, SIZE as u64 + 5000);
        writer.finish(&written, true).unwrap();
    }

    #[test]
    fn a_bit_that_does_not_stick_is_found_and_its_place_named() {
        for (at, place) in
            [(1, "bytes 0 to 4194304"), (SIZE as u64 + 4999, "bytes 4194304 to 4199304")]
        {
            let file = NamedTempFile::new().unwrap();
            let writer = writer(&file);
            let written = written(&writer);
            file.as_file().write_all_at(&[6], at).unwrap();
            let error = writer.finish(&written, true).unwrap_err().to_string();
            let path = file.path().display();
            assert_eq!(error, format!("{path}: {place} do not read back as they were written"));
        }
    }

    #[test]
    fn a_cancelled_writer_leaves_the_disk_alone() {
        let file = NamedTempFile::new().unwrap();
        let writer = writer(&file);
        writer.stop.cancel();
        let (filled, writing) = mpsc::channel(1);
        let (emptied, _empties) = mpsc::channel(BLOCKS);
        filled.try_send(Piece { at: 0, block: Block::new(), downloaded: 0 }).unwrap();
        assert!(matches!(writer.run(Blocks { writing, emptied }), Err(Error::Cancelled)));
        assert_eq!(file.as_file().metadata().unwrap().len(), 0);
    }
}
