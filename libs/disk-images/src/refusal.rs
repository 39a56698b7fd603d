//! Reasons why a file is not accepted as an image. Texts name the value at fault; bytes of the file
//! are printable and short in them.

use serde::{Deserialize, Serialize};

use crate::format::{Format, Wrapping};
use crate::text::Size;

/// Reason why a file is not accepted as an image, or was not converted.
///
/// All reasons but [`Io`](Self::Io) and [`MissingProgram`](Self::MissingProgram) are faults of the
/// file: another attempt fails in the same way.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Refusal {
    /// The image takes content from other files.
    #[error(
        "source: format {format}: refers to {what} {name}: images that refer to other files are refused"
    )]
    RefersElsewhere {
        /// Format of the image.
        format: Format,
        /// Kind of the reference, such as `backing file`.
        what: String,
        /// Name of the other file, in quotation marks.
        name: String,
    },
    /// The content is not of the declared format.
    #[error("source: declared format {declared}: the content is {found}")]
    Contradiction {
        /// Format that the caller declared, or that the file's name ends in.
        declared: Format,
        /// Format of the content.
        found: String,
    },
    /// The content is of a known format that is no image.
    #[error("source: unsupported format: {found}")]
    UnsupportedFormat {
        /// Format of the content.
        found: String,
    },
    /// The content has no magic.
    #[error(
        "source: unknown format: begins with {head}: neither a disk image's magic nor a boot sector; a raw image needs a name that ends in .raw or .img, or the declared format raw"
    )]
    UnknownFormat {
        /// First bytes in hexadecimal.
        head: String,
    },
    /// The content is an archive in place of a disk.
    #[error("source: format {format}: not a disk image: register it with the kind archive")]
    NotDisk {
        /// Format of the content.
        format: Format,
    },
    /// The content is a disk in place of an archive.
    #[error("source: format {format}: not an archive: archive images are tar files")]
    NotArchive {
        /// Format of the content.
        format: Format,
    },
    /// The image uses a feature that is not supported.
    #[error("source: format {format}: {feature}: not supported")]
    Unsupported {
        /// Format of the image or wrapping.
        format: String,
        /// The feature.
        feature: String,
    },
    /// The image is larger than allowed.
    #[error("source: {what}: {}: the limit is {}", Size(*.bytes), Size(*.limit))]
    TooLarge {
        /// The size at fault, such as `virtual size`.
        what: String,
        /// Size in bytes.
        bytes: u64,
        /// Maximum size in bytes.
        limit: u64,
    },
    /// The content expands too much.
    #[error(
        "source: expansion: more than {ratio} times: {} of data from a file of {}", Size(*.bytes), Size(*.source_bytes)
    )]
    Ratio {
        /// Data so far in bytes, without zeros.
        bytes: u64,
        /// Size of the file in bytes.
        source_bytes: u64,
        /// Maximum ratio.
        ratio: u64,
    },
    /// The file ends too early.
    #[error("source: format {format}: truncated at byte {at}: {needs}")]
    Truncated {
        /// Format of the image or wrapping.
        format: String,
        /// Length of the file, or of the part that is missing its end.
        at: u64,
        /// The part that is missing.
        needs: String,
    },
    /// The content violates its format.
    #[error("source: format {format}: damaged: {reason}")]
    Damaged {
        /// Format of the image or wrapping.
        format: String,
        /// The violation.
        reason: String,
    },
    /// An entry of an archive is not allowed.
    #[error("source: {archive}: entry {name}: {problem}")]
    Entry {
        /// Format of the archive.
        archive: String,
        /// Name of the entry, in quotation marks.
        name: String,
        /// The problem.
        problem: String,
    },
    /// An archive has too many entries.
    #[error("source: {archive}: {members} entries: the limit is {limit}")]
    TooManyMembers {
        /// Format of the archive.
        archive: String,
        /// Number of entries, or the number that was counted before the refusal.
        members: u64,
        /// Maximum number.
        limit: u64,
    },
    /// An archive does not have exactly one image.
    #[error("source: {archive}: {found}: expected exactly one image")]
    Choice {
        /// Format of the archive.
        archive: String,
        /// Images found.
        found: String,
    },
    /// The image is compressed again and again.
    #[error("source: wrapped more than {limit} times: the innermost is {innermost}")]
    TooManyWrappings {
        /// Maximum number of wrappings.
        limit: usize,
        /// The first wrapping beyond the limit.
        innermost: Wrapping,
    },
    /// There is no content.
    #[error("source: empty{}", in_wrapping(.wrapping.as_ref()))]
    Empty {
        /// Wrapping without content.
        wrapping: Option<Wrapping>,
    },
    /// A program of this host is missing.
    #[error("source: format {format}: needs qemu-img: install qemu-utils")]
    MissingProgram {
        /// Format of the image.
        format: Format,
    },
    /// An operation of this host failed.
    #[error("{operation}: {error}")]
    Io {
        /// The operation.
        operation: String,
        /// Cause of the failure.
        error: String,
    },
}

impl Refusal {
    pub(crate) fn io(operation: &str, error: &std::io::Error) -> Self {
        Self::Io { operation: operation.into(), error: error.to_string() }
    }

    pub(crate) fn truncated(format: impl ToString, at: u64, needs: impl Into<String>) -> Self {
        Self::Truncated { format: format.to_string(), at, needs: needs.into() }
    }

    pub(crate) fn damaged(format: impl ToString, reason: impl Into<String>) -> Self {
        Self::Damaged { format: format.to_string(), reason: reason.into() }
    }

    pub(crate) fn unsupported(format: impl ToString, feature: impl Into<String>) -> Self {
        Self::Unsupported { format: format.to_string(), feature: feature.into() }
    }

    /// True if the file itself is at fault; false if this host is.
    pub fn is_fault_of_file(&self) -> bool {
        !matches!(self, Self::Io { .. } | Self::MissingProgram { .. })
    }
}

fn in_wrapping(wrapping: Option<&Wrapping>) -> String {
    wrapping.map_or(String::new(), |wrapping| format!(" content in {wrapping}"))
}
