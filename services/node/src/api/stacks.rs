//! The calls on stacks.

use nouns::Noun as _;
use store::serving;
use tinwright::StackId;
use tinwright::node::v1 as pb;
use tinwright::node::v1::stack_service_server::StackService;
use tinwright::secret::Secrets as _;
use tinwright::status::Violations;
use tonic::{Request, Response, Status};

use super::Api;

impl StackService for Api {
    async fn create_stack(
        &self,
        request: Request<pb::CreateStackRequest>,
    ) -> Result<Response<pb::CreateStackResponse>, Status> {
        nouns::create(&self.stacks, request).await
    }

    async fn get_stack(
        &self,
        request: Request<pb::GetStackRequest>,
    ) -> Result<Response<pb::GetStackResponse>, Status> {
        nouns::get(self.stacks.records(), request).await
    }

    async fn list_stacks(
        &self,
        request: Request<pb::ListStacksRequest>,
    ) -> Result<Response<pb::ListStacksResponse>, Status> {
        nouns::list(&self.stack_mirror, request).await
    }

    async fn update_stack(
        &self,
        request: Request<pb::UpdateStackRequest>,
    ) -> Result<Response<pb::UpdateStackResponse>, Status> {
        let pb::UpdateStackRequest { stack, update_mask, rollout } = request.into_inner();
        let mut update = Violations::require("stack", stack)?;
        update.id = Violations::parse::<StackId>("stack.id", &update.id)?.to_string();
        let paths = update_mask.unwrap_or_default().paths;
        let stack = self.stacks.update_with(update, &paths, rollout).await?;
        Ok(Response::new(pb::UpdateStackResponse { stack: Some(stack.without_secrets()) }))
    }

    #[tracing::instrument(skip_all, fields(stack.id = request.get_ref().id))]
    async fn roll_back_stack(
        &self,
        request: Request<pb::RollBackStackRequest>,
    ) -> Result<Response<pb::RollBackStackResponse>, Status> {
        let stack = self.stacks.roll_back(request.into_inner()).await?;
        Ok(Response::new(pb::RollBackStackResponse { stack: Some(stack.without_secrets()) }))
    }

    #[tracing::instrument(skip_all, fields(stack.id = request.get_ref().id))]
    async fn delete_stack(
        &self,
        request: Request<pb::DeleteStackRequest>,
    ) -> Result<Response<pb::DeleteStackResponse>, Status> {
        nouns::delete(&self.stacks, request).await
    }

    type WatchStacksStream = serving::Events<pb::WatchStacksResponse>;

    async fn watch_stacks(
        &self,
        request: Request<pb::WatchStacksRequest>,
    ) -> Result<Response<Self::WatchStacksStream>, Status> {
        nouns::watch(&self.stack_mirror, &self.stop, request)
    }
}
