//! A chunk: 256 slots of addresses, each held, split or free. The module [`crate`] says what for.

use std::ops::Range;

use crate::block::{Block, Family};

/// Bits of a slot's number.
pub const SLOT_BITS: u32 = 8;
/// Bytes of one set of 256 bits.
const SET_BYTES: usize = 32;

/// The place of a chunk in the tree of its family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChunkId {
    family: Family,
    /// Bits of the prefix that all of its addresses have: 0, 8, 16 and so on.
    level: u32,
    /// The prefix, as a number.
    prefix: u128,
}

impl ChunkId {
    /// The chunk in which blocks like `block` have slots of their own.
    pub fn of(block: Block) -> Self {
        let level = Self::level_of(block.length());
        Self::around(block.family(), block.base(), level)
    }

    /// The chunk at `level` with this prefix.
    pub fn new(family: Family, level: u32, prefix: u128) -> Self {
        Self { family, level, prefix }
    }

    /// Returns the level of the chunks of blocks with this prefix length.
    pub fn level_of(length: u32) -> u32 {
        (length - 1) / SLOT_BITS * SLOT_BITS
    }

    /// The chunk at `level` around the address number `bits`.
    pub fn around(family: Family, bits: u128, level: u32) -> Self {
        let prefix = bits.checked_shr(family.width() - level).unwrap_or_default();
        Self { family, level, prefix }
    }

    /// Returns the chunk above, and the slot of it that this one is; none for the root.
    pub fn parent(self) -> Option<(Self, u8)> {
        let level = self.level.checked_sub(SLOT_BITS)?;
        let [slot, ..] = self.prefix.to_le_bytes();
        Some((Self { family: self.family, level, prefix: self.prefix >> SLOT_BITS }, slot))
    }

    /// Returns the slots that `block` has in this chunk, which is its own.
    pub fn slots(self, block: Block) -> Range<usize> {
        let count = 1usize << (self.level + SLOT_BITS - block.length());
        let below = self.family.width() - self.level - SLOT_BITS;
        let [slot, ..] = (block.base() >> below).to_le_bytes();
        usize::from(slot)..usize::from(slot) + count
    }

    /// Returns the key of the chunk.
    pub fn key(self) -> String {
        format!("{}{}", Self::key_prefix(self.family, self.level), self.hex())
    }

    /// Returns the beginning of the keys of all chunks of a level.
    pub fn key_prefix(family: Family, level: u32) -> String {
        format!("chunk/{}{level}/", family.digit())
    }

    /// Returns the prefix in hexadecimal digits, with which the base of each of its blocks begins.
    pub fn hex(self) -> String {
        match usize::try_from(self.level / 4).unwrap_or_default() {
            0 => String::new(),
            digits => format!("{:0digits$x}", self.prefix),
        }
    }
}

/// The slots of a chunk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    held: [u8; SET_BYTES],
    split: [u8; SET_BYTES],
}

impl Chunk {
    /// Decodes a chunk.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (held, split) = bytes.split_at_checked(SET_BYTES)?;
        Some(Self { held: held.try_into().ok()?, split: split.try_into().ok()? })
    }

    /// Returns the stored form.
    pub fn encode(&self) -> Vec<u8> {
        [self.held, self.split].concat()
    }

    /// True if no slot is held or split.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// True if all `slots` are neither held nor split.
    pub fn is_free(&self, mut slots: Range<usize>) -> bool {
        slots.all(|slot| !get(&self.held, slot) && !get(&self.split, slot))
    }

    /// True if the slot is held.
    pub fn is_held(&self, slot: u8) -> bool {
        get(&self.held, slot.into())
    }

    /// Sets or clears `held` of `slots`.
    pub fn set_held(&mut self, slots: Range<usize>, value: bool) {
        slots.for_each(|slot| set(&mut self.held, slot, value));
    }

    /// Sets or clears `split` of a slot.
    pub fn set_split(&mut self, slot: u8, value: bool) {
        set(&mut self.split, slot.into(), value);
    }
}

fn get(bits: &[u8; SET_BYTES], slot: usize) -> bool {
    bits.get(slot / 8).is_some_and(|byte| byte >> (slot % 8) & 1 == 1)
}

fn set(bits: &mut [u8; SET_BYTES], slot: usize, value: bool) {
    if let Some(byte) = bits.get_mut(slot / 8) {
        let bit = 1 << (slot % 8);
        *byte = if value { *byte | bit } else { *byte & !bit };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str) -> (String, Range<usize>) {
        let block: Block = text.parse().unwrap();
        let chunk = ChunkId::of(block);
        (chunk.key(), chunk.slots(block))
    }

    #[test]
    fn a_block_has_slots_in_the_chunk_of_the_next_byte_above() {
        assert_eq!(place("192.0.2.7"), ("chunk/424/c00002".into(), 7..8));
        assert_eq!(place("192.0.2.64/26"), ("chunk/424/c00002".into(), 64..128));
        assert_eq!(place("192.0.2.0/24"), ("chunk/416/c000".into(), 2..3));
        assert_eq!(place("128.0.0.0/1"), ("chunk/40/".into(), 128..256));
        assert_eq!(place("2001:db8:1:200::/56"), ("chunk/648/20010db80001".into(), 2..3));
    }

    #[test]
    fn the_chunk_above_has_the_slot_of_the_last_byte() {
        let chunk = ChunkId::of("192.0.2.7".parse().unwrap());
        let (above, slot) = chunk.parent().unwrap();
        assert_eq!((above.key(), slot), ("chunk/416/c000".into(), 2));
        let root = above.parent().unwrap().0.parent().unwrap().0;
        assert_eq!((root.key(), root.parent()), ("chunk/40/".into(), None));
    }

    #[test]
    fn a_chunk_is_stored_and_read_back() {
        let mut chunk = Chunk::default();
        chunk.set_held(250..256, true);
        chunk.set_split(3, true);
        assert_eq!(Chunk::decode(&chunk.encode()), Some(chunk.clone()));
        assert!(!chunk.is_free(0..4) && chunk.is_free(4..250) && !chunk.is_free(249..251));
        chunk.set_held(250..256, false);
        chunk.set_split(3, false);
        assert!(chunk.is_empty());
        assert_eq!(Chunk::decode(b"short"), None);
    }
}
