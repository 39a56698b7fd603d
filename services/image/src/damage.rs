//! Finds images with missing content, such as after the restoration of an older store, and with damaged
//! content, which `scrub` finds.
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

    /// Marks images with missing or damaged content as DAMAGED, and images with all of it as READY again.
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
        let content = match self.content(image).await? {
            Ok(change) => Ok((image.clone(), change)),
            Err(reason) => self.newer_form(image).await?.ok_or(reason),
        };
        let now = self.clock.wall();
        let (new, change) = match content {
            Ok((stored, change)) if image.state() == ImageState::Damaged || stored != *image => {
                (lifecycle::image_in(stored, ImageState::Ready, "", now), change)
            }
            Err(reason) if image.state_reason != reason => {
                tracing::error!(image.id, reason, "image damaged");
                let damaged = ImageState::Damaged;
                (lifecycle::image_in(image.clone(), damaged, &reason, now), Change::default())
            }
            _ => return Ok(false),
        };
        match self.images.replace_with(image, new, change).await {
            Ok(_) => Ok(true),
            Err(records::Error::Changed { .. } | records::Error::Missing { .. }) => Ok(false),
            Err(error @ (records::Error::Quota { .. } | records::Error::UnknownQuota { .. })) => {
                tracing::warn!(%error, image.id, "newer form of the content not used");
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns `image` with another stored form of its disk, and the change that keeps them together; none
    /// if there is no sound one. A newer builder stores the same disk as other bytes.
    async fn newer_form(&self, image: &pb::Image) -> Result<Option<(pb::Image, Change)>, Error> {
        let contents = self.blobs.contents();
        let Some(found) = contents.get(&image.sha256).await? else { return Ok(None) };
        let mut new = image.clone();
        (new.stored_sha256, new.map_sha256) =
            (found.stored_sha256.clone(), found.map_sha256.clone());
        new.stored_bytes = found.stored_bytes;
        let has_map = |image: &pb::Image| !image.map_sha256.is_empty();
        if blobs_of(&new).eq(blobs_of(image)) || has_map(&new) != has_map(image) {
            return Ok(None);
        }
        if new.map_sha256 != image.map_sha256 {
            // They were made for the map.
            new.signatures.clear();
        }
        let Ok(mut change) = self.content(&new).await? else { return Ok(None) };
        change = change.and(contents.unchanged(&found));
        for lost in blobs_of(image).filter(|lost| !blobs_of(&new).any(|kept| kept == *lost)) {
            change = change.and(self.blobs.to_use(lost).await?.unwrap_or_default());
        }
        Ok(Some((new, change)))
    }

    /// Returns the change that marks the content of `image` as used, or why there is none.
    async fn content(&self, image: &pb::Image) -> Result<Result<Change, String>, Error> {
        let mut change = Change::default();
        for digest in blobs_of(image) {
            match self.blobs.to_use_stored(digest).await? {
                Ok(used) => change = change.and(used),
                Err(fault) => return Ok(Err(format!("content {digest} {fault}"))),
            }
        }
        Ok(Ok(change))
    }
}
