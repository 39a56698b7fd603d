//! The stages in the middle: pieces of the unpacked file, handed from a task to the thread that reads them as a tar.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bytes::{Buf, Bytes};
use tokio::sync::mpsc;

use super::Error;
use crate::action;
use crate::checksum::{Checksum, Sum};
use crate::unpack::{Packing, fill};

/// Pieces waiting to be read.
pub(super) const PIECES: usize = 8;

/// Bytes in a piece.
const PIECE: usize = 256 << 10;

/// Bytes in a block of a tar (POSIX.1-2017, pax, "ustar Interchange Format").
pub(super) const BLOCK: usize = 512;

/// Hands on all that comes out of `replies`. A failure goes to the reader too, lest it take it for the end.
pub(super) async fn run(
    replies: mpsc::Receiver<io::Result<Bytes>>,
    packing: Packing,
    pieces: mpsc::Sender<io::Result<Bytes>>,
    downloaded: Arc<AtomicU64>,
) -> Result<(), action::Error> {
    let mut file = packing.open(replies, downloaded);
    loop {
        let mut piece = vec![0; PIECE];
        match fill(&mut file, &mut piece).await {
            Ok(0) => return Ok(()),
            Ok(length) => {
                piece.truncate(length);
                let sent = pieces.send(Ok(piece.into())).await;
                sent.map_err(|_| action::Error::Stopped)?; // The reader has failed, and says why.
            }
            Err(error) => {
                let _gone = pieces.send(Err(io::ErrorKind::ConnectionAborted.into())).await;
                return Err(packing.failed(error));
            }
        }
    }
}

/// What the tar that was read comes to.
#[derive(Debug)]
pub(super) struct Sums {
    /// All of it.
    pub(super) tar: Checksum,
    /// All but the padding behind its end mark, which is what Go's `archive/tar` reads.
    pub(super) bare: Checksum,
}

/// The unpacked file as a thread reads it, summed.
pub(super) struct Stream {
    pieces: mpsc::Receiver<io::Result<Bytes>>,
    piece: Bytes,
    sum: Option<Sum>,
}

impl Stream {
    pub(super) fn new(
        pieces: mpsc::Receiver<io::Result<Bytes>>,
        checksum: Option<&Checksum>,
    ) -> Self {
        Self { pieces, piece: Bytes::new(), sum: checksum.map(Checksum::sum) }
    }

    /// Reads what follows the end mark, up to the end of the file.
    pub(super) fn finish(mut self) -> Result<Option<Sums>, Error> {
        let bare = self.sum.clone().map(Sum::finish);
        io::copy(&mut self, &mut io::sink()).map_err(Error::Damaged)?;
        let tar = self.sum.map(Sum::finish);
        Ok(tar.zip(bare).map(|(tar, bare)| Sums { tar, bare }))
    }
}

impl Read for Stream {
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
