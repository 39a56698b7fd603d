//! Custom scripts: their owners, the URLs of their texts, and reports about them.
//!
//! ```text
//! <boot's URL>/once.ipxe, once.started, once.failed              script for one boot, from an interface's record
//! <boot's URL>/02-….ipxe, 02-….started, 02-….failed              script from the record of the interface 02:…
//! <boot's URL>/instance.ipxe, instance.started, instance.failed  script of the instance
//! ```

use std::time::SystemTime;

use fleet::Freshness;
use tinwright::HardwareId;
use tinwright::instance::v1::ReportScriptRequest;

use super::history::OneShotScript;
use super::{BootRefusal, BootResult, BootScripts, broken};
use crate::Mac;
use crate::decision::{BootTarget, Decision, Fact, ScriptSource};
use crate::ipxe;

/// Owner of a custom script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScriptOwner {
    /// The next boot of the machine.
    OneShot,
    /// The record of this interface.
    Interface(Mac),
    /// The instance.
    Instance,
}

impl ScriptOwner {
    /// Returns the owner of the script that `fact` chose for the interface `mac`.
    pub(super) fn of(fact: Fact, mac: Mac) -> Self {
        if fact == Fact::BootOnce {
            Self::OneShot
        } else if fact == Fact::InterfaceScript {
            Self::Interface(mac)
        } else {
            Self::Instance
        }
    }

    /// Parses the last part of a URL into the owner and the suffix.
    pub(super) fn parse_name(name: &str) -> Option<(Self, &str)> {
        let (owner, suffix) = name.rsplit_once('.')?;
        let owner = match owner {
            "once" => Self::OneShot,
            "instance" => Self::Instance,
            mac => Self::Interface(mac.parse().ok()?),
        };
        Some((owner, suffix))
    }

    /// Returns the part of its URLs before the suffix.
    pub(super) fn name(self) -> String {
        match self {
            Self::OneShot => "once".into(),
            Self::Interface(mac) => mac.dashed(),
            Self::Instance => "instance".into(),
        }
    }
}

/// Report about a script to the service that owns its record.
#[derive(Clone, Debug, PartialEq)]
pub enum ScriptReport {
    /// A script for one boot was started: it is to be removed from the machine's record.
    OneShot {
        /// Id of the machine.
        hardware: HardwareId,
        /// The script.
        script: OneShotScript,
    },
    /// The instance's script was started, or could not be fetched.
    Instance(ReportScriptRequest),
}

impl ScriptReport {
    /// Kind of the report, for logs. The script itself may hold secrets.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::OneShot { .. } => "one-shot script started",
            Self::Instance(report) if report.started => "instance script started",
            Self::Instance(_) => "instance script failed",
        }
    }
}

impl BootScripts {
    /// Returns the text of `owner`'s script for the machine `hardware`.
    pub(super) fn custom_text(
        &self,
        owner: ScriptOwner,
        hardware: HardwareId,
        now: SystemTime,
    ) -> BootResult<String> {
        self.check_still_open(hardware)?;
        let gone = || BootRefusal::Nothing("the script is gone".into());
        let script = match owner {
            ScriptOwner::OneShot => self.history.served(hardware, now).ok_or_else(gone)?,
            ScriptOwner::Interface(mac) => {
                let machine = self.index.by_mac(mac);
                let machine = machine.filter(|machine| machine.id == hardware);
                let Decision { boot, fact } =
                    self.decision(machine.as_deref(), Freshness::Live, None);
                let (BootTarget::CustomScript(script), Fact::InterfaceScript) = (boot, fact) else {
                    return Err(BootRefusal::Nothing(fact.to_string()));
                };
                script
            }
            // Its start is reported before its text is fetched, and by then the decision is the disk.
            ScriptOwner::Instance => {
                let machine = self.index.by_id(&hardware.to_string()).ok_or_else(gone)?;
                machine.facts.instance_script().cloned().ok_or_else(gone)?
            }
        };
        match script {
            ScriptSource::Contents(text) => ipxe::custom_text(&text).map_err(broken),
            ScriptSource::Url(_) | ScriptSource::PrivateFile(_) => {
                Err(BootRefusal::Nothing("the script is elsewhere".into()))
            }
        }
    }

    /// Returns the report to send once the machine `started` the script of `owner`, or could not fetch it.
    pub(super) fn report(
        &self,
        owner: ScriptOwner,
        hardware: HardwareId,
        started: bool,
    ) -> Option<ScriptReport> {
        match owner {
            ScriptOwner::OneShot if started => {
                let script = self.history.not_started(hardware)?;
                Some(ScriptReport::OneShot { hardware, script })
            }
            ScriptOwner::OneShot | ScriptOwner::Interface(_) => None,
            ScriptOwner::Instance => {
                let machine = self.index.by_id(&hardware.to_string())?;
                let instance = machine.instance.as_ref()?;
                Some(ScriptReport::Instance(ReportScriptRequest {
                    hardware_id: hardware.to_string(),
                    instance_id: instance.id.clone(),
                    generation: instance.generation,
                    started,
                }))
            }
        }
    }
}

#[cfg(test)]
mod tests;
