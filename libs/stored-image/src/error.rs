//! Reasons why a stored image, a map or an operation on them fails.

use std::io;

use crate::digest::Digest;

/// Reason why a stored image or its map is not accepted, or cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The map is no protobuf message.
    #[error("map: not a protobuf message")]
    Encoding(#[from] prost::DecodeError),
    /// A field of the map is invalid.
    #[error("map: {field}: {problem}: {value}")]
    Map {
        /// Field at fault.
        field: &'static str,
        /// The problem, with the limit or the expected value.
        problem: String,
        /// Value of the field.
        value: u64,
    },
    /// A field of a block in the map is invalid.
    #[error("map: block {index}: {field}: {problem}: {value}")]
    MapBlock {
        /// Number of the block, from 0.
        index: usize,
        /// Field at fault.
        field: &'static str,
        /// The problem, with the limit or the expected value.
        problem: String,
        /// Value of the field.
        value: u64,
    },
    /// A block number is beyond the map.
    #[error("block: {index}: the map has {blocks} blocks")]
    NoSuchBlock {
        /// Number of the block, from 0.
        index: usize,
        /// Number of blocks in the map.
        blocks: usize,
    },
    /// The buffer for a block does not have the block's size.
    #[error("block {index}: buffer: expected {expected} bytes: {found}")]
    Buffer {
        /// Number of the block, from 0.
        index: usize,
        /// Size of the raw block in bytes.
        expected: u64,
        /// Size of the buffer in bytes.
        found: u64,
    },
    /// The frame of a block does not decompress to a block.
    #[error("block {index} at raw byte {offset}: frame: {problem}")]
    Frame {
        /// Number of the block, from 0.
        index: usize,
        /// Offset of the block in the raw disk.
        offset: u64,
        /// The problem, with the value at fault.
        problem: String,
    },
    /// The content of a block differs from its digest in the map.
    #[error("block {index} at raw byte {offset}: sha256: expected {expected}: {found}")]
    BlockDigest {
        /// Number of the block, from 0.
        index: usize,
        /// Offset of the block in the raw disk.
        offset: u64,
        /// Digest in the map, or the digest of zeros if the map says that the block is zeros.
        expected: Digest,
        /// Digest of the content.
        found: Digest,
    },
    /// The raw disk or the stored file differs from its digest in the map, although each block is
    /// right.
    #[error("{what}: sha256: expected {expected}: {found}")]
    Digest {
        /// `raw disk` or `stored file`.
        what: &'static str,
        /// Digest in the map.
        expected: Digest,
        /// Digest of the content.
        found: Digest,
    },
    /// The file is shorter than expected, or longer.
    #[error("{what}: size: {problem}: {bytes} bytes")]
    Size {
        /// `raw disk` or `stored file`.
        what: &'static str,
        /// The problem.
        problem: &'static str,
        /// Size in bytes that was expected.
        bytes: u64,
    },
    /// A setting of the encoder is invalid.
    #[error("settings: {field}: {problem}: {value}")]
    Settings {
        /// Field at fault.
        field: &'static str,
        /// The problem.
        problem: String,
        /// Value of the field.
        value: i64,
    },
    /// An operation of the host failed.
    #[error("{operation}")]
    Io {
        /// The operation.
        operation: &'static str,
        /// Cause of the failure.
        source: io::Error,
    },
}

impl Error {
    /// Describes a failed `operation` of the host.
    pub(crate) fn io(operation: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { operation, source }
    }

    /// True if the map or the stored file is at fault; false if the host or the caller is.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Encoding(_) | Self::Map { .. } | Self::MapBlock { .. } | Self::Frame { .. } => {
                true
            }
            Self::BlockDigest { .. } | Self::Digest { .. } | Self::Size { .. } => true,
            Self::NoSuchBlock { .. } | Self::Buffer { .. } => false,
            Self::Settings { .. } | Self::Io { .. } => false,
        }
    }
}

/// Returns an [`io::Error`] of the host as it is, for callers that look at its kind. Damage is of the
/// kind [`InvalidData`](io::ErrorKind::InvalidData), a caller's fault of the kind
/// [`InvalidInput`](io::ErrorKind::InvalidInput).
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let is_damage = error.is_damage();
        if let Error::Io { operation: _, source } = error {
            return source;
        }
        let kind = if is_damage { io::ErrorKind::InvalidData } else { io::ErrorKind::InvalidInput };
        Self::new(kind, error)
    }
}
