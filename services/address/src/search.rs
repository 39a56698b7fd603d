//! Finds a free block in a range.
//!
//! Searches begin in one of the first chunks of the range, each in another one, so that concurrent requests seldom want to write the
//! same chunk. A chunk that is full is passed, and an absent one is free as a whole, so the cost grows with the number of full
//! chunks, not with the size of the range.

use store::{ScopedStore, Store as _};

use crate::block::{Block, Family, Span};
use crate::chunk::{Chunk, ChunkId};

/// Chunks of a range in which searches begin.
const MAX_FIRST_CHUNKS: u128 = 16;
/// Chunks that are read at a time.
const PAGE_CHUNKS: usize = 64;

/// The result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// A free block.
    Block(Block),
    /// None is free.
    Exhausted {
        /// Blocks that are taken.
        taken: u128,
        /// All blocks that may be granted.
        total: u128,
    },
}

/// The blocks of one size in a range.
#[derive(Debug)]
pub struct Search<'a, F> {
    store: &'a ScopedStore,
    family: Family,
    length: u32,
    /// The numbers of the first and the last block.
    blocks: (u128, u128),
    /// Returns true if a block may be granted at all.
    is_usable: F,
    total: u128,
    taken: u128,
}

impl<'a, F: Fn(Block) -> bool> Search<'a, F> {
    /// Searches the blocks of this prefix length in `span`, of those that are usable.
    pub fn new(store: &'a ScopedStore, span: Span, length: u32, is_usable: F) -> Self {
        let (first, last) = span.bounds();
        let shift = span.family().width() - length;
        let blocks = (first >> shift, last >> shift);
        Self { store, family: span.family(), length, blocks, is_usable, total: 0, taken: 0 }
    }

    /// Returns a free block. `seed` selects the chunk in which the search begins.
    pub async fn run(mut self, seed: u128) -> Result<Found, store::Error> {
        let bits = self.slot_bits();
        let (first, last) = (self.blocks.0 >> bits, self.blocks.1 >> bits);
        let start = first + seed % MAX_FIRST_CHUNKS.min(last - first + 1);
        let mut found = self.search(start, last).await?;
        if found.is_none() && start > first {
            found = self.search(first, start - 1).await?;
        }
        let (taken, total) = (self.taken, self.total);
        Ok(found.map_or(Found::Exhausted { taken, total }, Found::Block))
    }

    /// Returns the number of bits of a block's number inside of its chunk.
    fn slot_bits(&self) -> u32 {
        self.length - ChunkId::level_of(self.length)
    }

    /// Searches the chunks from `next` to `last`.
    async fn search(&mut self, mut next: u128, last: u128) -> Result<Option<Block>, store::Error> {
        let level = ChunkId::level_of(self.length);
        let prefix = ChunkId::key_prefix(self.family, level);
        loop {
            let after = next.checked_sub(1).map(|it| ChunkId::new(self.family, level, it).key());
            let page = self.store.list(&prefix, &after.unwrap_or_default(), PAGE_CHUNKS).await?;
            for (key, found) in &page.pairs {
                let corrupt = || store::Error::Corrupt(key.clone());
                let digits = key.strip_prefix(&prefix).ok_or_else(corrupt)?;
                let number = match digits {
                    "" => 0,
                    digits => u128::from_str_radix(digits, 16).map_err(|_| corrupt())?,
                };
                if let Some(block) = self.search_absent(&mut next, number.min(last + 1)) {
                    return Ok(Some(block));
                }
                if next > last {
                    return Ok(None);
                }
                let chunk = Chunk::decode(&found.value).ok_or_else(corrupt)?;
                if let Some(block) = self.search_chunk(number, &chunk) {
                    return Ok(Some(block));
                }
                next = number + 1;
            }
            if !page.more {
                return Ok(self.search_absent(&mut next, last + 1));
            }
        }
    }

    /// Searches the chunks from `next` until before `end`, which are absent.
    fn search_absent(&mut self, next: &mut u128, end: u128) -> Option<Block> {
        while *next < end {
            if let Some(block) = self.search_chunk(*next, &Chunk::default()) {
                return Some(block);
            }
            *next += 1;
        }
        None
    }

    /// Returns the first free block in the chunk with this number.
    fn search_chunk(&mut self, number: u128, chunk: &Chunk) -> Option<Block> {
        let bits = self.slot_bits();
        let (first, last) = (number << bits, ((number + 1) << bits) - 1);
        let shift = self.family.width() - self.length;
        for block in first.max(self.blocks.0)..=last.min(self.blocks.1) {
            let block = Block::around(self.family, block << shift, self.length);
            if !(self.is_usable)(block) {
                continue;
            }
            if chunk.is_free(ChunkId::of(block).slots(block)) {
                return Some(block);
            }
            self.total += 1;
            self.taken += 1;
        }
        None
    }
}
