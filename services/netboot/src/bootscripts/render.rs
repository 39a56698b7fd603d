//! The texts of boot scripts, out of what is known of a machine.

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use runtime::boot_token::Purpose;
use tinwright::HardwareId;
use tinwright::hardware::v1::{Hardware, Netboot, Osie};

use super::custom::ScriptOwner;
use super::{BootRefusal, BootScripts, NOBODY, Script, ScriptRequest, broken};
use crate::Mac;
use crate::decision::{BootTarget, Decision, Policy, ScriptSource, decide};
use crate::index::Known;
use crate::ipxe::{self, Arguments, WorkerArguments, WorkerEnvironment};
use crate::site::Site;

/// What scripts say of the site, whoever they are for.
#[derive(Debug)]
pub(super) struct UrlSettings {
    /// Where machines find our HTTP.
    pub(super) base_url: String,
    log_server: Option<String>,
}

impl UrlSettings {
    pub(super) fn of(site: &Site) -> Self {
        let log_server = site.log_server().map(|server| server.to_string());
        Self { base_url: site.base_url(), log_server }
    }
}

/// Whether a boot's environment can prove which machine it is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkerIdentity {
    Given,
    /// It starts no worker; or whoever asks may be somebody else behind one address.
    Withheld,
}

/// What one boot is given.
pub(super) struct BootUrls {
    /// Where it finds its files.
    url: String,
    /// What it proves itself with, or nothing.
    identity: String,
}

impl BootScripts {
    /// The worker's environment. Whoever may be somebody else behind one address gets no identity.
    pub(super) fn worker(
        &self,
        known: &Known,
        source: IpAddr,
        mac_only: bool,
        now: SystemTime,
    ) -> Result<String, BootRefusal> {
        let identity = if mac_only { WorkerIdentity::Withheld } else { WorkerIdentity::Given };
        let boot = self.boot(known, source, identity, now)?;
        self.environment(known, &boot.url, &self.arguments(known, &boot, now))
    }

    /// The same environment for people: it starts no worker, so it needs no identity.
    pub(super) fn rescue(
        &self,
        known: &Known,
        source: IpAddr,
        now: SystemTime,
    ) -> Result<String, BootRefusal> {
        let boot = self.boot(known, source, WorkerIdentity::Withheld, now)?;
        let mut arguments = self.arguments(known, &boot, now);
        arguments.extra.push("rescue=1");
        self.environment(known, &boot.url, &arguments)
    }

    /// The configuration of PXELINUX's kind, for U-Boot and OPAL: the worker's environment, or the disk.
    pub fn pxelinux(
        &self,
        mac: Option<Mac>,
        source: IpAddr,
        now: SystemTime,
    ) -> Result<String, BootRefusal> {
        let asked = ScriptRequest::new(mac, source);
        let script = self.script(&asked, now)?;
        let known = match mac {
            Some(mac) => self.index.by_mac(mac),
            None => self.index.by_address(source),
        };
        let nothing = || BootRefusal::Nothing("the loader reads no script of this kind".into());
        let known = known.ok_or_else(nothing)?;
        match script.kind {
            "local_disk" => Ok(ipxe::PXELINUX_DISK.into()),
            "worker" => {
                let mac_only = self.site.serving.is_mac_only(source);
                let identity =
                    if mac_only { WorkerIdentity::Withheld } else { WorkerIdentity::Given };
                let boot = self.boot(&known, source, identity, now)?;
                let arguments = checked(&known, &self.arguments(&known, &boot, now))?;
                let files = files(&known, &boot.url);
                ipxe::pxelinux(&files.environment(&boot.url, None, &arguments)).map_err(broken)
            }
            _ => Err(nothing()),
        }
    }

    fn environment(
        &self,
        known: &Known,
        boot_url: &str,
        arguments: &WorkerArguments<'_>,
    ) -> Result<String, BootRefusal> {
        let arguments = checked(known, arguments)?;
        let files = files(known, boot_url);
        let log_server = self.said.log_server.as_deref();
        let environment = files.environment(boot_url, log_server, &arguments);
        ipxe::worker(&environment).map_err(broken)
    }

    /// The environment for a machine without a record, in which a worker has nothing to prove itself with.
    pub(super) fn stranger(&self, source: IpAddr, now: SystemTime) -> Result<Script, BootRefusal> {
        let policy = Policy { boot_unknown: true, ..self.site.policy };
        let Decision { boot, fact } = decide(None, policy, self.index.feed(), now);
        if let BootTarget::Later { retry } = boot {
            return Err(BootRefusal::later(retry, fact));
        }
        if boot != BootTarget::Generic {
            return Err(BootRefusal::Nothing(fact.to_string()));
        }
        let token = self.tokens.mint(Purpose::Files, HardwareId::from_bytes(NOBODY), source, now);
        let boot_url = self.url_of(&token.map_err(broken)?);
        let arguments = WorkerArguments { boot_url: &boot_url, ..self.of_site(now) };
        let (arguments, _left_out) = arguments.arguments().map_err(broken)?;
        let text = ipxe::generic(&boot_url, self.said.log_server.as_deref(), &arguments);
        Ok(Script { kind: "generic", text: text.map_err(broken)? })
    }

    /// What every environment is told at `now`, wherever it runs.
    fn of_site(&self, now: SystemTime) -> WorkerArguments<'_> {
        WorkerArguments {
            grpc_authority: &self.site.grpc_authority,
            tls: Some(true),
            ca_sha256: &self.site.authority_sha256,
            boot_time: now.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs()),
            syslog_host: self.said.log_server.as_deref(),
            consoles: &self.site.consoles,
            ..WorkerArguments::default()
        }
    }

    /// What the environment on `known` is told.
    pub(super) fn arguments<'a>(
        &'a self,
        known: &'a Known,
        boot: &'a BootUrls,
        now: SystemTime,
    ) -> WorkerArguments<'a> {
        let hardware: &Hardware = &known.hardware;
        let vlan = known.interface().and_then(|interface| interface.dhcp.as_ref());
        let policy = hardware.policy.iter().flat_map(|policy| &policy.kernel_params);
        let osie = osie(known).into_iter().flat_map(|osie| &osie.kernel_params);
        WorkerArguments {
            facility: &hardware.facility,
            worker_id: &hardware.id,
            hw_addr: Some(known.mac),
            instance_id: known.instance.as_ref().map_or("", |instance| &instance.id),
            vlan_id: vlan.and_then(|dhcp| u16::try_from(dhcp.vlan_id).ok()).unwrap_or(0),
            boot_token: &boot.identity,
            boot_url: &boot.url,
            x86: hardware.architecture == "x86_64",
            extra: policy.chain(osie).map(String::as_str).collect(),
            ..self.of_site(now)
        }
    }

    /// What newer builds of iPXE run before DHCP: nothing, or what leads to the script of `mac`.
    pub fn autoexec(&self, mac: Option<Mac>) -> Result<String, BootRefusal> {
        if !self.site().serving.autoexec_script {
            return Ok(String::new());
        }
        let base = &self.said.base_url;
        let text = match mac {
            Some(mac) => ipxe::autoexec(&format!("{base}/{}", mac.dashed()), true),
            None => ipxe::autoexec(base, false),
        };
        text.map_err(broken)
    }

    /// The wrapper around `owner`'s script; text is served from the boot's own URL.
    pub(super) fn custom(
        &self,
        known: &Known,
        owner: ScriptOwner,
        script: ScriptSource,
        source: IpAddr,
        now: SystemTime,
    ) -> Result<String, BootRefusal> {
        let boot = self.boot(known, source, WorkerIdentity::Withheld, now)?;
        let own = format!("{}/{owner}", boot.url);
        let address = match script {
            ScriptSource::Url(url) => url,
            ScriptSource::Contents(_) => format!("{own}.ipxe"),
        };
        ipxe::custom(&address, &own).map_err(broken)
    }

    /// What one boot of `known` is given.
    pub(super) fn boot(
        &self,
        known: &Known,
        source: IpAddr,
        identity: WorkerIdentity,
        now: SystemTime,
    ) -> Result<BootUrls, BootRefusal> {
        let mint = |purpose| self.tokens.mint(purpose, known.id, source, now).map_err(broken);
        let identity = match identity {
            WorkerIdentity::Given => mint(Purpose::Identity)?,
            WorkerIdentity::Withheld => String::new(),
        };
        Ok(BootUrls { url: self.url_of(&mint(Purpose::Files)?), identity })
    }

    fn url_of(&self, token: &str) -> String {
        [&self.said.base_url, "/v1/boot/", token].concat()
    }
}

/// The installation environment that the interface's record has in the place of the site's.
pub(super) fn osie(known: &Known) -> Option<&Osie> {
    known.interface()?.netboot.as_ref().and_then(|Netboot { osie, .. }| osie.as_ref())
}

/// The environment's files.
struct Files<'a> {
    base: &'a str,
    kernel: Cow<'a, str>,
    initrd: Cow<'a, str>,
}

/// Those of `known`: the site's, or what its record has in their place.
fn files<'a>(known: &'a Known, boot_url: &'a str) -> Files<'a> {
    let osie = osie(known);
    let architecture = &known.hardware.architecture;
    let named = |own: Option<&'a String>, kind: &str| match own.filter(|name| !name.is_empty()) {
        Some(name) => Cow::from(name),
        None => [kind, architecture].concat().into(),
    };
    let own_base = osie.map(|osie| osie.base_url.trim_end_matches('/'));
    Files {
        base: own_base.filter(|base| !base.is_empty()).unwrap_or(boot_url),
        kernel: named(osie.map(|osie| &osie.kernel), "vmlinuz-"),
        initrd: named(osie.map(|osie| &osie.initrd), "initramfs-"),
    }
}

impl Files<'_> {
    fn environment<'a>(
        &'a self,
        notes_url: &'a str,
        syslog: Option<&'a str>,
        arguments: &'a Arguments,
    ) -> WorkerEnvironment<'a> {
        let Self { base, kernel, initrd } = self;
        WorkerEnvironment { base_url: base, notes_url, syslog, kernel, initrd, arguments }
    }
}

/// The arguments as a command line. A word of somebody's that cannot stand in a script is left out, and said.
pub(super) fn checked(
    known: &Known,
    arguments: &WorkerArguments<'_>,
) -> Result<Arguments, BootRefusal> {
    let (arguments, left_out) = arguments.arguments().map_err(broken)?;
    for word in left_out {
        tracing::warn!(hardware.id = known.hardware.id, %word, "kernel argument left out");
    }
    Ok(arguments)
}

#[cfg(test)]
mod tests;
