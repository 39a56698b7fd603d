//! What is fetched in a boot that has begun: by its token, and while it may go on.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use runtime::boot_token::Purpose;
use tinwright::HardwareId;

use super::clearing::Started;
use super::{Boots, NOBODY, Refusal, broken, gate_of};
use crate::decision::{Boot, Decision, Feed, Script};
use crate::script;

/// When to ask again while the control plane is out of reach.
const LATER: Duration = Duration::from_secs(5);

/// What a boot's URL names.
#[derive(Clone, Debug, PartialEq, Eq)]
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
        /// A script for one boot that was started with this: it is to be cleared from the record.
        used: Option<Started>,
    },
}

impl Boots {
    /// What `name` below the boot's URL is, for whoever asks from `source`.
    pub fn file(
        &self,
        token: &str,
        name: &str,
        source: IpAddr,
        now: SystemTime,
    ) -> Result<BootFile, Refusal> {
        let opened = self.tokens.open(Purpose::Files, token, now);
        let claims = opened.map_err(|_| Refusal::NotYours("the token is not good"))?.claims;
        if claims.address != source {
            return Err(Refusal::NotYours("the token is another address's"));
        }
        let hardware = claims.hardware.to_string();
        match name {
            "ca.pem" => Ok(BootFile::Text(self.site.authority.clone())),
            "started" | "failed" | "event" => {
                let started = (name == "started").then(|| self.once.started(&hardware)).flatten();
                let used = started.map(|handed| Started { hardware: hardware.clone(), handed });
                Ok(BootFile::Note { hardware, what: name.to_owned(), used })
            }
            "custom.ipxe" => self.custom_text(&hardware, now).map(BootFile::Text),
            file => {
                self.still_open(&hardware, now)?;
                Ok(BootFile::Osie(file.to_owned()))
            }
        }
    }

    /// Whether a boot that has begun may go on: the control plane can be heard, and no gate was closed meanwhile.
    fn still_open(&self, hardware: &str, now: SystemTime) -> Result<(), Refusal> {
        if self.index.feed() == Feed::Stale {
            return Err(Refusal::cut_off(LATER));
        }
        if hardware == HardwareId::from_bytes(NOBODY).to_string() {
            return Ok(());
        }
        let Some(known) = self.index.by_id(hardware) else {
            return Err(Refusal::NotYours("the machine is gone"));
        };
        let decision = self.decision(Some(&known), Feed::Live, now);
        match gate_of(&known, &decision) {
            Some(gate) if !gate.open => Err(Refusal::NotYours("the platform allows no boot")),
            Some(_) | None => Ok(()),
        }
    }

    fn custom_text(&self, hardware: &str, now: SystemTime) -> Result<String, Refusal> {
        self.still_open(hardware, now)?;
        let known = self.index.by_id(hardware);
        let script = match self.once.handed(hardware, now) {
            Some(once) => once,
            None => match self.decision(known.as_ref(), Feed::Live, now) {
                Decision { boot: Boot::CustomScript { script, .. }, .. } => script,
                Decision { fact, .. } => return Err(Refusal::Nothing(fact.to_string())),
            },
        };
        match script {
            Script::Contents(text) => script::brought(&text).map_err(broken),
            Script::Url(_) => Err(Refusal::Nothing("its script is elsewhere".into())),
        }
    }
}
