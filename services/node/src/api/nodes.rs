//! The calls on nodes.

use runtime::{Caller, MachinePurpose, Role, access};
use store::serving;
use tinwright::StackId;
use tinwright::node::v1 as pb;
use tinwright::node::v1::node_service_server::NodeService;
use tinwright::status::Violations;
use tonic::{Request, Response, Status, Streaming};

use super::Api;
use crate::calls::CallId;
use crate::connect::Responses;

impl NodeService for Api {
    type ConnectStream = Responses;

    async fn connect(
        &self,
        request: Request<Streaming<pb::ConnectRequest>>,
    ) -> Result<Response<Self::ConnectStream>, Status> {
        let caller = request.extensions().get::<Caller>();
        let Some((Role::Machine(id, MachinePurpose::Node), epoch)) =
            caller.map(|caller| (caller.role(), caller.boot_epoch()))
        else {
            return Err(Status::permission_denied("only agents of nodes connect"));
        };
        let responses = self.connector.open(id, epoch, request.into_inner()).await?;
        Ok(Response::new(responses))
    }

    async fn get_node(
        &self,
        request: Request<pb::GetNodeRequest>,
    ) -> Result<Response<pb::GetNodeResponse>, Status> {
        use pb::get_node_request::By;
        let node = match request.into_inner().by {
            None => {
                return Err(Violations::single("by", "is missing: set either id or name").into());
            }
            Some(By::Id(id)) => self.nodes.get(Violations::parse("id", &id)?).await?,
            Some(By::Name(name)) => self.nodes.by_name(&name).await?,
        };
        Ok(Response::new(pb::GetNodeResponse { node: Some(node) }))
    }

    #[tracing::instrument(skip_all)]
    async fn list_nodes(
        &self,
        mut request: Request<pb::ListNodesRequest>,
    ) -> Result<Response<pb::ListNodesResponse>, Status> {
        check_list(request.get_mut())?;
        nouns::list_where(&self.node_mirror, request, |request, node: &pb::Node| {
            request.stack_id.is_empty() || node.stack_id == request.stack_id
        })
        .await
    }

    type WatchNodesStream = serving::Events<pb::WatchNodesResponse>;

    async fn watch_nodes(
        &self,
        request: Request<pb::WatchNodesRequest>,
    ) -> Result<Response<Self::WatchNodesStream>, Status> {
        nouns::watch(&self.node_mirror, &self.stop, request)
    }

    #[tracing::instrument(skip_all, fields(node = request.get_ref().node_id))]
    async fn call_node(
        &self,
        request: Request<pb::CallNodeRequest>,
    ) -> Result<Response<pb::CallNodeResponse>, Status> {
        let caller = access::request_scope(&request);
        let pb::CallNodeRequest { node_id, call, call_id } = request.into_inner();
        let call = Violations::require("call", call.filter(|it| it.call.is_some()))?;
        let id = CallId::new(&caller, call_id)?;
        let node = self.nodes.resolve(&node_id).await?;
        let calls = self.calls.clone();
        // Its record is to be removed even if the caller goes away.
        let work = async move { Ok(calls.call(&node, &id, &call).await?) };
        let result = Some(serving::to_the_end(work).await?);
        Ok(Response::new(pb::CallNodeResponse { result }))
    }

    #[tracing::instrument(skip_all, fields(node.id = request.get_ref().id))]
    async fn delete_node(
        &self,
        request: Request<pb::DeleteNodeRequest>,
    ) -> Result<Response<pb::DeleteNodeResponse>, Status> {
        let pb::DeleteNodeRequest { id, revision } = request.into_inner();
        self.nodes.delete(Violations::parse("id", &id)?, revision).await?;
        Ok(Response::new(pb::DeleteNodeResponse {}))
    }
}

/// Puts the fields of `request` into their stored form, if they are valid.
fn check_list(request: &mut pb::ListNodesRequest) -> Result<(), Violations> {
    let mut wrong = Violations::default();
    wrong.normalize_optional("stack_id", &mut request.stack_id, str::parse::<StackId>);
    if pb::NodeState::try_from(request.state).is_err() {
        wrong.add("state", format!("{} is not a known value", request.state));
    }
    wrong.into_result(())
}
