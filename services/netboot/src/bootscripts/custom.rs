//! Scripts that are not ours: whose they are, where their texts are, and what comes of them.
//!
//! ```text
//! <boot's URL>/once.ipxe, once.started, once.failed              for one boot, from an interface's record
//! <boot's URL>/02-….ipxe, 02-….started, 02-….failed              the owner's, from the record of the interface 02:…
//! <boot's URL>/instance.ipxe, instance.started, instance.failed  brought by the instance
//! ```

use std::fmt;
use std::str::FromStr;
use std::time::SystemTime;

use tinwright::instance::v1::ReportScriptRequest;

use super::script_reports::StartedScript;
use super::{BootRefusal, BootScripts, broken};
use crate::Mac;
use crate::decision::{BootTarget, Decision, Fact, FeedState, ScriptSource};
use crate::ipxe;

/// Whose a script is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScriptOwner {
    /// It waits for one boot of the machine.
    OneShot,
    /// The record of this interface has it.
    Interface(Mac),
    /// The instance brings it.
    Instance,
}

impl ScriptOwner {
    /// Whose script it is that `fact` chose for the interface `mac`.
    pub(super) fn of(fact: Fact, mac: Mac) -> Self {
        if fact == Fact::BootOnce {
            Self::OneShot
        } else if fact == Fact::InterfaceScript {
            Self::Interface(mac)
        } else {
            Self::Instance
        }
    }

    /// The owner, and what of the script, that the last part of a URL names.
    pub(super) fn named(name: &str) -> Option<(Self, &str)> {
        let (owner, what) = name.rsplit_once('.')?;
        Some((owner.parse().ok()?, what))
    }
}

impl fmt::Display for ScriptOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OneShot => f.write_str("once"),
            Self::Interface(mac) => f.write_str(&mac.dashed()),
            Self::Instance => f.write_str("instance"),
        }
    }
}

impl FromStr for ScriptOwner {
    type Err = <Mac as FromStr>::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "once" => Ok(Self::OneShot),
            "instance" => Ok(Self::Instance),
            mac => mac.parse().map(Self::Interface),
        }
    }
}

/// What another service has to know of a script.
#[derive(Clone, Debug, PartialEq)]
pub enum ScriptReport {
    /// One for one boot was started: it is to be taken out of the machine's record.
    OneShot(StartedScript),
    /// The instance's was started, or could not be had.
    Instance(ReportScriptRequest),
}

impl ScriptReport {
    /// What it tells of, for logs: the script itself is nobody's business there.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::OneShot(_) => "for one boot, started",
            Self::Instance(report) if report.started => "the instance's, started",
            Self::Instance(_) => "the instance's, failed",
        }
    }
}

impl BootScripts {
    /// The text of `owner`'s script for the machine that goes by `hardware`.
    pub(super) fn custom_text(
        &self,
        owner: ScriptOwner,
        hardware: &str,
        now: SystemTime,
    ) -> Result<String, BootRefusal> {
        self.still_open(hardware, now)?;
        let gone = || BootRefusal::Nothing("the script is gone".into());
        let script = match owner {
            ScriptOwner::OneShot => self.once.handed(hardware, now).ok_or_else(gone)?,
            ScriptOwner::Interface(mac) => {
                let known = self.index.by_mac(mac).filter(|known| known.hardware.id == hardware);
                match self.decision(known.as_deref(), FeedState::Live, now) {
                    Decision {
                        boot: BootTarget::CustomScript { script, .. },
                        fact: Fact::InterfaceScript,
                    } => script,
                    Decision { fact, .. } => return Err(BootRefusal::Nothing(fact.to_string())),
                }
            }
            // That it was started is told before its text is fetched, and by then it is the disk's turn.
            ScriptOwner::Instance => {
                let known = self.index.by_id(hardware).ok_or_else(gone)?;
                known.machine().brought().cloned().ok_or_else(gone)?
            }
        };
        match script {
            ScriptSource::Contents(text) => ipxe::brought(&text).map_err(broken),
            ScriptSource::Url(_) => Err(BootRefusal::Nothing("the script is elsewhere".into())),
        }
    }

    /// What is to be told of `owner`'s script, which the machine `started`, or could not have.
    pub(super) fn report(
        &self,
        owner: ScriptOwner,
        hardware: &str,
        started: bool,
    ) -> Option<ScriptReport> {
        match owner {
            ScriptOwner::OneShot if started => {
                let handed = self.once.started(hardware)?;
                Some(ScriptReport::OneShot(StartedScript { hardware: hardware.to_owned(), handed }))
            }
            ScriptOwner::OneShot | ScriptOwner::Interface(_) => None,
            ScriptOwner::Instance => {
                let known = self.index.by_id(hardware)?;
                let instance = known.instance.as_ref()?;
                let (hardware_id, instance_id) = (hardware.to_owned(), instance.id.clone());
                let generation = instance.generation;
                let report = ReportScriptRequest { hardware_id, instance_id, generation, started };
                Some(ScriptReport::Instance(report))
            }
        }
    }
}

#[cfg(test)]
mod tests;
