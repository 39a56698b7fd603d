//! The calls on builds. A caller with a tenant finds and cancels that tenant's only.

use runtime::access;
use store::records::Selector;
use store::serving;
use tinwright::image::v1 as pb;
use tinwright::image::v1::build_service_server::BuildService;
use tinwright::image::v1::get_build_request::By;
use tinwright::secret::Secrets as _;
use tinwright::status::Violations;
use tinwright::{BuildId, Stored as _, TenantName};
use tonic::{Request, Response, Status};

use super::Api;
use crate::error::Error;

impl BuildService for Api {
    async fn get_build(
        &self,
        request: Request<pb::GetBuildRequest>,
    ) -> Result<Response<pb::GetBuildResponse>, Status> {
        let tenant = access::tenant(&request).cloned();
        let Some(By::Id(id)) = request.into_inner().by else {
            return Err(Violations::single("by", "is missing: set id").into());
        };
        let build = self.find_build(Violations::parse("id", &id)?, tenant.as_ref()).await?;
        Ok(Response::new(pb::GetBuildResponse { build: Some(build.without_secrets()) }))
    }

    async fn list_builds(
        &self,
        request: Request<pb::ListBuildsRequest>,
    ) -> Result<Response<pb::ListBuildsResponse>, Status> {
        nouns::list(&self.build_mirror, request).await
    }

    #[tracing::instrument(skip_all, fields(build.id = request.get_ref().id))]
    async fn cancel_build(
        &self,
        request: Request<pb::CancelBuildRequest>,
    ) -> Result<Response<pb::CancelBuildResponse>, Status> {
        let tenant = access::tenant(&request).cloned();
        let id = Violations::parse("id", &request.into_inner().id)?;
        let build = self.find_build(id, tenant.as_ref()).await?;
        let build = Some(self.builds.cancel(&build.id).await?.without_secrets());
        Ok(Response::new(pb::CancelBuildResponse { build }))
    }

    type WatchBuildsStream = serving::Events<pb::WatchBuildsResponse>;

    async fn watch_builds(
        &self,
        request: Request<pb::WatchBuildsRequest>,
    ) -> Result<Response<Self::WatchBuildsStream>, Status> {
        nouns::watch(&self.build_mirror, &self.stop, request)
    }
}

impl Api {
    /// Returns the build `id`, if callers limited to `tenant` may see it.
    async fn find_build(
        &self,
        id: BuildId,
        tenant: Option<&TenantName>,
    ) -> Result<pb::Build, Error> {
        let found = self.builds.records().get(&id.to_string()).await?;
        let found = found.filter(|build| build.is_visible_to(tenant));
        Ok(found.ok_or_else(|| Selector::Id(id.to_string()).missing("build"))?)
    }
}
