//! Failures of an installation with a map.

use crate::disk;

/// A map or block that is not written, or not found on the disk afterwards.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("GET {url}: map: size: the limit is {limit} bytes")]
    MapTooLarge { url: String, limit: usize },
    #[error("GET {url}")]
    Map { url: String, source: stored_image::Error },
    #[error("GET {url}: map: block_bytes: the limit is {limit}: {block_bytes}")]
    BlockBytes { url: String, limit: usize, block_bytes: u32 },
    /// The server sent a damaged block twice.
    #[error("GET {url}: fetched twice")]
    Block { url: String, source: stored_image::Error },
    #[error("block {index}")]
    ReadBack { index: usize, source: disk::Error },
    #[error(transparent)]
    Decoder(#[from] stored_image::Error),
}

impl crate::error::StepError for Error {}
