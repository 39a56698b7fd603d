//! The second stage: replies in, blocks of the image out.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use tokio::sync::mpsc;

use super::Piece;
use crate::action::Error;
use crate::disk::block::{Block, SIZE};
use crate::unpack::{Packing, fill};

/// The blocks' way round: empty ones come back from the disk, full ones go to it.
pub(super) struct Circle {
    pub(super) empties: mpsc::Receiver<Block>,
    pub(super) filled: mpsc::Sender<Piece>,
    /// Counts what was taken of the download.
    pub(super) downloaded: Arc<AtomicU64>,
}

/// Fills blocks until the image ends.
pub(super) async fn run(
    replies: mpsc::Receiver<io::Result<Bytes>>,
    packing: Packing,
    mut circle: Circle,
) -> Result<(), Error> {
    let mut image = packing.open(replies, circle.downloaded.clone());
    let mut at = 0;
    while let Some(mut block) = circle.empties.recv().await {
        let filled = fill(&mut image, block.space(SIZE)).await;
        let length = filled.map_err(|source| packing.failed(source))?;
        block.truncate(length);
        if length == 0 {
            return Ok(());
        }
        let downloaded = circle.downloaded.load(Ordering::Relaxed);
        if circle.filled.send(Piece { at, block, downloaded }).await.is_err() {
            break;
        }
        at += length as u64;
    }
    Err(Error::Stopped) // The disk's stage has failed, and says why.
}
