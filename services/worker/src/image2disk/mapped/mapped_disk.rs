//! A disk, and the map of what it is to have.

use std::sync::Arc;

use stored_image::{CheckedMap, MapBlock};

use super::error::Error;
use super::tally::Tally;
use crate::disk::Disk;
use crate::disk::block::{Block, fingerprint};

/// A disk, and the map of what it is to have.
#[derive(Debug)]
pub(super) struct MappedDisk {
    pub(super) disk: Disk,
    pub(super) map: CheckedMap,
    pub(super) tally: Arc<Tally>,
}

impl MappedDisk {
    /// Returns the block `index` of the map.
    pub(super) fn block(&self, index: usize) -> Result<MapBlock, Error> {
        Ok(self.map.block(index)?)
    }

    /// Reads `block` from the disk into `content`.
    pub(super) fn read(
        &self,
        block: &MapBlock,
        content: &mut Block,
    ) -> Result<(), crate::disk::Error> {
        let length = length(block);
        self.disk.read(block.raw.start, content, length)?;
        content.truncate(length);
        Ok(())
    }

    /// Fails unless the disk returns content with this fingerprint for `block`.
    pub(super) fn verify(
        &self,
        block: &MapBlock,
        expected: u64,
        content: &mut Block,
    ) -> Result<(), crate::error::Error> {
        self.read(block, content)?;
        if fingerprint(content.content()) == expected {
            return Ok(());
        }
        let source = self.disk.differs(block.raw.start, block.raw.end - block.raw.start);
        Err(Error::ReadBack { index: block.index, source }.into())
    }
}

/// Returns the number of bytes of `block` on the disk. It is at most the size of a buffer, since
/// maps with larger blocks are refused.
pub(super) fn length(block: &MapBlock) -> usize {
    usize::try_from(block.raw.end - block.raw.start).unwrap_or_default()
}
