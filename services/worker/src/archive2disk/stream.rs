//! The stage between decompression and extraction: a task sends pieces of the tar to the thread that extracts it.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bytes::{Buf, Bytes};
use tokio::sync::mpsc;

use super::Error;
use crate::checksum::{Checksum, Sum};
use crate::error;
use crate::unpack::{Unpacker, fill};

/// Capacity of the channel of pieces.
pub(super) const MAX_QUEUED_PIECES: usize = 8;

/// Bytes in a piece.
const PIECE_BYTES: usize = 256 << 10;

/// Bytes in a block of a tar (POSIX.1-2017, pax, "ustar Interchange Format").
pub(super) const BLOCK: usize = 512;

/// Decompresses `chunks` and sends the result as `pieces`. A failure is also sent to the reader, so that it is not mistaken
/// for the end. Returns the number of bytes of the file behind the tar's compressed data.
pub(super) async fn run(
    chunks: mpsc::Receiver<io::Result<Bytes>>,
    unpacker: Arc<Unpacker>,
    pieces: mpsc::Sender<io::Result<Bytes>>,
    downloaded: Arc<AtomicU64>,
) -> Result<u64, error::Error> {
    let mut file = unpacker.open(chunks, downloaded);
    loop {
        let mut piece = vec![0; PIECE_BYTES];
        match fill(&mut file, &mut piece).await {
            Ok(0) => return Ok(file.trailing_bytes()),
            Ok(length) => {
                piece.truncate(length);
                let sent = pieces.send(Ok(piece.into())).await;
                sent.map_err(|_| error::Error::Stopped)?; // The reader failed, and reports the cause.
            }
            Err(error) => {
                let _closed = pieces.send(Err(io::ErrorKind::ConnectionAborted.into())).await;
                return Err(unpacker.failed(error));
            }
        }
    }
}

/// Checksums of the tar.
#[derive(Debug)]
pub(super) struct TarSums {
    /// Of the whole tar.
    pub(super) tar: Checksum,
    /// Of the tar without the padding after its end mark, which Go's `archive/tar` does not read.
    pub(super) unpadded: Checksum,
}

/// Reader of the tar for the extracting thread. It also computes the checksum.
pub(super) struct TarStream {
    pieces: mpsc::Receiver<io::Result<Bytes>>,
    piece: Bytes,
    sum: Option<Sum>,
}

impl TarStream {
    pub(super) fn new(
        pieces: mpsc::Receiver<io::Result<Bytes>>,
        checksum: Option<&Checksum>,
    ) -> Self {
        Self { pieces, piece: Bytes::new(), sum: checksum.map(Checksum::sum) }
    }

    /// Reads the padding after the end mark, up to the end of the file.
    pub(super) fn finish(mut self) -> Result<Option<TarSums>, Error> {
        let unpadded = self.sum.clone().map(Sum::finish);
        io::copy(&mut self, &mut io::sink()).map_err(Error::Damaged)?;
        let tar = self.sum.map(Sum::finish);
        Ok(tar.zip(unpadded).map(|(tar, unpadded)| TarSums { tar, unpadded }))
    }
}

impl Read for TarStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.pieces.blocking_recv() {
                Some(piece) => self.piece = piece?,
                None => return Ok(0),
            }
        }
        let length = self.piece.len().min(into.len());
        let into = into.get_mut(..length).unwrap_or_default();
        self.piece.copy_to_slice(into);
        if let Some(sum) = &mut self.sum {
            sum.update(into);
        }
        Ok(length)
    }
}
