//! Orders of callers with a tenant: they name no machine, and see none that they do not have.

use tinwright::TenantName;
use tinwright::instance::v1 as pb;
use tinwright::status::Violations;
use tonic::Status;

use super::check_site_fields;

/// Gives `instance`, which is to be created, to the tenant of its creator. Another tenant is refused, and so is what only the site's callers
/// may say: the machine, its labels, its clean-up and who switches it.
pub(super) fn take_order(instance: &mut pb::Instance, tenant: &TenantName) -> Result<(), Status> {
    if !instance.tenant.is_empty() && instance.tenant != tenant.as_str() {
        return Err(Violations::single("tenant", "is not the tenant of the caller").into());
    }
    instance.tenant = tenant.to_string();
    if !instance.hardware_id.is_empty() {
        return Err(refused("a tenant cannot name the machine: set placement instead"));
    }
    if instance.placement.as_ref().is_some_and(|placement| !placement.labels.is_empty()) {
        // It would learn the labels of machines, which it does not see.
        return Err(refused("a tenant cannot choose by labels of machines"));
    }
    check_site_fields(&pb::Instance::default(), instance, &[])
}

/// Returns `plan` as a caller sees it that is limited to the objects of `tenant`: the machine is not its own yet.
pub(super) fn visible_plan(
    plan: pb::InstancePlan,
    tenant: Option<&TenantName>,
) -> pb::InstancePlan {
    if tenant.is_none() {
        return plan;
    }
    let pb::InstancePlan { template_id, template_name, mut erasures, .. } = plan;
    for erasure in &mut erasures {
        erasure.disks.clear();
    }
    pb::InstancePlan { template_id, template_name, erasures, ..pb::InstancePlan::default() }
}

fn refused(text: &str) -> Status {
    Status::permission_denied(text)
}
