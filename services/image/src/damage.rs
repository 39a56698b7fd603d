//! Finds images with missing content, such as after the restoration of an older store.
//!
//! A restored store has the images of its moment. Content of theirs that was collected since is
//! gone: such an image is DAMAGED until the same content is stored again.

use nouns::Noun as _;
use runtime::Clock;
use store::records::{self, Change, Records};
use tinwright::image::v1 as pb;
use tinwright::image::v1::ImageState;

use crate::blobs::Blobs;
use crate::error::Error;
use crate::images::Images;
use crate::kinds::{ImageKind, blobs_of};
use crate::lifecycle;

/// Images of one page.
const PAGE_RECORDS: usize = 200;

/// The check of images for missing content.
#[derive(Clone, Debug)]
pub struct DamageCheck {
    images: Records<ImageKind>,
    blobs: Blobs,
    clock: Clock,
}

impl DamageCheck {
    /// Checks the content of `images`.
    pub fn new(images: &Images, clock: Clock) -> Self {
        Self { images: images.records().clone(), blobs: images.blobs().clone(), clock }
    }

    /// Marks images with missing content as DAMAGED, and images with all of it as READY again.
    /// Returns the number of images that it changed.
    pub async fn check(&self) -> Result<usize, Error> {
        self.blobs.require_store()?;
        let has_content =
            |image: &pb::Image| matches!(image.state(), ImageState::Ready | ImageState::Damaged);
        let (mut after, mut changed) = (String::new(), 0);
        loop {
            let page = self.images.list(&after, PAGE_RECORDS, has_content).await?;
            for image in &page.records {
                changed += usize::from(self.check_image(image).await?);
            }
            match page.next {
                Some(next) => after = next,
                None => return Ok(changed),
            }
        }
    }

    /// Checks `image`. False if it stays as it is, or if it was changed meanwhile: then the next
    /// check looks at it again.
    async fn check_image(&self, image: &pb::Image) -> Result<bool, Error> {
        let content = self.content(image).await?;
        let now = self.clock.wall();
        let (new, change) = match (image.state(), content) {
            (ImageState::Damaged, Ok(change)) => {
                (lifecycle::image_in(image.clone(), ImageState::Ready, "", now), change)
            }
            (_, Err(reason)) if image.state_reason != reason => {
                tracing::error!(image.id, reason, "image damaged");
                let damaged = ImageState::Damaged;
                (lifecycle::image_in(image.clone(), damaged, &reason, now), Change::default())
            }
            _ => return Ok(false),
        };
        match self.images.replace_with(image, new, change).await {
            Ok(_) => Ok(true),
            Err(records::Error::Changed { .. } | records::Error::Missing { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the change that marks the content of `image` as used, or why there is none.
    async fn content(&self, image: &pb::Image) -> Result<Result<Change, String>, Error> {
        let mut change = Change::default();
        for digest in blobs_of(image) {
            let Some(used) = self.blobs.to_use_stored(digest).await? else {
                return Ok(Err(format!("content {digest} is missing")));
            };
            change = change.and(used);
        }
        Ok(Ok(change))
    }
}
