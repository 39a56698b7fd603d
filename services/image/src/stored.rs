//! Kinds of records that callers never see.
//!
//! ```text
//! image/blob/<digest>          the content with this SHA-256, and its object
//! image/staged/<object>        an object that is being written
//! image/content/<digest>       the blobs of the disk with this SHA-256
//! image/content-blob/<digest>/<content>    ─▶ content: the contents that a blob is part of
//! image/upload/<image>         an upload to a bucket
//! image/run/<upload>.<number>  bytes of it that one request sent
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
    /// The last time at which its bytes were compared with the digest.
    #[prost(message, optional, tag = "7")]
    pub check_time: Option<prost_types::Timestamp>,
    /// How they differed then; empty if they did not.
    #[prost(string, tag = "8")]
    pub damage: String,
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
    /// Id of the multipart upload that writes it to a bucket.
    #[prost(string, tag = "4")]
    pub upload_id: String,
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

/// An upload to a bucket.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct StoredUpload {
    /// Id of the image.
    #[prost(string, tag = "1")]
    pub id: String,
    /// The record's revision; zero in the store.
    #[prost(int64, tag = "2")]
    pub revision: i64,
    /// An image whose upload was removed may get another one, with another UUID.
    #[prost(string, tag = "3")]
    pub uuid: String,
    /// Durable bytes.
    #[prost(uint64, tag = "4")]
    pub size_bytes: u64,
    /// Number of the first run whose bytes count.
    #[prost(uint64, tag = "5")]
    pub first_run: u64,
    /// Number of the next run.
    #[prost(uint64, tag = "6")]
    pub next_run: u64,
    /// The time of the last durable byte.
    #[prost(message, optional, tag = "7")]
    pub write_time: Option<prost_types::Timestamp>,
}

/// Bytes of an upload that one request sent. They are objects of equal size, but for the last one.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct UploadRun {
    /// `<UUID of the upload>.<number>`, with a fixed number of digits.
    #[prost(string, tag = "1")]
    pub id: String,
    /// The record's revision; zero in the store.
    #[prost(int64, tag = "2")]
    pub revision: i64,
    /// Id of the image.
    #[prost(string, tag = "3")]
    pub image: String,
    /// UUID of the upload.
    #[prost(string, tag = "4")]
    pub upload: String,
    /// A UUID, which begins the names of its objects.
    #[prost(string, tag = "5")]
    pub name: String,
    /// Bytes of all objects.
    #[prost(uint64, tag = "6")]
    pub size_bytes: u64,
    /// Bytes of an object.
    #[prost(uint64, tag = "7")]
    pub part_bytes: u64,
}

tinwright::stored_record!(Blob, "blob", digest);
tinwright::stored_record!(StagedObject, "staged object", object);
tinwright::stored_record!(DiskContent, "content", digest);
tinwright::stored_record!(StoredUpload, "upload", id);
tinwright::stored_record!(UploadRun, "run", id);

impl Sealable for Blob {}
impl Sealable for StagedObject {}
impl Sealable for DiskContent {}
impl Sealable for StoredUpload {}
impl Sealable for UploadRun {}

store::kind!(
    /// The kind of [`Blob`].
    pub BlobKind: Blob, String, "blob"
);

store::kind!(
    /// The kind of [`StagedObject`].
    pub StagedKind: StagedObject, String, "staged"
);

store::kind!(
    /// The kind of [`StoredUpload`].
    pub(crate) UploadKind: StoredUpload, String, "upload"
);

store::kind!(
    /// The kind of [`UploadRun`].
    pub(crate) RunKind: UploadRun, String, "run"
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
