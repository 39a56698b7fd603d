//! Orders of instances. Callers with a tenant cannot name a machine, and only see machines that they
//! have.

use store::records::requests::IdempotentRequest;
use store::serving;
use tinwright::instance::v1 as pb;
use tinwright::secret::Secrets as _;
use tinwright::status::Violations;
use tinwright::{InstanceId, TenantName};
use tonic::Status;

use super::error::{describe, describe_order_error};
use super::{Api, check_site_fields};
use crate::{create, plan};

impl Api {
    /// Returns what the creation of `instance` would do, as a caller limited to `tenant` sees it.
    pub(super) async fn plan(
        &self,
        instance: pb::Instance,
        tenant: Option<&TenantName>,
    ) -> Result<pb::CreateInstanceResponse, Status> {
        let owner = instance.tenant.clone();
        let plan = Box::pin(plan::plan(&self.instances, &self.peers, instance)).await;
        let plan = plan.map_err(|error| describe_order_error(error, tenant))?;
        let plan = Some(self.visible_plan(plan, &owner, tenant).await);
        Ok(pb::CreateInstanceResponse { instance: None, plan })
    }

    /// Returns what a reinstallation would do, as a caller limited to `tenant` sees it. Fails as
    /// the reinstallation would.
    pub(super) async fn plan_reinstallation(
        &self,
        id: InstanceId,
        revision: i64,
        update: pb::Instance,
        paths: &[String],
        tenant: Option<&TenantName>,
    ) -> Result<pb::ReinstallInstanceResponse, Status> {
        let new = self.instances.reinstalled(id, revision, update, paths).await;
        let new = new.map_err(|error| describe(error, tenant))?;
        let plan = Box::pin(plan::plan_reinstallation(&self.peers, &new)).await;
        let plan = plan.map_err(|error| describe_order_error(error, tenant))?;
        let plan = Some(self.visible_plan(plan, &new.tenant, tenant).await);
        Ok(pb::ReinstallInstanceResponse { instance: None, plan })
    }

    /// Returns `plan` with its images looked for, as a caller limited to `tenant` sees it. The
    /// planned instance is of the tenant `owner`; of the site if that is empty.
    async fn visible_plan(
        &self,
        mut plan: pb::InstancePlan,
        owner: &str,
        tenant: Option<&TenantName>,
    ) -> pb::InstancePlan {
        // The owner chose the URLs, whoever asks for the plan.
        let is_of_site = tenant.is_none() && owner.is_empty();
        plan.images = self.images.check(plan.images, is_of_site).await;
        visible_plan(plan, tenant)
    }

    /// Creates `instance` for a caller limited to `tenant`. The work goes on if the caller goes
    /// away.
    pub(super) async fn create(
        &self,
        instance: pb::Instance,
        request: Option<IdempotentRequest>,
        tenant: Option<TenantName>,
    ) -> Result<pb::CreateInstanceResponse, Status> {
        let (instances, peers) = (self.instances.clone(), self.peers.clone());
        let create = async move {
            let created = create::create(instances, peers, instance, request).await;
            created.map_err(|error| describe_order_error(error, tenant.as_ref()))
        };
        let created = serving::to_the_end(Box::pin(create)).await?;
        Ok(pb::CreateInstanceResponse { instance: Some(created.without_secrets()), plan: None })
    }
}

/// Gives `instance`, which is to be created, to the `tenant` of its creator, if there is one.
/// Another tenant is refused, and so is what only the site's callers may say: the machine, its
/// labels, its clean-up and who switches it.
pub(super) fn take_order(
    instance: &mut pb::Instance,
    tenant: Option<&TenantName>,
) -> Result<(), Status> {
    let Some(tenant) = tenant else { return Ok(()) };
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

/// Returns `plan` as a caller limited to `tenant` sees it. The machine is not the tenant's own yet,
/// and URLs may be those of the site's templates.
fn visible_plan(plan: pb::InstancePlan, tenant: Option<&TenantName>) -> pb::InstancePlan {
    if tenant.is_none() {
        return plan;
    }
    let pb::InstancePlan { template_id, template_name, mut erasures, mut images, .. } = plan;
    for erasure in &mut erasures {
        erasure.disks.clear();
    }
    for image in &mut images {
        image.url.clear();
    }
    let blank = pb::InstancePlan::default();
    pb::InstancePlan { template_id, template_name, erasures, images, ..blank }
}

fn refused(text: &str) -> Status {
    Status::permission_denied(text)
}
