//! Systems of outside platforms: their boot gates, and the private files that netboot serves behind them.
//!
//! ```text
//! /platform/PATH            the machine with the source address
//! /platform/t/TOKEN/PATH    the machine that a script with this token was served to, at the same address
//! ```
//!
//! The gate is evaluated at each request. Whatever does not match is refused with the same answer; the log says which rule refused it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use fleet::Freshness;
use runtime::boot_token::PlatformFileClaims;
use runtime::neighbour::NeighbourCheck;
use tinwright::instance::v1::BootGate;

use super::gate::{self, PresentedIdentity};
use super::warning::Warning;
use super::{BootRefusal, BootResult, BootScripts, Effects, broken};
use crate::Mac;
use crate::decision::{BootTarget, Decision, Fact, ScriptSource};
use crate::machine_view::{MachineView, PRIVATE_FILES};
use crate::timeline::BootStep;

/// First part of a path with a token.
const WITH_TOKEN: &str = "t/";

/// Request for a private file.
#[derive(Clone, Debug)]
pub struct PrivateFileRequest<'a> {
    /// The path below `/platform/`, which may begin with a token.
    pub path: &'a str,
    /// SMBIOS UUID in the request, unparsed.
    pub uuid: Option<&'a str>,
    /// Address that the request comes from.
    pub source: IpAddr,
    /// The owner of the source on our link.
    pub neighbour: NeighbourCheck,
}

/// Client of a request for a private file.
struct PrivateClient<'a> {
    /// The machine of its token or of its source; none if there is none.
    machine: Option<Arc<MachineView>>,
    /// The path of the file, or the rule that the token breaks.
    path: Result<&'a str, &'static str>,
    /// True if the path begins with a valid token of this site.
    has_token: bool,
}

impl BootScripts {
    /// Decides the response to `request`, and changes nothing. Returns the path of the file.
    pub fn respond_private_file<'a>(
        &self,
        request: &PrivateFileRequest<'a>,
        now: SystemTime,
    ) -> (BootResult<&'a str>, Effects) {
        match self.index.feed() {
            Freshness::Live => {}
            Freshness::NeverSynced => {
                return (Err(BootRefusal::later(Fact::FeedIncomplete)), Effects::default());
            }
            Freshness::StaleSince(_) | Freshness::Unused => {
                return (Err(BootRefusal::later(Fact::StaleFeed)), Effects::default());
            }
        }
        let client = self.private_client(request, now);
        let machine = client.machine.as_deref();
        let checked = client.path.and_then(|path| {
            let machine = machine.ok_or("no machine has this address")?;
            self.check_private_access(machine, request, client.has_token, now)?;
            is_beside_script(machine, path).then_some(path).ok_or("the file is another platform's")
        });
        let mut effects = Effects::default();
        let reply = checked.map_err(|rule| {
            let (id, mac) = (machine.map(|it| it.id), machine.map(|it| it.mac));
            let presented = (mac, request.uuid, request.source);
            effects.warnings.push(Warning::gate_closed(id, presented, rule));
            let refusal = BootRefusal::NotYours(rule);
            let step = BootStep::refused(&refusal);
            effects.event = self.event(mac, Some(request.source), step, now);
            refusal
        });
        (reply, effects)
    }

    /// Identifies the client of `request` by the token in its path, or by its source.
    fn private_client<'a>(
        &self,
        request: &PrivateFileRequest<'a>,
        now: SystemTime,
    ) -> PrivateClient<'a> {
        let source = request.source;
        let at_source = |path| {
            let machine = self.at(source, now);
            PrivateClient { machine, path, has_token: false }
        };
        let Some(rest) = request.path.strip_prefix(WITH_TOKEN) else {
            return at_source(Ok(request.path));
        };
        let Some((token, path)) = rest.split_once('/') else {
            return at_source(Err("the path has no token"));
        };
        let Ok(claims) = self.tokens.open_for_platform_files(token, now) else {
            return at_source(Err("the token is not valid"));
        };
        let machine = self.index.by_id(&claims.hardware.to_string());
        let is_same = machine.as_ref().and_then(|machine| machine.instance.as_ref()).is_some_and(
            |instance| instance.id == claims.instance && instance.generation == claims.generation,
        );
        let path = match (claims.address == source, is_same) {
            (false, _) => Err("the token is another address's"),
            (true, false) => Err("the token is another instance's"),
            (true, true) => Ok(path),
        };
        PrivateClient { machine, path, has_token: true }
    }

    /// Refuses private files to a client that is not `machine`, and while its gate is closed. With a token, the UUID was presented when the
    /// script was requested.
    fn check_private_access(
        &self,
        machine: &MachineView,
        request: &PrivateFileRequest<'_>,
        has_token: bool,
        now: SystemTime,
    ) -> Result<(), &'static str> {
        let holder = || self.holder(request.source, now);
        if !machine.has(request.source) && !holder().is_some_and(|mac| machine.owns(mac)) {
            return Err("the address is not that machine's");
        }
        self.check_owner(machine, request.neighbour)
            .map_err(|_| "the owner of the address is not that machine")?;
        if !machine.facts.boots_platform() {
            return Err("the machine boots no system of a platform");
        }
        let gate = gate(machine).unwrap_or(&gate::CLOSED);
        let presented = self.presented(machine, request.uuid, request.source);
        if has_token {
            // A view has one MAC. The script was requested by the interface that the gate names.
            let mac = gate.mac.parse().ok().filter(|mac| machine.owns(*mac));
            let presented = PresentedIdentity { mac: mac.unwrap_or(machine.mac), ..presented };
            return gate::evaluate_place(gate, &presented);
        }
        match gate::asks_uuid(gate, &presented)? {
            true => Err("no UUID was presented"),
            false => Ok(()),
        }
    }

    /// Returns the URL of the private file `path` for `machine` at `source`, with a token.
    pub(super) fn private_file_url(
        &self,
        machine: &MachineView,
        path: &str,
        source: IpAddr,
        now: SystemTime,
    ) -> BootResult<String> {
        let (instance, generation) = match &machine.instance {
            Some(instance) => (instance.id.clone(), instance.generation),
            None => return Err(BootRefusal::Nothing("the instance is gone".into())),
        };
        let claims = PlatformFileClaims {
            hardware: machine.id,
            instance,
            generation,
            address: source,
            expiry: 0,
        };
        let token = self.tokens.mint_for_platform_files(claims, now).map_err(broken)?;
        Ok([&self.base_url, PRIVATE_FILES, WITH_TOKEN, &token, "/", path].concat())
    }

    /// Refuses a boot that an outside platform's gate does not allow, to a machine that presents `uuid` at `source`. True if
    /// the machine has to present its UUID first.
    pub(super) fn gate_asks_uuid(
        &self,
        machine: &MachineView,
        decision: &Decision,
        uuid: Option<&str>,
        source: IpAddr,
    ) -> BootResult<bool> {
        if decision.boot == BootTarget::Refused && decision.fact == Fact::PlatformGateClosed {
            return Err(BootRefusal::NotYours(gate::NOT_OPEN));
        }
        if !decision.opens_a_boot() {
            return Ok(false);
        }
        let Some(gate) = gate_of(machine, decision) else { return Ok(false) };
        let presented = self.presented(machine, uuid, source);
        gate::asks_uuid(gate, &presented).map_err(BootRefusal::NotYours)
    }

    fn presented<'a>(
        &self,
        machine: &MachineView,
        uuid: Option<&'a str>,
        source: IpAddr,
    ) -> PresentedIdentity<'a> {
        let dhcp_uuid = self.history.dhcp_uuid(machine);
        PresentedIdentity { uuid, dhcp_uuid, mac: machine.mac, source }
    }
}

/// True if the private file `path` is in the directory of the script of the machine's platform, or below it: platforms share the files'
/// root.
fn is_beside_script(machine: &MachineView, path: &str) -> bool {
    let Some(ScriptSource::PrivateFile(script)) = machine.facts.instance_script() else {
        return false;
    };
    let directory = script.rsplit_once('/').map_or("", |(directory, _)| directory);
    let below = match directory {
        "" => Some(path),
        directory => path.strip_prefix(directory).and_then(|rest| rest.strip_prefix('/')),
    };
    below.is_some_and(|below| below.split('/').all(|part| !matches!(part, "" | "." | "..")))
}

/// Returns the gate that `decision` has to pass. None for a machine that is being taken from its tenant: it is cleaned by our
/// own worker, and the platform closes its gate before that.
pub(super) fn gate_of<'a>(machine: &'a MachineView, decision: &Decision) -> Option<&'a BootGate> {
    let leaving = machine.facts.instance.as_ref()?.is_leaving();
    let cleaning = leaving && decision.boot == BootTarget::Worker;
    if cleaning { None } else { gate(machine) }
}

/// Returns the gate of the machine's instance. That of a platform's system is closed until there is one.
fn gate(machine: &MachineView) -> Option<&BootGate> {
    let gate = machine.instance.as_ref().and_then(|instance| instance.boot_gate.as_ref());
    gate.or_else(|| machine.facts.is_platform().then_some(&gate::CLOSED))
}

/// Returns the warning for a refused request of `machine`, if it has a gate and the client is not the one that the gate lets in.
pub(super) fn gate_warning(
    machine: &MachineView,
    (mac, uuid, source): (Option<Mac>, Option<&str>, IpAddr),
    refusal: &BootRefusal,
) -> Option<Warning> {
    let (Some(_), BootRefusal::NotYours(rule)) = (gate(machine), refusal) else { return None };
    let mac = mac.or(Some(machine.mac));
    Some(Warning::gate_closed(Some(machine.id), (mac, uuid, source), rule))
}

#[cfg(test)]
mod tests;
