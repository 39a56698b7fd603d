//! Deprovisioning: the machine is cleaned, switched off and freed.
//!
//! ```text
//! cancel what runs ─▶ nothing was ever done to it? ─▶ freed
//!                 └─▶ clean-up workflow, power off ─▶ success ─▶ freed        else deprovision_failed
//! by force: cancel what runs ─▶ machine into maintenance ─▶ freed, as it is
//! ```
//!
//! Freed is one commit: the record goes, and with it the claims and all that was secret in it.

use std::time::{Duration, SystemTime};

use tinwright::hardware::v1::{Hardware, State as HardwareState};
use tinwright::instance::v1::Instance;
use tinwright::workflow::v1::{BootOptions, CreateWorkflowRequest, boot_options::Mode};

use super::install::badly;
use super::provision::waits_for;
use super::{CANCELLING, Error, Leftovers, NONE, Reconciler, Then, UNHEARD};
use super::{is_ended, labels, request_id};
use crate::peers;
use crate::state::Event;

/// What its requests are called.
const STEP: &str = "deprovision";
/// When what holds a machine up is looked at again.
const HELD: Duration = Duration::from_secs(30);
/// Erases every disk. Two days: a large disk that cannot discard is written from end to end.
const WIPE: &str = r#"version: "0.1"
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

impl Reconciler {
    /// Takes the machine from its instance.
    pub(super) async fn give_back(&self, instance: &Instance) -> Result<Then, Error> {
        if instance.forced {
            return self.take_away(instance).await;
        }
        if !instance.workflow_id.is_empty() {
            return self.await_clean(instance).await;
        }
        let Some(hardware) = self.peers.hardware(&instance.hardware_id).await? else {
            // There is nothing left that could be cleaned.
            tracing::warn!(instance.id, hardware.id = instance.hardware_id, "machine is gone");
            return self.free(instance).await;
        };
        if hardware.state() == HardwareState::Maintenance {
            return self.wait(instance, "waits: the machine is in maintenance", HELD).await;
        }
        let left = self.cancel_all(instance, &request_id(instance, STEP)).await?;
        match instance.begin_time {
            None if !left.any => self.free(instance).await,
            None | Some(_) => self.clean(instance, &hardware, left).await,
        }
    }

    /// Queues the clean-up. What was cancelled is in front of it, and ends first.
    async fn clean(
        &self,
        instance: &Instance,
        hardware: &Hardware,
        left: Leftovers,
    ) -> Result<Then, Error> {
        let begun = self.peers.begin(request(instance, hardware)).await;
        match begun {
            Ok(workflow) => {
                let mut new = instance.clone();
                waits_for(&mut new, &workflow);
                new.begin_time = new.begin_time.or_else(|| Some(SystemTime::now().into()));
                new.state_reason.clear();
                self.instances.put(instance, new).await?;
                tracing::info!(instance.id, workflow.id = workflow, left.running, "cleaning");
                Ok(Then::Again)
            }
            Err(peers::Error::Reused) => self.anew(instance).await,
            Err(refused @ peers::Error::Refused { .. }) => {
                self.fail(instance, &refused.to_string()).await
            }
            Err(error @ peers::Error::Away { .. }) => Err(error.into()),
        }
    }

    /// Frees the machine once it is clean.
    async fn await_clean(&self, instance: &Instance) -> Result<Then, Error> {
        match self.peers.workflow(&instance.workflow_id).await? {
            None => {
                let reason = format!("workflow {} was deleted", instance.workflow_id);
                self.fail(instance, &reason).await
            }
            Some(workflow) if !is_ended(&workflow) => Ok(Then::Wait(UNHEARD)),
            Some(workflow) => match badly(&workflow) {
                None => self.free(instance).await,
                Some(reason) => self.fail(instance, &reason).await,
            },
        }
    }

    /// Takes the machine away as it is: nobody gets it before somebody has looked at it.
    async fn take_away(&self, instance: &Instance) -> Result<Then, Error> {
        self.cancel_all(instance, NONE).await?;
        let reason = format!("taken by force from instance {}, not wiped", instance.id);
        self.peers.hold(&instance.hardware_id, reason).await?;
        self.advance(instance, Event::Cleaned, "taken by force").await
    }

    /// Lets go of the machine, unless something of the instance's is still to run on it.
    async fn free(&self, instance: &Instance) -> Result<Then, Error> {
        if self.cancel_all(instance, NONE).await?.running > 0 {
            return Ok(Then::Wait(CANCELLING));
        }
        self.advance(instance, Event::Cleaned, "").await
    }
}

/// The instance's clean-up, else the machine's, else the built-in.
fn request(instance: &Instance, hardware: &Hardware) -> CreateWorkflowRequest {
    let own = &instance.deprovision_template_id;
    let machines = hardware.policy.as_ref().map_or("", |policy| &policy.deprovision_template_id);
    let template_id = if own.is_empty() { machines } else { own };
    let mut request = CreateWorkflowRequest {
        template_id: template_id.to_owned(),
        hardware_id: instance.hardware_id.clone(),
        instance_id: instance.id.clone(),
        boot_options: Some(BootOptions { mode: Mode::Netboot.into(), power_off_after: true }),
        labels: labels(instance, STEP),
        request_id: request_id(instance, STEP),
        ..CreateWorkflowRequest::default()
    };
    if template_id.is_empty() {
        WIPE.clone_into(&mut request.template_data);
    } else {
        request.values.clone_from(&instance.template_values);
    }
    request
}
