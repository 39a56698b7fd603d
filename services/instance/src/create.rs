//! Creates instances.

use store::records::requests::IdempotentRequest;
use tinwright::instance::v1 as pb;
use tonic::Status;

use crate::instances::{Error, Instances};
use crate::peers::Peers;

/// Creates `instance`, whose tenant has to exist. A repeated `request` returns the first result.
pub async fn create(
    instances: Instances,
    peers: Peers,
    instance: pb::Instance,
    request: Option<IdempotentRequest>,
) -> Result<pb::Instance, Status> {
    if let Some(created) = instances.previous_result(request.as_ref()).await? {
        return Ok(created);
    }
    let tenant = instance.tenant.clone();
    let first = instances.create(instance, request.clone());
    let create = async { Ok(first.await?) };
    let (records, request) = (instances.records(), request.as_ref());
    let take_back = |created: pb::Instance| async move {
        // The reconciler begins only after it has found the tenant, which then has this instance.
        let has_begun = |it: &pb::Instance| it.state() != pb::State::Queued;
        let kept = records.take_back(&created.id, request, has_begun).await;
        // If the reconciler looked for the tenant in vain, it deletes the instance.
        Ok(kept.map_err(Error::from)?.filter(|it| it.state() != pb::State::Deprovisioning))
    };
    Box::pin(peers.tenants.create("tenant", &tenant, create, take_back)).await
}
