//! The gRPC services of identities.

mod identity;

use std::sync::Arc;
use std::time::Duration;

use nouns::Noun as _;
use runtime::Clock;
use runtime::authority::SiteAuthority;
use store::hosted::{self, HostedService, RecordVisitor};
use store::mirror::Mirror;
use store::records;
use store::{ScopedStore, Store, serving};
use tinwright::identity::v1 as pb;
use tinwright::identity::v1::identity_service_server::IdentityServiceServer;
use tinwright::identity::v1::tenant_service_server::{TenantService, TenantServiceServer};
use tinwright::status::Violations;
use tokio_util::sync::CancellationToken;
use tonic::service::RoutesBuilder;
use tonic::{Request, Response, Status};

use crate::certificates::Certificates;
use crate::credentials::Credentials;
use crate::revocations::{RevocationKind, Revocations};
use crate::rotation::{Resealer, Rotation};
use crate::tenants::objects::TenantObjects;
use crate::tenants::{TenantKind, Tenants};

/// Interval at which expired certificates and revocations are deleted.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// Serves tenants and identities over gRPC.
#[derive(Clone, Debug)]
pub struct Api {
    tenants: Tenants,
    objects: TenantObjects,
    credentials: Credentials,
    certificates: Certificates,
    revocations: Revocations,
    rotation: Rotation,
    mirrors: (Mirror<TenantKind>, Mirror<RevocationKind>),
    clock: Clock,
    stop: CancellationToken,
}

impl Api {
    /// Serves the identities in `store`; a tenant with `objects` is not deleted. Certificates are issued by `authority`; when its keys are
    /// replaced, `resealer` encrypts records. Watches end at `stop`.
    pub fn new(
        store: Arc<dyn Store>,
        objects: TenantObjects,
        authority: Arc<SiteAuthority>,
        resealer: Arc<dyn Resealer>,
        clock: Clock,
        stop: CancellationToken,
    ) -> Self {
        let store = ScopedStore::new(store, Self::NAME);
        let tenants = Tenants::new(store.clone(), clock.clone());
        let revocations = Revocations::new(store.clone());
        let mirrors =
            (Mirror::new(tenants.records().clone()), Mirror::new(revocations.records.clone()));
        let certificates = Certificates::new(store.clone(), authority.clone(), clock.clone());
        Self {
            rotation: Rotation::new(authority, resealer, certificates.clone(), store.clone()),
            credentials: Credentials::new(store, clock.clone()),
            certificates,
            tenants,
            objects,
            revocations,
            mirrors,
            clock,
            stop,
        }
    }

    async fn keep_deleting_expired(&self) {
        let mut hourly = tokio::time::interval(EXPIRY_INTERVAL);
        loop {
            hourly.tick().await;
            if let Err(error) = self.delete_expired().await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "expired identities were not deleted; trying again in an hour"
                );
            }
        }
    }

    async fn delete_expired(&self) -> Result<(), records::Error> {
        let now = self.clock.wall();
        self.certificates.delete_expired(now).await?;
        self.revocations.delete_expired(now).await
    }
}

impl HostedService for Api {
    const NAME: &'static str = "identity";

    fn add_routes(&self, routes: &mut RoutesBuilder) {
        routes.add_service(TenantServiceServer::new(self.clone()));
        routes.add_service(IdentityServiceServer::new(self.clone()));
    }

    fn visit(&self, visitor: &mut impl RecordVisitor) {
        visitor.mirror(&self.mirrors.0);
        visitor.records(self.credentials.records());
        visitor.records(&self.certificates.records);
        visitor.mirror(&self.mirrors.1);
    }

    /// Follows the records, and deletes those that have expired.
    async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        let expiry = stop.run_until_cancelled(self.keep_deleting_expired());
        tokio::join!(hosted::follow(&self, &stop), expiry);
        Ok(())
    }
}

impl TenantService for Api {
    async fn create_tenant(
        &self,
        request: Request<pb::CreateTenantRequest>,
    ) -> Result<Response<pb::CreateTenantResponse>, Status> {
        nouns::create(&self.tenants, request).await
    }

    async fn get_tenant(
        &self,
        request: Request<pb::GetTenantRequest>,
    ) -> Result<Response<pb::GetTenantResponse>, Status> {
        nouns::get(self.tenants.records(), request).await
    }

    async fn list_tenants(
        &self,
        request: Request<pb::ListTenantsRequest>,
    ) -> Result<Response<pb::ListTenantsResponse>, Status> {
        nouns::list(&self.mirrors.0, request).await
    }

    async fn update_tenant(
        &self,
        request: Request<pb::UpdateTenantRequest>,
    ) -> Result<Response<pb::UpdateTenantResponse>, Status> {
        nouns::update(&self.tenants, request).await
    }

    #[tracing::instrument(skip_all, fields(tenant.id = request.get_ref().id))]
    async fn delete_tenant(
        &self,
        request: Request<pb::DeleteTenantRequest>,
    ) -> Result<Response<pb::DeleteTenantResponse>, Status> {
        let pb::DeleteTenantRequest { id, revision } = request.into_inner();
        let id = Violations::parse("id", &id)?;
        let (tenants, objects) = (self.tenants.clone(), self.objects.clone());
        let delete = async move { Ok(tenants.delete(id, revision, &objects).await?) };
        serving::to_the_end(delete).await?;
        Ok(Response::new(pb::DeleteTenantResponse {}))
    }

    type WatchTenantsStream = serving::Events<pb::WatchTenantsResponse>;

    async fn watch_tenants(
        &self,
        request: Request<pb::WatchTenantsRequest>,
    ) -> Result<Response<Self::WatchTenantsStream>, Status> {
        nouns::watch(&self.mirrors.0, &self.stop, request)
    }
}
