//! Boot scripts: the script that a machine gets, and the files that one boot may fetch.
//!
//! A script is served only to the machine that it is for: to an address of that machine, which DHCP gave it. Whatever it
//! opens is bound to machine and address by the token in its URLs, and expires by itself.
//!
//! A request is answered in two steps: [`BootScripts::respond`] and [`BootScripts::respond_file`] decide and change nothing;
//! [`BootScripts::apply`] carries out the [`Effects`]. A simulated request discards them.
//!
//! - [`gate`]: the gate of an outside platform; [`one_shot`]: scripts for one boot; [`custom`]: custom scripts.
//! - [`files`]: files fetched once a boot has begun; [`script_reports`]: reports to other services.
//! - [`boot_loop`]: machines that boot again and again; `events`: steps for timelines; `evict`: deleted machines.
//! - `render`: the texts; `virtual_media`: machines that boot from virtual media.

pub mod boot_loop;
pub mod custom;
mod events;
mod evict;
pub mod files;
pub mod gate;
pub mod one_shot;
mod render;
pub mod script_reports;
mod virtual_media;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use runtime::boot_token::BootTokens;
use tinwright::HardwareId;
use tinwright::instance::v1::BootGate;
use tinwright::netboot::v1::ScriptKind;

use self::boot_loop::BootLoops;
use self::custom::{ScriptOwner, ScriptReport};
pub use self::files::{BootFile, FileRequest, FileResponse, ScriptStatus};
use self::gate::{GateResult, PresentedIdentity};
use self::one_shot::OneShotScripts;
use self::render::{UrlSettings, WorkerIdentity};
use crate::Mac;
use crate::allocation::Allocator;
use crate::decision::{BootTarget, Decision, Fact, FeedState, MachineFacts, Policy, RETRY, decide};
use crate::ipxe::{self, BadWord};
use crate::machine_view::{Index, MachineView};
use crate::site::Site;
use crate::timeline::{BootStep, Event, Timeline};

/// Hardware id in the tokens of machines without a record: no machine has it.
const NO_HARDWARE: [u8; 16] = [0; 16];
/// Pause of a machine in a boot loop, where the site delays those.
const BOOT_LOOP_HOLD: Duration = Duration::from_secs(60);
const BOOT_LOOP: &str = "more than 10 scripts in 10 minutes";

/// Decides and renders scripts for the machines of one link. Clones share what is remembered of boots.
#[derive(Clone, Debug)]
pub struct BootScripts {
    index: Arc<Index>,
    tokens: Arc<BootTokens>,
    site: Site,
    urls: Arc<UrlSettings>,
    timeline: Timeline,
    allocator: Option<Arc<Allocator>>,
    boot_loops: Arc<BootLoops>,
    /// Scripts for one boot that are under way.
    pub one_shot: Arc<OneShotScripts>,
    /// SMBIOS UUID that the firmware of each interface last sent by DHCP; of interfaces with a record only.
    dhcp_uuids: Arc<Mutex<HashMap<Mac, [u8; 16]>>>,
}

/// Program that reads a script.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScriptFormat {
    /// iPXE.
    #[default]
    Ipxe,
    /// PXELINUX, or U-Boot and OPAL, which read its configuration.
    Pxelinux,
}

/// Request for a boot script.
#[derive(Clone, Debug)]
pub struct ScriptRequest {
    /// Interface that the request names.
    pub mac: Option<Mac>,
    /// Address that the request comes from.
    pub source: IpAddr,
    /// SMBIOS UUID in the request, unparsed.
    pub uuid: Option<String>,
    /// Program that reads the script.
    pub format: ScriptFormat,
    /// Interface that the source is taken to be leased to, in a simulated request. Otherwise the leases say.
    pub leased_to: Option<Mac>,
}

impl ScriptRequest {
    /// A request for iPXE from `source` that names `mac`, and no UUID.
    pub fn new(mac: Option<Mac>, source: IpAddr) -> Self {
        Self { mac, source, uuid: None, format: ScriptFormat::Ipxe, leased_to: None }
    }
}

/// Response to a [`ScriptRequest`].
#[derive(Debug)]
pub struct ScriptResponse {
    /// The script, or the reason for its refusal.
    pub reply: Result<Script, BootRefusal>,
    /// Effects, for [`BootScripts::apply`].
    pub effects: Effects,
}

/// Effects of a response that the server applies.
#[derive(Debug, Default)]
pub struct Effects {
    /// Step for the machine's timeline.
    event: Option<Event>,
    /// Machine that was given a script, which counts towards a boot loop.
    scripted: Option<HardwareId>,
    /// Machine that was given its script for one boot.
    one_shot: Option<Arc<MachineView>>,
    /// Report to another service.
    report: Option<ScriptReport>,
    warnings: Vec<ScriptWarning>,
}

/// Lines for the log. Each names the machine.
#[derive(Debug)]
enum ScriptWarning {
    BootLoop(Arc<MachineView>),
    GateClosed { machine: Arc<MachineView>, rule: &'static str, presented: String },
    ArgumentLeftOut { hardware: String, word: BadWord },
}

/// A rendered script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// Its kind.
    pub kind: ScriptKind,
    /// Its text.
    pub text: String,
}

/// A script that may be served.
#[derive(Debug)]
struct SelectedScript {
    /// Machine that it is for; none if the machine has no record.
    machine: Option<Arc<MachineView>>,
    fact: Fact,
    script: Script,
}

/// Reason for which nothing is served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BootRefusal {
    /// There is nothing for this machine now.
    #[error("nothing to boot: {0}")]
    Nothing(String),
    /// The client is not the machine that it is for.
    #[error("not for you: {0}")]
    NotYours(&'static str),
    /// The client has to ask again.
    #[error("not now: {why}")]
    Later {
        /// Pause before it asks again.
        retry: Duration,
        /// Reason of the pause.
        why: String,
    },
    /// A stored value cannot stand in a script.
    #[error("no script can be made")]
    Broken(String),
}

impl BootRefusal {
    fn later(retry: Duration, fact: Fact) -> Self {
        Self::Later { retry, why: fact.to_string() }
    }
}

impl BootScripts {
    /// Scripts for the machines of `index`, on `site`.
    pub fn new(index: Arc<Index>, tokens: BootTokens, site: Site) -> Self {
        let (timeline, boot_loops, one_shot, dhcp_uuids) = Default::default();
        let (tokens, urls) = (Arc::new(tokens), Arc::new(UrlSettings::of(&site)));
        let allocator = None;
        Self { index, tokens, site, urls, timeline, allocator, boot_loops, one_shot, dhcp_uuids }
    }

    /// The same for another link.
    pub fn for_link(&self, site: Site) -> Self {
        Self { urls: Arc::new(UrlSettings::of(&site)), site, ..self.clone() }
    }

    /// Sets the timeline that steps of boots are recorded in.
    pub fn with_timeline(self, timeline: Timeline) -> Self {
        Self { timeline, ..self }
    }

    /// Finds machines by their leased addresses, too.
    pub fn with_allocator(self, allocator: Arc<Allocator>) -> Self {
        Self { allocator: Some(allocator), ..self }
    }

    /// The allocator of pool addresses.
    pub fn allocator(&self) -> Option<&Allocator> {
        self.allocator.as_deref()
    }

    /// Returns the interface that `source` is leased to.
    pub fn holder(&self, source: IpAddr, now: SystemTime) -> Option<Mac> {
        self.allocator()?.holder(source, now)
    }

    /// Returns the machine with the address `source`, by its record or by its lease.
    pub fn at(&self, source: IpAddr, now: SystemTime) -> Option<Arc<MachineView>> {
        self.index.at(source, || self.holder(source, now))
    }

    /// Timeline of what machines do.
    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// Settings of the link.
    pub fn site(&self) -> &Site {
        &self.site
    }

    /// The machines.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Decides what `machine` boots.
    pub fn decision(&self, machine: Option<&MachineView>, feed: FeedState) -> Decision {
        self.decide(machine, self.site.policy, feed)
    }

    /// Decides for a DHCP reply. With `boot_unknown`, the client's pool boots machines without a record.
    pub fn dhcp_decision(&self, machine: Option<&MachineView>, boot_unknown: bool) -> Decision {
        let boot_unknown = self.site.policy.boot_unknown || boot_unknown;
        let policy = Policy { boot_unknown, ..self.site.policy };
        self.decide(machine, policy, self.index.feed())
    }

    fn decide(&self, machine: Option<&MachineView>, policy: Policy, feed: FeedState) -> Decision {
        let facts = machine.map(MachineView::machine);
        let used = facts.is_some_and(|facts| facts.boot_once.is_some())
            && machine.is_some_and(|machine| self.one_shot.is_used(machine));
        let without =
            used.then(|| Some(MachineFacts { boot_once: None, ..facts?.clone() })).flatten();
        decide(without.as_ref().or(facts), policy, feed)
    }

    /// Records the SMBIOS UUID that the firmware of `machine` sent by DHCP (option 97, in wire order).
    pub fn record_uuid(&self, machine: &MachineView, uuid: [u8; 16]) {
        self.uuids().insert(machine.mac, uuid);
    }

    fn uuids(&self) -> MutexGuard<'_, HashMap<Mac, [u8; 16]>> {
        self.dhcp_uuids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Responds to `request` and applies the effects.
    pub fn serve(&self, request: &ScriptRequest, now: SystemTime) -> Result<Script, BootRefusal> {
        let ScriptResponse { reply, effects } = self.respond(request, now);
        // A script is reported when it says that it was started, not when it is served.
        let _no_report = self.apply(effects, now);
        reply
    }

    /// Decides the response to `request`, and changes nothing.
    pub fn respond(&self, request: &ScriptRequest, now: SystemTime) -> ScriptResponse {
        let mut effects = Effects::default();
        let selected = self.select(request, now, &mut effects.warnings);
        let (mac, source) = (request.mac, Some(request.source));
        let reply = selected.and_then(|selected| {
            self.delay_boot_loop(&selected, now, &mut effects.warnings)?;
            let SelectedScript { machine, fact, script } = selected;
            let step = BootStep::Script { kind: script.kind, fact };
            effects.event = match &machine {
                Some(machine) => Some(Event::of(machine, step, source, now)),
                None => self.event(mac, source, step, now),
            };
            let counted = machine.as_ref().filter(|_| script.kind != ScriptKind::AskUuid);
            effects.scripted = counted.map(|machine| machine.id);
            effects.one_shot = machine.filter(|_| script.kind == ScriptKind::CustomOnce);
            Ok(script)
        });
        if let Err(refusal) = &reply {
            effects.event = self.event(mac, source, BootStep::Refused(refusal.to_string()), now);
        }
        ScriptResponse { reply, effects }
    }

    /// Applies the effects of a response. Returns the report that another service has to get.
    #[must_use]
    pub fn apply(&self, effects: Effects, now: SystemTime) -> Option<ScriptReport> {
        let Effects { event, scripted, one_shot, report, warnings } = effects;
        warnings.into_iter().for_each(|warning| warning.log(&self.site));
        if let Some(machine) = one_shot
            && let Some(script) = &machine.machine().boot_once
        {
            self.one_shot.record_served(&machine, script, now);
        }
        if let Some(machine) = scripted {
            self.boot_loops.record(machine, now);
        }
        if let Some(event) = event {
            self.timeline.record(event);
        }
        // Of two requests that say so at once, one is reported.
        report.filter(|report| match report {
            ScriptReport::OneShot(started) => self.one_shot.mark_started(&started.hardware),
            ScriptReport::Instance(_) => true,
        })
    }

    /// True if one more script at `now` makes a boot loop of the machine.
    pub fn is_boot_loop(&self, machine: &MachineView, now: SystemTime) -> bool {
        self.site.rate_limits && self.boot_loops.would_loop(machine.id, now)
    }

    /// Refuses a script to a machine in a boot loop, where the site delays those.
    fn delay_boot_loop(
        &self,
        selected: &SelectedScript,
        now: SystemTime,
        warnings: &mut Vec<ScriptWarning>,
    ) -> Result<(), BootRefusal> {
        let Some(machine) = &selected.machine else { return Ok(()) };
        if !self.is_boot_loop(machine, now) {
            return Ok(());
        }
        warnings.push(ScriptWarning::BootLoop(machine.clone()));
        match self.site.serving.hold_boot_loops {
            true => Err(BootRefusal::Later { retry: BOOT_LOOP_HOLD, why: BOOT_LOOP.into() }),
            false => Ok(()),
        }
    }

    /// Finds the machine that `request` is from, and renders its script. Leases are consulted only where no record owns the
    /// source address.
    fn select(
        &self,
        request: &ScriptRequest,
        now: SystemTime,
        warnings: &mut Vec<ScriptWarning>,
    ) -> Result<SelectedScript, BootRefusal> {
        let (source, feed) = (request.source, self.index.feed());
        if feed == FeedState::Incomplete {
            return Err(BootRefusal::later(RETRY, Fact::FeedIncomplete));
        }
        let holder = || request.leased_to.or_else(|| self.holder(source, now));
        let machine = match request.mac {
            Some(mac) => self.index.by_mac(mac),
            None => self.index.at(source, holder),
        };
        let Some(machine) = machine else {
            let pool =
                || self.allocator()?.boots_unknown(request.mac, source, holder()).then_some(());
            let boots = self.site.policy.boot_unknown || pool().is_some();
            return self.generic(request, boots, now);
        };
        let mac_only = request.mac.is_some() && self.site.serving.is_mac_only(source);
        if !(mac_only || machine.has(source) || holder().is_some_and(|mac| machine.owns(mac))) {
            return Err(BootRefusal::NotYours("the address is not that machine's"));
        }
        let decision = self.decision(Some(&machine), feed);
        let fact = decision.fact;
        let script =
            if decision.opens_a_boot() && self.asks_uuid(&machine, request, &decision, warnings)? {
                self.ask_uuid(&machine, request)?
            } else {
                self.render(&machine, decision, request, now, warnings)?
            };
        Ok(SelectedScript { machine: Some(machine), fact, script })
    }

    /// Selects the script for a machine without a record.
    fn generic(
        &self,
        request: &ScriptRequest,
        boot_unknown: bool,
        now: SystemTime,
    ) -> Result<SelectedScript, BootRefusal> {
        let policy = Policy { boot_unknown, ..self.site.policy };
        let Decision { boot, fact } = decide(None, policy, self.index.feed());
        match boot {
            BootTarget::Later { retry } => Err(BootRefusal::later(retry, fact)),
            BootTarget::Generic if request.format == ScriptFormat::Ipxe => {
                let text = self.generic_text(request.source, now)?;
                let script = Script { kind: ScriptKind::Generic, text };
                Ok(SelectedScript { machine: None, fact, script })
            }
            BootTarget::Generic => Err(no_pxelinux()),
            BootTarget::Worker
            | BootTarget::CustomScript(_)
            | BootTarget::LocalDisk
            | BootTarget::Shell
            | BootTarget::Refused
            | BootTarget::Unknown => Err(BootRefusal::Nothing(fact.to_string())),
        }
    }

    /// Renders the script of `decision`.
    fn render(
        &self,
        machine: &MachineView,
        decision: Decision,
        request: &ScriptRequest,
        now: SystemTime,
        warnings: &mut Vec<ScriptWarning>,
    ) -> Result<Script, BootRefusal> {
        let Decision { boot, fact } = decision;
        let pxelinux = request.format == ScriptFormat::Pxelinux;
        let (kind, text) = match boot {
            BootTarget::Worker => {
                (ScriptKind::Worker, self.worker(machine, request, now, warnings)?)
            }
            BootTarget::LocalDisk if pxelinux => {
                (ScriptKind::LocalDisk, ipxe::PXELINUX_DISK.into())
            }
            BootTarget::LocalDisk => {
                (ScriptKind::LocalDisk, ipxe::local_disk(machine.wants_sanboot()).into())
            }
            BootTarget::Later { retry } => return Err(BootRefusal::later(retry, fact)),
            BootTarget::Generic | BootTarget::Refused | BootTarget::Unknown => {
                return Err(BootRefusal::Nothing(fact.to_string()));
            }
            BootTarget::CustomScript(_) | BootTarget::Shell if pxelinux => {
                return Err(no_pxelinux());
            }
            BootTarget::CustomScript(script) => {
                let owner = ScriptOwner::of(fact, machine.mac);
                let text = self.custom(machine, owner, script, request.source, now)?;
                (
                    if owner == ScriptOwner::OneShot {
                        ScriptKind::CustomOnce
                    } else {
                        ScriptKind::Custom
                    },
                    text,
                )
            }
            BootTarget::Shell => (ScriptKind::Shell, ipxe::SHELL.into()),
        };
        Ok(Script { kind, text })
    }

    /// True if the machine has to show its UUID to an outside platform's gate first.
    fn asks_uuid(
        &self,
        machine: &Arc<MachineView>,
        request: &ScriptRequest,
        decision: &Decision,
        warnings: &mut Vec<ScriptWarning>,
    ) -> Result<bool, BootRefusal> {
        let Some(gate) = gate_of(machine, decision) else { return Ok(false) };
        let presented = self.presented(machine, request.uuid.as_deref(), request.source);
        match gate::evaluate(gate, &presented) {
            GateResult::Open => Ok(false),
            GateResult::AskUuid => Ok(true),
            GateResult::Closed(rule) => {
                let (machine, presented) = (machine.clone(), format!("{presented:?}"));
                warnings.push(ScriptWarning::GateClosed { machine, rule, presented });
                Err(BootRefusal::NotYours(rule))
            }
        }
    }

    /// Identity that `machine` shows to a gate when it asks from `source` with the SMBIOS UUID `uuid`.
    fn presented<'a>(
        &self,
        machine: &MachineView,
        uuid: Option<&'a str>,
        source: IpAddr,
    ) -> PresentedIdentity<'a> {
        let dhcp_uuid = self.uuids().get(&machine.mac).copied();
        PresentedIdentity { uuid, dhcp_uuid, mac: machine.mac, source }
    }

    /// Identity that the worker on the machine gets: none where machines hide behind another address.
    fn worker_identity(&self, request: &ScriptRequest) -> WorkerIdentity {
        let mac_only = request.mac.is_some() && self.site.serving.is_mac_only(request.source);
        if mac_only { WorkerIdentity::Withheld } else { WorkerIdentity::Given }
    }
}

impl ScriptWarning {
    fn log(self, site: &Site) {
        match self {
            Self::BootLoop(machine) => {
                let (id, held) = (&machine.hardware.id, site.serving.hold_boot_loops);
                tracing::warn!(hardware.id = id, held, "boot loop: {BOOT_LOOP}");
            }
            Self::GateClosed { machine, rule, presented } => {
                tracing::warn!(
                    hardware.id = machine.hardware.id,
                    presented,
                    rule,
                    "boot gate closed"
                );
            }
            Self::ArgumentLeftOut { hardware, word } => {
                tracing::warn!(hardware.id = hardware, %word, "kernel argument left out");
            }
        }
    }
}

/// Returns the gate that `decision` has to pass. None for a machine that is being taken from its tenant: it is cleaned by our
/// own worker, and the platform closes its gate before that.
fn gate_of<'a>(machine: &'a MachineView, decision: &Decision) -> Option<&'a BootGate> {
    let leaving = machine.machine().instance.as_ref()?.state.is_leaving();
    let cleaning = leaving && decision.boot == BootTarget::Worker;
    machine.instance.as_ref()?.boot_gate.as_ref().filter(|_| !cleaning)
}

fn no_pxelinux() -> BootRefusal {
    BootRefusal::Nothing("the loader reads no script of this kind".into())
}

fn broken(error: impl std::fmt::Display) -> BootRefusal {
    BootRefusal::Broken(error.to_string())
}

#[cfg(test)]
pub(crate) mod tests;
