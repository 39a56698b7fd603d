//! The map of a stored image: where the frame of each block is, and the digest of its content.

use std::ops::Range;

use prost::Message as _;

use tinwright::image::v1 as pb;

use crate::digest::Digest;
use crate::error::Error;
use crate::{frame, seek_table, wire};

/// Minimum size of a block in bytes.
pub const MIN_BLOCK_BYTES: u32 = 64 << 10;
/// Maximum size of a block in bytes.
pub const MAX_BLOCK_BYTES: u32 = 16 << 20;
/// Size of a block in bytes, unless another one is chosen.
pub const DEFAULT_BLOCK_BYTES: u32 = 4 << 20;
/// Maximum number of blocks: 4 TiB of blocks of 4 MiB. Their map stays below
/// [`MAX_MAP_BYTES`](crate::MAX_MAP_BYTES).
pub const MAX_BLOCKS: usize = 1 << 20;

/// A map that was checked: its blocks cover the raw disk, and their frames the stored file.
///
/// The frames begin at offset 0 and have no gaps. The seek table follows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedMap {
    size_bytes: u64,
    sha256: Digest,
    stored_bytes: u64,
    stored_sha256: Digest,
    block_bytes: u32,
    entries: Vec<Entry>,
}

/// A block of the raw disk, as the map has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapBlock {
    /// Number of the block, from 0.
    pub index: usize,
    /// Bytes of the raw disk.
    pub raw: Range<u64>,
    /// Bytes of the stored file: the block's frame.
    pub stored: Range<u64>,
    /// SHA-256 of the raw block, or nothing if the block is all zeros.
    pub digest: Option<Digest>,
}

impl MapBlock {
    /// Size of the raw block in bytes.
    pub fn raw_bytes(&self) -> u64 {
        self.raw.end - self.raw.start
    }

    /// Size of the frame in bytes.
    pub fn stored_bytes(&self) -> u64 {
        self.stored.end - self.stored.start
    }

    /// True if all bytes of the block are zero.
    pub fn is_zeros(&self) -> bool {
        self.digest.is_none()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    offset: u64,
    length: u32,
    digest: Option<Digest>,
}

impl CheckedMap {
    /// Decodes and checks a map from an untrusted source. Raw disks have at most `max_size_bytes`
    /// bytes.
    pub fn parse(bytes: &[u8], max_size_bytes: u64) -> Result<Self, Error> {
        let max_blocks = max_size_bytes.div_ceil(MIN_BLOCK_BYTES.into());
        let max_blocks = usize::try_from(max_blocks).unwrap_or(MAX_BLOCKS).min(MAX_BLOCKS);
        let map = wire::decode(bytes, max_blocks)?;
        if map.size_bytes > max_size_bytes {
            let problem = format!("the limit is {max_size_bytes} bytes");
            return Err(Error::Map { field: "size_bytes", problem, value: map.size_bytes });
        }
        Self::check(map)
    }

    /// Checks that the fields of `map` fit together.
    pub(crate) fn check(map: pb::Map) -> Result<Self, Error> {
        let pb::Map { size_bytes, sha256, stored_bytes, stored_sha256, block_bytes, blocks } = map;
        check_block_bytes(block_bytes)?;
        check_count(size_bytes.div_ceil(block_bytes.into()), blocks.len())?;
        let mut map = Self {
            size_bytes,
            sha256: digest("sha256", &sha256)?,
            stored_bytes,
            stored_sha256: digest("stored_sha256", &stored_sha256)?,
            block_bytes,
            entries: Vec::with_capacity(blocks.len()),
        };
        let mut end = 0;
        for block in blocks {
            end = map.push(block, end)?;
        }
        // `MAX_BLOCKS` frames of at most 32 bits each: no overflow.
        let expected = end + seek_table::bytes(map.entries.len());
        if stored_bytes != expected {
            let problem = format!("expected {expected}, the size of the frames and the seek table");
            return Err(Error::Map { field: "stored_bytes", problem, value: stored_bytes });
        }
        Ok(map)
    }

    /// Appends a block if its frame begins at `begin`. Returns the end of the frame.
    fn push(&mut self, block: pb::Block, begin: u64) -> Result<u64, Error> {
        let pb::Block { offset, length, sha256 } = block;
        let index = self.entries.len();
        let invalid = |field, problem, value| Err(Error::MapBlock { index, field, problem, value });
        if offset != begin {
            return invalid(
                "offset",
                format!("expected {begin}, the end of the frame before"),
                offset,
            );
        }
        let raw = self.raw(index);
        let limit = frame::max_bytes(raw.end - raw.start);
        if length == 0 || u64::from(length) > limit {
            return invalid("length", format!("not from 1 to {limit}"), length.into());
        }
        let digest = match <[u8; 32]>::try_from(sha256.as_slice()) {
            Ok(digest) => Some(Digest(digest)),
            Err(_) if sha256.is_empty() => None,
            Err(_) => {
                let problem = "expected 0 or 32 bytes".into();
                return invalid("sha256", problem, sha256.len() as u64);
            }
        };
        self.entries.push(Entry { offset, length, digest });
        Ok(offset + u64::from(length))
    }

    /// Encodes the map.
    pub fn encode(&self) -> Vec<u8> {
        let block = |entry: &Entry| pb::Block {
            offset: entry.offset,
            length: entry.length,
            sha256: entry.digest.map(Digest::to_vec).unwrap_or_default(),
        };
        let map = pb::Map {
            size_bytes: self.size_bytes,
            sha256: self.sha256.to_vec(),
            stored_bytes: self.stored_bytes,
            stored_sha256: self.stored_sha256.to_vec(),
            block_bytes: self.block_bytes,
            blocks: self.entries.iter().map(block).collect(),
        };
        map.encode_to_vec()
    }

    /// Size of the raw disk in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// SHA-256 of the raw disk.
    pub fn sha256(&self) -> Digest {
        self.sha256
    }

    /// Size of the stored file in bytes.
    pub fn stored_bytes(&self) -> u64 {
        self.stored_bytes
    }

    /// SHA-256 of the stored file.
    pub fn stored_sha256(&self) -> Digest {
        self.stored_sha256
    }

    /// Raw size in bytes of each block but the last, which may be shorter.
    pub fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// Number of blocks.
    pub fn block_count(&self) -> usize {
        self.entries.len()
    }

    /// Number of raw bytes in blocks that are not all zeros.
    pub fn used_bytes(&self) -> u64 {
        let used = self.blocks().filter(|block| !block.is_zeros());
        used.map(|block| block.raw_bytes()).sum()
    }

    /// Returns the block with number `index`.
    pub fn block(&self, index: usize) -> Result<MapBlock, Error> {
        let blocks = self.entries.len();
        let entry = self.entries.get(index).ok_or(Error::NoSuchBlock { index, blocks })?;
        Ok(self.describe(index, entry))
    }

    /// Returns all blocks in order.
    pub fn blocks(&self) -> impl ExactSizeIterator<Item = MapBlock> {
        self.entries.iter().enumerate().map(|(index, entry)| self.describe(index, entry))
    }

    fn describe(&self, index: usize, entry: &Entry) -> MapBlock {
        let stored = entry.offset..entry.offset + u64::from(entry.length);
        MapBlock { index, raw: self.raw(index), stored, digest: entry.digest }
    }

    /// Returns the bytes of the raw disk in block `index`.
    fn raw(&self, index: usize) -> Range<u64> {
        let begin = index as u64 * u64::from(self.block_bytes);
        begin..begin.saturating_add(self.block_bytes.into()).min(self.size_bytes)
    }
}

fn check_block_bytes(block_bytes: u32) -> Result<(), Error> {
    let is_valid = is_block_size(block_bytes);
    is_valid.then_some(()).ok_or_else(|| Error::Map {
        field: "block_bytes",
        problem: format!("not a power of two from {MIN_BLOCK_BYTES} to {MAX_BLOCK_BYTES}"),
        value: block_bytes.into(),
    })
}

/// True if blocks may have `block_bytes` bytes.
pub(crate) fn is_block_size(block_bytes: u32) -> bool {
    block_bytes.is_power_of_two() && (MIN_BLOCK_BYTES..=MAX_BLOCK_BYTES).contains(&block_bytes)
}

fn check_count(expected: u64, count: usize) -> Result<(), Error> {
    let problem = match count as u64 == expected {
        true if count <= MAX_BLOCKS => return Ok(()),
        true => format!("the limit is {MAX_BLOCKS} blocks"),
        false => format!("expected {expected} blocks"),
    };
    Err(Error::Map { field: "blocks", problem, value: count as u64 })
}

fn digest(field: &'static str, bytes: &[u8]) -> Result<Digest, Error> {
    let problem = || "expected 32 bytes".into();
    let wrong = |_| Error::Map { field, problem: problem(), value: bytes.len() as u64 };
    bytes.try_into().map(Digest).map_err(wrong)
}

#[cfg(test)]
mod tests;
