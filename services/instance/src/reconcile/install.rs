//! State provisioning: waits for the workflow, and for the installed system's phone-home call or the running stack of a node.
//!
//! | installed by | `install_time` is set | the instance becomes active |
//! |---|---|---|
//! | a template | when its workflow succeeds | at once; if policy requires a call: with the call, or after 30 min |
//! | a custom script | when the script is booted, since its end is unknown | when the machine starts the script; if policy requires a call: with the call, without a time limit |
//! | nothing, for a platform's system | when its script is booted | when the machine starts the script; policy requires no call, since no system is installed |
//! | nothing, for a node | when it is booted | when its stack is reported to run in that boot, without a time limit; policy requires no call, since no system is installed |
//! | nothing | at once | as for a template |

use std::time::{Duration, SystemTime};

use prost_types::Timestamp;
use tinwright::hardware::v1::policy::PhoneHome;
use tinwright::instance::v1::Instance;
use tinwright::instance::v1::instance::{Os, PowerManagement};

use super::{Awaited, Error, HARDWARE_POLL_INTERVAL, Outcome, Reconciler};
use super::{request_id, request_labels};
use crate::check::{is_node, is_platform};
use crate::instances::machine_reports::boots_from_network;
use crate::machine_check::check_usable;
use crate::state::Event;

/// The step's name in the request that boots the machine.
const BOOT_STEP: &str = "boot";
/// Timeout for a required phone-home call.
const PHONE_HOME_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// State reason of an instance that became active without the required call.
const NO_PHONE_HOME: &str = "no phone home";

impl Reconciler {
    /// Advances an instance in state provisioning, as far as its workflow and its system allow.
    pub(super) async fn install(&self, instance: &Instance) -> Result<Outcome, Error> {
        if instance.install_time.is_some() {
            return self.await_system(instance).await;
        }
        if instance.workflow_id.is_empty() {
            return if boots_from_network(instance) {
                self.boot(instance).await
            } else {
                self.record_installed(instance, "").await
            };
        }
        match self.release_or_result(instance).await? {
            Awaited::Running(waits) => self.await_workflow(instance, waits).await,
            Awaited::Ended(Ok(())) => self.record_installed(instance, "").await,
            Awaited::Ended(Err(reason)) => self.fail(instance, &reason).await,
        }
    }

    /// Boots the machine from the network, once its own state allows that. An operator must switch on a machine without BMC.
    async fn boot(&self, instance: &Instance) -> Result<Outcome, Error> {
        let hardware = self.peers.hardware(&instance.hardware_id).await?;
        if let Err(reason) = check_usable(&instance.hardware_id, hardware.as_ref()) {
            return self.wait(instance, &format!("waits: {reason}"), HARDWARE_POLL_INTERVAL).await;
        }
        if instance.power_management() == PowerManagement::None {
            return self.record_installed(instance, "waits: switch the machine on by hand").await;
        }
        if !instance.power_job_id.is_empty() {
            return self.release_boot(instance).await;
        }
        let labels = request_labels(instance, BOOT_STEP);
        let request_id = request_id(instance, BOOT_STEP);
        match self.peers.create_network_boot(instance, labels, request_id).await {
            Ok(Some(power_job_id)) => {
                let new = Instance { power_job_id, ..instance.clone() };
                self.instances.put(instance, new).await?;
                Ok(Outcome::Again)
            }
            Ok(None) => {
                self.record_installed(instance, "no BMC: switch the machine on by hand").await
            }
            Err(error) => self.creation_failed(instance, error).await,
        }
    }

    /// Releases the power job that boots the machine: now that it is recorded, whoever ends the instance's wait cancels it. One that was
    /// cancelled before, or is gone, is created again.
    async fn release_boot(&self, instance: &Instance) -> Result<Outcome, Error> {
        if !self.peers.release_power_job(&instance.power_job_id).await? {
            return self.restart_attempt(instance).await;
        }
        // The job may have been released before, by a process that died: then the machine has booted already. So the time is that at
        // which the job was recorded.
        let recorded = instance.update_time.unwrap_or_else(|| self.instances.now().into());
        self.record_installed_at(instance, recorded, boot_reason(instance)).await
    }

    /// Records that the installation has ended now.
    async fn record_installed(&self, instance: &Instance, reason: &str) -> Result<Outcome, Error> {
        self.record_installed_at(instance, self.instances.now().into(), reason).await
    }

    /// Records the end of the installation.
    async fn record_installed_at(
        &self,
        instance: &Instance,
        time: Timestamp,
        reason: &str,
    ) -> Result<Outcome, Error> {
        let mut new = instance.clone();
        new.install_time = Some(time);
        new.workflow_id.clear();
        reason.clone_into(&mut new.state_reason);
        let new = self.instances.put(instance, new).await?;
        self.await_system(&new).await
    }

    /// Makes the instance active once its stack runs, if it is a node; else once its system was started and has called, as far as that is
    /// required.
    async fn await_system(&self, instance: &Instance) -> Result<Outcome, Error> {
        match is_node(instance) {
            true if instance.stack_time.is_some() => {
                self.advance(instance, Event::Installed, "").await
            }
            true => Ok(Outcome::Done),
            false => self.await_phone_home(instance).await,
        }
    }

    /// Makes the instance active once its system was started, and has called if a call is required.
    async fn await_phone_home(&self, instance: &Instance) -> Result<Outcome, Error> {
        let has_called = instance.phone_home_time.is_some();
        let needs_call =
            !has_called && !is_platform(instance) && self.requires_phone_home(instance).await?;
        if boots_from_network(instance) {
            // The machine may be switched on by hand, and a script may take any time: there is no time limit.
            let has_started = has_called || instance.script_time.is_some();
            return if needs_call || !has_started {
                Ok(Outcome::Done)
            } else {
                self.advance(instance, Event::Installed, "").await
            };
        }
        if !needs_call {
            return self.advance(instance, Event::Installed, "").await;
        }
        let installed = instance.install_time.and_then(|time| SystemTime::try_from(time).ok());
        match remaining_wait(installed, self.instances.now()) {
            Some(left) => self.wait(instance, "waits for phone home", left).await,
            None => {
                tracing::warn!(instance.id, hardware.id = instance.hardware_id, NO_PHONE_HOME);
                self.advance(instance, Event::Installed, NO_PHONE_HOME).await
            }
        }
    }

    /// True if the machine's policy requires a call.
    async fn requires_phone_home(&self, instance: &Instance) -> Result<bool, Error> {
        let hardware = self.peers.hardware(&instance.hardware_id).await?;
        let policy = hardware.and_then(|hardware| hardware.policy).unwrap_or_default();
        Ok(policy.phone_home() == PhoneHome::Required)
    }
}

/// Returns the state reason of `instance` while its machine boots from the network.
fn boot_reason(instance: &Instance) -> &'static str {
    match instance.os {
        Some(Os::Platform(_)) => "boots its platform's system",
        Some(Os::ImageStack(_)) => "boots as a node",
        Some(Os::CustomIpxe(_) | Os::OperatingSystem(_)) | None => "boots its custom script",
    }
}

/// Returns the remaining time to wait for a required call, or `None` after the timeout.
fn remaining_wait(installed: Option<SystemTime>, now: SystemTime) -> Option<Duration> {
    // If the clock was set back, the wait starts again with the full timeout, and not with more.
    let since = installed.and_then(|at| now.duration_since(at).ok()).unwrap_or_default();
    PHONE_HOME_TIMEOUT.checked_sub(since).filter(|left| !left.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_required_call_times_out_after_half_an_hour() {
        let installed = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let after = |minutes: u64| {
            remaining_wait(Some(installed), installed + Duration::from_secs(minutes * 60))
        };
        assert_eq!(after(10), Some(Duration::from_secs(20 * 60)));
        assert_eq!(after(30), None);
        assert_eq!(
            remaining_wait(Some(installed), SystemTime::UNIX_EPOCH),
            Some(PHONE_HOME_TIMEOUT)
        );
    }
}
