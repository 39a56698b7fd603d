//! Boots: which script a machine gets, and what one boot may fetch.
//!
//! A script is only for the machine it is for: asked for from an address of that machine, which DHCP gave it. What it opens
//! is bound to machine and address by the token in its URLs, and ends by itself.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use runtime::boot_token::{Purpose, Tokens};
use tinwright::hardware::v1::{Hardware, Netboot, Osie};

use crate::Mac;
use crate::decision::{Boot, Decision, Feed, Script, decide};
use crate::index::{Index, Known};
use crate::script::{self, WorkerArguments, WorkerEnvironment};
use crate::site::Site;

/// Decides and writes scripts.
#[derive(Debug)]
pub struct Boots {
    index: Arc<Index>,
    tokens: Tokens,
    site: Site,
}

/// A script, and what kind it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// As a metric label.
    pub kind: &'static str,
    /// The text.
    pub text: String,
}

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
        /// `started` or `failed`.
        what: String,
    },
}

/// Why there is nothing to serve.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no such thing for this machine now.
    #[error("nothing to boot: {0}")]
    Nothing(String),
    /// Whoever asks is not who it is for.
    #[error("not for you: {0}")]
    NotYours(&'static str),
    /// Not now.
    #[error("not now")]
    Later(Duration),
    /// What is stored cannot be put into a script.
    #[error("no script can be made")]
    Broken(String),
}

impl Boots {
    /// With what `index` knows, on `site`.
    pub fn new(index: Arc<Index>, tokens: Tokens, site: Site) -> Self {
        Self { index, tokens, site }
    }

    /// The site.
    pub fn site(&self) -> &Site {
        &self.site
    }

    /// What is known.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// What the machine `known` boots at `now`.
    pub fn decision(&self, known: Option<&Known>, feed: Feed, now: SystemTime) -> Decision {
        let machine = known.and_then(Known::machine);
        decide(machine.as_ref(), self.site.policy, feed, now)
    }

    /// The script for whoever asks from `source`, or for the interface that is named, if that is who asks.
    pub fn script(
        &self,
        named: Option<Mac>,
        source: IpAddr,
        now: SystemTime,
    ) -> Result<Served, Refusal> {
        self.script_for(named, source, now)
    }

    /// The same as a question: nobody asks, and nothing is noted.
    pub fn script_for(
        &self,
        named: Option<Mac>,
        source: IpAddr,
        now: SystemTime,
    ) -> Result<Served, Refusal> {
        let known = match named {
            Some(mac) => self.index.by_mac(mac),
            None => self.index.by_address(source),
        };
        if let Some(known) = &known
            && !known.has(source)
        {
            return Err(Refusal::NotYours("the address is not that machine's"));
        }
        let Decision { boot, fact } = self.decision(known.as_ref(), self.index.feed(), now);
        let nothing = || Refusal::Nothing(fact.to_string());
        let served = |kind, text| Ok(Served { kind, text });
        let known = known.ok_or_else(nothing)?;
        match boot {
            Boot::Worker => served("worker", self.worker(&known, source, now)?),
            Boot::CustomScript { script, .. } => {
                served("custom", self.custom(&known, script, source, now)?)
            }
            Boot::LocalDisk => served("local_disk", script::local_disk(false).into()),
            Boot::Later { retry } => Err(Refusal::Later(retry)),
            Boot::Rescue | Boot::Shell | Boot::Generic | Boot::Refused | Boot::Unknown => {
                Err(nothing())
            }
        }
    }

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
            "started" | "failed" => Ok(BootFile::Note { hardware, what: name.to_owned() }),
            "custom.ipxe" => self.custom_text(&hardware, now).map(BootFile::Text),
            file => Ok(BootFile::Osie(file.to_owned())),
        }
    }

    fn worker(&self, known: &Known, source: IpAddr, now: SystemTime) -> Result<String, Refusal> {
        let boot_url = self.boot_url(known, source, now)?;
        let arguments = self.arguments(known, &boot_url, source, now)?;
        let (arguments, left_out) = arguments.arguments().map_err(broken)?;
        for word in left_out {
            tracing::warn!(hardware.id = known.hardware.id, %word, "kernel argument left out");
        }
        let osie = osie(known);
        let architecture = &known.hardware.architecture;
        let named = |own: Option<&String>, kind: &str| match own.filter(|name| !name.is_empty()) {
            Some(name) => name.clone(),
            None => format!("{kind}-{architecture}"),
        };
        let own_base = osie.map(|osie| osie.base_url.trim_end_matches('/'));
        let environment = WorkerEnvironment {
            base_url: own_base.filter(|base| !base.is_empty()).unwrap_or(&boot_url),
            syslog: None,
            kernel: &named(osie.map(|osie| &osie.kernel), "vmlinuz"),
            initrd: &named(osie.map(|osie| &osie.initrd), "initramfs"),
            arguments: &arguments,
        };
        script::worker(&environment).map_err(broken)
    }

    fn arguments(
        &self,
        known: &Known,
        boot_url: &str,
        source: IpAddr,
        now: SystemTime,
    ) -> Result<WorkerArguments, Refusal> {
        let hardware: &Hardware = &known.hardware;
        let policy = hardware.policy.clone().unwrap_or_default();
        let vlan = known.interface().and_then(|interface| interface.dhcp.as_ref());
        let mut extra = policy.kernel_params;
        extra.extend(osie(known).map(|osie| osie.kernel_params.clone()).unwrap_or_default());
        Ok(WorkerArguments {
            facility: hardware.facility.clone(),
            grpc_authority: self.site.grpc_authority.clone(),
            tls: Some(true),
            worker_id: hardware.id.clone(),
            hw_addr: Some(known.mac),
            instance_id: known.instance.as_ref().map_or_else(String::new, |i| i.id.clone()),
            vlan_id: vlan.and_then(|dhcp| u16::try_from(dhcp.vlan_id).ok()).unwrap_or(0),
            boot_token: self.token(Purpose::Identity, known, source, now)?,
            boot_url: boot_url.to_owned(),
            ca_sha256: self.site.authority_sha256.clone(),
            boot_time: now.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs()),
            x86: hardware.architecture == "x86_64",
            consoles: self.site.consoles.clone(),
            extra,
            ..WorkerArguments::default()
        })
    }

    /// The wrapper around a script of somebody else's; text is served from the boot's own URL.
    fn custom(
        &self,
        known: &Known,
        script: Script,
        source: IpAddr,
        now: SystemTime,
    ) -> Result<String, Refusal> {
        let address = match script {
            Script::Url(url) => url,
            Script::Contents(_) => format!("{}/custom.ipxe", self.boot_url(known, source, now)?),
        };
        script::custom(&address, true).map_err(broken)
    }

    fn custom_text(&self, hardware: &str, now: SystemTime) -> Result<String, Refusal> {
        let known = self.index.by_id(hardware);
        let Decision { boot, fact } = self.decision(known.as_ref(), self.index.feed(), now);
        match boot {
            Boot::CustomScript { script: Script::Contents(text), .. } => {
                script::brought(&text).map_err(broken)
            }
            Boot::Later { retry } => Err(Refusal::Later(retry)),
            Boot::CustomScript { script: Script::Url(_), .. }
            | Boot::Worker
            | Boot::Rescue
            | Boot::LocalDisk
            | Boot::Shell
            | Boot::Generic
            | Boot::Refused
            | Boot::Unknown => Err(Refusal::Nothing(fact.to_string())),
        }
    }

    /// Where one boot of this machine finds its files.
    fn boot_url(&self, known: &Known, source: IpAddr, now: SystemTime) -> Result<String, Refusal> {
        let token = self.token(Purpose::Files, known, source, now)?;
        Ok(format!("{}/v1/boot/{token}", self.site.base_url()))
    }

    fn token(
        &self,
        purpose: Purpose,
        known: &Known,
        source: IpAddr,
        now: SystemTime,
    ) -> Result<String, Refusal> {
        let hardware = known.hardware.id.parse().map_err(broken)?;
        self.tokens.mint(purpose, hardware, source, now).map_err(broken)
    }
}

/// The installation environment that the interface's record has in the place of the site's.
fn osie(known: &Known) -> Option<&Osie> {
    known.interface()?.netboot.as_ref().and_then(|Netboot { osie, .. }| osie.as_ref())
}

fn broken(error: impl std::fmt::Display) -> Refusal {
    Refusal::Broken(error.to_string())
}

#[cfg(test)]
pub(crate) mod tests;
