//! The calls on subnets and ranges.

use runtime::access;
use store::records::Selector;
use store::serving;
use tinwright::address::v1 as pb;
use tinwright::address::v1::subnet_service_server::SubnetService;
use tinwright::status::Violations;
use tinwright::{Object as _, RangeId, SubnetId, TenantName, field_mask};
use tonic::{Request, Response, Status};

use super::Api;
use crate::subnets::MAX_TENANT_QUOTAS;
use crate::{Error, ranges, subnets};

#[tonic::async_trait]
impl SubnetService for Api {
    #[tracing::instrument(skip_all)]
    async fn create_subnet(
        &self,
        request: Request<pb::CreateSubnetRequest>,
    ) -> Result<Response<pb::CreateSubnetResponse>, Status> {
        let caller = access::request_scope(&request);
        let request = request.into_inner();
        let idempotent = serving::idempotent(&caller, &request.request_id, &request)?;
        let subnet = Violations::require("subnet", request.subnet)?;
        self.check_quota_tenants(&subnet, &pb::Subnet::default()).await?;
        match self.subnets.create(subnet, idempotent).await {
            Ok(subnet) => Ok(Response::new(pb::CreateSubnetResponse { subnet: Some(subnet) })),
            Err(error) => Err(self.named(error).await.into()),
        }
    }

    #[tracing::instrument(skip_all)]
    async fn get_subnet(
        &self,
        request: Request<pb::GetSubnetRequest>,
    ) -> Result<Response<pb::GetSubnetResponse>, Status> {
        use pb::get_subnet_request::By;
        let selector = match request.into_inner().by {
            None => return Err(missing_selector().into()),
            Some(By::Id(text)) => {
                Selector::Id(Violations::parse::<SubnetId>("id", &text)?.to_string())
            }
            Some(By::Name(name)) => Selector::Index(subnets::NAME_INDEX, name),
        };
        let subnet = self.subnets.records().select(&selector).await?;
        Ok(Response::new(pb::GetSubnetResponse { subnet: Some(subnet) }))
    }

    #[tracing::instrument(skip_all)]
    async fn list_subnets(
        &self,
        request: Request<pb::ListSubnetsRequest>,
    ) -> Result<Response<pb::ListSubnetsResponse>, Status> {
        let pb::ListSubnetsRequest { page_size, page_token, labels } = request.into_inner();
        let keep = |subnet: &pb::Subnet| subnet.has_labels(&labels);
        let (subnets, next_page_token) =
            serving::list(&self.mirrors.0, page_size, &page_token, keep, |subnet| subnet).await?;
        Ok(Response::new(pb::ListSubnetsResponse { subnets, next_page_token }))
    }

    #[tracing::instrument(skip_all)]
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
        match self.subnets.update(update, &paths).await {
            Ok(subnet) => Ok(Response::new(pb::UpdateSubnetResponse { subnet: Some(subnet) })),
            Err(error) => Err(self.named(error).await.into()),
        }
    }

    #[tracing::instrument(skip_all, fields(subnet.id = request.get_ref().id))]
    async fn delete_subnet(
        &self,
        request: Request<pb::DeleteSubnetRequest>,
    ) -> Result<Response<pb::DeleteSubnetResponse>, Status> {
        let pb::DeleteSubnetRequest { id, revision } = request.into_inner();
        self.subnets.delete(Violations::parse("id", &id)?, revision).await?;
        Ok(Response::new(pb::DeleteSubnetResponse {}))
    }

    type WatchSubnetsStream = serving::Events<pb::WatchSubnetsResponse>;

    #[tracing::instrument(skip_all)]
    async fn watch_subnets(
        &self,
        request: Request<pb::WatchSubnetsRequest>,
    ) -> Result<Response<Self::WatchSubnetsStream>, Status> {
        serving::watch_by_id(&self.mirrors.0, &request.get_ref().id, &self.stop, |subnet| subnet)
    }

    #[tracing::instrument(skip_all)]
    async fn create_range(
        &self,
        request: Request<pb::CreateRangeRequest>,
    ) -> Result<Response<pb::CreateRangeResponse>, Status> {
        let caller = access::request_scope(&request);
        let request = request.into_inner();
        let idempotent = serving::idempotent(&caller, &request.request_id, &request)?;
        let range = Violations::require("range", request.range)?;
        let range = self.ranges.create(range, idempotent).await?;
        Ok(Response::new(pb::CreateRangeResponse { range: Some(range) }))
    }

    #[tracing::instrument(skip_all)]
    async fn get_range(
        &self,
        request: Request<pb::GetRangeRequest>,
    ) -> Result<Response<pb::GetRangeResponse>, Status> {
        use pb::get_range_request::By;
        let selector = match request.into_inner().by {
            None => return Err(missing_selector().into()),
            Some(By::Id(text)) => {
                Selector::Id(Violations::parse::<RangeId>("id", &text)?.to_string())
            }
            Some(By::Name(name)) => Selector::Index(ranges::NAME_INDEX, name),
        };
        let range = self.ranges.records().select(&selector).await?;
        Ok(Response::new(pb::GetRangeResponse { range: Some(range) }))
    }

    #[tracing::instrument(skip_all)]
    async fn list_ranges(
        &self,
        request: Request<pb::ListRangesRequest>,
    ) -> Result<Response<pb::ListRangesResponse>, Status> {
        let pb::ListRangesRequest { page_size, page_token, labels, subnet_id } =
            request.into_inner();
        let keep = |range: &pb::Range| {
            range.has_labels(&labels) && (subnet_id.is_empty() || range.subnet_id == subnet_id)
        };
        let (ranges, next_page_token) =
            serving::list(&self.mirrors.1, page_size, &page_token, keep, |range| range).await?;
        Ok(Response::new(pb::ListRangesResponse { ranges, next_page_token }))
    }

    #[tracing::instrument(skip_all)]
    async fn update_range(
        &self,
        request: Request<pb::UpdateRangeRequest>,
    ) -> Result<Response<pb::UpdateRangeResponse>, Status> {
        let pb::UpdateRangeRequest { range, update_mask } = request.into_inner();
        let mut update = Violations::require("range", range)?;
        update.id = Violations::parse::<RangeId>("range.id", &update.id)?.to_string();
        let range = self.ranges.update(update, &update_mask.unwrap_or_default().paths).await?;
        Ok(Response::new(pb::UpdateRangeResponse { range: Some(range) }))
    }

    #[tracing::instrument(skip_all, fields(range.id = request.get_ref().id))]
    async fn delete_range(
        &self,
        request: Request<pb::DeleteRangeRequest>,
    ) -> Result<Response<pb::DeleteRangeResponse>, Status> {
        let pb::DeleteRangeRequest { id, revision } = request.into_inner();
        self.ranges.delete(Violations::parse("id", &id)?, revision).await?;
        Ok(Response::new(pb::DeleteRangeResponse {}))
    }

    type WatchRangesStream = serving::Events<pb::WatchRangesResponse>;

    #[tracing::instrument(skip_all)]
    async fn watch_ranges(
        &self,
        request: Request<pb::WatchRangesRequest>,
    ) -> Result<Response<Self::WatchRangesStream>, Status> {
        serving::watch_by_id(&self.mirrors.1, &request.get_ref().id, &self.stop, |range| range)
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

fn missing_selector() -> Violations {
    Violations::single("by", "is missing: set id or name")
}
