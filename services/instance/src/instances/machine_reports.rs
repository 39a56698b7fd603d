//! Reports about a machine, and the changes that they make to the record of its instance.

use std::time::SystemTime;

use tinwright::instance::v1 as pb;
use tinwright::instance::v1::instance::Os;

use crate::check::{self, is_installed_by_workflow, is_node, is_platform};
use crate::state::{Event, State, UnknownState};

/// The last provisioning event of Equinix Metal's installers.
const INSTALLED_EVENT: &str = "provisioning.104.01";

/// State reason of an instance whose script could not be loaded after it was started.
const SCRIPT_NOT_LOADED: &str = "its custom script could not be loaded: boot the machine again";

/// State reason of an instance whose platform's script could not be loaded at the latest boot.
const PLATFORM_NOT_LOADED: &str = "its platform's script could not be loaded";

/// A phone-home call.
#[derive(Clone, Debug, Default)]
pub struct PhoneHome {
    /// The valid public keys of the caller's SSH server.
    host_keys: Vec<String>,
    /// Empty if an installed system calls.
    event_type: String,
    /// The workflow that had run all its actions before the call, if that is known.
    finished_workflow: Option<String>,
}

impl PhoneHome {
    /// A call with the event `event_type`, empty for an installed system, and the keys of the caller's SSH server.
    pub fn new(event_type: String, host_keys: Vec<String>) -> Self {
        let host_keys = check::valid_host_keys(host_keys);
        Self { host_keys, event_type, finished_workflow: None }
    }

    /// The same call, made after the workflow `id` had run all its actions.
    pub fn after_workflow(self, id: String) -> Self {
        Self { finished_workflow: Some(id), ..self }
    }

    /// True if the call means that the system of `instance` is installed. Where a custom script installs it, the installer's
    /// last event may be the only call.
    fn means_installed(&self, instance: &pb::Instance) -> bool {
        match self.event_type.as_str() {
            "" => true,
            INSTALLED_EVENT => is_installed_by_script(instance),
            _ => false,
        }
    }

    /// Returns `old` after this call at `now`. Only the first call in a generation is recorded, and none before the machine
    /// was changed or while the instance is being deleted.
    pub fn apply(&self, old: &pb::Instance, now: SystemTime) -> Result<pb::Instance, UnknownState> {
        let mut new = old.clone();
        let state = State::try_from(old)?;
        let is_of_former_system =
            may_run_former_system(old) && self.finished_workflow.as_ref() != Some(&old.workflow_id);
        if !self.means_installed(old) || !accepts_reports(state) || is_of_former_system {
            return Ok(new);
        }
        // The only reason that an active instance has is a missing call.
        if old.phone_home_time.is_none() && old.state() == pb::State::Active {
            new.state_reason.clear();
        }
        new.phone_home_time = old.phone_home_time.or(Some(now.into()));
        if old.host_keys.is_empty() {
            new.host_keys.clone_from(&self.host_keys);
        }
        Ok(new)
    }
}

/// True if the former system of `instance` may still run: the machine is being installed again. The workflow may have run all
/// its actions before the instance knows.
pub(crate) fn may_run_former_system(instance: &pb::Instance) -> bool {
    instance.state() == pb::State::Reinstalling && instance.install_time.is_none()
}

/// The outcome of an instance's own iPXE script.
#[derive(Clone, Copy, Debug)]
pub struct ScriptOutcome {
    /// The instance's generation when the machine received the script.
    pub generation: i64,
    /// True if the machine started the script, false if it could not load it.
    pub started: bool,
}

impl ScriptOutcome {
    /// Returns `old` after this outcome at `now`. An instance that was active because its script was started is so no longer if the
    /// script could not be loaded.
    pub fn apply(self, old: &pb::Instance, now: SystemTime) -> Result<pb::Instance, UnknownState> {
        let mut new = old.clone();
        // A script beside a template counts as well: it runs before the template's workflow has its turn.
        let has_script = matches!(old.os, Some(Os::CustomIpxe(_) | Os::Platform(_)));
        let is_current = self.generation == old.generation && has_script;
        let state = State::try_from(old)?;
        if is_current && accepts_reports(state) && is_platform(old) {
            self.apply_to_platform(&mut new, now);
        } else if is_current && accepts_reports(state) {
            new.script_time = self.started.then(|| old.script_time.unwrap_or(now.into()));
            let was_only_started = is_installed_by_script(old) && old.phone_home_time.is_none();
            if let (false, true, Ok(next)) =
                (self.started, was_only_started, state.after(Event::ScriptNotLoaded))
                && next != state
            {
                next.write(&mut new);
                SCRIPT_NOT_LOADED.clone_into(&mut new.state_reason);
            }
        }
        Ok(new)
    }

    /// Records the outcome in an instance of a platform, whose script runs at every boot. The instance stays as it is if a later boot cannot
    /// load it, so that it can be restarted; the reason says so until the script is started again.
    fn apply_to_platform(self, instance: &mut pb::Instance, now: SystemTime) {
        match self.started {
            true => {
                instance.script_time = instance.script_time.or(Some(now.into()));
                if instance.state_reason == PLATFORM_NOT_LOADED {
                    instance.state_reason.clear();
                }
            }
            false => PLATFORM_NOT_LOADED.clone_into(&mut instance.state_reason),
        }
    }
}

/// The report that the stack of an instance runs on its machine.
#[derive(Clone, Copy, Debug)]
pub struct StackRunning {
    /// The instance's generation that names the stack.
    pub generation: i64,
    /// Time at which the agent of the boot that runs the stack first connected.
    pub boot_time: SystemTime,
}

impl StackRunning {
    /// Returns `old` after this report at `now`. Only the first report since the installation began is recorded, and none of another
    /// generation or of a boot before the installation.
    pub fn apply(self, old: &pb::Instance, now: SystemTime) -> Result<pb::Instance, UnknownState> {
        let mut new = old.clone();
        let state = State::try_from(old)?;
        let is_current = self.generation == old.generation && is_node(old);
        let installed = old.install_time.and_then(|time| SystemTime::try_from(time).ok());
        let is_of_installation = installed.is_some_and(|installed| self.boot_time >= installed);
        if is_current && is_of_installation && accepts_reports(state) {
            new.stack_time = old.stack_time.or(Some(now.into()));
        }
        Ok(new)
    }
}

/// True if the machine was changed for the instance, and the instance is not being deleted.
fn accepts_reports(state: State) -> bool {
    matches!(state, State::Provisioning | State::Reinstalling | State::Active)
}

/// True if the machine boots from the network for the instance, and no workflow does that: into the custom script that installs
/// it, into the script of its platform, or as a node.
pub fn boots_from_network(instance: &pb::Instance) -> bool {
    is_installed_by_script(instance) || is_platform(instance) || is_node(instance)
}

/// True if a custom script installs the machine, and no workflow.
pub fn is_installed_by_script(instance: &pb::Instance) -> bool {
    !is_installed_by_workflow(instance) && matches!(instance.os, Some(Os::CustomIpxe(_)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;
    use tinwright::instance::v1::ImageStack;
    use tinwright::instance::v1::instance::CustomIpxe;

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;

    fn instance(state: State, scripted: bool) -> pb::Instance {
        let os = scripted.then(|| Os::CustomIpxe(CustomIpxe::default()));
        let mut instance = pb::Instance { os, generation: 2, ..pb::Instance::default() };
        state.write(&mut instance);
        instance
    }

    #[test]
    fn the_last_event_of_an_installer_counts_for_custom_scripts_only() {
        let phone_home_time = |event_type: &str, scripted| {
            let call = PhoneHome::new(event_type.into(), vec![]);
            call.apply(&instance(State::Provisioning, scripted), NOW).unwrap().phone_home_time
        };
        for (event_type, with_template, with_script) in
            [("", true, true), (INSTALLED_EVENT, false, true), ("provisioning.103", false, false)]
        {
            assert_eq!(phone_home_time(event_type, false).is_some(), with_template, "{event_type}");
            assert_eq!(phone_home_time(event_type, true).is_some(), with_script, "{event_type}");
        }
    }

    #[test]
    fn a_started_script_is_recorded_once_and_forgotten_if_it_could_not_be_loaded() {
        let report = |started, old: &pb::Instance, now| {
            ScriptOutcome { generation: 2, started }.apply(old, now).unwrap()
        };
        let old = instance(State::Provisioning, true);
        let begun = report(true, &old, NOW);
        assert_eq!(begun.script_time, Some(NOW.into()));
        assert_eq!(report(true, &begun, NOW + Duration::from_secs(1)), begun);
        assert_eq!(report(false, &begun, NOW), old);
        let late = ScriptOutcome { generation: 1, started: true };
        assert_eq!(late.apply(&old, NOW).unwrap(), old, "of another generation");
        let beside = pb::Instance { template_id: "t".into(), ..old };
        assert!(report(true, &beside, NOW).script_time.is_some(), "before its template's turn");
        let none = instance(State::Provisioning, false);
        assert_eq!(report(true, &none, NOW), none);
    }

    fn at(seconds: u64) -> SystemTime {
        NOW + Duration::from_secs(seconds)
    }

    /// A node whose installation began at second 10.
    fn node(state: State) -> pb::Instance {
        let os = Some(Os::ImageStack(ImageStack { stack_id: "web".into() }));
        let install_time = Some(at(10).into());
        pb::Instance { os, install_time, ..instance(state, false) }
    }

    #[test]
    fn a_running_stack_is_recorded_once_in_states_in_which_the_machine_is_in_use() {
        let report = StackRunning { generation: 2, boot_time: at(10) };
        for state in [State::Provisioning, State::Reinstalling, State::Active] {
            let old = node(state);
            let new = report.apply(&old, at(20)).unwrap();
            assert_eq!(new, pb::Instance { stack_time: Some(at(20).into()), ..old }, "{state}");
            assert_eq!(report.apply(&new, at(30)).unwrap(), new, "{state}");
        }
        for state in [
            State::Queued,
            State::Failed,
            State::Released,
            State::Deprovisioning,
            State::DeprovisionFailed,
        ] {
            assert_eq!(report.apply(&node(state), at(20)).unwrap(), node(state), "{state}");
        }
    }

    #[test]
    fn a_stack_of_another_generation_or_of_a_boot_before_the_installation_is_not_recorded() {
        let report = StackRunning { generation: 2, boot_time: at(10) };
        let old = node(State::Provisioning);
        let early = StackRunning { boot_time: at(9), ..report };
        let late = StackRunning { generation: 1, ..report };
        let next = StackRunning { generation: 3, ..report };
        for report in [early, late, next] {
            assert_eq!(report.apply(&old, at(20)).unwrap(), old, "{report:?}");
        }
        let not_booted = pb::Instance { install_time: None, ..old.clone() };
        assert_eq!(report.apply(&not_booted, at(20)).unwrap(), not_booted);
        let other = pb::Instance { os: instance(State::Provisioning, true).os, ..old };
        assert_eq!(report.apply(&other, at(20)).unwrap(), other, "of another kind");
    }

    proptest! {
        #[test]
        fn reports_are_ignored_while_the_machine_is_not_in_use(scripted: bool, started: bool) {
            for state in [State::Queued, State::Failed, State::Deprovisioning] {
                let old = instance(state, scripted);
                prop_assert_eq!(PhoneHome::default().apply(&old, NOW).unwrap(), old.clone());
                let script = ScriptOutcome { generation: 2, started };
                prop_assert_eq!(script.apply(&old, NOW).unwrap(), old);
            }
        }
    }
}
