//! Rendering of boot scripts.

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use runtime::boot_token::Purpose;
use tinwright::HardwareId;
use tinwright::hardware::v1::{Hardware, Netboot, Osie};

use super::custom::ScriptOwner;
use super::{
    BootRefusal, BootScripts, NO_HARDWARE, ScriptFormat, ScriptRequest, ScriptWarning, broken,
};
use crate::Mac;
use crate::decision::ScriptSource;
use crate::ipxe::{self, Arguments, WorkerArguments, WorkerEnvironment};
use crate::machine_view::MachineView;
use crate::site::Site;

/// Addresses of the site in every script.
#[derive(Debug)]
pub(super) struct UrlSettings {
    /// Our HTTP, without a slash at the end.
    pub(super) base_url: String,
    log_server: Option<String>,
}

impl UrlSettings {
    pub(super) fn of(site: &Site) -> Self {
        let log_server = site.log_server().map(|server| server.to_string());
        Self { base_url: site.base_url(), log_server }
    }
}

/// Identity of the worker in a boot's environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkerIdentity {
    Given,
    /// No worker is started; or the client may be another machine behind the same address.
    Withheld,
}

/// URL and identity of one boot.
pub(super) struct BootUrls {
    /// URL of the boot's files.
    url: String,
    /// Token that the worker proves the machine's identity with; empty if it gets none.
    identity: String,
}

impl BootScripts {
    /// Renders the worker's environment.
    pub(super) fn worker(
        &self,
        machine: &MachineView,
        request: &ScriptRequest,
        now: SystemTime,
        warnings: &mut Vec<ScriptWarning>,
    ) -> Result<String, BootRefusal> {
        let identity = self.worker_identity(request);
        let boot = self.boot_urls(machine, request.source, identity, now)?;
        let (arguments, left_out) =
            self.arguments(machine, &boot, now).arguments().map_err(broken)?;
        let warning =
            |word| ScriptWarning::ArgumentLeftOut { hardware: machine.hardware.id.clone(), word };
        warnings.extend(left_out.into_iter().map(warning));
        let files = files(machine, &boot.url);
        let log_server = self.urls.log_server.as_deref();
        match request.format {
            ScriptFormat::Ipxe => {
                ipxe::worker(&files.environment(&boot.url, log_server, &arguments))
            }
            ScriptFormat::Pxelinux => {
                ipxe::pxelinux(&files.environment(&boot.url, None, &arguments))
            }
        }
        .map_err(broken)
    }

    /// Renders the environment for a machine without a record, in which a worker has no identity.
    pub(super) fn generic_text(
        &self,
        source: IpAddr,
        now: SystemTime,
    ) -> Result<String, BootRefusal> {
        let hardware = HardwareId::from_bytes(NO_HARDWARE);
        let token = self.tokens.mint(Purpose::Files, hardware, source, now);
        let boot_url = self.boot_url(&token.map_err(broken)?);
        let arguments = WorkerArguments { boot_url: &boot_url, ..self.site_arguments(now) };
        let (arguments, _left_out) = arguments.arguments().map_err(broken)?;
        ipxe::generic(&boot_url, self.urls.log_server.as_deref(), &arguments).map_err(broken)
    }

    /// Renders the script that comes back with the machine's UUID.
    pub(super) fn ask_uuid(
        &self,
        machine: &MachineView,
        request: &ScriptRequest,
    ) -> Result<super::Script, BootRefusal> {
        if request.format == ScriptFormat::Pxelinux {
            return Err(super::no_pxelinux());
        }
        let text = ipxe::with_uuid(&format!("{}/{}", self.urls.base_url, machine.mac.dashed()));
        Ok(super::Script { kind: super::ScriptKind::AskUuid, text: text.map_err(broken)? })
    }

    /// Arguments of every environment at `now`, on any machine.
    fn site_arguments(&self, now: SystemTime) -> WorkerArguments<'_> {
        WorkerArguments {
            grpc_authority: &self.site.grpc_authority,
            tls: Some(true),
            ca_sha256: &self.site.authority_sha256,
            boot_time: now.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs()),
            syslog_host: self.urls.log_server.as_deref(),
            consoles: &self.site.consoles,
            ..WorkerArguments::default()
        }
    }

    /// Arguments of the environment on `machine`.
    pub(super) fn arguments<'a>(
        &'a self,
        machine: &'a MachineView,
        boot: &'a BootUrls,
        now: SystemTime,
    ) -> WorkerArguments<'a> {
        let hardware: &Hardware = &machine.hardware;
        let dhcp = machine.interface().and_then(|interface| interface.dhcp.as_ref());
        let policy = hardware.policy.iter().flat_map(|policy| &policy.kernel_params);
        let osie = osie(machine).into_iter().flat_map(|osie| &osie.kernel_params);
        WorkerArguments {
            facility: &hardware.facility,
            worker_id: &hardware.id,
            hw_addr: Some(machine.mac),
            instance_id: machine.instance.as_ref().map_or("", |instance| &instance.id),
            vlan_id: dhcp.and_then(|dhcp| u16::try_from(dhcp.vlan_id).ok()).unwrap_or(0),
            boot_token: &boot.identity,
            boot_url: &boot.url,
            x86: hardware.architecture == "x86_64",
            extra: policy.chain(osie).map(String::as_str).collect(),
            ..self.site_arguments(now)
        }
    }

    /// Renders the script that newer builds of iPXE run before DHCP: empty, or one that chains to the script of `mac`.
    pub fn autoexec(&self, mac: Option<Mac>) -> Result<String, BootRefusal> {
        if !self.site().serving.autoexec_script {
            return Ok(String::new());
        }
        let base = &self.urls.base_url;
        let text = match mac {
            Some(mac) => ipxe::autoexec(&format!("{base}/{}", mac.dashed()), true),
            None => ipxe::autoexec(base, false),
        };
        text.map_err(broken)
    }

    /// Renders the wrapper around `owner`'s script. Its text is served below the boot's URL.
    pub(super) fn custom(
        &self,
        machine: &MachineView,
        owner: ScriptOwner,
        script: ScriptSource,
        source: IpAddr,
        now: SystemTime,
    ) -> Result<String, BootRefusal> {
        let boot = self.boot_urls(machine, source, WorkerIdentity::Withheld, now)?;
        let own = format!("{}/{owner}", boot.url);
        let address = match script {
            ScriptSource::Url(url) => url,
            ScriptSource::Contents(_) => format!("{own}.ipxe"),
        };
        ipxe::custom(&address, &own).map_err(broken)
    }

    /// Mints the tokens of one boot of `machine`.
    pub(super) fn boot_urls(
        &self,
        machine: &MachineView,
        source: IpAddr,
        identity: WorkerIdentity,
        now: SystemTime,
    ) -> Result<BootUrls, BootRefusal> {
        let mint = |purpose| self.tokens.mint(purpose, machine.id, source, now).map_err(broken);
        let identity = match identity {
            WorkerIdentity::Given => mint(Purpose::Identity)?,
            WorkerIdentity::Withheld => String::new(),
        };
        Ok(BootUrls { url: self.boot_url(&mint(Purpose::Files)?), identity })
    }

    fn boot_url(&self, token: &str) -> String {
        [&self.urls.base_url, "/v1/boot/", token].concat()
    }
}

/// Installation environment that the interface's record has in place of the site's.
pub(super) fn osie(machine: &MachineView) -> Option<&Osie> {
    machine.interface()?.netboot.as_ref().and_then(|Netboot { osie, .. }| osie.as_ref())
}

/// Files of the environment.
struct Files<'a> {
    base: &'a str,
    kernel: Cow<'a, str>,
    initrd: Cow<'a, str>,
}

/// Returns the files for `machine`: those of its record, or the site's.
fn files<'a>(machine: &'a MachineView, boot_url: &'a str) -> Files<'a> {
    let osie = osie(machine);
    let architecture = &machine.hardware.architecture;
    let name = |own: Option<&'a String>, kind: &str| match own.filter(|name| !name.is_empty()) {
        Some(name) => Cow::from(name),
        None => [kind, architecture].concat().into(),
    };
    let own_base = osie.map(|osie| osie.base_url.trim_end_matches('/'));
    Files {
        base: own_base.filter(|base| !base.is_empty()).unwrap_or(boot_url),
        kernel: name(osie.map(|osie| &osie.kernel), "vmlinuz-"),
        initrd: name(osie.map(|osie| &osie.initrd), "initramfs-"),
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

#[cfg(test)]
mod tests;
