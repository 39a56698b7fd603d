//! Settings of the service.

use std::path::PathBuf;
use std::time::Duration;

/// Settings of the service.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Directory with the content of images, and with uploads. None: the site has no object store.
    pub directory: Option<PathBuf>,
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
            directory: None,
            max_size_bytes: 64 << 30,
            max_upload_bytes: 64 << 30,
            retention: Duration::from_hours(24),
            lease: Duration::from_secs(60),
        }
    }
}
