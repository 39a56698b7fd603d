//! State queued: checks that there is the tenant and that the machine may be used, and starts the workflow that installs it.

use tinwright::instance::v1::Instance;
use tinwright::instance::v1::instance::{Os, PowerManagement};
use tinwright::workflow::v1::{BootOptions, CreateWorkflowRequest, boot_options::Mode};

use super::orphans::CreatedObject;
use super::{CANCEL_POLL_INTERVAL, Error, NO_REQUEST, Outcome, Reconciler};
use super::{request_id, request_labels};
use crate::check::is_installed_by_workflow;
use crate::machine_check::check_usable;
use crate::peers;
use crate::state::Event;

/// The name of this step in request ids.
pub(super) const STEP: &str = "provision";
/// Workflow ids that an instance's record holds.
const MAX_WORKFLOW_IDS: usize = 100;

impl Reconciler {
    /// Starts the installation of the machine, if it may be used.
    pub(super) async fn provision(&self, instance: &Instance) -> Result<Outcome, Error> {
        // A machine that was changed for the instance has to be cleaned first, by a deletion.
        if instance.begin_time.is_none()
            && let Some(reason) = self.peers.missing_tenant(&instance.tenant).await?
        {
            return self.advance(instance, Event::Delete, &reason).await;
        }
        let hardware = self.peers.hardware(&instance.hardware_id).await?;
        if let Err(reason) = check_usable(&instance.hardware_id, hardware.as_ref()) {
            return self.reject_hardware(instance, &reason.to_string()).await;
        }
        if instance.reserve_only {
            return self.advance(instance, Event::Reserved, "").await;
        }
        if let Some(Os::Platform(boot)) = &instance.os {
            return self.provision_platform(instance, boot, &hardware.unwrap_or_default()).await;
        }
        if !is_installed_by_workflow(instance) {
            return self.advance(instance, Event::Began, "").await;
        }
        match self.peers.create_workflow(request(instance)).await {
            Ok(workflow) => {
                let record = |new: &mut Instance| record_workflow(new, &workflow);
                let result = self.instances.advance(instance, Event::Began, "", record).await;
                self.recorded(&CreatedObject::new(&workflow, instance, STEP), result).await?;
                tracing::info!(instance.id, workflow.id = workflow, "provisioning");
                Ok(Outcome::Again)
            }
            Err(error) => {
                if matches!(error, peers::Error::RequestIdReused) {
                    // The instance was updated after the workflow was created and before that was recorded.
                    self.cancel_workflows(instance, NO_REQUEST).await?;
                }
                self.creation_failed(instance, error).await
            }
        }
    }

    /// Releases a machine that may not be used. One that was changed stays claimed, since nothing has cleaned it.
    async fn reject_hardware(&self, instance: &Instance, reason: &str) -> Result<Outcome, Error> {
        // What an operator wrote about a machine that is not the tenant's is not for the tenant.
        let shown = if instance.tenant.is_empty() { reason } else { "its machine cannot be used" };
        let workflows = self.cancel_workflows(instance, NO_REQUEST).await?;
        if workflows.running > 0 {
            return Ok(Outcome::After(CANCEL_POLL_INTERVAL));
        }
        let was_changed = workflows.began || instance.begin_time.is_some();
        if was_changed {
            return self.fail(instance, shown).await;
        }
        self.release_primary_grant(instance).await?;
        let forget = |new: &mut Instance| new.primary_grant_id.clear();
        self.instances.advance(instance, Event::Unusable, shown, forget).await?;
        tracing::info!(instance.id, hardware.id = instance.hardware_id, reason, "machine released");
        Ok(Outcome::Again)
    }
}

/// Records `workflow` as the one that `instance` waits for.
pub(super) fn record_workflow(instance: &mut Instance, workflow: &str) {
    instance.workflow_id = workflow.to_owned();
    instance.workflow_ids.push(workflow.to_owned());
    let excess = instance.workflow_ids.len().saturating_sub(MAX_WORKFLOW_IDS);
    instance.workflow_ids.drain(..excess);
}

/// Returns how the installation boots the machine; it is left to people if they manage its power.
fn boot_options(instance: &Instance) -> Option<BootOptions> {
    match instance.power_management() {
        PowerManagement::Unspecified => {
            Some(BootOptions { mode: Mode::Netboot.into(), power_off_after: false })
        }
        PowerManagement::None => None,
    }
}

fn request(instance: &Instance) -> CreateWorkflowRequest {
    CreateWorkflowRequest {
        template_id: instance.template_id.clone(),
        hardware_id: instance.hardware_id.clone(),
        image_id: instance.image_id.clone(),
        values: instance.template_values.clone(),
        instance_id: instance.id.clone(),
        boot_options: boot_options(instance),
        labels: request_labels(instance, STEP),
        request_id: request_id(instance, STEP),
        ..CreateWorkflowRequest::default()
    }
}
