//! What has to hold at each moment, and at the end of a run.

use std::collections::BTreeSet;

use futures_util::TryStreamExt as _;
use object_store::path::Path;
use object_store::{ObjectStore as _, ObjectStoreExt as _};
use store::ScopedStore;
use store::backup::RestoreMark;
use store::records::{Kind, Records};
use tinwright::image::v1 as pb;
use tinwright::image::v1::ImageState;

use super::contents;
use super::world::{TENANTS, World};
use crate::kinds::BuildKind;
use crate::kinds::{ImageKind, blobs_of};
use crate::stored::{Blob, BlobKind, StagedKind};

/// Quota of a tenant in bytes.
const MAX_BYTES: u64 = 1 << 40;
/// Maximum number of records in a run.
const MAX_RECORDS: usize = 1000;

impl World {
    /// Checks that images have their content, and that quotas are not exceeded.
    pub(super) async fn check_invariants(&mut self) {
        let missing: BTreeSet<_> = self.missing().await.into_iter().collect();
        // Content that is stored again may not be lost again.
        self.excused.retain(|it| missing.contains(it));
        let lost: Vec<_> = missing.difference(&self.excused).collect();
        assert!(lost.is_empty(), "images without content: {lost:?}");
        let images = self.images().await;
        for tenant in TENANTS.into_iter().filter(|tenant| !tenant.is_empty()) {
            let of_tenant = images.iter().filter(|image| image.tenant == tenant);
            let bytes: u64 = of_tenant.map(|image| image.stored_bytes).sum();
            assert!(bytes <= MAX_BYTES, "{tenant} has {bytes} bytes");
        }
    }

    /// Checks that exactly the images without their content are DAMAGED, after the check of it.
    pub(super) async fn check_damage(&self) {
        assert_eq!(self.missing().await, []);
        for image in self.images().await {
            if image.state() == ImageState::Damaged {
                let missing = self.missing_or_damaged(&image).await;
                let is_named = |digest: &String| image.state_reason.contains(digest.as_str());
                assert!(missing.iter().any(is_named), "{image:?}");
            }
        }
    }

    /// Returns the digests of the content of DAMAGED images.
    pub(super) async fn damaged(&self) -> BTreeSet<String> {
        let mut images = self.images().await;
        images.retain(|image| image.state() == ImageState::Damaged);
        images.iter().flat_map(blobs_of).map(str::to_owned).collect()
    }

    /// Checks that no image is DAMAGED after its content was stored again.
    pub(super) async fn check_repaired(&self) {
        assert_eq!(self.damaged().await, BTreeSet::new());
        assert_eq!(self.missing().await, []);
    }

    /// Checks that nothing but the content of images is left, after a collection.
    pub(super) async fn check_collected(&self) {
        assert_eq!(self.records::<StagedKind>().await, []);
        let images = self.images().await;
        let used: BTreeSet<_> = images.iter().flat_map(blobs_of).map(str::to_owned).collect();
        let blobs = self.records::<BlobKind>().await;
        let stored: BTreeSet<_> = blobs.iter().map(|blob| blob.digest.clone()).collect();
        assert_eq!(stored, used);
        let named: BTreeSet<_> = blobs.into_iter().map(|blob| blob.object).collect();
        let listed = self.listed().await;
        let name = |location: &Path| location.filename().unwrap_or_default().to_owned();
        assert_eq!(listed.iter().map(name).collect::<BTreeSet<_>>(), named);
    }

    /// Checks that no object was removed since the store was restored, while it has the mark.
    pub(super) async fn check_held(&mut self) {
        if self.held.is_empty() {
            return;
        }
        if !self.is_marked().await {
            self.held.clear();
            return;
        }
        let listed = self.listed().await;
        let removed: Vec<_> = self.held.difference(&listed).collect();
        assert!(removed.is_empty(), "removed after a restore: {removed:?}");
    }

    /// True if the store was restored, and no content may be collected.
    pub(super) async fn is_marked(&self) -> bool {
        RestoreMark::new(self.store.pairs.clone()).is_set().await.unwrap()
    }

    /// Returns the locations of all objects.
    pub(super) async fn listed(&self) -> BTreeSet<Path> {
        let objects = self.objects.0.list(None).map_ok(|object| object.location);
        objects.try_collect().await.unwrap()
    }

    /// Returns the READY images and the digests of their content that is missing.
    pub(super) async fn missing(&self) -> Vec<(String, String)> {
        let mut missing = Vec::new();
        for image in self.images().await {
            if image.state() == ImageState::Ready {
                let digests = self.missing_of(&image).await;
                missing.extend(digests.into_iter().map(|digest| (image.id.clone(), digest)));
            }
        }
        missing
    }

    /// Returns the digests of the missing content of `image`.
    async fn missing_of(&self, image: &pb::Image) -> Vec<String> {
        let blobs = Records::<BlobKind>::new(self.scoped());
        let mut missing = Vec::new();
        for digest in blobs_of(image) {
            match blobs.get(digest).await.unwrap() {
                Some(blob) if self.has_object(&blob).await => {}
                Some(_) | None => missing.push(digest.to_owned()),
            }
        }
        missing
    }

    /// Checks that no image has content with a flipped bit, after the check and the repair of all.
    pub(super) async fn check_sound(&self) {
        let images = self.images().await;
        let used: BTreeSet<_> = images.iter().flat_map(blobs_of).collect();
        let mut blobs = self.records::<BlobKind>().await;
        blobs.retain(|blob| used.contains(blob.digest.as_str()));
        for blob in blobs {
            assert!(!self.flipped.contains(&location(&blob)), "{blob:?}");
            assert_eq!(blob.damage, "");
        }
    }

    /// Returns the digests of the content of `image` that is missing, or known to be damaged.
    async fn missing_or_damaged(&self, image: &pb::Image) -> Vec<String> {
        let blobs = self.records::<BlobKind>().await;
        let is_damaged = |digest: &&str| {
            blobs.iter().any(|blob| blob.digest == **digest && !blob.damage.is_empty())
        };
        let damaged = blobs_of(image).filter(is_damaged).map(str::to_owned);
        self.missing_of(image).await.into_iter().chain(damaged).collect()
    }

    /// True if the object of `blob` exists, with the right bytes or a flipped bit.
    async fn has_object(&self, blob: &Blob) -> bool {
        let location = location(blob);
        let Ok(found) = self.objects.0.get(&location).await else { return false };
        if self.flipped.contains(&location) {
            return true;
        }
        assert_eq!(found.bytes().await.unwrap(), contents::blob(&blob.digest).bytes);
        true
    }

    /// Returns the images.
    pub(super) async fn images(&self) -> Vec<pb::Image> {
        self.records::<ImageKind>().await
    }

    /// Returns the builds.
    pub(super) async fn builds(&self) -> Vec<pb::Build> {
        self.records::<BuildKind>().await
    }

    async fn records<K: Kind>(&self) -> Vec<K::Record> {
        let (records, more) =
            Records::<K>::new(self.scoped()).page("", "", MAX_RECORDS).await.unwrap();
        assert!(!more);
        records
    }

    /// Returns the store without its gates.
    fn scoped(&self) -> ScopedStore {
        ScopedStore::new(self.store.pairs.clone(), "image")
    }
}

/// Returns the location of the object of `blob`.
fn location(blob: &Blob) -> Path {
    Path::from_iter(["blobs", &blob.digest[..2], &blob.object])
}
