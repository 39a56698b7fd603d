//! Scripts for one boot: served, started, and then removed from the record.
//!
//! ```text
//! in the record ──served──▶ OneShotScript ──the script reports `started`──▶ used, until the record no longer has it
//! ```
//!
//! The record is another service's, so a started script is remembered until the record shows that it was removed: it must
//! not be served again meanwhile. A served script is stored, since its text may be fetched after `started`.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use runtime::boot_token::LIFETIME;

use crate::Mac;
use crate::decision::ScriptSource;
use crate::machine_view::MachineView;

/// One-shot scripts that were served, by hardware id.
#[derive(Debug, Default)]
pub struct OneShotScripts(Mutex<HashMap<String, OneShotScript>>);

/// A script for one boot that was served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OneShotScript {
    /// Interface whose record has it.
    pub mac: Mac,
    /// The script.
    pub source: ScriptSource,
    /// Revision of the record that was last seen to have it.
    revision: i64,
    /// End of the time in which its text can be fetched.
    expires: SystemTime,
    started: bool,
}

impl OneShotScripts {
    /// Records that `source` was served to `machine` at `now`.
    pub fn record_served(&self, machine: &MachineView, source: &ScriptSource, now: SystemTime) {
        let script = OneShotScript {
            mac: machine.mac,
            source: source.clone(),
            revision: machine.hardware.revision,
            expires: now + LIFETIME,
            started: false,
        };
        let mut all = self.all();
        all.retain(|_, script| script.started || now < script.expires);
        all.insert(machine.hardware.id.clone(), script);
    }

    /// Returns the script that was served to the machine and may still be fetched.
    pub fn served(&self, hardware: &str, now: SystemTime) -> Option<ScriptSource> {
        let all = self.all();
        let script = all.get(hardware).filter(|script| now < script.expires)?;
        Some(script.source.clone())
    }

    /// Returns the script that was served to the machine, unless it was started.
    pub fn not_started(&self, hardware: &str) -> Option<OneShotScript> {
        self.all().get(hardware).filter(|script| !script.started).cloned()
    }

    /// Records that the machine started its script. True the first time.
    pub fn mark_started(&self, hardware: &str) -> bool {
        self.all()
            .get_mut(hardware)
            .is_some_and(|script| !std::mem::replace(&mut script.started, true))
    }

    /// True if the script that the record still has was started already.
    pub fn is_used(&self, machine: &MachineView) -> bool {
        self.all().get(&machine.hardware.id).is_some_and(|script| {
            script.started
                && script.mac == machine.mac
                && script.revision == machine.hardware.revision
        })
    }

    /// Records that the record still has the script at `revision`.
    pub fn set_revision(&self, hardware: &str, revision: i64) {
        if let Some(script) = self.all().get_mut(hardware) {
            script.revision = revision;
        }
    }

    /// Evicts a machine.
    pub fn evict(&self, hardware: &str) {
        self.all().remove(hardware);
    }

    /// Evicts the machines that do not `exist`.
    pub fn retain(&self, exist: impl Fn(&str) -> bool) {
        self.all().retain(|hardware, _| exist(hardware));
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.all().len()
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, OneShotScript>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
