//! What machines say of their instances, and what that changes in the records.

use std::time::SystemTime;

use tinwright::instance::v1 as pb;
use tinwright::instance::v1::instance::Os;

use crate::check;
use crate::state::{State, UnknownState};

/// An installer's last word, where it is one of Equinix Metal's.
const INSTALLED: &str = "provisioning.104.01";

/// A call home.
#[derive(Clone, Debug, Default)]
pub struct Call {
    /// The public keys of the caller's SSH server, as far as they are such.
    host_keys: Vec<String>,
    kind: String,
}

impl Call {
    /// Of `kind`, which is empty where an installed system calls, with the keys of its SSH server if it has any to tell.
    pub fn new(kind: String, host_keys: Vec<String>) -> Self {
        Self { host_keys: check::host_keys(host_keys), kind }
    }

    /// Whether the installed system of `instance` is up. Where a script of the owner's own installs, its last word is the
    /// only one there may be.
    fn is_up(&self, instance: &pb::Instance) -> bool {
        match self.kind.as_str() {
            "" => true,
            INSTALLED => brings_script(instance),
            _ => false,
        }
    }

    /// `old` after it, at `now`.
    pub(super) fn after(
        &self,
        old: &pb::Instance,
        now: SystemTime,
    ) -> Result<pb::Instance, UnknownState> {
        let mut new = old.clone();
        if !self.is_up(old) || !is_occupied(State::try_from(old)?) {
            return Ok(new);
        }
        // Nothing else is said of an active instance than that it has not called.
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

/// What became of the script that an instance brings.
#[derive(Clone, Copy, Debug)]
pub struct Script {
    /// The generation that the machine was given it in.
    pub generation: i64,
    /// Whether it was begun. Not: it could not be had.
    pub started: bool,
}

impl Script {
    /// `old` after it, at `now`.
    pub(super) fn after(
        self,
        old: &pb::Instance,
        now: SystemTime,
    ) -> Result<pb::Instance, UnknownState> {
        let mut new = old.clone();
        // One beside a template is run before its workflow gets its turn.
        let brought = matches!(old.os, Some(Os::CustomIpxe(_)));
        let is_its = self.generation == old.generation && brought;
        if is_its && is_occupied(State::try_from(old)?) {
            new.script_time = self.started.then(|| old.script_time.unwrap_or(now.into()));
        }
        Ok(new)
    }
}

/// Whether something was done to the machine in `state`, and it is not being taken back.
fn is_occupied(state: State) -> bool {
    match state {
        State::Provisioning | State::Active => true,
        State::Queued
        | State::Failed
        | State::Released
        | State::Deprovisioning
        | State::DeprovisionFailed
        | State::Gone => false,
    }
}

/// Whether the owner's script does what else a template does.
pub fn brings_script(instance: &pb::Instance) -> bool {
    instance.template_id.is_empty() && matches!(instance.os, Some(Os::CustomIpxe(_)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;
    use tinwright::instance::v1::instance::CustomIpxe;

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;

    fn instance(state: State, scripted: bool) -> pb::Instance {
        let os = scripted.then(|| Os::CustomIpxe(CustomIpxe::default()));
        let mut instance = pb::Instance { os, generation: 2, ..pb::Instance::default() };
        state.write(&mut instance);
        instance
    }

    #[test]
    fn an_installers_last_word_counts_where_nothing_else_will() {
        let home = |kind: &str, scripted| {
            let call = Call::new(kind.into(), vec![]);
            call.after(&instance(State::Provisioning, scripted), NOW).unwrap().phone_home_time
        };
        for (kind, of_template, of_script) in
            [("", true, true), (INSTALLED, false, true), ("provisioning.103", false, false)]
        {
            assert_eq!(home(kind, false).is_some(), of_template, "{kind}");
            assert_eq!(home(kind, true).is_some(), of_script, "{kind}");
        }
    }

    #[test]
    fn a_script_that_was_begun_is_noted_once_and_no_longer_where_it_could_not_be_had() {
        let report = |started, old: &pb::Instance, now| {
            Script { generation: 2, started }.after(old, now).unwrap()
        };
        let old = instance(State::Provisioning, true);
        let begun = report(true, &old, NOW);
        assert_eq!(begun.script_time, Some(NOW.into()));
        assert_eq!(report(true, &begun, NOW + Duration::from_secs(1)), begun);
        assert_eq!(report(false, &begun, NOW), old);
        let late = Script { generation: 1, started: true };
        assert_eq!(late.after(&old, NOW).unwrap(), old, "of another generation");
        let beside = pb::Instance { template_id: "t".into(), ..old };
        assert!(report(true, &beside, NOW).script_time.is_some(), "before its template's turn");
        let none = instance(State::Provisioning, false);
        assert_eq!(report(true, &none, NOW), none);
    }

    proptest! {
        #[test]
        fn nothing_is_heard_of_a_machine_that_is_not_occupied(scripted: bool, started: bool) {
            for state in [State::Queued, State::Failed, State::Deprovisioning] {
                let old = instance(state, scripted);
                prop_assert_eq!(Call::default().after(&old, NOW).unwrap(), old.clone());
                let script = Script { generation: 2, started };
                prop_assert_eq!(script.after(&old, NOW).unwrap(), old);
            }
        }
    }
}
