//! A running service, a fake of the identity service, and its callers.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use bytes::Bytes;
use http::{Method, StatusCode};
use runtime::{Caller, Channel, Clock, LocalServices, Role};
use sha2::{Digest as _, Sha256};
use store::hosted::{self, HostedService as _};
use store::memory::MemoryStore;
use tempfile::TempDir;
use tinwright::identity::v1 as id;
use tinwright::identity::v1::tenant_service_server::{TenantService, TenantServiceServer};
use tinwright::image::v1 as pb;
use tinwright::image::v1::build_service_client::BuildServiceClient;
use tinwright::image::v1::builder_service_client::BuilderServiceClient;
use tinwright::image::v1::finish_build_request::Outcome;
use tinwright::image::v1::get_image_request::By;
use tinwright::image::v1::image_service_client::ImageServiceClient;
use tinwright::image::v1::image_source::Source;
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::codegen::BoxStream;
use tonic::service::Routes;
use tonic::{Response, Status};
use tonic_types::StatusExt as _;
use tower::ServiceExt as _;

use super::holders::FakeHolders;
use crate::blobs::hex;
use crate::holders::Holders;
use crate::{Api, CalledServices, ContentStore, Settings};

/// Name of the builder.
pub(super) const BUILDER: &str = "builder-1";

/// The identity service: it has every tenant but `gone`, and gives `small` limits of its own.
struct FakeTenants;

/// Implements calls that the service never makes.
macro_rules! never_called {
    ($($name:ident($request:ty) -> $response:ty;)*) => {$(
        async fn $name(
            &self,
            _: tonic::Request<$request>,
        ) -> Result<Response<$response>, Status> {
            Err(Status::unimplemented(stringify!($name)))
        }
    )*};
}

pub(super) use never_called;

impl TenantService for FakeTenants {
    async fn get_tenant(
        &self,
        request: tonic::Request<id::GetTenantRequest>,
    ) -> Result<Response<id::GetTenantResponse>, Status> {
        match request.into_inner().by {
            Some(id::get_tenant_request::By::Name(name)) if name == "gone" => {
                Err(Status::not_found("tenant gone not found"))
            }
            Some(id::get_tenant_request::By::Name(name)) if name == "small" => {
                let image_quota = Some(id::ImageQuota { max_images: 2, max_bytes: 100 });
                let tenant = Some(id::Tenant { image_quota, ..id::Tenant::default() });
                Ok(Response::new(id::GetTenantResponse { tenant }))
            }
            _ => Ok(Response::new(id::GetTenantResponse { tenant: Some(id::Tenant::default()) })),
        }
    }

    type WatchTenantsStream = BoxStream<id::WatchTenantsResponse>;

    never_called! {
        create_tenant(id::CreateTenantRequest) -> id::CreateTenantResponse;
        list_tenants(id::ListTenantsRequest) -> id::ListTenantsResponse;
        update_tenant(id::UpdateTenantRequest) -> id::UpdateTenantResponse;
        delete_tenant(id::DeleteTenantRequest) -> id::DeleteTenantResponse;
        watch_tenants(id::WatchTenantsRequest) -> Self::WatchTenantsStream;
    }
}

/// The service. Dropping it stops it.
pub(super) struct Site {
    pub(super) api: Api,
    pub(super) clock: Clock,
    pub(super) directory: TempDir,
    pub(super) store: Arc<MemoryStore>,
    settings: Settings,
    services: LocalServices,
    pub(super) http: Router,
    /// What is about to use images.
    pub(super) holders: FakeHolders,
    _tasks: JoinSet<()>,
    _stop: DropGuard,
}

impl Site {
    /// A site with a directory for objects.
    pub(super) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let content = Some(ContentStore::Directory(directory.path().to_owned()));
        let settings = Settings { content, max_upload_bytes: 1000, ..Settings::default() };
        Self { directory, ..Self::with(settings) }
    }

    /// A site without an object store.
    pub(super) fn without_store() -> Self {
        Self::with(Settings::default())
    }

    /// A site with the object store `content`.
    pub(super) fn on(content: ContentStore) -> Self {
        Self::with(Settings { content: Some(content), ..Settings::default() })
    }

    fn with(settings: Settings) -> Self {
        // Files have the system's time. The clock is moved on from there.
        let clock = Clock::manual(Clock::system().wall());
        Self::start(Arc::new(MemoryStore::default()), settings, clock)
    }

    /// Starts another process of the site.
    pub(super) fn twin(&self) -> Self {
        Self::start(self.store.clone(), self.settings.clone(), self.clock.clone())
    }

    fn start(store: Arc<MemoryStore>, settings: Settings, clock: Clock) -> Self {
        let stop = CancellationToken::new();
        let identity = Channel::to(Routes::new(TenantServiceServer::new(FakeTenants)));
        let holders = FakeHolders::default();
        let Holders { instance, workflow } = holders.holders();
        let peers = CalledServices { identity, instance, workflow };
        let api = Api::open(store.clone(), peers, &settings, clock.clone(), stop.clone());
        let api = api.unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(hosted::follow(&api, &stop));
        let services = LocalServices::of(api.routes().into_axum_router());
        let http = api.http_routes().unwrap();
        Self {
            api,
            clock,
            directory: tempfile::tempdir().unwrap(),
            store,
            settings,
            services,
            http,
            holders,
            _tasks: tasks,
            _stop: stop.drop_guard(),
        }
    }

    /// A channel of an operator of `tenant`; of the site if it is empty.
    fn channel(&self, tenant: &str) -> Channel {
        self.services.channel(operator(tenant))
    }

    pub(super) fn images(&self, tenant: &str) -> ImageServiceClient<Channel> {
        ImageServiceClient::new(self.channel(tenant))
    }

    pub(super) fn builds(&self, tenant: &str) -> BuildServiceClient<Channel> {
        BuildServiceClient::new(self.channel(tenant))
    }

    pub(super) fn builder(&self) -> BuilderServiceClient<Channel> {
        BuilderServiceClient::new(self.services.channel(Role::Builder.into()))
    }

    /// Creates `image` for an operator of its tenant.
    pub(super) async fn create(&self, image: pb::Image) -> Result<pb::Image, Status> {
        let tenant = image.tenant.clone();
        let request = pb::CreateImageRequest { image: Some(image), request_id: String::new() };
        Ok(self.images(&tenant).create_image(request).await?.into_inner().image.unwrap())
    }

    /// Returns the image `id`.
    pub(super) async fn image(&self, id: &str) -> pb::Image {
        self.find("", By::Id(id.to_owned())).await.unwrap()
    }

    /// Returns an image as an operator of `tenant` finds it.
    pub(super) async fn find(&self, tenant: &str, by: By) -> Result<pb::Image, Status> {
        let request = pb::GetImageRequest { by: Some(by), tenant: String::new() };
        Ok(self.images(tenant).get_image(request).await?.into_inner().image.unwrap())
    }

    /// Deletes the image `id` for an operator of `tenant`.
    pub(super) async fn delete(&self, tenant: &str, id: &str) -> Result<(), Status> {
        let request = pb::DeleteImageRequest { id: id.to_owned(), revision: 0 };
        self.images(tenant).delete_image(request).await.map(drop)
    }

    /// Leases a build to `holder`. One has to be pending.
    pub(super) async fn lease(&self, holder: &str) -> pb::Build {
        let request = pb::LeaseBuildRequest { holder: holder.to_owned() };
        self.builder().lease_build(request).await.unwrap().into_inner().build.unwrap()
    }

    /// Ends the attempt that `build` was leased for.
    pub(super) async fn finish(&self, build: &pb::Build, outcome: Outcome) -> Result<(), Status> {
        let lease = build.lease.clone().unwrap();
        let request = pb::FinishBuildRequest {
            build_id: build.id.clone(),
            holder: lease.holder,
            attempt: lease.attempt,
            outcome: Some(outcome),
        };
        self.builder().finish_build(request).await.map(drop)
    }

    /// Stores the blobs of the disk `text`.
    pub(super) async fn store(&self, text: &str) {
        for blob in [stored(text), map(text)] {
            let stored = self.put_blob(&digest(&blob), &blob).await;
            assert_eq!(stored.status, StatusCode::NO_CONTENT);
        }
    }

    /// Creates an image, and builds it with the content `text`.
    pub(super) async fn import(&self, image: pb::Image, text: &str) -> pb::Image {
        let id = self.create(image).await.unwrap().id;
        let build = self.lease(BUILDER).await;
        assert_eq!(build.image_id, id);
        self.store(text).await;
        self.finish(&build, content(text)).await.unwrap();
        self.image(&id).await
    }

    /// Sends a builder's blob.
    pub(super) async fn put_blob(&self, digest: &str, blob: &str) -> Answer {
        let builder = Some(Role::Builder.into());
        self.send(builder, Method::PUT, &format!("/blobs/{digest}"), &[], blob).await
    }

    /// Makes an HTTP request.
    pub(super) async fn send(
        &self,
        caller: Option<Caller>,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut request = request.body(Body::from(body.to_owned())).unwrap();
        if let Some(caller) = caller {
            request.extensions_mut().insert(caller);
        }
        let response = self.http.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        Answer { status: parts.status, headers: parts.headers, body }
    }

    /// Names of the objects that are stored.
    pub(super) fn objects(&self) -> Vec<String> {
        let folders = std::fs::read_dir(self.directory.path().join("blobs")).unwrap();
        let files = folders.flat_map(|it| std::fs::read_dir(it.unwrap().path()).unwrap());
        files.map(|it| it.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// Lets time pass, and what it ends.
    pub(super) async fn pass(&self, time: Duration) {
        self.clock.advance(time);
        self.api.reconciler.look().await.unwrap();
    }
}

/// A response over HTTP.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    headers: http::HeaderMap,
    pub(super) body: Bytes,
}

impl Answer {
    /// Returns the header `name`; empty if there is none.
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// Returns an operator of `tenant`; of the site if it is empty.
pub(super) fn operator(tenant: &str) -> Caller {
    match tenant {
        "" => Role::Operator.into(),
        name => Caller::from(Role::Operator).with_tenant(name.parse().unwrap()).unwrap(),
    }
}

/// Returns an image of `tenant` that is uploaded.
pub(super) fn upload(tenant: &str, name: &str) -> pb::Image {
    pb::Image { tenant: tenant.into(), name: name.into(), ..pb::Image::default() }
}

/// Returns an image of `tenant` that is downloaded.
pub(super) fn download(tenant: &str, name: &str) -> pb::Image {
    let url = pb::UrlSource { url: "https://images.example/disk.qcow2".into() };
    let source = pb::ImageSource { source: Some(Source::Url(url)), ..Default::default() };
    pb::Image { source: Some(source), ..upload(tenant, name) }
}

/// Returns the stored file of the disk `text`.
pub(super) fn stored(text: &str) -> String {
    format!("stored {text}")
}

/// Returns the map of the disk `text`.
fn map(text: &str) -> String {
    format!("map {text}")
}

/// Returns the SHA-256 of `text`.
pub(super) fn digest(text: &str) -> String {
    hex(&Sha256::digest(text))
}

/// Returns the end of a build with the disk `text`.
pub(super) fn content(text: &str) -> Outcome {
    Outcome::Content(built(text))
}

/// Returns what is known of the disk `text`.
pub(super) fn built(text: &str) -> pb::BuiltContent {
    pb::BuiltContent {
        size_bytes: 100,
        used_bytes: 50,
        stored_bytes: stored(text).len() as u64,
        sha256: digest(text),
        stored_sha256: digest(&stored(text)),
        map_sha256: digest(&map(text)),
        source_sha256: digest(text),
        ..pb::BuiltContent::default()
    }
}

/// Returns the end of a build that failed.
pub(super) fn failure(reason: &str, may_retry: bool) -> Outcome {
    Outcome::Failure(pb::BuildFailure { reason: reason.into(), may_retry })
}

/// Returns the reason of the details of `status`.
pub(super) fn reason(status: &Status) -> String {
    status.get_error_details().error_info().map(|it| it.reason.clone()).unwrap_or_default()
}
