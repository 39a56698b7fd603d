//! Creates instances.

use std::time::Duration;

use runtime::images;
use runtime::tenants::{self, IfUnanswered};
use store::records::requests::IdempotentRequest;
use tinwright::instance::v1 as pb;

use crate::check::{self, is_installed_by_workflow};
use crate::instances::{self, Instances};
use crate::order_check;
use crate::peers::Peers;
use crate::placement::{self, Choice};

/// The longest time for the checks of an order before its machine is claimed.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);

/// An instance that was not created.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Its tenant does not exist.
    #[error(transparent)]
    Tenant(#[from] tenants::Error),
    /// It could not be stored.
    #[error(transparent)]
    Instances(#[from] instances::Error),
    /// Its image cannot be used.
    #[error(transparent)]
    Image(#[from] images::Error),
    /// It would fail.
    #[error(transparent)]
    Order(#[from] order_check::Error),
    /// No machine was chosen.
    #[error(transparent)]
    Placement(#[from] placement::Error),
}

/// Creates `instance` on its machine, or on one that fits its placement. Its tenant has to exist. A
/// repeated `request` returns the first result.
pub(crate) async fn create(
    instances: Instances,
    peers: Peers,
    instance: pb::Instance,
    request: Option<IdempotentRequest>,
) -> Result<pb::Instance, Error> {
    if let Some(created) = instances.previous_result(request.as_ref()).await? {
        return Ok(created);
    }
    let instance = checked(pin_image(&peers, instance).await?)?;
    let tenant = instance.tenant.clone();
    if let Err(refused) = check(&instances, &peers, &instance).await {
        // The same request may have been carried out meanwhile.
        return instances.previous_result(request.as_ref()).await?.ok_or(refused);
    }
    let first = async {
        let created = claim(&instances, &peers, instance, request.as_ref()).await?;
        keep_with_image(&instances, &peers, created, request.as_ref()).await
    };
    let (instances, request) = (&instances, request.as_ref());
    let take_back = |created: pb::Instance| async move {
        // The reconciler begins only after it has found the tenant, which then has this instance.
        let kept = instances.take_back(&created, request).await?;
        // If the reconciler looked for the tenant in vain, it deletes the instance.
        Ok(kept.filter(|it| it.state() != pb::State::Deprovisioning))
    };
    // A repeated order finds the instance from the claim on: its answer names an instance that stays.
    let creation = peers.tenants.create("tenant", &tenant, IfUnanswered::Keep, first, take_back);
    Box::pin(creation).await
}

/// Returns `instance` with the id of the image that it names, whose content can be used.
pub(crate) async fn pin_image(
    peers: &Peers,
    mut instance: pb::Instance,
) -> Result<pb::Instance, images::Error> {
    instance.image_sha256.clear();
    if !instance.image_id.is_empty() {
        let image = peers.images.usable(&instance.image_id, &instance.tenant).await?;
        (instance.image_id, instance.image_sha256) = (image.id, image.sha256);
    }
    Ok(instance)
}

/// Returns `created`, unless its image was deleted while it was created: then it is taken back.
async fn keep_with_image(
    instances: &Instances,
    peers: &Peers,
    created: pb::Instance,
    request: Option<&IdempotentRequest>,
) -> Result<pb::Instance, Error> {
    if created.image_id.is_empty() {
        return Ok(created);
    }
    match peers.images.find(&created.image_id, &created.tenant).await {
        Err(missing @ images::Error::Missing(_)) => {
            instances.take_back(&created, request).await?.ok_or_else(|| missing.into())
        }
        // Without an answer: its workflow cannot be created without the image.
        Ok(_) | Err(_) => Ok(created),
    }
}

/// Passes unless it is known that the template of `instance` cannot be rendered for the machine that is chosen first.
async fn check_template(
    peers: &Peers,
    instance: &pb::Instance,
    choice: &mut Choice<'_>,
) -> Result<(), Error> {
    if !is_installed_by_workflow(instance) {
        return Ok(());
    }
    let candidate = match choice.next().await {
        Ok((candidate, _)) => candidate,
        // The claim is refused, unless the same request was carried out meanwhile.
        Err(placement::Error::NoMachineFits(_)) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let check = async {
        match peers.hardware(&candidate.id).await? {
            Some(hardware) => {
                order_check::check_installation(peers, instance, &hardware).await.map(drop)
            }
            None => Ok(()),
        }
    };
    match Box::pin(check).await {
        Err(error) if !error.is_unknown() => Err(error.into()),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Passes unless it is known that `instance` cannot be created on the machine that it names, or that its installation would fail. The machine of an
/// order by placement is not chosen yet.
async fn check(instances: &Instances, peers: &Peers, instance: &pb::Instance) -> Result<(), Error> {
    if instance.placement.is_some() {
        return Ok(());
    }
    let checks = async {
        order_check::check_unclaimed(instances, peers, instance).await?;
        let machine = order_check::check_machine(peers, instance).await?;
        order_check::check_installation(peers, instance, &machine).await.map(drop)
    };
    match tokio::time::timeout(CHECK_TIMEOUT, Box::pin(checks)).await {
        Ok(Err(error)) if !error.is_unknown() => Err(error.into()),
        Ok(Ok(())) => Ok(()),
        // The reconciler makes the same checks after the claim.
        Ok(Err(_)) | Err(_) => {
            tracing::info!(
                hardware.id = instance.hardware_id,
                "instance not checked before it is stored: a service did not answer"
            );
            Ok(())
        }
    }
}

/// Returns `instance` in its stored form, if it can be ordered.
pub(crate) fn checked(instance: pb::Instance) -> Result<pb::Instance, instances::Error> {
    if !matches!(instance.state(), pb::State::Unspecified | pb::State::Queued) {
        return Err(instances::Error::NotQueued(instance.state()));
    }
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
    if let Err(refused) = check_template(peers, &instance, &mut choice).await {
        return instances.previous_result(request).await?.ok_or(refused);
    }
    Ok(choice.claim(&instance, request).await?)
}
