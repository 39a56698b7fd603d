//! Scripts for one boot only: handed out, started, and then no longer there.
//!
//! ```text
//! in the record ──handed out──▶ Handed ──the script says `started`──▶ used, until the record no longer has it
//! ```
//!
//! The record is another service's, so a script that was started is remembered until its clearing shows: it must not be
//! served again meanwhile. A script that was handed out is kept, since its text may be fetched after `started`.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use runtime::boot_token::LIFETIME;

use crate::Mac;
use crate::decision::ScriptSource;
use crate::index::Known;

/// The scripts that are under way, by hardware id.
#[derive(Debug, Default)]
pub struct OneShotScripts(Mutex<HashMap<String, OneShotScript>>);

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OneShotScript {
    /// The interface whose record has it.
    pub mac: Mac,
    /// The script.
    pub script: ScriptSource,
    /// The record's revision when it was last seen there.
    revision: i64,
    /// How long its text can be fetched.
    until: SystemTime,
    started: bool,
}

impl OneShotScripts {
    /// Notes that `script` is given to `known` at `now`.
    pub fn hand_out(&self, known: &Known, script: &ScriptSource, now: SystemTime) {
        let handed = OneShotScript {
            mac: known.mac,
            script: script.clone(),
            revision: known.hardware.revision,
            until: now + LIFETIME,
            started: false,
        };
        let mut all = self.all();
        all.retain(|_, handed| handed.started || now < handed.until);
        all.insert(known.hardware.id.clone(), handed);
    }

    /// The script that was given to the machine and may still be fetched.
    pub fn handed(&self, hardware: &str, now: SystemTime) -> Option<ScriptSource> {
        let all = self.all();
        let handed = all.get(hardware).filter(|handed| now < handed.until)?;
        Some(handed.script.clone())
    }

    /// Notes that the machine has started it. What then has to be cleared from its record; once.
    pub fn started(&self, hardware: &str) -> Option<OneShotScript> {
        let mut all = self.all();
        let handed = all.get_mut(hardware).filter(|handed| !handed.started)?;
        handed.started = true;
        Some(handed.clone())
    }

    /// Whether the script that the record still has was started already.
    pub fn is_used(&self, known: &Known) -> bool {
        self.all().get(&known.hardware.id).is_some_and(|handed| {
            handed.started && handed.mac == known.mac && handed.revision == known.hardware.revision
        })
    }

    /// The record still has it at `revision`.
    pub fn still_at(&self, hardware: &str, revision: i64) {
        if let Some(handed) = self.all().get_mut(hardware) {
            handed.revision = revision;
        }
    }

    /// Forgets a machine.
    pub fn forget(&self, hardware: &str) {
        self.all().remove(hardware);
    }

    /// Forgets the machines that are not `there`.
    pub fn retain(&self, there: impl Fn(&str) -> bool) {
        self.all().retain(|hardware, _| there(hardware));
    }

    /// How many machines are remembered.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.all().len()
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, OneShotScript>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
