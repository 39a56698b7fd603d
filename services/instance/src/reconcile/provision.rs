//! Queued: may the machine be used, and what installs it?

use tinwright::hardware::v1::{Hardware, State as HardwareState};
use tinwright::instance::v1::Instance;
use tinwright::workflow::v1::{BootOptions, CreateWorkflowRequest, boot_options::Mode};

use super::{CANCELLING, Error, NONE, Reconciler, Then, labels, request_id};
use crate::peers;
use crate::state::Event;

/// What its requests are called.
const STEP: &str = "provision";
/// How many workflows an instance remembers.
const REMEMBERED: usize = 100;

impl Reconciler {
    /// Has the machine installed, if it may be used.
    pub(super) async fn provision(&self, instance: &Instance) -> Result<Then, Error> {
        let hardware = self.peers.hardware(&instance.hardware_id).await?;
        if let Err(reason) = usable(&instance.hardware_id, hardware.as_ref()) {
            return self.refuse(instance, &reason).await;
        }
        if instance.template_id.is_empty() {
            return self.advance(instance, Event::Began, "").await;
        }
        match self.peers.begin(request(instance)).await {
            Ok(workflow) => self.began(instance, &workflow).await,
            Err(peers::Error::Reused) => self.again(instance).await,
            Err(refused @ peers::Error::Refused { .. }) => {
                self.fail(instance, &refused.to_string()).await
            }
            Err(error @ peers::Error::Away { .. }) => Err(error.into()),
        }
    }

    /// Notes that `workflow` works for the instance: it provisions.
    async fn began(&self, instance: &Instance, workflow: &str) -> Result<Then, Error> {
        let waits = |new: &mut Instance| waits_for(new, workflow);
        self.instances.advance(instance, Event::Began, "", waits).await?;
        tracing::info!(instance.id, workflow.id = workflow, "provisioning");
        Ok(Then::Again)
    }

    /// Lets go of a machine that cannot be used. One that something was done to stays claimed: nobody has cleaned it.
    async fn refuse(&self, instance: &Instance, reason: &str) -> Result<Then, Error> {
        let left = self.cancel_all(instance, NONE).await?;
        if left.running > 0 {
            return Ok(Then::Wait(CANCELLING));
        }
        let touched = left.any || instance.begin_time.is_some();
        let event = if touched { Event::Failed } else { Event::Unusable };
        self.advance(instance, event, reason).await
    }

    /// The instance was changed between asking for its workflow and noting the answer: what was asked for then is not
    /// wanted any more.
    async fn again(&self, instance: &Instance) -> Result<Then, Error> {
        self.cancel_all(instance, NONE).await?;
        self.anew(instance).await
    }
}

/// `instance` waits for the end of `workflow`, and remembers it.
pub(super) fn waits_for(instance: &mut Instance, workflow: &str) {
    instance.workflow_id = workflow.to_owned();
    instance.workflow_ids.push(workflow.to_owned());
    let forgotten = instance.workflow_ids.len().saturating_sub(REMEMBERED);
    instance.workflow_ids.drain(..forgotten);
}

/// Whether the machine may be given to an instance, or why not.
fn usable(id: &str, hardware: Option<&Hardware>) -> Result<(), String> {
    let Some(hardware) = hardware else { return Err(format!("hardware {id} not found")) };
    let state = match hardware.state() {
        // Not verified is not the same as known to be bad: whoever claims it by name means it.
        HardwareState::Enrolled | HardwareState::Provisionable | HardwareState::Unspecified => {
            return Ok(());
        }
        HardwareState::Failed => "failed",
        HardwareState::Maintenance => "in maintenance",
        HardwareState::Deleting => "being deleted",
    };
    let because = if hardware.state_reason.is_empty() { "" } else { ": " };
    Err(format!("hardware {id} is {state}{because}{}", hardware.state_reason))
}

fn request(instance: &Instance) -> CreateWorkflowRequest {
    CreateWorkflowRequest {
        template_id: instance.template_id.clone(),
        hardware_id: instance.hardware_id.clone(),
        values: instance.template_values.clone(),
        instance_id: instance.id.clone(),
        boot_options: Some(BootOptions { mode: Mode::Netboot.into(), power_off_after: false }),
        labels: labels(instance, STEP),
        request_id: request_id(instance, STEP),
        ..CreateWorkflowRequest::default()
    }
}
