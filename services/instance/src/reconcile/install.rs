//! State provisioning: waits for the workflow and for the installed system's phone-home call.
//!
//! | installed by | the machine is installed | the instance becomes active |
//! |---|---|---|
//! | a template | when its workflow succeeds | then; if policy requires a call, when it comes, or 30 min later |
//! | a custom script | when the script is booted; its end is unknown | when its system phones home |
//! | nothing | at once | at once; a required call as above |

use std::time::{Duration, SystemTime};

use tinwright::hardware::v1::policy::PhoneHome;
use tinwright::instance::v1::Instance;
use tinwright::workflow::v1::{Workflow, WorkflowState};

use super::{Error, Outcome, Reconciler, WORKFLOW_POLL_INTERVAL};
use super::{request_id, request_labels};
use crate::instances::machine_reports::is_installed_by_script;
use crate::peers;
use crate::state::Event;

/// The name of the request that boots a custom script.
const BOOT_STEP: &str = "boot";
/// The time that an installed system has for its call.
const PHONE_HOME_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// The reason of an active instance whose system never called.
const NO_PHONE_HOME: &str = "no phone home";

impl Reconciler {
    /// Moves the instance on as far as its machine is.
    pub(super) async fn install(&self, instance: &Instance) -> Result<Outcome, Error> {
        if instance.install_time.is_some() {
            return self.await_phone_home(instance).await;
        }
        if instance.workflow_id.is_empty() {
            return if is_installed_by_script(instance) {
                self.boot_script(instance).await
            } else {
                self.record_installed(instance, "").await
            };
        }
        match self.peers.workflow(&instance.workflow_id).await? {
            None => {
                let reason = format!("workflow {} was deleted", instance.workflow_id);
                self.fail(instance, &reason).await
            }
            Some(workflow) if !workflow.is_terminal() => Ok(Outcome::After(WORKFLOW_POLL_INTERVAL)),
            Some(workflow) => match failure_reason(&workflow) {
                None => self.record_installed(instance, "").await,
                Some(reason) => self.fail(instance, &reason).await,
            },
        }
    }

    /// Boots the machine into its custom script. A machine without BMC is switched on by an operator.
    async fn boot_script(&self, instance: &Instance) -> Result<Outcome, Error> {
        let labels = request_labels(instance, BOOT_STEP);
        let request_id = request_id(instance, BOOT_STEP);
        match self.peers.boot_from_network(&instance.hardware_id, labels, request_id).await {
            Ok(true) => self.record_installed(instance, "boots its own script").await,
            Ok(false) => {
                self.record_installed(instance, "no BMC: switch the machine on by hand").await
            }
            Err(peers::Error::RequestIdReused) => self.restart_attempt(instance).await,
            Err(refused @ peers::Error::Refused { .. }) => {
                self.fail(instance, &refused.to_string()).await
            }
            Err(error @ peers::Error::Unavailable { .. }) => Err(error.into()),
        }
    }

    /// Records that the work on the machine is done.
    async fn record_installed(&self, instance: &Instance, reason: &str) -> Result<Outcome, Error> {
        let mut new = instance.clone();
        new.install_time = Some(self.instances.now().into());
        new.workflow_id.clear();
        reason.clone_into(&mut new.state_reason);
        let new = self.instances.put(instance, new).await?;
        self.await_phone_home(&new).await
    }

    /// Makes the instance active once its system has called, if a call is required.
    async fn await_phone_home(&self, instance: &Instance) -> Result<Outcome, Error> {
        let requirement = self.phone_home_requirement(instance).await?;
        let installed = instance.install_time.and_then(|time| SystemTime::try_from(time).ok());
        let has_called = instance.phone_home_time.is_some();
        match activation(requirement, has_called, installed, self.instances.now()) {
            Activation::Active => self.advance(instance, Event::Installed, "").await,
            Activation::PhoneHomeTimedOut => {
                tracing::warn!(instance.id, hardware.id = instance.hardware_id, NO_PHONE_HOME);
                self.advance(instance, Event::Installed, NO_PHONE_HOME).await
            }
            Activation::Wait(Some(left)) => self.wait(instance, "waits for phone home", left).await,
            Activation::Wait(None) => Ok(Outcome::Done),
        }
    }

    async fn phone_home_requirement(
        &self,
        instance: &Instance,
    ) -> Result<PhoneHomeRequirement, Error> {
        if is_installed_by_script(instance) {
            return Ok(PhoneHomeRequirement::Always);
        }
        let hardware = self.peers.hardware(&instance.hardware_id).await?;
        let policy = hardware.and_then(|hardware| hardware.policy).unwrap_or_default();
        Ok(match policy.phone_home() {
            PhoneHome::Required => PhoneHomeRequirement::UntilTimeout,
            PhoneHome::Optional | PhoneHome::Unspecified => PhoneHomeRequirement::Never,
        })
    }
}

/// The rule by which an instance waits for its system's call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PhoneHomeRequirement {
    /// No call is needed.
    Never,
    /// A call is awaited, for [`PHONE_HOME_TIMEOUT`].
    UntilTimeout,
    /// A call is awaited without limit: there is no other sign that the system is up.
    Always,
}

#[derive(Debug, PartialEq, Eq)]
enum Activation {
    Active,
    /// Active although the required call did not come.
    PhoneHomeTimedOut,
    /// Not active yet: wait for the call, for this time or without limit.
    Wait(Option<Duration>),
}

fn activation(
    requirement: PhoneHomeRequirement,
    has_called: bool,
    installed: Option<SystemTime>,
    now: SystemTime,
) -> Activation {
    match requirement {
        PhoneHomeRequirement::Never => Activation::Active,
        PhoneHomeRequirement::UntilTimeout | PhoneHomeRequirement::Always if has_called => {
            Activation::Active
        }
        PhoneHomeRequirement::Always => Activation::Wait(None),
        PhoneHomeRequirement::UntilTimeout => {
            // If the clock was set back, the wait begins again; it does not become longer than that.
            let since = installed.and_then(|at| now.duration_since(at).ok()).unwrap_or_default();
            match PHONE_HOME_TIMEOUT.checked_sub(since) {
                Some(left) if !left.is_zero() => Activation::Wait(Some(left)),
                Some(_) | None => Activation::PhoneHomeTimedOut,
            }
        }
    }
}

/// Returns the reason why an ended workflow failed; nothing if it succeeded.
pub(super) fn failure_reason(workflow: &Workflow) -> Option<String> {
    let result = match workflow.state() {
        WorkflowState::Success => return None,
        WorkflowState::Timeout => "took too long",
        WorkflowState::Cancelled => "was cancelled",
        WorkflowState::Failed
        | WorkflowState::Unspecified
        | WorkflowState::Pending
        | WorkflowState::Preparing
        | WorkflowState::Running
        | WorkflowState::Post => "failed",
    };
    let separator = if workflow.state_reason.is_empty() { "" } else { ": " };
    Some(format!("workflow {} {result}{separator}{}", workflow.id, workflow.state_reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_required_call_is_awaited_for_half_an_hour() {
        let installed = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let after = |minutes: u64, has_called| {
            let now = installed + Duration::from_secs(minutes * 60);
            activation(PhoneHomeRequirement::UntilTimeout, has_called, Some(installed), now)
        };
        assert_eq!(after(0, true), Activation::Active);
        assert_eq!(after(10, false), Activation::Wait(Some(Duration::from_secs(20 * 60))));
        assert_eq!(after(30, false), Activation::PhoneHomeTimedOut);
        assert_eq!(after(31, true), Activation::Active);
    }

    #[test]
    fn a_custom_script_needs_a_call_without_time_limit() {
        let now = SystemTime::UNIX_EPOCH + 100 * PHONE_HOME_TIMEOUT;
        assert_eq!(
            activation(PhoneHomeRequirement::Always, false, Some(SystemTime::UNIX_EPOCH), now),
            Activation::Wait(None)
        );
        assert_eq!(
            activation(PhoneHomeRequirement::Always, true, Some(now), now),
            Activation::Active
        );
        assert_eq!(
            activation(PhoneHomeRequirement::Never, false, Some(now), now),
            Activation::Active
        );
    }
}
