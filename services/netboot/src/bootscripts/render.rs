//! Rendering of boot scripts.

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use runtime::boot_token::Purpose;
use tinwright::HardwareId;
use tinwright::hardware::v1::{Netboot, Osie};

use super::custom::ScriptOwner;
use super::warning::Warning;
use super::{BootResult, BootScripts, NO_HARDWARE, Query, ScriptFormat, ScriptRequest, broken};
use crate::Mac;
use crate::decision::{BootTarget, ScriptSource};
use crate::environments::{NODE_FILES, WORKER_FILES};
use crate::ipxe::{self, Arguments, Environment};
use crate::machine_view::MachineView;

/// URL and identity of one boot.
pub(super) struct BootUrls {
    /// URL of the boot's files.
    url: String,
    /// URL of kernel and initramfs, if the record has another.
    environment: Option<String>,
    /// Token that the environment proves the machine's identity with; empty if it gets none.
    identity: String,
}

impl BootScripts {
    /// Renders the worker's environment. A worker has no identity where the client may be another machine behind the same address; on a
    /// machine without a record it has the token `enrolment`, if there is one.
    pub(super) fn worker(
        &self,
        machine: Option<&MachineView>,
        asked: &mut Query<'_>,
        enrolment: Option<String>,
    ) -> BootResult<String> {
        let purpose = machine.map(|_| Purpose::Identity);
        let mut boot = self.environment_urls(machine, asked, purpose)?;
        if let Some(token) = enrolment.filter(|_| machine.is_none()) {
            boot.identity = token;
        }
        boot.environment = machine.and_then(own_base_url).map(str::to_owned);
        let files = machine.map(worker_files);
        let files = files.as_ref().map(|files| files.each_ref().map(AsRef::as_ref));
        self.environment(machine, asked, &boot, files)
    }

    /// Renders the environment of the node `machine`, which always is the site's: the record's own is an installation environment.
    pub(super) fn node(&self, machine: &MachineView, asked: &mut Query<'_>) -> BootResult<String> {
        let boot = self.environment_urls(Some(machine), asked, Some(Purpose::Node))?;
        let files = node_files(machine);
        let files = Some(files.each_ref().map(AsRef::as_ref));
        self.environment(Some(machine), asked, &boot, files)
    }

    /// Mints the tokens of a boot into an environment. It has no identity where the client may be another machine behind the same address.
    fn environment_urls(
        &self,
        machine: Option<&MachineView>,
        asked: &Query<'_>,
        purpose: Option<Purpose>,
    ) -> BootResult<BootUrls> {
        let unknown = || (HardwareId::from_bytes(NO_HARDWARE), 0);
        let id = machine.map_or_else(unknown, |machine| (machine.id, machine.boot_epoch()));
        let purpose = purpose.filter(|_| !self.is_mac_only(asked.request));
        self.boot_urls(id, asked.request.source, purpose, asked.now)
    }

    /// Renders the script that loads `files`, which iPXE names itself if there are none.
    fn environment(
        &self,
        machine: Option<&MachineView>,
        asked: &mut Query<'_>,
        boot: &BootUrls,
        files: Option<[&str; 2]>,
    ) -> BootResult<String> {
        let request = asked.request;
        let arguments = self.arguments(machine, boot, "", asked.now)?;
        // The arguments of machines without a record are the site's. They are not logged at each request of a stranger.
        if let Some(machine) = machine {
            asked.warnings.extend(Warning::left_out(machine.id, &arguments));
        }
        let script_url = self.script_url(machine.map(|machine| machine.mac).or(request.mac));
        let environment = Environment {
            base_url: boot.environment.as_deref().unwrap_or(&boot.url),
            status_url: &boot.url,
            site_url: &self.base_url,
            script_url: &script_url,
            syslog: self.log_server.as_deref(),
            files,
            arguments: &arguments,
        };
        match request.format {
            ScriptFormat::Ipxe => ipxe::load(&environment),
            ScriptFormat::Pxelinux => ipxe::pxelinux(&environment),
        }
        .map_err(broken)
    }

    /// Returns the URL of the script for `mac`, or for the source address.
    fn script_url(&self, mac: Option<Mac>) -> String {
        let mac = mac.map_or_else(String::new, |mac| ["/", &mac.dashed()].concat());
        [&self.base_url, &mac, "/auto.ipxe"].concat()
    }

    /// Renders the script that comes back with the UUID of the machine with the interface `mac`.
    pub(super) fn ask_uuid(&self, mac: Mac, request: &ScriptRequest) -> BootResult<super::Script> {
        if request.format == ScriptFormat::Pxelinux {
            return Err(super::no_pxelinux());
        }
        let text = ipxe::with_uuid(&format!("{}/{}", self.base_url, mac.dashed()));
        Ok(super::Script { kind: super::ScriptKind::AskUuid, text: text.map_err(broken)? })
    }

    /// Returns the kernel arguments of the environment on `machine`, with the additional argument `ipam`. Additions that cannot
    /// stand in a script are left out and named.
    pub(super) fn arguments(
        &self,
        machine: Option<&MachineView>,
        boot: &BootUrls,
        ipam: &str,
        now: SystemTime,
    ) -> BootResult<Arguments> {
        let of = |field: fn(&MachineView) -> &str| machine.map_or("", field);
        let text = |field: fn(&MachineView) -> String| machine.map(field).unwrap_or_default();
        let (mac, vlan) = (text(|machine| machine.mac.to_string()), text(vlan));
        let (servers, authority) = (self.site.grpc_servers.join(","), self.site.authority.sha256());
        let boot_time = now.duration_since(UNIX_EPOCH).ok();
        let boot_time = boot_time.map(|since| since.as_secs().to_string()).unwrap_or_default();
        let mut line = Arguments::default();
        for (key, value) in [
            ("facility", of(|machine| &machine.hardware.facility)),
            ("syslog_host", self.log_server.as_deref().unwrap_or_default()),
            ("grpc_authority", &self.site.grpc_authority),
            ("grpc_servers", &servers),
            ("tinkerbell_tls", "true"),
            ("worker_id", of(|machine| &machine.hardware.id)),
            ("hw_addr", &mac),
            ("instance_id", of(|machine| machine.instance.as_ref().map_or("", |own| &own.id))),
            ("vlan_id", &vlan),
            ("boot_token", &boot.identity),
        ] {
            line.set(key, value).map_err(broken)?;
        }
        line.set_boot_url(&boot.url).map_err(broken)?;
        line.set("ca_sha256", &authority).map_err(broken)?;
        line.set("boot_time", &boot_time).map_err(broken)?;
        if of(|machine| &machine.hardware.architecture) == "x86_64" {
            line.extend("intel_iommu=on iommu=pt");
        }
        self.site.consoles.iter().for_each(|own| line.extend(&["console=", own].concat()));
        line.extend(ipam);
        let policy = machine.and_then(|machine| machine.hardware.policy.as_ref());
        let policy = policy.into_iter().flat_map(|policy| &policy.kernel_params);
        let osie = machine.and_then(osie).into_iter().flat_map(|osie| &osie.kernel_params);
        policy.chain(osie).for_each(|list| line.extend(list));
        line.check_length().map_err(broken)?;
        Ok(line)
    }

    /// Renders the script that newer builds of iPXE run before DHCP: empty, or one that chains to the script of `mac`.
    pub fn autoexec(&self, mac: Option<Mac>) -> BootResult<String> {
        if !self.site.serving.autoexec_script {
            return Ok(String::new());
        }
        let base = &self.base_url;
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
    ) -> BootResult<String> {
        let id = (machine.id, machine.boot_epoch());
        let boot = self.boot_urls(id, source, None, now)?;
        let own = format!("{}/{}", boot.url, owner.name());
        let address = match script {
            ScriptSource::Url(url) => url,
            ScriptSource::Contents(_) => format!("{own}.ipxe"),
            ScriptSource::PrivateFile(path) => {
                self.private_file_url(machine, &path, source, now)?
            }
        };
        ipxe::custom(&address, &own).map_err(broken)
    }

    /// Mints the tokens of one boot of `machine` in its boot epoch: for its files, and for an identity of `purpose` if it gets one.
    pub(super) fn boot_urls(
        &self,
        (machine, epoch): (HardwareId, u64),
        source: IpAddr,
        purpose: Option<Purpose>,
        now: SystemTime,
    ) -> BootResult<BootUrls> {
        let mint = |purpose| self.tokens.mint(purpose, machine, epoch, source, now).map_err(broken);
        let identity = purpose.map(mint).transpose()?.unwrap_or_default();
        let url = [&self.base_url, "/v1/boot/", &mint(Purpose::Files)?].concat();
        Ok(BootUrls { url, environment: None, identity })
    }
}

/// Returns the files of the site's environments that `machine` loads if it boots `target`.
pub(crate) fn environment_files(machine: Option<&MachineView>, target: &BootTarget) -> Vec<String> {
    match (target, machine) {
        (BootTarget::Worker, Some(machine)) if own_base_url(machine).is_some() => Vec::new(),
        (BootTarget::Worker, Some(machine)) => worker_files(machine).map(Cow::into_owned).into(),
        (BootTarget::Node, Some(machine)) => node_files(machine).into(),
        // The architecture is known to its iPXE only. Environments are built for this one.
        (BootTarget::Worker | BootTarget::Generic, _) => {
            WORKER_FILES.map(|kind| [kind, "x86_64"].concat()).into()
        }
        _ => Vec::new(),
    }
}

/// Returns the names of kernel and initramfs of the worker's environment on `machine`.
fn worker_files(machine: &MachineView) -> [Cow<'_, str>; 2] {
    let osie = osie(machine);
    let name = |own: fn(&Osie) -> &String, kind: &str| match osie.map(own) {
        Some(name) if !name.is_empty() => Cow::from(name),
        Some(_) | None => [kind, &machine.hardware.architecture].concat().into(),
    };
    let [kernel, initrd] = WORKER_FILES;
    [name(|osie| &osie.kernel, kernel), name(|osie| &osie.initrd, initrd)]
}

/// Returns the names of kernel and initramfs of the environment of nodes on `machine`.
fn node_files(machine: &MachineView) -> [String; 2] {
    NODE_FILES.map(|kind| [kind, &machine.hardware.architecture].concat())
}

/// Returns the URL of the installation environment that the interface's record has in place of the site's, without a slash at the
/// end.
fn own_base_url(machine: &MachineView) -> Option<&str> {
    osie(machine).map(|osie| osie.base_url.trim_end_matches('/')).filter(|base| !base.is_empty())
}

/// Installation environment that the interface's record has in place of the site's.
pub(super) fn osie(machine: &MachineView) -> Option<&Osie> {
    machine.interface()?.netboot.as_ref().and_then(|Netboot { osie, .. }| osie.as_ref())
}

/// Returns the VLAN to tag for; empty if there is none.
fn vlan(machine: &MachineView) -> String {
    let dhcp = machine.interface().and_then(|interface| interface.dhcp.as_ref());
    let vlan = dhcp.and_then(|dhcp| u16::try_from(dhcp.vlan_id).ok()).filter(|vlan| *vlan != 0);
    vlan.map(|vlan| vlan.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
