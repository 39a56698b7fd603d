//! The images in the store.

use std::cmp::Reverse;

use nouns::{Edit, Noun};
use runtime::Clock;
use store::ScopedStore;
use store::records::{Change, Records, Selector};
use tinwright::image::v1 as pb;
use tinwright::image::v1::ImageState;
use tinwright::status::Violations;
use tinwright::{ImageId, TenantName, check};

use crate::blobs::Blobs;
use crate::builds;
use crate::error::Error;
use crate::kinds::{
    BLOB_INDEX, BuildKind, FAMILY_INDEX, ImageKind, NAME_INDEX, blobs_of, of_tenant,
};
use crate::{lifecycle, owner, source};

/// Maximum length of a description in bytes.
const MAX_DESCRIPTION_BYTES: usize = 1024;
/// Images of a family that are looked at.
const MAX_FAMILY_IMAGES: usize = 1000;
/// Repetitions of a change that another writer preceded.
const MAX_REPETITIONS: usize = 32;

/// The images.
#[derive(Clone, Debug)]
pub struct Images {
    records: Records<ImageKind>,
    builds: Records<BuildKind>,
    blobs: Blobs,
    clock: Clock,
}

impl Images {
    /// The images in `store`, with their content in `blobs`.
    pub fn new(store: ScopedStore, blobs: Blobs, clock: Clock) -> Self {
        Self { records: Records::new(store.clone()), builds: Records::new(store), blobs, clock }
    }

    /// Returns their content.
    pub(crate) fn blobs(&self) -> &Blobs {
        &self.blobs
    }

    /// Returns the image with this id or name, as a caller limited to `tenant` sees it. A name is
    /// that of an image or a family: of the caller's tenant, else of the site.
    pub async fn find(
        &self,
        by: &Selector,
        tenant: Option<&TenantName>,
    ) -> Result<pb::Image, Error> {
        let viewer_sees = |image: &pb::Image| owner::is_visible(image, tenant);
        match by {
            Selector::Id(id) => {
                if let Some(image) = self.records.get(id).await?.filter(viewer_sees) {
                    return Ok(image);
                }
            }
            Selector::Index(_, name) => {
                let own = tenant.map(|tenant| of_tenant(tenant.as_str(), name));
                for name in own.into_iter().chain([name.clone()]) {
                    if let Some(image) = self.named(&name).await?.filter(viewer_sees) {
                        return Ok(image);
                    }
                    if let Some(image) = self.newest_of(&name, viewer_sees).await? {
                        return Ok(image);
                    }
                }
            }
        }
        Err(by.missing("image").into())
    }

    /// Returns the selector of an image by `name`, which may begin with a tenant.
    pub fn selector(name: &str) -> Result<Selector, Violations> {
        let (tenant, own) = name.split_once('/').unwrap_or(("", name));
        let mut wrong = Violations::default();
        wrong.take("name", check::label(own).map(drop));
        if name.contains('/') {
            wrong.take("name", tenant.parse::<TenantName>());
        }
        wrong.into_result(Selector::Index(NAME_INDEX, name.to_owned()))
    }

    async fn named(&self, name: &str) -> Result<Option<pb::Image>, Error> {
        Ok(self.records.find(NAME_INDEX, name).await?)
    }

    /// Returns the newest READY image of a family that passes `keep`.
    async fn newest_of(
        &self,
        family: &str,
        keep: impl Fn(&pb::Image) -> bool,
    ) -> Result<Option<pb::Image>, Error> {
        let keep = |image: &pb::Image| image.state() == ImageState::Ready && keep(image);
        let found =
            self.records.list_indexed(FAMILY_INDEX, family, "", MAX_FAMILY_IMAGES, keep).await?;
        let created = |image: &pb::Image| image.create_time.map(|time| (time.seconds, time.nanos));
        Ok(found.records.into_iter().min_by_key(|image| Reverse(created(image))))
    }

    /// Returns a READY image of the site that is public and has the stored file `digest`.
    pub(crate) async fn public_with(&self, digest: &str) -> Result<Option<pb::Image>, Error> {
        let keep = |image: &pb::Image| {
            let is_open = image.public && image.tenant.is_empty();
            is_open && image.state() == ImageState::Ready && image.stored_sha256 == digest
        };
        let mut after = String::new();
        loop {
            let found = self.records.list_indexed(BLOB_INDEX, digest, &after, 100, keep).await?;
            let found_next = found.next;
            match (found.records.into_iter().next(), found_next) {
                (Some(image), _) => return Ok(Some(image)),
                (None, Some(next)) => after = next,
                (None, None) => return Ok(None),
            }
        }
    }

    /// Deletes an image that a caller limited to `tenant` owns, with its build.
    pub async fn delete_owned(
        &self,
        id: ImageId,
        revision: i64,
        tenant: Option<&TenantName>,
    ) -> Result<(), Error> {
        for _ in 0..MAX_REPETITIONS {
            let image = self.find(&Selector::Id(id.to_string()), tenant).await?;
            owner::check_owned(&image, tenant)?;
            let image = self.records.at(&image.id, revision).await?;
            match self.delete_once(&image).await {
                Err(error) if error.is_conflict() && revision == 0 => {}
                outcome => return outcome,
            }
        }
        Err(Error::Busy)
    }

    async fn delete_once(&self, image: &pb::Image) -> Result<(), Error> {
        if image.protect {
            let text = format!("image {} is protected", image.name);
            return Err(Error::precondition("PROTECTED", "image", &image.id, text));
        }
        let build = match image.build_id.as_str() {
            "" => None,
            id => self.builds.get(id).await?,
        };
        let build = build.map(|build| self.builds.to_delete(&build)).unwrap_or_default();
        let mut change = self.records.to_delete(image).and(build);
        for digest in blobs_of(image) {
            change = change.and(self.blobs.to_use(digest).await?.unwrap_or_default());
        }
        self.records.commit(change).await?;
        Ok(())
    }

    /// Returns a new image from what its creator sets.
    fn initial(&self, image: pb::Image) -> pb::Image {
        let pb::Image { id, name, labels, tenant, family, public, protect, .. } = image;
        let initial = pb::Image {
            id,
            name,
            labels,
            tenant,
            family,
            public,
            protect,
            description: image.description,
            kind: image.kind,
            source: image.source,
            create_time: image.create_time,
            update_time: image.update_time,
            ..pb::Image::default()
        };
        lifecycle::image_in(initial, ImageState::Uploading, "", self.clock.wall())
    }
}

impl Noun for Images {
    type Kind = ImageKind;
    type Error = Error;

    fn records(&self) -> &Records<ImageKind> {
        &self.records
    }
}

impl Edit for Images {
    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn checked(&self, image: pb::Image, _: Option<&pb::Image>) -> Result<pb::Image, Violations> {
        checked(image)
    }

    async fn before_create(&self, image: &mut pb::Image) -> Result<Change, Error> {
        self.blobs.require_store()?;
        let initial = self.initial(std::mem::take(image));
        if source::is_upload(initial.source.as_ref()) {
            *image = initial;
            return Ok(Change::default());
        }
        let (build, processing) = builds::begin(initial, self.clock.wall());
        *image = processing;
        Ok(self.builds.to_create(&build))
    }
}

/// Returns `image` in its stored form, if its fields are valid.
fn checked(mut image: pb::Image) -> Result<pb::Image, Violations> {
    let mut wrong = Violations::default();
    wrong.normalize("image.name", &mut image.name, check::label);
    wrong.normalize_optional("image.family", &mut image.family, check::label);
    wrong.take("image.labels", check::labels(&image.labels));
    wrong.normalize_optional("image.tenant", &mut image.tenant, str::parse::<TenantName>);
    wrong.take("image.description", check::length(&image.description, MAX_DESCRIPTION_BYTES));
    match pb::ImageKind::try_from(image.kind) {
        Ok(pb::ImageKind::Unspecified) => image.kind = pb::ImageKind::Disk.into(),
        Ok(pb::ImageKind::Disk | pb::ImageKind::Archive) => {}
        Err(_) => wrong.add("image.kind", "is not a value of its enum"),
    }
    let source = image.source.get_or_insert_default();
    wrong.nest("image.source", [source], source::normalize);
    wrong.into_result(image)
}
