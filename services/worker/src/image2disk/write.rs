//! The last stage: writes blocks to the disk, then reads them back to verify them. Runs on its own
//! thread.

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::table::{self, OnDisk};
use super::{BLOCK_COUNT, FilledBlock, runs};
use crate::disk::Disk;
use crate::disk::block::{Block, SIZE, fingerprint};
use crate::error::Error;
use crate::progress::{Meter, Phase, Report};

/// Writes the image to the disk, and verifies it.
pub(super) struct Writer {
    pub(super) disk: Disk,
    pub(super) meter: Meter,
    pub(super) stop: CancellationToken,
    /// True if an image that is larger than the disk is truncated; otherwise it is an error.
    pub(super) force: bool,
    /// The length of the download in bytes, if it is known.
    pub(super) total: Option<u64>,
    /// The redacted URL of the image.
    pub(super) url: String,
    /// True if the image may be anything.
    pub(super) is_any: bool,
}

/// Channels of blocks: filled ones come in, empty ones go back.
pub(super) struct WriterChannels {
    pub(super) filled: mpsc::Receiver<FilledBlock>,
    pub(super) empty: mpsc::Sender<Block>,
}

/// The result of writing.
pub(super) struct WrittenImage {
    /// Length in bytes, from the disk's beginning.
    pub(super) bytes: u64,
    /// One fingerprint per block of [`SIZE`] bytes; the last block may be shorter.
    fingerprints: Vec<u64>,
}

impl Writer {
    /// Writes all blocks that arrive.
    pub(super) fn run(&self, mut blocks: WriterChannels) -> Result<WrittenImage, Error> {
        for _ in 0..BLOCK_COUNT {
            let _closed = blocks.empty.try_send(Block::new());
        }
        let mut written = WrittenImage { bytes: 0, fingerprints: Vec::new() };
        while let Some(mut piece) = blocks.filled.blocking_recv() {
            if self.stop.is_cancelled() {
                return Err(Error::Cancelled);
            }
            self.truncate_to_disk(&mut piece)?;
            runs::write(&self.disk, piece.at, piece.block.content())?;
            written.bytes += piece.block.content().len() as u64;
            written.fingerprints.push(fingerprint(piece.block.content()));
            let (done, total) = (piece.downloaded, self.total);
            self.meter.report(|| Report { phase: Phase::Writing, done, total });
            let _closed = blocks.empty.blocking_send(piece.block);
        }
        Ok(written)
    }

    fn truncate_to_disk(&self, piece: &mut FilledBlock) -> Result<(), Error> {
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

    /// Flushes the disk, verifies it if `verify` is true, completes the partition table, and makes
    /// the kernel re-read it. Returns lines for the log.
    pub(super) fn finish(
        mut self,
        written: &WrittenImage,
        verify: bool,
    ) -> Result<Vec<String>, Error> {
        self.disk.flush()?;
        if verify {
            self.verify(written)?;
        }
        let (url, bytes, is_any) = (self.url, written.bytes, self.is_any);
        let image = OnDisk { url, bytes, is_any, may_be_completed: false };
        let lines = table::complete(&mut self.disk, &image)?;
        self.disk.reread_partitions();
        Ok(lines)
    }

    fn verify(&self, written: &WrittenImage) -> Result<(), Error> {
        let mut block = Block::new();
        let mut at = 0;
        for expected in &written.fingerprints {
            if self.stop.is_cancelled() {
                return Err(Error::Cancelled);
            }
            let length = (written.bytes - at).min(SIZE as u64);
            self.disk.read(at, &mut block, usize::try_from(length).unwrap_or(SIZE))?;
            block.truncate(usize::try_from(length).unwrap_or(SIZE));
            if fingerprint(block.content()) != *expected {
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
    use crate::progress;

    #[derive(Debug)]
    struct Silent;

    impl progress::Progress for Silent {
        fn report(&self, _: progress::Report) {}
    }

    fn writer(file: &NamedTempFile) -> Writer {
        let disk = Disk::open(file.path(), false).unwrap();
        let meter = Meter::new(Arc::new(Silent), Duration::ZERO);
        let (stop, url) = (CancellationToken::new(), "http://a/b".into());
        Writer { disk, meter, stop, force: false, total: None, url, is_any: false }
    }

    /// Writes two blocks, the second one short.
    fn written(writer: &Writer) -> WrittenImage {
        let (filled_in, filled) = mpsc::channel(BLOCK_COUNT);
        // Capacity for the two blocks of this test and for the blocks that the writer adds.
        let (empty, _empty_out) = mpsc::channel(BLOCK_COUNT + 2);
        for (at, length) in [(0, SIZE), (SIZE as u64, 5000)] {
            let mut block = Block::new();
            block.space(length).fill(7);
            filled_in.try_send(FilledBlock { at, block, downloaded: 0 }).unwrap();
        }
        drop(filled_in);
        writer.run(WriterChannels { filled, empty }).unwrap()
    }

    #[test]
    fn the_written_image_is_verified() {
        let file = NamedTempFile::new().unwrap();
        let writer = writer(&file);
        let written = written(&writer);
        assert_eq!(written.bytes, SIZE as u64 + 5000);
        writer.finish(&written, true).unwrap();
    }

    #[test]
    fn verification_reports_the_block_with_a_changed_byte() {
        for (at, place) in
            [(1, "bytes 0 to 4194304"), (SIZE as u64 + 4999, "bytes 4194304 to 4199304")]
        {
            let file = NamedTempFile::new().unwrap();
            let writer = writer(&file);
            let written = written(&writer);
            file.as_file().write_all_at(&[6], at).unwrap();
            let error = writer.finish(&written, true).unwrap_err().to_string();
            let path = file.path().display();
            assert_eq!(
                error,
                format!("{path}: verification failed: {place} differ from the data written")
            );
        }
    }

    #[test]
    fn a_cancelled_writer_writes_nothing() {
        let file = NamedTempFile::new().unwrap();
        let writer = writer(&file);
        writer.stop.cancel();
        let (filled_in, filled) = mpsc::channel(1);
        let (empty, _empty_out) = mpsc::channel(BLOCK_COUNT);
        filled_in.try_send(FilledBlock { at: 0, block: Block::new(), downloaded: 0 }).unwrap();
        assert!(matches!(writer.run(WriterChannels { filled, empty }), Err(Error::Cancelled)));
        assert_eq!(file.as_file().metadata().unwrap().len(), 0);
    }
}
