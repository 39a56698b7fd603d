//! Plans: what the creation or the reinstallation of an instance would do now.

use tinwright::InstanceId;
use tinwright::hardware::v1::Hardware;
use tinwright::instance::v1 as pb;
use tinwright::status::Violations;
use tinwright::workflow::v1::PlanWorkflowResponse;

use crate::create::{Error, checked, pin_image};
use crate::instances::{self, Instances};
use crate::machine_check;
use crate::order_check::{
    self, check_installation, check_machine, check_reinstallation, check_unclaimed,
};
use crate::peers::Peers;
use crate::placement::{self, Choice};

/// Returns what [`create`](crate::create::create) would do with `instance`. Writes nothing.
pub(crate) async fn plan(
    instances: &Instances,
    peers: &Peers,
    instance: pb::Instance,
) -> Result<pb::InstancePlan, Error> {
    let mut instance = checked(pin_image(peers, instance).await?)?;
    if !instance.id.is_empty() {
        let id = Violations::parse::<InstanceId>("id", &instance.id);
        instance.id = id.map_err(instances::Error::from)?.to_string();
    }
    peers.tenants.require("tenant", &instance.tenant).await?;
    check_unclaimed(instances, peers, &instance).await?;
    let machine = match instance.placement.take() {
        None => check_machine(peers, &instance).await?,
        Some(placement) => {
            instance.placement = Some(Box::new(placement::resolve(peers, *placement).await?));
            chosen_machine(instances, peers, &instance).await?
        }
    };
    let workflow = check_installation(peers, &instance, &machine).await?.unwrap_or_default();
    Ok(described(workflow, machine))
}

/// Returns what the reinstallation of `instance` would do now. `instance` is as the reinstallation
/// would store it. Fails as the reinstallation would.
pub(crate) async fn plan_reinstallation(
    peers: &Peers,
    instance: &pb::Instance,
) -> Result<pb::InstancePlan, Error> {
    let (machine, workflow) = check_reinstallation(peers, instance).await?;
    Ok(described(workflow.unwrap_or_default(), machine))
}

fn described(workflow: PlanWorkflowResponse, machine: Hardware) -> pb::InstancePlan {
    pb::InstancePlan {
        hardware_id: machine.id,
        hardware_name: machine.name,
        template_id: workflow.template_id,
        template_name: workflow.template_name,
        disk: workflow.disk,
        erasures: workflow.erasures,
        images: workflow.images,
    }
}

/// Returns the machine that the order `instance` by placement takes now.
async fn chosen_machine(
    instances: &Instances,
    peers: &Peers,
    instance: &pb::Instance,
) -> Result<Hardware, Error> {
    let placement = instance.placement.as_deref().cloned().unwrap_or_default();
    let mut choice = Choice::new(instances, peers, &placement, instance).await?;
    let (candidate, _) = choice.next().await?;
    let found = peers.hardware(&candidate.id).await.map_err(placement::Error::from)?;
    let missing = || order_check::Error::from(machine_check::Error::Missing(candidate.id));
    Ok(found.ok_or_else(missing)?)
}
