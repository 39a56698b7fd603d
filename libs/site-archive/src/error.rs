//! Archives that are not accepted, and the reasons.

use std::io;

use crate::digest::Digest;
use crate::{LIST, SIGNATURE};

/// The reason why an archive is refused, or could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The archive could not be read.
    #[error("reading the archive")]
    Read(#[source] io::Error),
    /// The archive could not be written.
    #[error("writing the archive")]
    Write(#[source] io::Error),
    /// A file of the archive could not be written elsewhere.
    #[error("{name}: writing its content")]
    Copy {
        /// The file.
        name: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The file is not a tar.
    #[error("not a tar: {0}")]
    Damaged(String),
    /// The file ends before the archive.
    #[error("truncated: its end mark is missing")]
    Truncated,
    /// There is something behind the end mark.
    #[error("data after its end mark")]
    Trailing,
    /// The first file is not the list.
    #[error("not an archive of a site: its first file is not {LIST}")]
    NoList,
    /// The second file is not the signature.
    #[error("not signed: its second file is not {SIGNATURE}")]
    NotSigned,
    /// The signature is not accepted.
    #[error("{SIGNATURE}")]
    Signature(#[from] image_signature::Error),
    /// The signature is valid, and not one of an archive.
    #[error("{SIGNATURE}: signed as {0:?}: not an archive of a site in a version that is known")]
    OtherComment(String),
    /// A line of the list is not accepted.
    #[error("{LIST}: line {line}: {problem}")]
    Line {
        /// Number of the line.
        line: usize,
        /// The problem.
        problem: &'static str,
    },
    /// A file of the archive is not accepted.
    #[error("{name}: {problem}")]
    File {
        /// The file, quoted if its name has special characters.
        name: String,
        /// The problem.
        problem: &'static str,
    },
    /// A file is larger than this program reads at once.
    #[error("{name}: {bytes} bytes: at most {max}")]
    TooLarge {
        /// The file.
        name: String,
        /// Its size.
        bytes: u64,
        /// The maximum.
        max: u64,
    },
    /// The content of a file is not the listed one.
    #[error("{name}: changed: its SHA-256 is {found}, listed is {listed}")]
    Changed {
        /// The file.
        name: String,
        /// The digest of the content.
        found: Digest,
        /// The digest in the list.
        listed: Digest,
    },
}

/// Returns the error of the file `name`.
pub(crate) fn refused(name: &str, problem: &'static str) -> Error {
    Error::File { name: quoted(name), problem }
}

/// Returns `name` in one line.
fn quoted(name: &str) -> String {
    const MAX_CHARS: usize = 200;
    let short: String = name.chars().take(MAX_CHARS).collect();
    match short.chars().all(|c| c.is_ascii_graphic()) && !short.is_empty() {
        true => short,
        false => format!("{short:?}"),
    }
}
