//! zstd frames: one for each block, with its size and a checksum of its content.

use std::io;

use zstd::bulk::Compressor;
use zstd::zstd_safe::{compress_bound, min_c_level};

/// Returns the maximum size in bytes of the frame of `raw_bytes` bytes.
pub(crate) fn max_bytes(raw_bytes: u64) -> u64 {
    usize::try_from(raw_bytes).map_or(u64::MAX, |bytes| compress_bound(bytes) as u64)
}

/// Returns the levels of compression that zstd has.
pub(crate) fn levels() -> std::ops::RangeInclusive<i32> {
    min_c_level()..=zstd::zstd_safe::max_c_level()
}

/// Makes a compressor of whole frames.
pub(crate) fn compressor(level: i32) -> io::Result<Compressor<'static>> {
    let mut compressor = Compressor::new(level)?;
    compressor.include_contentsize(true)?;
    compressor.include_checksum(true)?;
    Ok(compressor)
}

/// Compresses `raw` into `frame`, which is emptied first.
pub(crate) fn compress(
    compressor: &mut Compressor<'_>,
    raw: &[u8],
    frame: &mut Vec<u8>,
) -> io::Result<()> {
    frame.clear();
    frame.reserve(compress_bound(raw.len()));
    compressor.compress_to_buffer(raw, frame)?;
    Ok(())
}
