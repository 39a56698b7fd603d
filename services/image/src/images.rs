//! The images in the store.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use nouns::{Edit, Noun};
use runtime::Clock;
use store::ScopedStore;
use store::records::{Change, Records, Selector, TenantQuotas};
use tinwright::image::v1 as pb;
use tinwright::image::v1::ImageState;
use tinwright::status::Violations;
use tinwright::{ImageId, TenantName, check};

use crate::blobs::{Blobs, is_older};
use crate::builds;
use crate::error::Error;
use crate::holders::Holders;
use crate::kinds::{
    BLOB_INDEX, BuildKind, FAMILY_INDEX, ImageKind, NAME_INDEX, blobs_of, of_tenant,
};
use crate::{lifecycle, owner, signatures, source};

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
    holders: Holders,
    clock: Clock,
}

impl Images {
    /// The images in `store`, with their content in `blobs`. Those that `holders` has are not deleted. Tenants may have
    /// what `quotas` says.
    pub fn new(
        store: ScopedStore,
        blobs: Blobs,
        holders: Holders,
        quotas: Arc<dyn TenantQuotas>,
        clock: Clock,
    ) -> Self {
        let records = Records::new(store.clone()).with_quotas(quotas);
        let builds = Records::new(store);
        Self { records, builds, blobs, holders, clock }
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
        let is_usable = |it: &pb::Image| it.state() == ImageState::Ready && !it.deleting;
        let keep = |image: &pb::Image| is_usable(image) && keep(image);
        let found =
            self.records.list_indexed(FAMILY_INDEX, family, "", MAX_FAMILY_IMAGES, keep).await?;
        let created = |image: &pb::Image| image.create_time.map(|time| (time.seconds, time.nanos));
        Ok(found.records.into_iter().min_by_key(|image| Reverse(created(image))))
    }

    /// Returns the image whose stored file is `digest`, for the machine of the live `workflow` that
    /// names it.
    pub(crate) async fn of_workflow(
        &self,
        workflow: &str,
        digest: &str,
    ) -> Result<Option<pb::Image>, Error> {
        match self.holders.image_of_workflow(workflow, digest).await? {
            Some(id) => Ok(self.records.get(&id).await?),
            None => Ok(None),
        }
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

    /// Deletes an image that a caller limited to `tenant` owns, with its build, unless it is in use. It
    /// must not be cancelled, which would leave the mark: a caller that may go away spawns it.
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
            match self.delete_unused(&image, tenant).await {
                Err(error) if error.is_conflict() && revision == 0 => {}
                outcome => return outcome,
            }
        }
        Err(Error::Busy)
    }

    /// Adds the signature `text` to an image that a caller limited to `tenant` owns.
    pub async fn add_signature(
        &self,
        id: ImageId,
        text: &str,
        tenant: Option<&TenantName>,
    ) -> Result<pb::Image, Error> {
        for _ in 0..MAX_REPETITIONS {
            let image = self.find(&Selector::Id(id.to_string()), tenant).await?;
            owner::check_owned(&image, tenant)?;
            let signature = signatures::parse(text)?;
            let signed = signatures::added(&image, &signature, self.clock.wall())?;
            if signed == image {
                return Ok(image);
            }
            match self.replace(image, signed).await {
                Err(error) if error.is_conflict() => {}
                outcome => return outcome,
            }
        }
        Err(Error::Busy)
    }

    /// Deletes `image`, unless something is about to use it (`runtime::images`).
    async fn delete_unused(
        &self,
        image: &pb::Image,
        tenant: Option<&TenantName>,
    ) -> Result<(), Error> {
        if image.protect {
            let text = format!("image {} is protected", image.name);
            return Err(Error::precondition("PROTECTED", "image", &image.id, text));
        }
        if !matches!(image.state(), ImageState::Ready | ImageState::Damaged) {
            return self.delete_once(image).await;
        }
        let update_time = Some(self.clock.wall().into());
        let marked = pb::Image { deleting: true, update_time, ..image.clone() };
        let marked = self.records.replace(image, marked).await?;
        let outcome = match self.holders.check_none(&marked, tenant).await {
            Ok(()) => self.delete_once(&marked).await,
            refused => refused,
        };
        if outcome.is_err()
            && let Err(error) = self.remove_mark(&marked.id).await
        {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, image.id = marked.id, "deletion not taken back; trying again");
        }
        outcome
    }

    /// Removes the mark of a deletion from the image `id`, if it is still there and has one.
    async fn remove_mark(&self, id: &str) -> Result<(), Error> {
        for _ in 0..MAX_REPETITIONS {
            let Some(image) = self.records.get(id).await?.filter(|it| it.deleting) else {
                return Ok(());
            };
            let unmarked = pb::Image { deleting: false, ..image.clone() };
            match self.records.replace(&image, unmarked).await.map_err(Error::from) {
                Err(error) if error.is_conflict() => {}
                outcome => return outcome.map(drop),
            }
        }
        Err(Error::Busy)
    }

    /// Removes the mark of a deletion that was begun more than `age` ago: its process ended before it
    /// did.
    pub(crate) async fn remove_old_mark(
        &self,
        image: &pb::Image,
        age: Duration,
    ) -> Result<(), Error> {
        match is_older(image.update_time, age, self.clock.wall()) {
            true => self.remove_mark(&image.id).await,
            false => Ok(()),
        }
    }

    async fn delete_once(&self, image: &pb::Image) -> Result<(), Error> {
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
        let pb::Image { id, name, labels, tenant, family, public, protect, mut source, .. } = image;
        source::forget_pin(source.as_mut());
        let initial = pb::Image {
            id,
            name,
            labels,
            tenant,
            family,
            public,
            protect,
            description: image.description,
            keep_data_source: image.keep_data_source,
            kind: image.kind,
            source,
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

    fn checked(&self, image: pb::Image, old: Option<&pb::Image>) -> Result<pb::Image, Violations> {
        let mut image = checked(image)?;
        if old.is_some_and(|old| old.name != image.name) {
            // They are of the former name.
            image.signatures.clear();
        }
        Ok(image)
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
