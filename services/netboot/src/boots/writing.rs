//! The texts of boot scripts, out of what is known of a machine.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{SystemTime, UNIX_EPOCH};

use runtime::boot_token::Purpose;
use tinwright::HardwareId;
use tinwright::hardware::v1::{Hardware, Netboot, Osie};

use super::{Asked, Boots, NOBODY, Refusal, Served, broken};
use crate::Mac;
use crate::decision::{Boot, Decision, Policy, Script, decide};
use crate::index::Known;
use crate::script::{self, Arguments, WorkerArguments, WorkerEnvironment};

impl Boots {
    /// The worker's environment. Whoever may be somebody else behind one address gets no identity.
    pub(super) fn worker(
        &self,
        known: &Known,
        source: IpAddr,
        mac_only: bool,
        now: SystemTime,
    ) -> Result<String, Refusal> {
        let boot_url = self.boot_url(known, source, now)?;
        let mut arguments = self.arguments(known, &boot_url, now);
        if !mac_only {
            arguments.boot_token = self.token(Purpose::Identity, known, source, now)?;
        }
        self.environment(known, &boot_url, &arguments)
    }

    /// The same environment for people: it starts no worker, so it needs no identity.
    pub(super) fn rescue(
        &self,
        known: &Known,
        source: IpAddr,
        now: SystemTime,
    ) -> Result<String, Refusal> {
        let boot_url = self.boot_url(known, source, now)?;
        let mut arguments = self.arguments(known, &boot_url, now);
        arguments.extra.push("rescue=1".into());
        self.environment(known, &boot_url, &arguments)
    }

    /// The configuration of PXELINUX's kind, for U-Boot and OPAL: the worker's environment, or the disk.
    pub fn pxelinux(
        &self,
        mac: Option<Mac>,
        source: IpAddr,
        now: SystemTime,
    ) -> Result<String, Refusal> {
        let asked = Asked::new(mac, source);
        let script = self.script(&asked, now)?;
        let known = match mac {
            Some(mac) => self.index.by_mac(mac),
            None => self.index.by_address(source),
        };
        let nothing = || Refusal::Nothing("the loader reads no script of this kind".into());
        let known = known.ok_or_else(nothing)?;
        match script.kind {
            "local_disk" => Ok(script::PXELINUX_DISK.into()),
            "worker" => {
                let boot_url = self.boot_url(&known, source, now)?;
                let mut arguments = self.arguments(&known, &boot_url, now);
                if !self.site.serving.is_mac_only(source) {
                    arguments.boot_token = self.token(Purpose::Identity, &known, source, now)?;
                }
                let arguments = checked(&known, &arguments)?;
                let files = files(&known, &boot_url);
                script::pxelinux(&files.environment(&boot_url, None, &arguments)).map_err(broken)
            }
            _ => Err(nothing()),
        }
    }

    fn environment(
        &self,
        known: &Known,
        boot_url: &str,
        arguments: &WorkerArguments,
    ) -> Result<String, Refusal> {
        let arguments = checked(known, arguments)?;
        let files = files(known, boot_url);
        let environment = files.environment(boot_url, self.site.log_server(), &arguments);
        script::worker(&environment).map_err(broken)
    }

    /// The environment for a machine without a record, in which a worker has nothing to prove itself with.
    pub(super) fn stranger(&self, source: IpAddr, now: SystemTime) -> Result<Served, Refusal> {
        let policy = Policy { boot_unknown: true, ..self.site.policy };
        let Decision { boot, fact } = decide(None, policy, self.index.feed(), now);
        if let Boot::Later { retry } = boot {
            return Err(Refusal::Later(retry));
        }
        if boot != Boot::Generic {
            return Err(Refusal::Nothing(fact.to_string()));
        }
        let token = self.tokens.mint(Purpose::Files, HardwareId::from_bytes(NOBODY), source, now);
        let boot_url = format!("{}/v1/boot/{}", self.site.base_url(), token.map_err(broken)?);
        let arguments = WorkerArguments {
            grpc_authority: self.site.grpc_authority.clone(),
            tls: Some(true),
            boot_url: boot_url.clone(),
            ca_sha256: self.site.authority_sha256.clone(),
            boot_time: now.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs()),
            syslog_host: self.site.log_server(),
            consoles: self.site.consoles.clone(),
            ..WorkerArguments::default()
        };
        let (arguments, _left_out) = arguments.arguments().map_err(broken)?;
        let text = script::generic(&boot_url, self.site.log_server(), &arguments);
        Ok(Served { kind: "generic", text: text.map_err(broken)? })
    }

    /// What the environment is told, besides an identity.
    pub(super) fn arguments(
        &self,
        known: &Known,
        boot_url: &str,
        now: SystemTime,
    ) -> WorkerArguments {
        let hardware: &Hardware = &known.hardware;
        let policy = hardware.policy.clone().unwrap_or_default();
        let vlan = known.interface().and_then(|interface| interface.dhcp.as_ref());
        let mut extra = policy.kernel_params;
        extra.extend(osie(known).map(|osie| osie.kernel_params.clone()).unwrap_or_default());
        WorkerArguments {
            facility: hardware.facility.clone(),
            grpc_authority: self.site.grpc_authority.clone(),
            tls: Some(true),
            worker_id: hardware.id.clone(),
            hw_addr: Some(known.mac),
            instance_id: known.instance.as_ref().map_or_else(String::new, |i| i.id.clone()),
            vlan_id: vlan.and_then(|dhcp| u16::try_from(dhcp.vlan_id).ok()).unwrap_or(0),
            boot_url: boot_url.to_owned(),
            ca_sha256: self.site.authority_sha256.clone(),
            boot_time: now.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs()),
            syslog_host: self.site.log_server(),
            x86: hardware.architecture == "x86_64",
            consoles: self.site.consoles.clone(),
            extra,
            ..WorkerArguments::default()
        }
    }

    /// What newer builds of iPXE run before DHCP: nothing, or what leads to the script of `mac`.
    pub fn autoexec(&self, mac: Option<Mac>) -> Result<String, Refusal> {
        if !self.site().serving.autoexec_script {
            return Ok(String::new());
        }
        let base = self.site().base_url();
        let text = match mac {
            Some(mac) => script::autoexec(&format!("{base}/{}", mac.dashed()), true),
            None => script::autoexec(&base, false),
        };
        text.map_err(broken)
    }

    /// The wrapper around a script of somebody else's; text is served from the boot's own URL.
    pub(super) fn custom(
        &self,
        known: &Known,
        script: Script,
        source: IpAddr,
        now: SystemTime,
    ) -> Result<String, Refusal> {
        let boot_url = self.boot_url(known, source, now)?;
        let address = match script {
            Script::Url(url) => url,
            Script::Contents(_) => format!("{boot_url}/custom.ipxe"),
        };
        script::custom(&address, &boot_url).map_err(broken)
    }

    /// Where one boot of this machine finds its files.
    pub(super) fn boot_url(
        &self,
        known: &Known,
        source: IpAddr,
        now: SystemTime,
    ) -> Result<String, Refusal> {
        let token = self.token(Purpose::Files, known, source, now)?;
        Ok(format!("{}/v1/boot/{token}", self.site.base_url()))
    }

    pub(super) fn token(
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
pub(super) fn osie(known: &Known) -> Option<&Osie> {
    known.interface()?.netboot.as_ref().and_then(|Netboot { osie, .. }| osie.as_ref())
}

/// The environment's files.
struct Files {
    base: String,
    kernel: String,
    initrd: String,
}

/// Those of `known`: the site's, or what its record has in their place.
fn files(known: &Known, boot_url: &str) -> Files {
    let osie = osie(known);
    let architecture = &known.hardware.architecture;
    let named = |own: Option<&String>, kind: &str| match own.filter(|name| !name.is_empty()) {
        Some(name) => name.clone(),
        None => format!("{kind}-{architecture}"),
    };
    let own_base = osie.map(|osie| osie.base_url.trim_end_matches('/'));
    Files {
        base: own_base.filter(|base| !base.is_empty()).unwrap_or(boot_url).to_owned(),
        kernel: named(osie.map(|osie| &osie.kernel), "vmlinuz"),
        initrd: named(osie.map(|osie| &osie.initrd), "initramfs"),
    }
}

impl Files {
    fn environment<'a>(
        &'a self,
        notes_url: &'a str,
        syslog: Option<Ipv4Addr>,
        arguments: &'a Arguments,
    ) -> WorkerEnvironment<'a> {
        let Self { base, kernel, initrd } = self;
        WorkerEnvironment { base_url: base, notes_url, syslog, kernel, initrd, arguments }
    }
}

/// The arguments as a command line. A word of somebody's that cannot stand in a script is left out, and said.
pub(super) fn checked(known: &Known, arguments: &WorkerArguments) -> Result<Arguments, Refusal> {
    let (arguments, left_out) = arguments.arguments().map_err(broken)?;
    for word in left_out {
        tracing::warn!(hardware.id = known.hardware.id, %word, "kernel argument left out");
    }
    Ok(arguments)
}

#[cfg(test)]
mod tests;
