//! Whether an order can be carried out, as far as that can be known before a machine is claimed for it.

use tinwright::hardware::v1::Hardware;
use tinwright::instance::v1 as pb;
use tinwright::instance::v1::instance::{Os, PowerManagement};
use tinwright::status::Violations;
use tinwright::workflow::v1::{PlanWorkflowRequest, PlanWorkflowResponse};

use crate::check::{is_installed_by_workflow, is_node, is_platform};
use crate::instances::{self, Instances, OCCUPANT};
use crate::machine_check::{self, check_orderable, check_usable, name_of};
use crate::peers::{self, Peers};
use crate::reconcile::PlatformValues;

/// An order that would fail.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Its machine cannot be used.
    #[error(transparent)]
    Machine(#[from] machine_check::Error),
    /// Its machine has an instance.
    #[error("{machine} is occupied by instance {instance}")]
    Occupied {
        /// The name of the machine, or else its id.
        machine: String,
        /// The instance.
        instance: String,
    },
    /// Something that the system of a platform needs is not known.
    #[error("{0}")]
    Platform(String),
    /// Values that no template uses.
    #[error(transparent)]
    Values(#[from] Violations),
    /// An id, an address or an external id is taken, or the store failed.
    #[error(transparent)]
    Instances(#[from] instances::Error),
    /// Its template cannot be rendered for the machine, or a service did not answer.
    #[error(transparent)]
    Peer(#[from] peers::Error),
}

impl Error {
    /// True if a service could not be asked: the order may succeed.
    pub(crate) fn is_unknown(&self) -> bool {
        matches!(self, Self::Peer(peers::Error::Unavailable { .. }))
    }
}

/// Passes if nothing that `instance` claims is taken.
pub(crate) async fn check_unclaimed(
    instances: &Instances,
    peers: &Peers,
    instance: &pb::Instance,
) -> Result<(), Error> {
    use store::records::Error::Taken;
    match instances.check_unclaimed(instance).await {
        Err(instances::Error::Records(Taken { index, value, by, .. })) if index == OCCUPANT => {
            let found = peers.hardware(&value).await.ok().flatten();
            let machine = found.as_ref().map_or(value.as_str(), name_of).to_owned();
            Err(Error::Occupied { machine, instance: by })
        }
        result => Ok(result?),
    }
}

/// True if `instance` would fail on a machine without a BMC. A script, the system of a platform and a node wait until people switch the machine on.
pub(crate) fn needs_bmc(instance: &pb::Instance) -> bool {
    is_installed_by_workflow(instance)
        && instance.power_management() == PowerManagement::Unspecified
}

/// Returns the machine that `instance` names, if it can be used as ordered.
pub(crate) async fn check_machine(
    peers: &Peers,
    instance: &pb::Instance,
) -> Result<Hardware, Error> {
    let id = &instance.hardware_id;
    let found = peers.hardware(id).await?;
    check_orderable(id, found.as_ref())?;
    let machine = found.unwrap_or_default();
    check_bmc(peers, instance, &machine).await?;
    Ok(machine)
}

/// Passes if `machine` has a BMC, or if `instance` does not need one.
async fn check_bmc(
    peers: &Peers,
    instance: &pb::Instance,
    machine: &Hardware,
) -> Result<(), Error> {
    if needs_bmc(instance) && !peers.has_bmc(&machine.id).await? {
        return Err(machine_check::Error::NoBmc(name_of(machine).to_owned()).into());
    }
    Ok(())
}

/// Returns the machine of an existing `instance`, and what the workflow of its reinstallation would
/// do; none without one. Fails only if the reinstallation would fail.
///
/// Less is refused than for a new order: the machine may be enrolled, and the template may leave
/// values unused, as those of an instance are for several templates. Without a template no machine
/// is refused: its boot waits until the machine can be used.
pub(crate) async fn check_reinstallation(
    peers: &Peers,
    instance: &pb::Instance,
) -> Result<(Hardware, Option<PlanWorkflowResponse>), Error> {
    let id = &instance.hardware_id;
    let found = peers.hardware(id).await?;
    let machine = found.ok_or_else(|| machine_check::Error::Missing(id.clone()))?;
    if !is_installed_by_workflow(instance) {
        return Ok((machine, None));
    }
    check_usable(id, Some(&machine))?;
    check_bmc(peers, instance, &machine).await?;
    let workflow = peers.plan_workflow(installation(instance, &machine)).await?;
    Ok((machine, Some(workflow)))
}

/// Returns what the workflow of `instance` would do to `machine`; none if nothing would be installed. Fails as its creation would.
pub(crate) async fn check_installation(
    peers: &Peers,
    instance: &pb::Instance,
    machine: &Hardware,
) -> Result<Option<PlanWorkflowResponse>, Error> {
    if let Some(Os::Platform(boot)) = &instance.os {
        PlatformValues::read(peers, boot, machine).await?.map_err(Error::Platform)?;
    }
    if instance.reserve_only || is_platform(instance) || is_node(instance) {
        return Ok(None);
    }
    let request = PlanWorkflowRequest {
        deprovision_template_id: template_with_values(instance, machine),
        ..installation(instance, machine)
    };
    let plan = peers.plan_workflow(request).await?;
    match plan.unused_values.as_slice() {
        [] => Ok(Some(plan)),
        unused => {
            let text = format!("has values that no template uses: {}", unused.join(", "));
            Err(Violations::single("template_values", text).into())
        }
    }
}

/// Returns the request for a plan of the workflow that installs `machine` for `instance`.
fn installation(instance: &pb::Instance, machine: &Hardware) -> PlanWorkflowRequest {
    PlanWorkflowRequest {
        template_id: instance.template_id.clone(),
        hardware_id: machine.id.clone(),
        values: instance.template_values.clone(),
        tenant: instance.tenant.clone(),
        root_disk: instance.root_disk.as_deref().cloned(),
        deprovision_template_id: String::new(),
        image_id: instance.image_id.clone(),
    }
}

/// Returns the template of the clean-up, if it gets values of `instance`; else an empty text. Those of a tenant reach no clean-up.
fn template_with_values(instance: &pb::Instance, machine: &Hardware) -> String {
    let own = &instance.deprovision_template_id;
    let of_machine = machine.policy.as_ref().map_or("", |policy| &policy.deprovision_template_id);
    match (instance.tenant.as_str(), own.as_str()) {
        ("", "") => of_machine.to_owned(),
        ("", own) => own.to_owned(),
        (_tenant, _own) => String::new(),
    }
}
