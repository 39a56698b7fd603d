//! The calls on stacks.

use runtime::access;
use store::records::Selector;
use store::serving;
use tinwright::node::v1 as pb;
use tinwright::node::v1::stack_service_server::StackService;
use tinwright::secret::Secrets as _;
use tinwright::status::Violations;
use tinwright::{Object as _, StackId, check};
use tonic::{Request, Response, Status};

use super::Api;
use crate::stacks::NAME_INDEX;

#[tonic::async_trait]
impl StackService for Api {
    #[tracing::instrument(skip_all)]
    async fn create_stack(
        &self,
        request: Request<pb::CreateStackRequest>,
    ) -> Result<Response<pb::CreateStackResponse>, Status> {
        let caller = access::request_scope(&request);
        let request = request.into_inner();
        let idempotent = serving::idempotent(&caller, &request.request_id, &request)?;
        let stack = Violations::require("stack", request.stack)?;
        let stack = self.stacks.create(stack, idempotent).await?;
        Ok(Response::new(pb::CreateStackResponse { stack: Some(stack.without_secrets()) }))
    }

    #[tracing::instrument(skip_all)]
    async fn get_stack(
        &self,
        request: Request<pb::GetStackRequest>,
    ) -> Result<Response<pb::GetStackResponse>, Status> {
        use pb::get_stack_request::By;
        let view = access::effective_view(&request, request.get_ref().view())?;
        let selector = match request.into_inner().by {
            None => {
                return Err(Violations::single("by", "is missing: set either id or name").into());
            }
            Some(By::Id(text)) => {
                Selector::Id(Violations::parse::<StackId>("id", &text)?.to_string())
            }
            Some(By::Name(text)) => {
                let name = check::label(&text).map_err(|e| Violations::single("name", e))?;
                Selector::Index(NAME_INDEX, name)
            }
        };
        let stack = self.stacks.select(&selector).await?;
        Ok(Response::new(pb::GetStackResponse { stack: Some(stack.in_view(view)) }))
    }

    #[tracing::instrument(skip_all)]
    async fn list_stacks(
        &self,
        request: Request<pb::ListStacksRequest>,
    ) -> Result<Response<pb::ListStacksResponse>, Status> {
        let pb::ListStacksRequest { page_size, page_token, labels } = request.into_inner();
        let keep = |stack: &pb::Stack| stack.has_labels(&labels);
        let show = pb::Stack::without_secrets;
        let (stacks, next_page_token) =
            serving::list(&self.stack_mirror, page_size, &page_token, keep, show).await?;
        Ok(Response::new(pb::ListStacksResponse { stacks, next_page_token }))
    }

    #[tracing::instrument(skip_all)]
    async fn update_stack(
        &self,
        request: Request<pb::UpdateStackRequest>,
    ) -> Result<Response<pb::UpdateStackResponse>, Status> {
        let pb::UpdateStackRequest { stack, update_mask, rollout } = request.into_inner();
        let mut update = Violations::require("stack", stack)?;
        update.id = Violations::parse::<StackId>("stack.id", &update.id)?.to_string();
        let paths = update_mask.unwrap_or_default().paths;
        let stack = self.stacks.update(update, &paths, rollout).await?;
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
        let pb::DeleteStackRequest { id, revision } = request.into_inner();
        self.stacks.delete(Violations::parse("id", &id)?, revision, &self.nodes).await?;
        Ok(Response::new(pb::DeleteStackResponse {}))
    }

    type WatchStacksStream = serving::Events<pb::WatchStacksResponse>;

    #[tracing::instrument(skip_all)]
    async fn watch_stacks(
        &self,
        request: Request<pb::WatchStacksRequest>,
    ) -> Result<Response<Self::WatchStacksStream>, Status> {
        let show = pb::Stack::without_secrets;
        serving::watch_by_id(&self.stack_mirror, &request.get_ref().id, &self.stop, show)
    }
}
