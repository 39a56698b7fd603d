//! Provisioning: has the workflow ended, has the installed system called home?
//!
//! | what installs | the machine is installed | the instance is active |
//! |---|---|---|
//! | a template | when its workflow ends in success | then; where policy wants a call home, with that, or 30 min later |
//! | a script of the owner's own | nobody can tell | when its system calls home |
//! | nothing | at once | at once; a call home as above |

use std::time::{Duration, SystemTime};

use tinwright::hardware::v1::policy::PhoneHome;
use tinwright::instance::v1::Instance;
use tinwright::workflow::v1::{Workflow, WorkflowState};

use super::{Error, Reconciler, Then, UNHEARD, is_ended, labels, request_id};
use crate::instances::heard::brings_script;
use crate::peers;
use crate::state::Event;

/// Name of the requests that boot a script.
const STEP: &str = "boot";
/// How long an installed system is waited for.
const CALL: Duration = Duration::from_secs(30 * 60);
/// What is said of an active instance whose system never called.
const NO_CALL: &str = "no phone home";

impl Reconciler {
    /// Finds out how far the machine is.
    pub(super) async fn install(&self, instance: &Instance) -> Result<Then, Error> {
        if instance.install_time.is_some() {
            return self.await_call(instance).await;
        }
        if instance.workflow_id.is_empty() {
            return if brings_script(instance) {
                self.boot_script(instance).await
            } else {
                self.installed(instance, "").await
            };
        }
        match self.peers.workflow(&instance.workflow_id).await? {
            None => {
                let reason = format!("workflow {} was deleted", instance.workflow_id);
                self.fail(instance, &reason).await
            }
            Some(workflow) if !is_ended(&workflow) => Ok(Then::Wait(UNHEARD)),
            Some(workflow) => match badly(&workflow) {
                None => self.installed(instance, "").await,
                Some(reason) => self.fail(instance, &reason).await,
            },
        }
    }

    /// Has the machine boot its owner's script. Where it has no BMC, somebody else switches it on.
    async fn boot_script(&self, instance: &Instance) -> Result<Then, Error> {
        let (labels, request) = (labels(instance, STEP), request_id(instance, STEP));
        match self.peers.boot(&instance.hardware_id, labels, request).await {
            Ok(true) => self.installed(instance, "boots its own script").await,
            Ok(false) => self.installed(instance, "no BMC: switch the machine on by hand").await,
            Err(peers::Error::Reused) => self.anew(instance).await,
            Err(refused @ peers::Error::Refused { .. }) => {
                self.fail(instance, &refused.to_string()).await
            }
            Err(error @ peers::Error::Away { .. }) => Err(error.into()),
        }
    }

    /// Notes that nothing is to be done to the machine any more.
    async fn installed(&self, instance: &Instance, reason: &str) -> Result<Then, Error> {
        let mut new = instance.clone();
        new.install_time = Some(SystemTime::now().into());
        new.workflow_id.clear();
        reason.clone_into(&mut new.state_reason);
        let new = self.instances.put(instance, new).await?;
        self.await_call(&new).await
    }

    /// Makes the instance active once its system called home, where that is asked for.
    async fn await_call(&self, instance: &Instance) -> Result<Then, Error> {
        let needed = self.needed(instance).await?;
        let installed = instance.install_time.and_then(|time| SystemTime::try_from(time).ok());
        let called = instance.phone_home_time.is_some();
        match verdict(needed, called, installed, SystemTime::now()) {
            Verdict::Active => self.advance(instance, Event::Installed, "").await,
            Verdict::Uncalled => {
                tracing::warn!(instance.id, hardware.id = instance.hardware_id, NO_CALL);
                self.advance(instance, Event::Installed, NO_CALL).await
            }
            Verdict::Wait(Some(left)) => self.wait(instance, "waits for phone home", left).await,
            Verdict::Wait(None) => Ok(Then::Idle),
        }
    }

    async fn needed(&self, instance: &Instance) -> Result<Call, Error> {
        if brings_script(instance) {
            return Ok(Call::Only);
        }
        let hardware = self.peers.hardware(&instance.hardware_id).await?;
        let policy = hardware.and_then(|hardware| hardware.policy).unwrap_or_default();
        Ok(match policy.phone_home() {
            PhoneHome::Required => Call::InTime,
            PhoneHome::Optional | PhoneHome::Unspecified => Call::No,
        })
    }
}

/// Whether an instance becomes active by its system's call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    /// It need not call.
    No,
    /// It has to, but is not waited for without end.
    InTime,
    /// It has to: there is no other sign.
    Only,
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Active,
    /// Active, though the call did not come.
    Uncalled,
    /// Not yet; for so long, or until it calls.
    Wait(Option<Duration>),
}

fn verdict(needed: Call, called: bool, installed: Option<SystemTime>, now: SystemTime) -> Verdict {
    match needed {
        Call::No => Verdict::Active,
        Call::InTime | Call::Only if called => Verdict::Active,
        Call::Only => Verdict::Wait(None),
        Call::InTime => {
            // A clock that was set back is no reason to wait longer than once more the whole time.
            let since = installed.and_then(|at| now.duration_since(at).ok()).unwrap_or_default();
            match CALL.checked_sub(since) {
                Some(left) if !left.is_zero() => Verdict::Wait(Some(left)),
                Some(_) | None => Verdict::Uncalled,
            }
        }
    }
}

/// Why an ended workflow did not do what it was for; nothing if it did.
pub(super) fn badly(workflow: &Workflow) -> Option<String> {
    let how = match workflow.state() {
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
    let because = if workflow.state_reason.is_empty() { "" } else { ": " };
    Some(format!("workflow {} {how}{because}{}", workflow.id, workflow.state_reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_is_needed_is_waited_for_half_an_hour() {
        let installed = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let after = |minutes: u64, called| {
            let now = installed + Duration::from_secs(minutes * 60);
            verdict(Call::InTime, called, Some(installed), now)
        };
        assert_eq!(after(0, true), Verdict::Active);
        assert_eq!(after(10, false), Verdict::Wait(Some(Duration::from_secs(20 * 60))));
        assert_eq!(after(30, false), Verdict::Uncalled);
        assert_eq!(after(31, true), Verdict::Active);
    }

    #[test]
    fn a_script_of_the_owners_own_ends_by_a_call_and_nothing_else() {
        let now = SystemTime::UNIX_EPOCH + 100 * CALL;
        assert_eq!(
            verdict(Call::Only, false, Some(SystemTime::UNIX_EPOCH), now),
            Verdict::Wait(None)
        );
        assert_eq!(verdict(Call::Only, true, Some(now), now), Verdict::Active);
        assert_eq!(verdict(Call::No, false, Some(now), now), Verdict::Active);
    }
}
