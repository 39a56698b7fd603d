//! The end of a build with content: its image becomes READY, in one commit.

use nouns::Noun as _;
use runtime::Clock;
use store::ScopedStore;
use store::records::{self, Change, Records};
use tinwright::BuildId;
use tinwright::image::v1 as pb;
use tinwright::image::v1::{BuildState, ImageState};
use tinwright::status::Violations;

use crate::blobs::{Blobs, is_digest};
use crate::error::Error;
use crate::images::Images;
use crate::kinds::{BuildKind, ImageKind, blobs_of};
use crate::lifecycle::{self, Attempt};
use crate::stored::DiskContent;
use crate::uploads::Uploads;

/// Attempts to commit while others come first.
const MAX_ATTEMPTS: usize = 64;

/// Publishes content as images.
#[derive(Clone, Debug)]
pub struct Publisher {
    builds: Records<BuildKind>,
    images: Records<ImageKind>,
    blobs: Blobs,
    uploads: Uploads,
    clock: Clock,
}

impl Publisher {
    /// Publishes content as `images`, whose builds are in `store`.
    pub fn new(store: ScopedStore, images: &Images, uploads: Uploads, clock: Clock) -> Self {
        let (builds, images, blobs) =
            (Records::new(store), images.records().clone(), images.blobs().clone());
        Self { builds, images, blobs, uploads, clock }
    }

    /// Ends the build `id` with `content`, which its builder has stored. Repeating it succeeds.
    pub async fn finish(
        &self,
        id: BuildId,
        attempt: &Attempt,
        content: &pb::BuiltContent,
    ) -> Result<(), Error> {
        for _ in 0..MAX_ATTEMPTS {
            match self.try_finish(&id.to_string(), attempt, content).await {
                Err(error) if error.is_conflict() => {}
                Err(Error::Records(quota @ records::Error::Quota { .. })) => {
                    return self.refuse(&id.to_string(), attempt, &quota.to_string()).await;
                }
                outcome => return outcome,
            }
        }
        Err(Error::Busy)
    }

    async fn try_finish(
        &self,
        id: &str,
        attempt: &Attempt,
        content: &pb::BuiltContent,
    ) -> Result<(), Error> {
        let build = self.builds.require(id).await?;
        if build.state() == BuildState::Completed {
            return self.check_completed(&build, content).await;
        }
        lifecycle::held_lease(&build, attempt)?;
        check(content, build.kind())?;
        let image = self.images.require(&build.image_id).await?;
        let stored = self.content(content).await?;
        let now = self.clock.wall();
        let ready = with_content(image.clone(), content, &stored.content);
        let ready = lifecycle::image_in(ready, ImageState::Ready, "", now);
        let completed = lifecycle::ended(build.clone(), BuildState::Completed, "", now);
        let mut change = self.builds.to_replace(&build, &completed).and(stored.change);
        for digest in blobs_of(&ready) {
            let used = self.blobs.to_use_stored(digest).await?;
            change = change.and(used.map_err(|_| Error::BlobMissing(digest.to_owned()))?);
        }
        self.images.replace_with(&image, ready, change).await?;
        if stored.is_repair {
            self.blobs.announce_repair();
        }
        self.uploads.remove(&image.id).await
    }

    /// Passes if a completed `build` made an image with `content`: the call is a repetition.
    async fn check_completed(
        &self,
        build: &pb::Build,
        content: &pb::BuiltContent,
    ) -> Result<(), Error> {
        let image = self.images.get(&build.image_id).await?;
        if image.is_some_and(|image| image.sha256 == content.sha256) {
            return Ok(());
        }
        let text = format!("build {} has ended: completed", build.id);
        Err(Error::precondition("BUILD_ENDED", "build", &build.id, text))
    }

    /// Ends a build that its tenant's quota has no room for.
    async fn refuse(&self, id: &str, attempt: &Attempt, reason: &str) -> Result<(), Error> {
        for _ in 0..MAX_ATTEMPTS {
            let build = self.builds.require(id).await?;
            lifecycle::held_lease(&build, attempt)?;
            let now = self.clock.wall();
            let ended = lifecycle::failed(build.clone(), reason, false, now);
            let image = self.images.require(&build.image_id).await?;
            let failed = lifecycle::image_failed(image.clone(), reason, now);
            let change = self.images.to_replace(&image, &failed);
            match self.builds.replace_with(&build, ended, change).await {
                Err(records::Error::Changed { .. }) => {}
                outcome => return Ok(outcome.map(drop)?),
            }
        }
        Err(Error::Busy)
    }

    /// Returns the blobs for the disk of `content`: those of an earlier import of the same disk, if
    /// they are stored, else those of `content`.
    async fn content(&self, content: &pb::BuiltContent) -> Result<StoredContent, Error> {
        let own = DiskContent {
            digest: content.sha256.clone(),
            stored_sha256: content.stored_sha256.clone(),
            map_sha256: content.map_sha256.clone(),
            stored_bytes: content.stored_bytes,
            revision: 0,
        };
        let contents = self.blobs.contents();
        let Some(earlier) = contents.get(&own.digest).await? else {
            let change = contents.to_create(&own);
            return Ok(StoredContent { content: own, change, is_repair: false });
        };
        if earlier.map_sha256.is_empty() != own.map_sha256.is_empty() {
            // The same bytes as a disk and as an archive: only a disk has a map.
            return Ok(StoredContent { content: own, change: Change::default(), is_repair: false });
        }
        if self.is_stored(&earlier).await? {
            let change = contents.unchanged(&earlier);
            return Ok(StoredContent { content: earlier, change, is_repair: false });
        }
        let change = contents.to_replace(&earlier, &own);
        Ok(StoredContent { content: own, change, is_repair: true })
    }

    async fn is_stored(&self, content: &DiskContent) -> Result<bool, Error> {
        for digest in [&content.stored_sha256, &content.map_sha256] {
            if !digest.is_empty() && !self.blobs.is_stored(digest).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The blobs of an image, and the change that keeps them together with it.
struct StoredContent {
    content: DiskContent,
    change: Change,
    /// True if the blobs take the place of missing or damaged ones.
    is_repair: bool,
}

/// Passes if `content` is complete.
fn check(content: &pb::BuiltContent, kind: pb::ImageKind) -> Result<(), Violations> {
    let mut wrong = Violations::default();
    let pb::BuiltContent { sha256, stored_sha256, map_sha256, source_sha256, .. } = content;
    let digests = [
        ("sha256", sha256),
        ("stored_sha256", stored_sha256),
        ("map_sha256", map_sha256),
        ("source_sha256", source_sha256),
    ];
    for (field, digest) in digests {
        let may_lack = field == "map_sha256" && kind == pb::ImageKind::Archive;
        let is_present = is_digest(digest) || may_lack && digest.is_empty();
        if !is_present {
            wrong.add(format!("content.{field}"), "is not a SHA-256 in hexadecimal digits");
        }
    }
    wrong.into_result(())
}

/// Returns `image` with what is known of its content.
fn with_content(image: pb::Image, content: &pb::BuiltContent, stored: &DiskContent) -> pb::Image {
    pb::Image {
        size_bytes: content.size_bytes,
        used_bytes: content.used_bytes,
        stored_bytes: stored.stored_bytes,
        sha256: content.sha256.clone(),
        stored_sha256: stored.stored_sha256.clone(),
        map_sha256: stored.map_sha256.clone(),
        source_sha256: content.source_sha256.clone(),
        source_format: content.source_format.clone(),
        properties: content.properties.clone(),
        ..image
    }
}
