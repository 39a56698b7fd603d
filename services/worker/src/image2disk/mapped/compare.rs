//! Compares a disk with a map: the disk says what an earlier attempt or installation left.
//!
//! Nothing is remembered about earlier attempts, so nothing is trusted that a reboot or a power cut
//! could have made wrong. If none of some sampled blocks is equal, the disk is taken for another
//! one, and the rest is not read: then every block is written.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use stored_image::{Digest, MapBlock};
use tokio_util::sync::CancellationToken;

use super::mapped_disk::{MappedDisk, length};
use super::original;
use super::tally::Origin;
use super::threads::{self, outcome};
use crate::disk::block::{Block, is_zero};
use crate::error::Error;
use crate::progress::Phase;

/// Number of used blocks that decide if the rest of the disk is read.
const SAMPLES: usize = 16;

/// The blocks that the disk does not have yet, in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct MissingBlocks {
    /// Blocks to download.
    pub(super) used: Vec<usize>,
    /// Blocks to zero.
    pub(super) zero: Vec<usize>,
}

/// Compares the disk of `target` with its map. `sectors` are the possible sizes of its sectors.
pub(super) fn run(
    target: &MappedDisk,
    sectors: &[u64],
    stop: &CancellationToken,
) -> Result<MissingBlocks, Error> {
    let comparison = Comparison { target, sectors, stop };
    let (used, zero): (Vec<_>, Vec<_>) =
        target.map.blocks().partition(|block| block.digest.is_some());
    let (sampled, others) = split_samples(used);
    let differing = comparison.differing(&sampled)?;
    let is_other_disk = differing.len() == sampled.len();
    let mut missing = MissingBlocks { used: differing, zero: Vec::new() };
    if is_other_disk {
        missing.used.extend(others.iter().map(|block| block.index));
        missing.zero = zero.iter().map(|block| block.index).collect();
    } else {
        missing.used.extend(comparison.differing(&others)?);
        missing.zero = comparison.differing(&zero)?;
    }
    missing.used.sort_unstable();
    missing.zero.sort_unstable();
    Ok(missing)
}

/// Splits `blocks` into at most [`SAMPLES`] evenly spaced ones, with the first, and the others.
fn split_samples(blocks: Vec<MapBlock>) -> (Vec<MapBlock>, Vec<MapBlock>) {
    let step = blocks.len().div_ceil(SAMPLES).max(1);
    let (sampled, others): (Vec<_>, Vec<_>) =
        blocks.into_iter().enumerate().partition(|(number, _)| number.is_multiple_of(step));
    let blocks =
        |numbered: Vec<(usize, MapBlock)>| numbered.into_iter().map(|(_, it)| it).collect();
    (blocks(sampled), blocks(others))
}

struct Comparison<'a> {
    target: &'a MappedDisk,
    sectors: &'a [u64],
    stop: &'a CancellationToken,
}

impl Comparison<'_> {
    /// Returns the differing blocks among `blocks`, in any order. Counts the others.
    fn differing(&self, blocks: &[MapBlock]) -> Result<Vec<usize>, Error> {
        let next = AtomicUsize::new(0);
        let found = thread::scope(|scope| {
            let compare = || self.compare(blocks, &next);
            let threads: Vec<_> = (0..threads::count()).map(|_| scope.spawn(compare)).collect();
            threads.into_iter().map(outcome).collect::<Result<Vec<_>, _>>()
        })?;
        Ok(found.concat())
    }

    /// Compares `blocks` from `next` on, which other threads advance, too.
    fn compare(&self, blocks: &[MapBlock], next: &AtomicUsize) -> Result<Vec<usize>, Error> {
        let mut content = Block::new();
        let mut differing = Vec::new();
        while let Some(block) = blocks.get(next.fetch_add(1, Ordering::Relaxed)) {
            if self.stop.is_cancelled() {
                return Err(Error::Cancelled);
            }
            if self.is_equal(block, &mut content) {
                let origin = if block.digest.is_some() { Origin::Equal } else { Origin::Zero };
                self.target.tally.count(origin, length(block) as u64);
            } else {
                differing.push(block.index);
                self.target.tally.report(Phase::Writing);
            }
        }
        Ok(differing)
    }

    /// True if the disk has the content of `block`. A block that cannot be read differs: it may be
    /// beyond the end of a file, or the disk may replace a damaged sector once it is written.
    fn is_equal(&self, block: &MapBlock, content: &mut Block) -> bool {
        if self.target.read(block, content).is_err() {
            return false;
        }
        let content = content.content();
        match block.digest {
            None => is_zero(content),
            Some(digest) => Digest::of(content) == digest || self.is_resized(block, content),
        }
    }

    /// True if the disk has the first block of the image with a completed partition table.
    fn is_resized(&self, block: &MapBlock, content: &[u8]) -> bool {
        let bytes = self.target.map.size_bytes();
        let is_original = |sector: &u64| {
            let original = original::resized(content, bytes, *sector);
            original.is_some_and(|original| Some(Digest::of(&original)) == block.digest)
        };
        block.index == 0 && self.sectors.iter().any(is_original)
    }
}
