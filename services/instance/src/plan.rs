//! Plans: what the creation of an instance would do now.

use tinwright::InstanceId;
use tinwright::hardware::v1::Hardware;
use tinwright::instance::v1 as pb;
use tinwright::instance::v1::instance::Os;
use tinwright::status::Violations;
use tinwright::workflow::v1::PlanWorkflowRequest;

use crate::check::{is_node, is_platform};
use crate::create::{self, checked};
use crate::instances::{self, Instances};
use crate::peers::{self, Peers};
use crate::placement::{self, Choice};
use crate::reconcile::{PlatformValues, check_usable};

/// An instance that would not be created, or whose installation would fail.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// It would not be created.
    #[error(transparent)]
    Create(#[from] create::Error),
    /// Its machine may not be used.
    #[error("{0}")]
    Unusable(String),
    /// Its template could not be rendered, or a service did not answer.
    #[error(transparent)]
    Peer(#[from] peers::Error),
}

impl From<instances::Error> for Error {
    fn from(error: instances::Error) -> Self {
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
    instances.check_unclaimed(&instance).await?;
    let machine = match instance.placement.take() {
        None => named_machine(peers, &instance.hardware_id).await?,
        Some(placement) => {
            let placement = placement::resolve(peers, *placement).await;
            let placement = placement.map_err(create::Error::from)?;
            instance.placement = Some(Box::new(placement.clone()));
            let machine = chosen_machine(instances, peers, &placement, &instance).await;
            machine.map_err(create::Error::from)?
        }
    };
    if let Some(Os::Platform(boot)) = &instance.os {
        let hardware = peers.hardware(&machine.id).await?.unwrap_or_default();
        let values = PlatformValues::read(peers, boot, &hardware).await?;
        values.map(drop).map_err(Error::Unusable)?;
    }
    if instance.reserve_only || is_platform(&instance) || is_node(&instance) {
        return Ok(pb::InstancePlan {
            hardware_id: machine.id,
            hardware_name: machine.name,
            ..pb::InstancePlan::default()
        });
    }
    let request = PlanWorkflowRequest {
        template_id: instance.template_id.clone(),
        hardware_id: machine.id.clone(),
        values: instance.template_values.clone(),
        tenant: instance.tenant.clone(),
        root_disk: instance.root_disk.map(|hint| *hint),
    };
    let workflow = peers.plan_workflow(request).await?;
    Ok(pb::InstancePlan {
        hardware_id: machine.id,
        hardware_name: machine.name,
        template_id: workflow.template_id,
        template_name: workflow.template_name,
        disk: workflow.disk,
        erasures: workflow.erasures,
    })
}

/// The machine of a plan.
struct Machine {
    id: String,
    /// Empty if it has none.
    name: String,
}

/// Returns the machine that an order by `placement` takes now.
async fn chosen_machine(
    instances: &Instances,
    peers: &Peers,
    placement: &pb::Placement,
    instance: &pb::Instance,
) -> Result<Machine, placement::Error> {
    let mut choice = Choice::new(instances, peers, placement, instance).await?;
    let (candidate, _) = choice.next().await?;
    Ok(Machine { id: candidate.id, name: candidate.name })
}

/// Returns the machine `id`, if an instance may use it.
async fn named_machine(peers: &Peers, id: &str) -> Result<Machine, Error> {
    let found = peers.hardware(id).await?;
    check_usable(id, found.as_ref()).map_err(Error::Unusable)?;
    let Hardware { id, name, .. } = found.unwrap_or_default();
    Ok(Machine { id, name })
}
