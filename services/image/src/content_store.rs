//! The choice of the object store: a directory or a bucket.

use anyhow::Context as _;
use runtime::Clock;
use store::ScopedStore;

use crate::objects::Objects;
use crate::s3;
use crate::settings::{ContentStore, Settings};
use crate::uploads::{UploadRecords, Uploads};

/// Opens the object store and the uploads, if the site has them.
pub(crate) fn open(
    settings: &Settings,
    store: &ScopedStore,
    clock: &Clock,
) -> anyhow::Result<(Option<Objects>, Uploads)> {
    let (objects, uploads) = match &settings.content {
        None => return Ok((None, Uploads::default())),
        Some(ContentStore::Directory(directory)) => {
            let text = || format!("images.directory: {}", directory.display());
            let objects = Objects::open(directory).with_context(text)?;
            let uploads = Uploads::open(directory, objects.clone()).with_context(text)?;
            (objects, uploads)
        }
        Some(ContentStore::S3(bucket)) => {
            let bucket = s3::open(bucket)?;
            let records = UploadRecords::new(bucket.clone(), store.clone(), clock.clone());
            let objects = Objects::in_bucket(bucket, settings.max_size_bytes);
            (objects, Uploads::in_bucket(records))
        }
    };
    Ok((Some(objects), uploads))
}
