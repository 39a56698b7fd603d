//! The gRPC services of identities.

use std::sync::Arc;

use runtime::Clock;
use store::mirror::Mirror;
use store::records::{self, CheckReport, Selector};
use store::{ScopedStore, Store, serving};
use tinwright::identity::v1 as pb;
use tinwright::identity::v1::tenant_service_server::{TenantService, TenantServiceServer};
use tinwright::status::Violations;
use tinwright::{Object as _, TenantId};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use crate::tenants::{NAME_INDEX, TenantKind, Tenants};

/// Serves [`Tenants`] over gRPC.
#[derive(Clone, Debug)]
pub struct Api {
    tenants: Tenants,
    mirror: Mirror<TenantKind>,
    stop: CancellationToken,
}

impl Api {
    /// Serves the identities in `store`. Watches end at `stop`.
    pub fn new(store: Arc<dyn Store>, clock: Clock, stop: CancellationToken) -> Self {
        let tenants = Tenants::new(ScopedStore::new(store, "identity"), clock);
        let mirror = Mirror::new(tenants.records().clone());
        Self { tenants, mirror, stop }
    }

    /// Converts it into a service of tenants for a tonic router.
    pub fn tenant_service(&self) -> TenantServiceServer<Self> {
        TenantServiceServer::new(self.clone())
    }

    /// Resolves once watches can be served.
    pub async fn ready(&self) {
        self.mirror.ready().await;
    }

    /// Checks that records and indexes agree; with `repair`, corrects the indexes.
    pub async fn check(&self, repair: bool) -> Result<CheckReport, records::Error> {
        self.tenants.records().check(repair).await
    }

    /// Follows the records until `stop`, which must come after the end of the watches.
    pub async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        serving::run(self.mirror, stop).await
    }
}

#[tonic::async_trait]
impl TenantService for Api {
    #[tracing::instrument(skip_all)]
    async fn create_tenant(
        &self,
        request: Request<pb::CreateTenantRequest>,
    ) -> Result<Response<pb::CreateTenantResponse>, Status> {
        let request = request.into_inner();
        let idempotent = serving::idempotent(&request.request_id, &request)?;
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
        let records = self.tenants.records();
        let (tenants, next_page_token) =
            serving::list(records, page_size, &page_token, keep, |tenant| tenant).await?;
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
        self.tenants.delete(Violations::parse("id", &id)?, revision).await?;
        Ok(Response::new(pb::DeleteTenantResponse {}))
    }

    type WatchTenantsStream = serving::Events<pb::WatchTenantsResponse>;

    #[tracing::instrument(skip_all)]
    async fn watch_tenants(
        &self,
        request: Request<pb::WatchTenantsRequest>,
    ) -> Result<Response<Self::WatchTenantsStream>, Status> {
        serving::watch_by_id(&self.mirror, &request.get_ref().id, &self.stop, |tenant| tenant)
    }
}

fn selector(request: pb::GetTenantRequest) -> Result<Selector, Violations> {
    use pb::get_tenant_request::By;
    match request.by {
        None => Err(Violations::single("by", "is missing: set id or name")),
        Some(By::Id(text)) => {
            Ok(Selector::Id(Violations::parse::<TenantId>("id", &text)?.to_string()))
        }
        Some(By::Name(name)) => Ok(Selector::Index(NAME_INDEX, name)),
    }
}
