//! The gRPC services of identities.

mod identity;

use std::sync::Arc;
use std::time::Duration;

use runtime::authority::SiteAuthority;
use runtime::{Clock, access};
use store::hosted::{self, HostedService, RecordVisitor};
use store::mirror::Mirror;
use store::records::{self, Selector};
use store::{ScopedStore, Store, serving};
use tinwright::identity::v1 as pb;
use tinwright::identity::v1::identity_service_server::IdentityServiceServer;
use tinwright::identity::v1::tenant_service_server::{TenantService, TenantServiceServer};
use tinwright::status::Violations;
use tinwright::{Object as _, TenantId};
use tokio_util::sync::CancellationToken;
use tonic::service::RoutesBuilder;
use tonic::{Request, Response, Status};

use crate::certificates::Certificates;
use crate::credentials::Credentials;
use crate::revocations::{RevocationKind, Revocations};
use crate::rotation::{Resealer, Rotation};
use crate::tenants::objects::TenantObjects;
use crate::tenants::{NAME_INDEX, TenantKind, Tenants};

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
            (Mirror::new(tenants.records().clone()), Mirror::new(revocations.records().clone()));
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
        visitor.records(self.certificates.records());
        visitor.mirror(&self.mirrors.1);
    }

    /// Follows the records, and deletes those that have expired.
    async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        let expiry = stop.run_until_cancelled(self.keep_deleting_expired());
        tokio::join!(hosted::follow(&self, &stop), expiry);
        Ok(())
    }
}

#[tonic::async_trait]
impl TenantService for Api {
    #[tracing::instrument(skip_all)]
    async fn create_tenant(
        &self,
        request: Request<pb::CreateTenantRequest>,
    ) -> Result<Response<pb::CreateTenantResponse>, Status> {
        let caller = access::request_scope(&request);
        let request = request.into_inner();
        let idempotent = serving::idempotent(&caller, &request.request_id, &request)?;
        let tenant = Violations::require("tenant", request.tenant)?;
        let tenant = self.tenants.create(tenant, idempotent).await?;
        Ok(Response::new(pb::CreateTenantResponse { tenant: Some(tenant) }))
    }

    #[tracing::instrument(skip_all)]
    async fn get_tenant(
        &self,
        request: Request<pb::GetTenantRequest>,
    ) -> Result<Response<pb::GetTenantResponse>, Status> {
        let tenant = self.tenants.records().select(&selector(request.into_inner())?).await?;
        Ok(Response::new(pb::GetTenantResponse { tenant: Some(tenant) }))
    }

    #[tracing::instrument(skip_all)]
    async fn list_tenants(
        &self,
        request: Request<pb::ListTenantsRequest>,
    ) -> Result<Response<pb::ListTenantsResponse>, Status> {
        let pb::ListTenantsRequest { page_size, page_token, labels } = request.into_inner();
        let keep = |tenant: &pb::Tenant| tenant.has_labels(&labels);
        let (tenants, next_page_token) =
            serving::list(&self.mirrors.0, page_size, &page_token, keep, |tenant| tenant).await?;
        Ok(Response::new(pb::ListTenantsResponse { tenants, next_page_token }))
    }

    #[tracing::instrument(skip_all)]
    async fn update_tenant(
        &self,
        request: Request<pb::UpdateTenantRequest>,
    ) -> Result<Response<pb::UpdateTenantResponse>, Status> {
        let pb::UpdateTenantRequest { tenant, update_mask } = request.into_inner();
        let mut update = Violations::require("tenant", tenant)?;
        update.id = Violations::parse::<TenantId>("tenant.id", &update.id)?.to_string();
        let tenant = self.tenants.update(update, &update_mask.unwrap_or_default().paths).await?;
        Ok(Response::new(pb::UpdateTenantResponse { tenant: Some(tenant) }))
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

    #[tracing::instrument(skip_all)]
    async fn watch_tenants(
        &self,
        request: Request<pb::WatchTenantsRequest>,
    ) -> Result<Response<Self::WatchTenantsStream>, Status> {
        serving::watch_by_id(&self.mirrors.0, &request.get_ref().id, &self.stop, |tenant| tenant)
    }
}

pub(crate) fn selector(request: pb::GetTenantRequest) -> Result<Selector, Violations> {
    use pb::get_tenant_request::By;
    match request.by {
        None => Err(Violations::single("by", "is missing: set id or name")),
        Some(By::Id(text)) => {
            Ok(Selector::Id(Violations::parse::<TenantId>("id", &text)?.to_string()))
        }
        Some(By::Name(name)) => Ok(Selector::Index(NAME_INDEX, name)),
    }
}
