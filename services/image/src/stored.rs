//! Kinds of records that callers never see.
//!
//! ```text
//! image/blob/<digest>          the content with this SHA-256, and its object
//! image/staged/<object>        an object that is being written
//! image/content/<digest>       the blobs of the disk with this SHA-256
//! image/content-blob/<digest>/<content>    ─▶ content: the contents that a blob is part of
//! ```

use store::records::{Index, Kind};
use tinwright::secret::Sealable;

/// The index of contents by their blobs.
pub(crate) const CONTENT_BLOB_INDEX: &str = "content-blob";

/// Content that is stored.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Blob {
    /// SHA-256 in hexadecimal digits.
    #[prost(string, tag = "1")]
    pub digest: String,
    /// The record's revision; zero in the store.
    #[prost(int64, tag = "2")]
    pub revision: i64,
    /// Name of its object.
    #[prost(string, tag = "3")]
    pub object: String,
    /// Size in bytes.
    #[prost(uint64, tag = "4")]
    pub size_bytes: u64,
    /// The last time at which it was stored, or an image got it or lost it.
    #[prost(message, optional, tag = "5")]
    pub use_time: Option<prost_types::Timestamp>,
    /// Number of these times. It makes each use a change of the record.
    #[prost(uint64, tag = "6")]
    pub uses: u64,
}

/// An object that is being written.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StagedObject {
    /// Name of the object.
    #[prost(string, tag = "1")]
    pub object: String,
    /// The record's revision; zero in the store.
    #[prost(int64, tag = "2")]
    pub revision: i64,
    /// The time at which writing began.
    #[prost(message, optional, tag = "3")]
    pub create_time: Option<prost_types::Timestamp>,
}

/// The blobs of a disk.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DiskContent {
    /// SHA-256 of the disk in hexadecimal digits.
    #[prost(string, tag = "1")]
    pub digest: String,
    /// The record's revision; zero in the store.
    #[prost(int64, tag = "2")]
    pub revision: i64,
    /// SHA-256 of the stored file.
    #[prost(string, tag = "3")]
    pub stored_sha256: String,
    /// SHA-256 of the map; empty for an archive.
    #[prost(string, tag = "4")]
    pub map_sha256: String,
    /// Size of the stored file in bytes.
    #[prost(uint64, tag = "5")]
    pub stored_bytes: u64,
}

tinwright::stored_record!(Blob, "blob", digest);
tinwright::stored_record!(StagedObject, "staged object", object);
tinwright::stored_record!(DiskContent, "content", digest);

impl Sealable for Blob {}
impl Sealable for StagedObject {}
impl Sealable for DiskContent {}

store::kind!(
    /// The kind of [`Blob`].
    pub BlobKind: Blob, String, "blob"
);

store::kind!(
    /// The kind of [`StagedObject`].
    pub StagedKind: StagedObject, String, "staged"
);

/// The kind of [`DiskContent`].
#[derive(Debug)]
pub enum ContentKind {}

impl Kind for ContentKind {
    type Record = DiskContent;
    type Id = String;
    const KIND: &'static str = "content";
    const INDEXES: &'static [&'static str] = &[CONTENT_BLOB_INDEX];

    fn indexes(content: &DiskContent) -> Vec<Index> {
        let digests = [&content.stored_sha256, &content.map_sha256].into_iter();
        let digests = digests.filter(|digest| !digest.is_empty());
        digests.map(|digest| Index::shared(CONTENT_BLOB_INDEX, digest.as_str())).collect()
    }
}
