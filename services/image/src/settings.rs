//! Settings of the service.

use std::path::PathBuf;
use std::time::Duration;

use url::Url;

/// Place of the content of images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContentStore {
    /// A directory of this host.
    Directory(PathBuf),
    /// A bucket.
    S3(S3Settings),
}

/// A bucket of an S3 server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct S3Settings {
    /// URL of the server, without the bucket.
    pub url: Url,
    /// The bucket.
    pub bucket: String,
    /// The region, which is a part of signatures.
    pub region: String,
    /// File with the access key. It is read at the start, and not shown.
    pub credentials: PathBuf,
    /// File with further certificate authorities (PEM) to trust.
    pub ca: Option<PathBuf>,
}

/// Settings of the service.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Place of the content of images, and of uploads. None: the site has no object store.
    pub content: Option<ContentStore>,
    /// Maximum size of an image's content in bytes.
    pub max_size_bytes: u64,
    /// Maximum size of an uploaded file in bytes.
    pub max_upload_bytes: u64,
    /// Delay until unused content is removed, and an upload without a new byte has failed.
    pub retention: Duration,
    /// Duration of a builder's lease.
    pub lease: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            content: None,
            max_size_bytes: 64 << 30,
            max_upload_bytes: 64 << 30,
            retention: Duration::from_hours(24),
            lease: Duration::from_secs(60),
        }
    }
}
