//! A process of the service, and what it does in the model.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream;
use nouns::Edit as _;
use object_store::ObjectStore;
use runtime::Clock;
use store::backup::RestoreMark;
use store::records::TenantQuotas;
use store::{ScopedStore, Store};
use tinwright::image::v1 as pb;
use tinwright::image::v1::image_source::Source;
use tinwright::object::Quota;
use tonic::Status;

use super::contents::{TestBlob, blobs, built};
use crate::blobs::Blobs;
use crate::builds::{Builds, ReportedProgress};
use crate::collection::Collector;
use crate::damage::DamageCheck;
use crate::error::Error;
use crate::images::Images;
use crate::lifecycle::Attempt;
use crate::objects::Objects;
use crate::publish::Publisher;
use crate::scrub::Scrubber;
use crate::tests::holders::FakeHolders;
use crate::uploads::Uploads;

/// Delay until unused content is removed.
pub(super) const RETENTION: Duration = Duration::from_hours(24);
/// Duration of a builder's lease.
pub(super) const LEASE: Duration = Duration::from_secs(60);
/// Times that a builder stores content that was missing at the end.
const MAX_WRITES: usize = 3;

/// The parts of a process.
#[derive(Clone, Debug)]
pub(super) struct Process {
    pub(super) images: Images,
    pub(super) builds: Builds,
    pub(super) blobs: Blobs,
    pub(super) collector: Collector,
    pub(super) damage: DamageCheck,
    scrubber: Scrubber,
    mark: RestoreMark,
    publisher: Publisher,
}

/// All tenants have the default limits.
#[derive(Debug)]
struct DefaultQuotas;

#[async_trait]
impl TenantQuotas for DefaultQuotas {
    async fn of(&self, _: &str, default: Quota) -> Result<Quota, Status> {
        Ok(default)
    }
}

impl Process {
    /// A process over `store` and `objects`.
    pub(super) fn new(store: Arc<dyn Store>, objects: Arc<dyn ObjectStore>, clock: &Clock) -> Self {
        let mark = RestoreMark::new(store.clone());
        let store = ScopedStore::new(store, "image");
        let blobs = Blobs::new(store.clone(), Some(Objects::new(objects)), clock.clone());
        let images = Images::new(
            store.clone(),
            blobs.clone(),
            FakeHolders::default().holders(),
            Arc::new(DefaultQuotas),
            clock.clone(),
        );
        Self {
            builds: Builds::new(store.clone(), clock.clone(), LEASE),
            collector: Collector::new(
                store.clone(),
                mark.clone(),
                blobs.clone(),
                Uploads::default(),
                RETENTION,
                clock.clone(),
            ),
            mark,
            damage: DamageCheck::new(&images, clock.clone()),
            scrubber: Scrubber::new(blobs.clone(), clock.clone()),
            publisher: Publisher::new(store, &images, Uploads::default(), clock.clone()),
            images,
            blobs,
        }
    }

    /// Creates an image of `tenant`, which a build imports.
    pub(super) async fn create(self, name: String, tenant: &'static str) -> Result<(), Error> {
        let url = pb::UrlSource { url: "https://images.example/disk".into() };
        let source = pb::ImageSource { source: Some(Source::Url(url)), ..Default::default() };
        let tenant = tenant.to_owned();
        let image = pb::Image { name, tenant, source: Some(source), ..pb::Image::default() };
        self.images.create(image, None).await.map(drop)
    }

    /// Leases the build `id`, stores a `form` of `content`, and ends the build with it.
    pub(super) async fn build(
        self,
        id: String,
        holder: &'static str,
        content: usize,
        form: usize,
    ) -> Result<(), Error> {
        let Some(leased) = self.builds.try_lease(&id, holder).await? else { return Ok(()) };
        let id = id.parse().unwrap();
        let attempt = Attempt { holder: holder.into(), number: leased.attempts };
        let mut outcome = Err(Error::Busy);
        for _ in 0..MAX_WRITES {
            for blob in blobs(content, form) {
                self.store(blob).await?;
            }
            self.builds.report(id, &attempt, &ReportedProgress::default()).await?;
            outcome = self.publisher.finish(id, &attempt, &built(content, form)).await;
            if !matches!(outcome, Err(Error::BlobMissing(_))) {
                break;
            }
        }
        outcome
    }

    /// Leases the build `id`, and ends the attempt without content.
    pub(super) async fn fail(self, id: String, holder: &'static str) -> Result<(), Error> {
        let Some(leased) = self.builds.try_lease(&id, holder).await? else { return Ok(()) };
        let attempt = Attempt { holder: holder.into(), number: leased.attempts };
        let failure = pb::BuildFailure { reason: "connection lost".into(), may_retry: true };
        self.builds.fail(id.parse().unwrap(), &attempt, &failure).await
    }

    /// Reads the content `digest` again, which a machine found to be wrong.
    pub(super) async fn check(self, digest: String) -> Result<(), Error> {
        self.blobs.suspects().add(&digest);
        self.scrubber.check_suspects().await?;
        self.damage.check().await.map(drop)
    }

    /// Lets content be collected after a restore.
    pub(super) async fn resume(self) -> Result<(), Error> {
        self.mark.remove("image").await?;
        Ok(())
    }

    /// Stores `blob`.
    pub(super) async fn store(&self, blob: &TestBlob) -> Result<(), Error> {
        let parts = stream::iter([Ok(blob.bytes.clone())]);
        self.blobs.write(&blob.digest, parts, 1 << 20).await
    }
}
