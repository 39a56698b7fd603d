//! Archives of what a site needs to install machines, for sites without a network to others.
//!
//! ```text
//! SHA256SUMS             the list of all other files, as `sha256sum -c` reads it
//! SHA256SUMS.minisig     the signature of the list, as `minisign -V` reads it
//! …                      the files of the list, each once
//! ```
//!
//! An archive is a tar with regular files only. Names are relative, and lead nowhere else.
//!
//! - [`Writer`]: writes an archive. The digests of all files are known before.
//! - [`Archive`]: an archive that was checked: the signature before anything else is read, then each
//!   file. It is the only way to the content.
//! - [`ListedFile`], [`Digest`]: the list.
//!
//! Nothing is held in memory but the list. The library gets readers and writers: it opens no files.

mod digest;
mod error;
mod list;
mod members;
mod read;
mod write;

pub use digest::Digest;
pub use error::Error;
pub use list::{ListedFile, list_text};
pub use read::{Archive, ArchivedFile, Trust};
pub use write::Writer;

/// Name of the list.
pub const LIST: &str = "SHA256SUMS";
/// Name of its signature.
pub const SIGNATURE: &str = "SHA256SUMS.minisig";
/// The trusted comment of the signature: the format and its version.
pub const COMMENT: &str = "tinwright site archive 1";
