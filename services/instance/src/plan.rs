//! Plans: what the creation of an instance would do now.

use tinwright::InstanceId;
use tinwright::hardware::v1::Hardware;
use tinwright::instance::v1 as pb;
use tinwright::status::Violations;

use crate::create::{self, checked};
use crate::instances::{self, Instances};
use crate::machine_check;
use crate::order_check::{self, check_installation, check_machine, check_unclaimed};
use crate::peers::{self, Peers};
use crate::placement::{self, Choice};

/// An instance that would not be created, or whose installation would fail.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// It would not be created.
    #[error(transparent)]
    Create(#[from] create::Error),
    /// A service did not answer.
    #[error(transparent)]
    Peer(#[from] peers::Error),
}

impl From<instances::Error> for Error {
    fn from(error: instances::Error) -> Self {
        Self::Create(error.into())
    }
}

impl From<order_check::Error> for Error {
    fn from(error: order_check::Error) -> Self {
        Self::Create(error.into())
    }
}

/// Returns what [`create`](create::create) would do with `instance`. Writes nothing.
pub(crate) async fn plan(
    instances: &Instances,
    peers: &Peers,
    instance: pb::Instance,
) -> Result<pb::InstancePlan, Error> {
    let mut instance = checked(instance)?;
    if !instance.id.is_empty() {
        let id = Violations::parse::<InstanceId>("id", &instance.id);
        instance.id = id.map_err(instances::Error::from)?.to_string();
    }
    let tenant = peers.tenants.require("tenant", &instance.tenant).await;
    tenant.map_err(create::Error::from)?;
    check_unclaimed(instances, peers, &instance).await?;
    let machine = match instance.placement.take() {
        None => check_machine(peers, &instance).await?,
        Some(placement) => {
            let placement = placement::resolve(peers, *placement).await;
            instance.placement = Some(Box::new(placement.map_err(create::Error::from)?));
            chosen_machine(instances, peers, &instance).await?
        }
    };
    let workflow = check_installation(peers, &instance, &machine).await?.unwrap_or_default();
    Ok(pb::InstancePlan {
        hardware_id: machine.id,
        hardware_name: machine.name,
        template_id: workflow.template_id,
        template_name: workflow.template_name,
        disk: workflow.disk,
        erasures: workflow.erasures,
    })
}

/// Returns the machine that the order `instance` by placement takes now.
async fn chosen_machine(
    instances: &Instances,
    peers: &Peers,
    instance: &pb::Instance,
) -> Result<Hardware, Error> {
    let placement = instance.placement.as_deref().cloned().unwrap_or_default();
    let choice = Choice::new(instances, peers, &placement, instance).await;
    let mut choice = choice.map_err(create::Error::from)?;
    let (candidate, _) = choice.next().await.map_err(create::Error::from)?;
    let found = peers.hardware(&candidate.id).await?;
    let missing = || order_check::Error::from(machine_check::Error::Missing(candidate.id));
    Ok(found.ok_or_else(missing)?)
}
