//! The calls on nodes.

use runtime::{Caller, MachinePurpose, Role, access};
use store::events::current_origin;
use store::serving;
use tinwright::event::v1::{Event, EventKind};
use tinwright::node::v1 as pb;
use tinwright::node::v1::image_result::Result as Outcome;
use tinwright::node::v1::node_service_server::NodeService;
use tinwright::status::Violations;
use tinwright::{NodeId, StackId};
use tonic::{Request, Response, Status, Streaming};
use uuid::Uuid;

use super::Api;
use crate::calls::{change_text, scoped_id};
use crate::connect::Responses;
use crate::error::Error;

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
            Some(By::Id(text)) => {
                let id: NodeId = Violations::parse("id", &text)?;
                self.nodes.records().require(&id.to_string()).await?
            }
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
        let pb::CallNodeRequest { node_id, call, call_id: chosen } = request.into_inner();
        let call = Violations::require("call", call.filter(|it| it.call.is_some()))?;
        serving::check_request_id(&chosen)
            .map_err(|_| Violations::single("call_id", "has more than 128 bytes"))?;
        let call_id = match chosen.as_str() {
            "" => Uuid::new_v4().simple().to_string(),
            chosen => scoped_id(&caller, chosen),
        };
        let node = self.nodes.resolve(&node_id).await?;
        let api = self.clone();
        // Its record is to be removed even if the caller goes away.
        let work = async move {
            let result = match api.calls.call(&node, &call_id, &call).await {
                // The caller knows its own id only.
                Err(Error::CallIdReused(_)) => return Err(Error::CallIdReused(chosen).into()),
                outcome => outcome?,
            };
            api.record_change(&node, &call, &result).await;
            Ok(result)
        };
        let result = serving::to_the_end(work).await?;
        Ok(Response::new(pb::CallNodeResponse { result: Some(result) }))
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

impl Api {
    /// Records that a call changed something on `node`, if it did.
    async fn record_change(&self, node: &pb::Node, call: &pb::ImageCall, result: &pb::ImageResult) {
        let has_failed = matches!(result.result, Some(Outcome::Error(_)) | None);
        let Some(text) = change_text(call).filter(|_| !has_failed) else { return };
        let mut event = Event {
            kind: EventKind::Call.into(),
            noun: "node".into(),
            object_id: node.id.clone(),
            text,
            ..Event::default()
        };
        if let Some(origin) = current_origin() {
            origin.write(&mut event);
        }
        if let Err(error) = self.log.append(event).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, node.id = node.id, "the event of a call was not recorded");
        }
    }
}
