//! Imports of uploads: from the first byte to the build.

use std::time::Duration;

use nouns::Noun as _;
use runtime::Clock;
use store::ScopedStore;
use store::records::{self, Change, Records};
use tinwright::image::v1 as pb;
use tinwright::image::v1::ImageState;

use crate::builds;
use crate::error::Error;
use crate::images::Images;
use crate::kinds::BuildKind;
use crate::kinds::ImageKind;
use crate::lifecycle;
use crate::uploads::Uploads;

/// Attempts to commit while others come first.
const MAX_ATTEMPTS: usize = 32;

/// The images that are uploaded.
#[derive(Clone, Debug)]
pub struct Imports {
    images: Records<ImageKind>,
    builds: Records<BuildKind>,
    uploads: Uploads,
    clock: Clock,
}

impl Imports {
    /// The images of `images` that are uploaded to `uploads`, with builds in `store`.
    pub fn new(store: ScopedStore, images: &Images, uploads: Uploads, clock: Clock) -> Self {
        Self { images: images.records().clone(), builds: Records::new(store), uploads, clock }
    }

    /// Stores that the upload of the image `id` has `size` bytes. They count for the quota of its
    /// tenant. A size that was stored before has to be the same, unless it `may_change`.
    pub async fn declare(&self, id: &str, size: u64, may_change: bool) -> Result<(), Error> {
        self.change(id, |image| {
            if image.stored_bytes != 0 && image.stored_bytes != size && !may_change {
                let text = format!(
                    "Upload-Length: {size}, but {} bytes were declared before",
                    image.stored_bytes
                );
                return Err(Error::precondition("IMAGE_STATE", "image", id, text));
            }
            let new = pb::Image { stored_bytes: size, ..image.clone() };
            Ok((new, Change::default()))
        })
        .await
        .map(drop)
    }

    /// Begins the build of the image `id`, with a complete upload.
    pub async fn begin_build(&self, id: &str) -> Result<pb::Image, Error> {
        self.change(id, |image| {
            let (build, processing) = builds::begin(image.clone(), self.clock.wall());
            Ok((processing, self.builds.to_create(&build)))
        })
        .await
    }

    /// Begins the build of the image `id` if its upload has `size` bytes, and no request writes to
    /// it: a request may still cut bytes off that have the wrong checksum.
    pub async fn begin_if_complete(&self, id: &str, size: u64) -> Result<(), Error> {
        let Ok(_turn) = self.uploads.turn(id) else { return Ok(()) };
        match self.uploads.offset(id).await? == size {
            true => self.begin_build(id).await.map(drop),
            false => Ok(()),
        }
    }

    /// Ends the upload of the image `id`, which got no byte for `time`. The bytes stay.
    pub async fn expire(&self, id: &str, time: Duration) -> Result<(), Error> {
        let reason = format!("the upload got no byte for {} hours", time.as_secs() / 3600);
        self.change(id, |image| {
            let failed = lifecycle::image_failed(image.clone(), &reason, self.clock.wall());
            Ok((failed, Change::default()))
        })
        .await
        .map(drop)
    }

    /// Changes the image `id` while it is being uploaded. An image in another state stays as it is.
    async fn change(
        &self,
        id: &str,
        change: impl Fn(&pb::Image) -> Result<(pb::Image, Change), Error>,
    ) -> Result<pb::Image, Error> {
        for _ in 0..MAX_ATTEMPTS {
            let image = self.images.require(id).await?;
            if image.state() != ImageState::Uploading {
                return Ok(image);
            }
            let (new, more) = change(&image)?;
            match self.images.replace_with(&image, new, more).await {
                Err(records::Error::Changed { .. }) => {}
                outcome => return Ok(outcome?),
            }
        }
        Err(Error::Busy)
    }
}
