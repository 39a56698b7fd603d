//! The calls on grants. A caller with a tenant finds and changes that tenant's only.

use runtime::access;
use runtime::tenants::IfUnanswered;
use store::serving;
use tinwright::address::v1 as pb;
use tinwright::address::v1::get_grant_request::By;
use tinwright::address::v1::grant_service_server::GrantService;
use tinwright::status::Violations;
use tinwright::{GrantId, TenantName};
use tonic::{Request, Response, Status};

use super::Api;
use crate::{Error, grants};

impl GrantService for Api {
    async fn create_grant(
        &self,
        request: Request<pb::CreateGrantRequest>,
    ) -> Result<Response<pb::CreateGrantResponse>, Status> {
        let tenant = access::tenant(&request).cloned();
        let mut wanted = Violations::require("grant", request.into_inner().grant)?;
        take_tenant(&mut wanted, tenant.as_ref())?;
        let api = self.clone();
        let create = async move {
            let created = api.named(api.create(wanted).await).await;
            created.map_err(|error| error.into_status(tenant.as_ref()))
        };
        let grant = Some(serving::to_the_end(Box::pin(create)).await?);
        Ok(Response::new(pb::CreateGrantResponse { grant }))
    }

    async fn get_grant(
        &self,
        request: Request<pb::GetGrantRequest>,
    ) -> Result<Response<pb::GetGrantResponse>, Status> {
        let tenant = access::tenant(&request).cloned();
        let grant = self.find_grant(request.into_inner().by, tenant.as_ref()).await?;
        Ok(Response::new(pb::GetGrantResponse { grant: Some(grant) }))
    }

    async fn list_grants(
        &self,
        request: Request<pb::ListGrantsRequest>,
    ) -> Result<Response<pb::ListGrantsResponse>, Status> {
        nouns::list_where(&self.mirrors.2, request, |request, grant: &pb::Grant| {
            request.subnet_id.is_empty() || grant.subnet_id == request.subnet_id
        })
        .await
    }

    #[tracing::instrument(skip_all, fields(grant.id = request.get_ref().id))]
    async fn confirm_grant(
        &self,
        request: Request<pb::ConfirmGrantRequest>,
    ) -> Result<Response<pb::ConfirmGrantResponse>, Status> {
        let tenant = access::tenant(&request).cloned();
        let pb::ConfirmGrantRequest { id, use_only } = request.into_inner();
        let id = Violations::parse("id", &id)?;
        let grant = self.grants.confirm(id, use_only, tenant.as_ref()).await?;
        Ok(Response::new(pb::ConfirmGrantResponse { grant: Some(grant) }))
    }

    #[tracing::instrument(skip_all, fields(grant.id = request.get_ref().id))]
    async fn attach_grant(
        &self,
        request: Request<pb::AttachGrantRequest>,
    ) -> Result<Response<pb::AttachGrantResponse>, Status> {
        let tenant = access::tenant(&request).cloned();
        let tenant = tenant.as_ref();
        let pb::AttachGrantRequest { id, attachment } = request.into_inner();
        let id: GrantId = Violations::parse("id", &id)?;
        let wanted = Violations::require("attachment", attachment)?;
        self.grants.get(&id.to_string(), tenant).await?;
        let target = self.machines.find(&wanted, tenant).await?;
        let attached = self.grants.attach(id, &target, wanted.primary, tenant).await;
        let grant = Some(attached.map_err(|error| error.into_status(tenant))?);
        Ok(Response::new(pb::AttachGrantResponse { grant }))
    }

    #[tracing::instrument(skip_all, fields(grant.id = request.get_ref().id))]
    async fn detach_grant(
        &self,
        request: Request<pb::DetachGrantRequest>,
    ) -> Result<Response<pb::DetachGrantResponse>, Status> {
        let tenant = access::tenant(&request).cloned();
        let pb::DetachGrantRequest { id, instance_id } = request.into_inner();
        let id = Violations::parse("id", &id)?;
        let grant = self.grants.detach(id, &instance_id, tenant.as_ref()).await?;
        Ok(Response::new(pb::DetachGrantResponse { grant: Some(grant) }))
    }

    #[tracing::instrument(skip_all, fields(grant.id = request.get_ref().id))]
    async fn release_grant(
        &self,
        request: Request<pb::ReleaseGrantRequest>,
    ) -> Result<Response<pb::ReleaseGrantResponse>, Status> {
        let tenant = access::tenant(&request).cloned();
        let pb::ReleaseGrantRequest { id, revision } = request.into_inner();
        let id = Violations::parse("id", &id)?;
        self.grants.release(id, revision, tenant.as_ref()).await?;
        Ok(Response::new(pb::ReleaseGrantResponse {}))
    }

    type WatchGrantsStream = serving::Events<pb::WatchGrantsResponse>;

    async fn watch_grants(
        &self,
        request: Request<pb::WatchGrantsRequest>,
    ) -> Result<Response<Self::WatchGrantsStream>, Status> {
        nouns::watch(&self.mirrors.2, &self.stop, request)
    }
}

impl Api {
    /// Returns the grant that is named `by` a caller, who may be limited to the grants of `tenant`.
    async fn find_grant(
        &self,
        by: Option<By>,
        tenant: Option<&TenantName>,
    ) -> Result<pb::Grant, Error> {
        match by {
            None => Err(Violations::single("by", "is missing: set id, key or block").into()),
            Some(By::Id(id)) => {
                let id: GrantId = Violations::parse("id", &id)?;
                self.grants.get(&id.to_string(), tenant).await
            }
            Some(By::Key(key)) => {
                let of = tenant.map_or(key.tenant.as_str(), TenantName::as_str);
                self.grants.by_key(of, &key.key).await
            }
            Some(By::Block(block)) => {
                self.grants.by_block(Violations::parse("block", &block)?, tenant).await
            }
        }
    }

    /// Creates the grant `wanted`, whose tenant has to exist.
    async fn create(&self, wanted: pb::Grant) -> Result<pb::Grant, Error> {
        let tenant = wanted.tenant.clone();
        let create = async {
            let grant = self.grants.create(wanted).await?;
            if grant.state() != pb::GrantState::Pending {
                return Ok(grant);
            }
            let (name, block) = (format!("grant {}", grant.id), grants::block(&grant)?);
            match self.leases.withhold(name, &[block], Vec::new()).await {
                Ok(()) => Ok(grant),
                // Unless its holder knows of it already.
                Err(refused) => self.grants.take_back(grant.id).await?.ok_or(refused),
            }
        };
        let take_back = |created: pb::Grant| self.grants.take_back(created.id);
        self.tenants
            .create("grant.tenant", &tenant, IfUnanswered::TakeBack, create, take_back)
            .await
    }
}

/// Gives `grant` to the `tenant` of its creator, if there is one. Another tenant is refused.
fn take_tenant(grant: &mut pb::Grant, tenant: Option<&TenantName>) -> Result<(), Violations> {
    let Some(tenant) = tenant else { return Ok(()) };
    if !grant.tenant.is_empty() && grant.tenant != tenant.as_str() {
        return Err(Violations::single("grant.tenant", "is not the tenant of the caller"));
    }
    grant.tenant = tenant.to_string();
    Ok(())
}
