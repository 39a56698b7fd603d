//! The gRPC services of images, builds and builders.

mod builder;
mod builds;
mod images;

use std::sync::Arc;
use std::time::Duration;

use nouns::{Edit as _, Noun as _};
use runtime::tenants::TenantDirectory;
use runtime::{Channel, Clock};
use store::backup::RestoreMark;
use store::hosted::{self, HostedService, RecordVisitor};
use store::mirror::Mirror;
use store::records::Records;
use store::{ScopedStore, Store};
use tinwright::image::v1::build_service_server::BuildServiceServer;
use tinwright::image::v1::builder_service_server::BuilderServiceServer;
use tinwright::image::v1::image_service_server::ImageServiceServer;
use tokio_util::sync::CancellationToken;
use tonic::service::RoutesBuilder;

use crate::blobs::Blobs;
use crate::builds::Builds;
use crate::collection::Collector;
use crate::content_store;
use crate::holders::Holders;
use crate::http;
use crate::images::Images;
use crate::imports::Imports;
use crate::kinds::BuildKind;
use crate::kinds::ImageKind;
use crate::publish::Publisher;
use crate::quotas::ImageQuotas;
use crate::reconcile::Reconciler;
use crate::settings::Settings;
use crate::stored::{RunKind, UploadKind};
use crate::uploads::Uploads;

/// The services that this one calls.
#[derive(Clone, Debug)]
pub struct CalledServices {
    /// The identity service, which has the tenants.
    pub identity: Channel,
    /// The instance service, whose objects name images.
    pub instance: Channel,
    /// The workflow service, whose objects name images.
    pub workflow: Channel,
}

/// Serves images over gRPC, and their content over HTTP.
#[derive(Clone, Debug)]
pub struct Api {
    images: Images,
    builds: Builds,
    pub(crate) blobs: Blobs,
    pub(crate) uploads: Uploads,
    publisher: Publisher,
    pub(crate) imports: Imports,
    pub(crate) reconciler: Reconciler,
    image_mirror: Mirror<ImageKind>,
    build_mirror: Mirror<BuildKind>,
    tenants: TenantDirectory,
    max_size_bytes: u64,
    max_upload_bytes: u64,
    retention: Duration,
    stop: CancellationToken,
}

impl Api {
    /// Serves the images in `store`, and calls `peers`. The times in records are those of `clock`.
    /// Watches end at `stop`. Fails if the object store of `settings` cannot be used.
    pub fn open(
        store: Arc<dyn Store>,
        peers: CalledServices,
        settings: &Settings,
        clock: Clock,
        stop: CancellationToken,
    ) -> anyhow::Result<Self> {
        let mark = RestoreMark::new(store.clone());
        let store = ScopedStore::new(store, Self::NAME);
        let (objects, uploads) = content_store::open(settings, &store, &clock)?;
        let blobs = Blobs::new(store.clone(), objects, clock.clone());
        let CalledServices { identity, instance, workflow } = peers;
        let holders = Holders { instance, workflow };
        let tenants = TenantDirectory::new(identity);
        let quotas = Arc::new(ImageQuotas(tenants.clone()));
        let images = Images::new(store.clone(), blobs.clone(), holders, quotas, clock.clone());
        let builds = Builds::new(store.clone(), clock.clone(), settings.lease);
        let retention = settings.retention;
        let collector = Collector::new(
            store.clone(),
            mark,
            blobs.clone(),
            uploads.clone(),
            retention,
            clock.clone(),
        );
        let imports = Imports::new(store.clone(), &images, uploads.clone(), clock.clone());
        let reconciler = Reconciler::new(
            &images,
            imports.clone(),
            builds.clone(),
            uploads.clone(),
            collector,
            retention,
            clock.clone(),
        );
        let publisher = Publisher::new(store, &images, uploads.clone(), clock);
        Ok(Self {
            image_mirror: Mirror::new(images.records().clone()),
            build_mirror: Mirror::new(builds.records().clone()),
            images,
            builds,
            blobs,
            uploads,
            publisher,
            imports,
            reconciler,
            tenants,
            max_size_bytes: settings.max_size_bytes,
            max_upload_bytes: settings.max_upload_bytes,
            retention,
            stop,
        })
    }

    /// Returns the parts that HTTP serves.
    fn content(&self) -> http::ServedContent {
        http::ServedContent {
            images: self.images.clone(),
            blobs: self.blobs.clone(),
            uploads: self.uploads.clone(),
            imports: self.imports.clone(),
            max_upload_bytes: self.max_upload_bytes,
            retention: self.retention,
            clock: self.images.clock().clone(),
        }
    }
}

impl HostedService for Api {
    const NAME: &'static str = "image";

    fn add_routes(&self, routes: &mut RoutesBuilder) {
        routes.add_service(ImageServiceServer::new(self.clone()));
        routes.add_service(BuildServiceServer::new(self.clone()));
        routes.add_service(BuilderServiceServer::new(self.clone()));
    }

    fn http_routes(&self) -> Option<axum::Router> {
        Some(http::router(self.content()))
    }

    fn visit(&self, visitor: &mut impl RecordVisitor) {
        visitor.bounded(&self.image_mirror);
        visitor.bounded(&self.build_mirror);
        visitor.records(self.blobs.records());
        visitor.records(self.blobs.staged());
        visitor.records(self.blobs.contents());
        let store = self.blobs.records().store();
        visitor.records(&Records::<UploadKind>::new(store.clone()));
        visitor.records(&Records::<RunKind>::new(store.clone()));
    }

    /// Follows the records, and ends what its time has ended.
    async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        let reconciled = self.reconciler.run(stop.clone());
        tokio::join!(hosted::follow(&self, &stop), reconciled);
        Ok(())
    }
}
