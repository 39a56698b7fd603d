//! What is fetched in a boot that has begun: by its token, and while it may go on.

use std::net::IpAddr;
use std::time::SystemTime;

use runtime::boot_token::Purpose;
use tinwright::HardwareId;

use super::custom::{ScriptOwner, ScriptReport};
use super::{BootRefusal, BootScripts, NOBODY, gate_of};
use crate::decision::{Fact, FeedState, RETRY};

/// What a boot's URL names.
#[derive(Clone, Debug, PartialEq)]
pub enum BootFile {
    /// A file of the installation environment.
    Osie(String),
    /// Text of ours.
    Text(String),
    /// The script says how it went.
    Note {
        /// Which machine's.
        hardware: String,
        /// `started`, `failed` or `event`.
        what: String,
        /// What of it another service has to know.
        report: Option<ScriptReport>,
    },
}

impl BootScripts {
    /// What `name` below the boot's URL is, for whoever asks from `source`.
    pub fn file(
        &self,
        token: &str,
        name: &str,
        source: IpAddr,
        now: SystemTime,
    ) -> Result<BootFile, BootRefusal> {
        let opened = self.tokens.open(Purpose::Files, token, now);
        let claims = opened.map_err(|_| BootRefusal::NotYours("the token is not good"))?.claims;
        if claims.address != source {
            return Err(BootRefusal::NotYours("the token is another address's"));
        }
        let hardware = claims.hardware.to_string();
        match name {
            "ca.pem" => Ok(BootFile::Text(self.site.authority.clone())),
            "started" | "failed" | "event" => {
                Ok(BootFile::Note { hardware, what: name.to_owned(), report: None })
            }
            _ => match ScriptOwner::named(name) {
                Some((owner, "ipxe")) => {
                    self.custom_text(owner, &hardware, now).map(BootFile::Text)
                }
                Some((owner, what @ ("started" | "failed"))) => {
                    let report = self.report(owner, &hardware, what == "started");
                    Ok(BootFile::Note { hardware, what: what.to_owned(), report })
                }
                Some(_) | None => {
                    self.still_open(&hardware, now)?;
                    Ok(BootFile::Osie(name.to_owned()))
                }
            },
        }
    }

    /// Whether a boot that has begun may go on: the control plane can be heard, and no gate was closed meanwhile.
    pub(super) fn still_open(&self, hardware: &str, now: SystemTime) -> Result<(), BootRefusal> {
        if self.index.feed() != FeedState::Live {
            return Err(BootRefusal::later(RETRY, Fact::StaleFeed));
        }
        if hardware == HardwareId::from_bytes(NOBODY).to_string() {
            return Ok(());
        }
        let Some(known) = self.index.by_id(hardware) else {
            return Err(BootRefusal::NotYours("the machine is gone"));
        };
        let decision = self.decision(Some(&known), FeedState::Live, now);
        match gate_of(&known, &decision) {
            Some(gate) if !gate.open => Err(BootRefusal::NotYours("the platform allows no boot")),
            Some(_) | None => Ok(()),
        }
    }
}
