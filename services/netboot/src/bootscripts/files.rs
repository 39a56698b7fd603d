//! The files of a running boot: fetched with its token, while the boot may go on.

use std::net::IpAddr;
use std::time::SystemTime;

use fleet::Freshness;
use runtime::boot_token::Purpose;
use tinwright::HardwareId;

use super::custom::{ScriptOwner, ScriptReport};
use super::platform::gate_of;
use super::{BootRefusal, BootResult, BootScripts, Effects, NO_HARDWARE, gate};
use crate::decision::Fact;
use crate::timeline::BootStep;
use tinwright::netboot::v1::BootEventKind as Kind;

/// Content at a URL of a boot.
#[derive(Clone, Debug, PartialEq)]
pub enum BootFile {
    /// A file of the installation environment.
    Osie(String),
    /// A text of ours.
    Text(String),
    /// A status that the script reports.
    Status {
        /// Machine that runs the script.
        hardware: HardwareId,
        /// The status.
        status: ScriptStatus,
    },
}

/// Status of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum ScriptStatus {
    /// It is about to start what it fetched.
    Started,
    /// It gave up.
    Failed,
    /// An event for the log.
    Event,
}

impl ScriptStatus {
    /// Returns the status as scripts and logs spell it.
    pub fn word(self) -> &'static str {
        self.into()
    }
}

impl BootScripts {
    /// Decides the response to a request from `source` for the URL that ends with `token` and `name`, and changes nothing.
    pub fn respond_file(
        &self,
        token: &str,
        name: &str,
        source: IpAddr,
        now: SystemTime,
    ) -> (BootResult<BootFile>, Effects) {
        let mut report = None;
        let reply = self.file(token, name, source, now, &mut report);
        let started = match &reply {
            Ok(BootFile::Status { hardware, status: ScriptStatus::Started }) => Some(*hardware),
            Ok(_) | Err(_) => None,
        };
        let step = match &reply {
            Ok(_) if started.is_some() => Some(BootStep::new(Kind::Started, "")),
            Ok(BootFile::Status { status: ScriptStatus::Failed, .. }) => {
                Some(BootStep::new(Kind::Failed, "the script gave up"))
            }
            Ok(_) => None,
            Err(refusal) => Some(BootStep::new(Kind::GateRefused, format!("{name}: {refusal}"))),
        };
        let event = step.and_then(|step| self.event(None, Some(source), step, now));
        (reply, Effects { event, started, report, ..Effects::default() })
    }

    fn file(
        &self,
        token: &str,
        name: &str,
        source: IpAddr,
        now: SystemTime,
        report: &mut Option<ScriptReport>,
    ) -> BootResult<BootFile> {
        let opened = self.tokens.open(Purpose::Files, token, now);
        let claims = opened.map_err(|_| BootRefusal::NotYours("the token is not valid"))?.claims;
        if claims.address != source {
            return Err(BootRefusal::NotYours("the token is another address's"));
        }
        let hardware = claims.hardware;
        if name == "ca.pem" {
            return Ok(BootFile::Text(self.site.authority.pem()));
        }
        if let Ok(status) = name.parse() {
            return Ok(BootFile::Status { hardware, status });
        }
        match ScriptOwner::parse_name(name) {
            Some((owner, "ipxe")) => self.custom_text(owner, hardware, now).map(BootFile::Text),
            Some((owner, part @ ("started" | "failed"))) => {
                let started = part == "started";
                *report = self.report(owner, hardware, started);
                let status = if started { ScriptStatus::Started } else { ScriptStatus::Failed };
                Ok(BootFile::Status { hardware, status })
            }
            Some(_) | None => {
                self.check_still_open(hardware).map(|()| BootFile::Osie(name.to_owned()))
            }
        }
    }

    /// Refuses to go on with a boot while a feed is cut, or once its gate was closed.
    pub(super) fn check_still_open(&self, hardware: HardwareId) -> BootResult<()> {
        if self.index.feed() != Freshness::Live {
            return Err(BootRefusal::later(Fact::StaleFeed));
        }
        if hardware == HardwareId::from_bytes(NO_HARDWARE) {
            return Ok(());
        }
        let Some(machine) = self.index.by_id(&hardware.to_string()) else {
            return Err(BootRefusal::NotYours("the machine is gone"));
        };
        let decision = self.decision(Some(&machine), Freshness::Live, None);
        match gate_of(&machine, &decision) {
            Some(gate) if !gate.open => Err(BootRefusal::NotYours(gate::NOT_OPEN)),
            Some(_) | None => Ok(()),
        }
    }
}
