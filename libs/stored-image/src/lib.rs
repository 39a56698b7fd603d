//! Stored form of disk images, and the map that says where each block is.
//!
//! A stored image is a file in the seekable zstd format: one zstd frame per block of the raw disk,
//! in order, then a seek table. Blocks have 4 MiB by default; the last one may be shorter. Frames
//! of zeros stay in the file, so `zstd -d` decompresses it to the raw disk.
//!
//! The map is a message of its own. It has the frame of each block and the SHA-256 of the block's
//! raw content, or says that the block is all zeros. A machine that writes the disk fetches only
//! frames with data, in any order, and checks each block before it writes it.
//!
//! - Writing: [`Encoder`] from a stream, [`store()`] from a file with holes.
//! - The map: [`CheckedMap`], [`bmap()`] for `bmaptool`, [`ranges_to_fetch()`] for HTTP.
//! - Reading: [`BlockDecoder`] for single frames, [`RawReader`] for raw bytes, [`verify()`] for a
//!   whole file.
//!
//! Maps and frames may come from strangers: sizes are checked before memory is allocated for them.

mod bmap;
mod decoder;
mod digest;
mod encoder;
mod error;
mod fetch;
mod frame;
mod map;
mod reader;
mod seek_table;
mod sparse;
mod verify;
mod wire;
mod workers;
mod zeros;

#[cfg(test)]
mod samples;

pub use bmap::bmap;
pub use decoder::{BlockDecoder, decode_block};
pub use digest::Digest;
pub use encoder::{EncodedImage, Encoder, EncoderSettings};
pub use error::Error;
pub use fetch::{FrameRange, MAX_RANGE_BYTES, ranges_to_fetch};
pub use map::{
    CheckedMap, DEFAULT_BLOCK_BYTES, MAX_BLOCK_BYTES, MAX_BLOCKS, MIN_BLOCK_BYTES, MapBlock,
};
pub use reader::RawReader;
pub use sparse::store;
pub use verify::verify;
pub use wire::MAX_MAP_BYTES;
