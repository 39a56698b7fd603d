//! The second stage: decompresses the downloaded chunks into blocks of the image.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use tokio::sync::mpsc;

use super::FilledBlock;
use crate::contents::{self, Destination};
use crate::disk::block::{Block, SIZE};
use crate::error::Error;
use crate::unpack::{Unpacker, fill};

/// Channels of blocks: empty ones come back from the writer, filled ones go to it.
pub(super) struct UnpackChannels {
    pub(super) empty: mpsc::Receiver<Block>,
    pub(super) filled: mpsc::Sender<FilledBlock>,
    /// Counts the downloaded bytes taken.
    pub(super) downloaded: Arc<AtomicU64>,
}

/// Fills blocks until the image ends. Before the first one leaves this stage, refuses an image that
/// the `target` cannot boot from; without a target, any image passes. Returns the number of bytes
/// of the file behind the image.
pub(super) async fn run(
    chunks: mpsc::Receiver<io::Result<Bytes>>,
    unpacker: Arc<Unpacker>,
    target: Option<Destination>,
    mut blocks: UnpackChannels,
) -> Result<u64, Error> {
    let mut image = unpacker.open(chunks, blocks.downloaded.clone());
    let mut at = 0;
    while let Some(mut block) = blocks.empty.recv().await {
        let filled = fill(&mut image, block.space(SIZE)).await;
        let length = filled.map_err(|source| unpacker.failed(source))?;
        block.truncate(length);
        match (at, length) {
            (0, 0) => return Err(unpacker.empty()),
            (_, 0) => return Ok(image.trailing_bytes()),
            (0, _) => check(&block, target.as_ref(), &unpacker)?,
            _ => {}
        }
        let downloaded = blocks.downloaded.load(Ordering::Relaxed);
        if blocks.filled.send(FilledBlock { at, block, downloaded }).await.is_err() {
            break;
        }
        at += length as u64;
    }
    Err(Error::Stopped) // The writer failed, and reports the cause.
}

/// Checks the image by its first block.
fn check(first: &Block, target: Option<&Destination>, unpacker: &Unpacker) -> Result<(), Error> {
    let checked = target.map_or(Ok(()), |target| contents::check(first.content(), target));
    checked.map_err(|refusal| unpacker.refused(refusal))
}
