//! The calls on subnets and ranges.

use nouns::{Edit as _, Noun as _};
use runtime::access;
use store::serving;
use tinwright::address::v1 as pb;
use tinwright::address::v1::subnet_service_server::SubnetService;
use tinwright::status::Violations;
use tinwright::{SubnetId, TenantName, field_mask};
use tonic::{Request, Response, Status};

use super::Api;
use crate::Error;
use crate::subnets::MAX_TENANT_QUOTAS;

impl SubnetService for Api {
    async fn create_subnet(
        &self,
        request: Request<pb::CreateSubnetRequest>,
    ) -> Result<Response<pb::CreateSubnetResponse>, Status> {
        let caller = access::request_scope(&request);
        let request = request.into_inner();
        let idempotent = serving::idempotent(&caller, &request.request_id, &request)?;
        let subnet = Violations::require("subnet", request.subnet)?;
        self.check_quota_tenants(&subnet, &pb::Subnet::default()).await?;
        let subnet = Some(self.named(self.subnets.create(subnet, idempotent).await).await?);
        Ok(Response::new(pb::CreateSubnetResponse { subnet }))
    }

    async fn get_subnet(
        &self,
        request: Request<pb::GetSubnetRequest>,
    ) -> Result<Response<pb::GetSubnetResponse>, Status> {
        nouns::get(self.subnets.records(), request).await
    }

    async fn list_subnets(
        &self,
        request: Request<pb::ListSubnetsRequest>,
    ) -> Result<Response<pb::ListSubnetsResponse>, Status> {
        nouns::list(&self.mirrors.0, request).await
    }

    async fn update_subnet(
        &self,
        request: Request<pb::UpdateSubnetRequest>,
    ) -> Result<Response<pb::UpdateSubnetResponse>, Status> {
        let pb::UpdateSubnetRequest { subnet, update_mask } = request.into_inner();
        let mut update = Violations::require("subnet", subnet)?;
        update.id = Violations::parse::<SubnetId>("subnet.id", &update.id)?.to_string();
        let paths = update_mask.unwrap_or_default().paths;
        let stored = self.subnets.records().require(&update.id).await?;
        self.check_quota_tenants(&field_mask::merge(&stored, &update, &paths)?, &stored).await?;
        let subnet = Some(self.named(self.subnets.update(update, &paths).await).await?);
        Ok(Response::new(pb::UpdateSubnetResponse { subnet }))
    }

    #[tracing::instrument(skip_all, fields(subnet.id = request.get_ref().id))]
    async fn delete_subnet(
        &self,
        request: Request<pb::DeleteSubnetRequest>,
    ) -> Result<Response<pb::DeleteSubnetResponse>, Status> {
        nouns::delete(&self.subnets, request).await
    }

    type WatchSubnetsStream = serving::Events<pb::WatchSubnetsResponse>;

    async fn watch_subnets(
        &self,
        request: Request<pb::WatchSubnetsRequest>,
    ) -> Result<Response<Self::WatchSubnetsStream>, Status> {
        nouns::watch(&self.mirrors.0, &self.stop, request)
    }

    async fn create_range(
        &self,
        request: Request<pb::CreateRangeRequest>,
    ) -> Result<Response<pb::CreateRangeResponse>, Status> {
        nouns::create(&self.ranges, request).await
    }

    async fn get_range(
        &self,
        request: Request<pb::GetRangeRequest>,
    ) -> Result<Response<pb::GetRangeResponse>, Status> {
        nouns::get(self.ranges.records(), request).await
    }

    async fn list_ranges(
        &self,
        request: Request<pb::ListRangesRequest>,
    ) -> Result<Response<pb::ListRangesResponse>, Status> {
        nouns::list_where(&self.mirrors.1, request, |request, range: &pb::Range| {
            request.subnet_id.is_empty() || range.subnet_id == request.subnet_id
        })
        .await
    }

    async fn update_range(
        &self,
        request: Request<pb::UpdateRangeRequest>,
    ) -> Result<Response<pb::UpdateRangeResponse>, Status> {
        nouns::update(&self.ranges, request).await
    }

    #[tracing::instrument(skip_all, fields(range.id = request.get_ref().id))]
    async fn delete_range(
        &self,
        request: Request<pb::DeleteRangeRequest>,
    ) -> Result<Response<pb::DeleteRangeResponse>, Status> {
        nouns::delete(&self.ranges, request).await
    }

    type WatchRangesStream = serving::Events<pb::WatchRangesResponse>;

    async fn watch_ranges(
        &self,
        request: Request<pb::WatchRangesRequest>,
    ) -> Result<Response<Self::WatchRangesStream>, Status> {
        nouns::watch(&self.mirrors.1, &self.stop, request)
    }
}

impl Api {
    /// Passes if the tenants that have a quota of their own in `subnet`, and had none in the `stored` one, exist.
    async fn check_quota_tenants(
        &self,
        subnet: &pb::Subnet,
        stored: &pb::Subnet,
    ) -> Result<(), Error> {
        let tenants = subnet.tenant_quotas.keys();
        let new = tenants.filter(|tenant| !stored.tenant_quotas.contains_key(*tenant));
        // More of them, and texts that are not names, are refused with the other wrong fields.
        let new: Vec<&String> = new.take(MAX_TENANT_QUOTAS).collect();
        for tenant in new {
            if tenant.parse::<TenantName>().is_ok() {
                self.tenants.require(&format!("subnet.tenant_quotas[{tenant}]"), tenant).await?;
            }
        }
        Ok(())
    }
}
