//! State deprovisioning: the machine is cleaned, switched off and released.
//!
//! ```text
//! cancel running workflows ─▶ machine never changed? ─▶ released
//!                         └─▶ clean-up workflow, power off ─▶ success ─▶ released      else deprovision_failed
//! forced: cancel running workflows ─▶ machine into maintenance ─▶ released without cleaning
//! ```
//!
//! The clean-up is always booted by the machine's BMC, whoever manages the instance's power: only after a power off that the BMC reported is
//! the system that asks for the worker's identity not the tenant's. The clean-up of a machine without a BMC is created only after an operator
//! has confirmed its restart: until then a machine that boots from the network is told to ask again later.
//!
//! Releasing is one commit: it deletes the record, the claims and all secrets.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use tinwright::hardware::v1::{Hardware, State as HardwareState};
use tinwright::instance::v1::Instance;
use tinwright::instance::v1::instance::Os;
use tinwright::workflow::v1::{BootOptions, CreateWorkflowRequest, boot_options::Mode};

use super::orphans::CreatedObject;
use super::provision::record_workflow;
use super::{Awaited, CANCEL_POLL_INTERVAL, Error, ExistingWorkflows, HARDWARE_POLL_INTERVAL};
use super::{NO_REQUEST, Outcome, Reconciler, request_id, request_labels};
use crate::machine_check::name_of;
use crate::peers;
use crate::state::Event;

/// The name of this step in request ids.
pub(super) const STEP: &str = "deprovision";
/// Poll interval of a machine's boot epoch while an operator has to confirm its restart.
const RESTART_POLL_INTERVAL: Duration = Duration::from_secs(5);
/// The built-in template: erases every disk. Two days, since a large disk that cannot discard is overwritten.
const WIPE_TEMPLATE: &str = r#"version: "0.1"
name: wipe
tasks:
  - name: wipe
    worker: "{{.device_1}}"
    actions:
      - name: wipe
        image: wipe
        timeout: 172800
        environment:
          WIPE_DISKS: all
"#;

/// Values that the template of a clean-up always has from the machine: its root disk, and the MAC of its first interface.
const MACHINE_VALUES: [&str; 2] = ["disk", "device_1"];

impl Reconciler {
    /// Cleans and releases the machine.
    pub(super) async fn deprovision(&self, instance: &Instance) -> Result<Outcome, Error> {
        if instance.forced {
            return self.release_uncleaned(instance).await;
        }
        if !instance.workflow_id.is_empty() {
            return self.await_clean_up(instance).await;
        }
        let Some(hardware) = self.peers.hardware(&instance.hardware_id).await? else {
            tracing::warn!(instance.id, hardware.id = instance.hardware_id, "hardware not found");
            return self.release(instance).await;
        };
        if hardware.state() == HardwareState::Maintenance {
            let reason = "waits: the machine is in maintenance";
            return self.wait(instance, reason, HARDWARE_POLL_INTERVAL).await;
        }
        let workflows = self.cancel_workflows(instance, &request_id(instance, STEP)).await?;
        if is_unchanged(instance, workflows) {
            return self.release(instance).await;
        }
        if hardware.protect {
            let reason = "waits: the machine is protected";
            return self.wait(instance, reason, HARDWARE_POLL_INTERVAL).await;
        }
        self.clean_up(instance, &hardware, workflows).await
    }

    /// Creates the clean-up workflow. It runs after the cancelled ones have ended.
    async fn clean_up(
        &self,
        instance: &Instance,
        hardware: &Hardware,
        existing: ExistingWorkflows,
    ) -> Result<Outcome, Error> {
        let boot_options = if self.peers.has_bmc(&hardware.id).await? {
            Some(BootOptions { mode: Mode::Netboot.into(), power_off_after: true })
        } else if self.was_restarted(instance).await? {
            None
        } else {
            return self.wait(instance, &confirmation(hardware), RESTART_POLL_INTERVAL).await;
        };
        let request = CreateWorkflowRequest { boot_options, ..request(instance, hardware) };
        let has_template = !request.template_id.is_empty();
        match self.peers.create_workflow(request).await {
            Ok(workflow) => {
                let mut new = instance.clone();
                record_workflow(&mut new, &workflow);
                new.begin_time = new.begin_time.or_else(|| Some(self.instances.now().into()));
                new.state_reason.clear();
                let result = self.instances.put(instance, new).await;
                self.recorded(&CreatedObject::new(&workflow, instance, STEP), result).await?;
                let cancelled = existing.running;
                tracing::info!(instance.id, workflow.id = workflow, cancelled, "cleaning");
                Ok(Outcome::Again)
            }
            Err(error @ peers::Error::Refused { .. }) if has_template => {
                let reason = format!("{error}; set another deprovision_template_id and retry");
                self.fail(instance, &reason).await
            }
            Err(error) => self.creation_failed(instance, error).await,
        }
    }

    /// True if the machine was restarted since this clean-up was ordered: its BMC reported the power off, or an operator confirmed a restart.
    async fn was_restarted(&self, instance: &Instance) -> Result<bool, Error> {
        let restarted = self.peers.restart_time(&instance.hardware_id).await?;
        let ordered = instance.state_time.and_then(|time| SystemTime::try_from(time).ok());
        Ok(restarted.zip(ordered).is_some_and(|(restarted, ordered)| restarted > ordered))
    }

    /// Releases the machine once the clean-up workflow has succeeded.
    async fn await_clean_up(&self, instance: &Instance) -> Result<Outcome, Error> {
        match self.release_or_result(instance).await? {
            Awaited::Running(waits) => self.await_workflow(instance, waits).await,
            Awaited::Ended(Ok(())) => self.release(instance).await,
            Awaited::Ended(Err(reason)) => self.fail(instance, &reason).await,
        }
    }

    /// Releases the machine without cleaning, into maintenance: no instance gets it before an operator has looked at it.
    async fn release_uncleaned(&self, instance: &Instance) -> Result<Outcome, Error> {
        self.cancel_workflows(instance, NO_REQUEST).await?;
        // Without the instance: the next one on the machine repeats this, and may be of another tenant.
        let reason = "released by force, not wiped".to_owned();
        self.peers.move_to_maintenance(&instance.hardware_id, reason).await?;
        self.release_primary_grant(instance).await?;
        self.advance(instance, Event::Cleaned, "released by force").await
    }

    /// Releases the machine, unless a workflow of the instance is still running on it.
    async fn release(&self, instance: &Instance) -> Result<Outcome, Error> {
        if self.cancel_workflows(instance, NO_REQUEST).await?.running > 0 {
            return Ok(Outcome::After(CANCEL_POLL_INTERVAL));
        }
        self.release_primary_grant(instance).await?;
        self.advance(instance, Event::Cleaned, "").await
    }
}

/// True if nothing was done to the machine for the instance.
fn is_unchanged(instance: &Instance, workflows: ExistingWorkflows) -> bool {
    !workflows.began && (instance.begin_time.is_none() || was_never_booted(instance, workflows))
}

/// True if the instance waited for its first workflow until its deletion, and nothing else boots its machine.
fn was_never_booted(instance: &Instance, workflows: ExistingWorkflows) -> bool {
    let is_installed_by_workflow = match &instance.os {
        None | Some(Os::OperatingSystem(_)) => !instance.workflow_ids.is_empty(),
        Some(Os::CustomIpxe(_) | Os::Platform(_) | Os::ImageStack(_)) => false,
    };
    // The deletion began the second generation.
    let is_first = instance.generation == 2 && instance.install_time.is_none();
    is_first && is_installed_by_workflow && workflows.is_complete
}

/// Returns the reason why the clean-up of a machine without a BMC waits.
fn confirmation(hardware: &Hardware) -> String {
    let name = name_of(hardware);
    format!(
        "{name} has no BMC: restart it from the network, then: tinwright workflow confirm-restart {name}"
    )
}

/// Returns the request for the clean-up, without boot options: by the instance's template, else the machine's, else the built-in one.
fn request(instance: &Instance, hardware: &Hardware) -> CreateWorkflowRequest {
    let own = &instance.deprovision_template_id;
    let of_machine = hardware.policy.as_ref().map_or("", |policy| &policy.deprovision_template_id);
    let template_id = if own.is_empty() { of_machine } else { own };
    let mut request = CreateWorkflowRequest {
        template_id: template_id.to_owned(),
        hardware_id: instance.hardware_id.clone(),
        instance_id: instance.id.clone(),
        labels: request_labels(instance, STEP),
        request_id: request_id(instance, STEP),
        ..CreateWorkflowRequest::default()
    };
    if template_id.is_empty() {
        WIPE_TEMPLATE.clone_into(&mut request.template_data);
    } else {
        request.values = clean_up_values(instance);
    }
    request
}

/// Returns the values that the clean-up's template gets. A tenant's values are for its own installation: in the site's template they
/// could choose what is erased, or rewrite its actions.
fn clean_up_values(instance: &Instance) -> BTreeMap<String, String> {
    if !instance.tenant.is_empty() {
        return BTreeMap::new();
    }
    let mut values = instance.template_values.clone();
    values.retain(|name, _| !MACHINE_VALUES.contains(&name.as_str()));
    values
}
