//! Creates instances.

use runtime::tenants;
use store::records::requests::IdempotentRequest;
use tinwright::instance::v1 as pb;

use crate::check;
use crate::instances::{self, Instances};
use crate::peers::Peers;
use crate::placement::{self, Choice};

/// An instance that was not created.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Its tenant does not exist.
    #[error(transparent)]
    Tenant(#[from] tenants::Error),
    /// It could not be stored.
    #[error(transparent)]
    Instances(#[from] instances::Error),
    /// No machine was chosen.
    #[error(transparent)]
    Placement(#[from] placement::Error),
}

/// Creates `instance`, whose tenant has to exist, on its machine or on one that fits its placement. A repeated `request` returns the
/// first result.
pub(crate) async fn create(
    instances: Instances,
    peers: Peers,
    instance: pb::Instance,
    request: Option<IdempotentRequest>,
) -> Result<pb::Instance, Error> {
    if let Some(created) = instances.previous_result(request.as_ref()).await? {
        return Ok(created);
    }
    let instance = checked(instance)?;
    let tenant = instance.tenant.clone();
    let first = claim(&instances, &peers, instance, request.as_ref());
    let (instances, request) = (&instances, request.as_ref());
    let take_back = |created: pb::Instance| async move {
        // The reconciler begins only after it has found the tenant, which then has this instance.
        let kept = instances.take_back(&created, request).await?;
        // If the reconciler looked for the tenant in vain, it deletes the instance.
        Ok(kept.filter(|it| it.state() != pb::State::Deprovisioning))
    };
    Box::pin(peers.tenants.create("tenant", &tenant, first, take_back)).await
}

/// Returns `instance` in its stored form, if it can be ordered.
pub(crate) fn checked(instance: pb::Instance) -> Result<pb::Instance, instances::Error> {
    check::check_order(&instance)?;
    Ok(check::normalize(instance)?)
}

/// Stores `instance` with the claim on its machine.
async fn claim(
    instances: &Instances,
    peers: &Peers,
    mut instance: pb::Instance,
    request: Option<&IdempotentRequest>,
) -> Result<pb::Instance, Error> {
    let Some(placement) = instance.placement.take() else {
        return Ok(instances.create(instance, request.cloned()).await?);
    };
    let placement = placement::resolve(peers, *placement).await?;
    instance.placement = Some(Box::new(placement.clone()));
    let mut choice = Choice::new(instances, peers, &placement, &instance).await?;
    Ok(choice.claim(&instance, request).await?)
}
