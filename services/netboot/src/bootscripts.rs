//! Boot scripts: the script that a machine gets, and the files that one boot may fetch.
//!
//! A script is served only to an address of the machine that it is for. The token in its URLs is bound to machine and
//! address, and expires.
//!
//! A response is made in two steps: `respond` and [`BootScripts::respond_file`] decide, change nothing and log nothing, and
//! [`BootScripts::apply`] applies the [`Effects`]. [`BootScripts::simulate`] discards them.
//!
//! - `source_check`: the owner of the address that asks.
//! - `enrolment`: the scripts of machines without a record.
//! - `evidence`: what was seen of a boot, without which it gets nothing.
//! - [`gate`]: evaluates the gate of an outside platform; [`platform`]: its refusals, and the platform's private files; [`custom`]: custom scripts; [`history`]: earlier boots of each machine.
//! - `images`: the content of images, for the machines that are installed with them.
//! - [`files`]: files fetched once a boot has begun; [`script_reports`]: reports to other services.
//! - `events`: steps for timelines; `warning`: warnings for the log; `render`: the texts; `virtual_media`: machines that boot
//!   from virtual media.

pub mod custom;
mod enrolment;
mod events;
mod evidence;
pub mod files;
pub mod gate;
pub mod history;
mod images;
pub mod platform;
mod render;
pub mod script_reports;
mod source_check;
mod virtual_media;
mod warning;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fleet::Freshness;
use runtime::boot_token::BootTokens;
use runtime::clock::Clock;
use runtime::neighbour::{NeighbourCheck, Neighbours};
use tinwright::HardwareId;
use tinwright::netboot::v1::ScriptKind;

use self::custom::{ScriptOwner, ScriptReport};
pub use self::files::{BootFile, ScriptStatus};
use self::history::BootHistory;
use self::platform::gate_warning;
pub(crate) use self::render::environment_files;
use self::warning::Warning;
use crate::Mac;
use crate::allocation::Allocator;
use crate::decision::{BootTarget, Decision, Fact, MachineFacts, Policy, RETRY, decide};
use crate::ipxe;
use crate::machine_view::{Index, MachineView};
use crate::pool::Unknown;
use crate::site::Site;
use crate::timeline::{BootStep, Event, Timeline};

/// Hardware id in the tokens of machines without a record: no machine has it.
const NO_HARDWARE: [u8; 16] = [0; 16];
/// Pause of a machine in a boot loop, where the site delays those.
const BOOT_LOOP_HOLD: Duration = Duration::from_secs(60);
const BOOT_LOOP: &str = "more than 10 scripts in 10 minutes";

/// Decides and renders scripts for the machines of one link. Clones share the history and the timeline.
#[derive(Clone, Debug)]
pub struct BootScripts {
    /// The machines.
    pub index: Arc<Index>,
    tokens: Arc<BootTokens>,
    /// Settings of the link.
    pub site: Site,
    /// URL of our HTTP, without a slash at the end.
    base_url: String,
    log_server: Option<String>,
    /// Timeline of the machines' boots.
    pub timeline: Timeline,
    /// Allocator of pool addresses: machines are also found by their leases.
    pub allocator: Option<Arc<Allocator>>,
    /// Earlier boots of each machine.
    pub history: Arc<BootHistory>,
    /// The owners of addresses on our links; none where they are not checked.
    pub neighbours: Option<Arc<dyn Neighbours>>,
    /// Clock of requests.
    pub clock: Clock,
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
    /// The owner of the source on our link.
    pub neighbour: NeighbourCheck,
    /// True if nobody asked: the boot is taken to have been seen.
    pub is_simulated: bool,
}

impl ScriptRequest {
    /// A request for iPXE from `source`, whose owner was not looked up, that names `mac`, and no UUID.
    pub fn new(mac: Option<Mac>, source: IpAddr) -> Self {
        let format = ScriptFormat::Ipxe;
        let (uuid, leased_to, neighbour) = (None, None, NeighbourCheck::Unchecked);
        Self { mac, source, uuid, format, leased_to, neighbour, is_simulated: false }
    }
}

/// A request for a script while it is answered.
struct Query<'a> {
    request: &'a ScriptRequest,
    /// The time of the request.
    now: SystemTime,
    /// Warnings for the log.
    warnings: &'a mut Vec<Warning>,
}

/// Effects of a response that the server applies.
#[derive(Debug, Default)]
pub struct Effects {
    /// Step for the machine's timeline.
    event: Option<Event>,
    /// Machine that was given a script, and the script's kind.
    script: Option<(Arc<MachineView>, ScriptKind)>,
    /// Machine whose script reports that it starts what it fetched.
    started: Option<HardwareId>,
    /// Report to another service.
    report: Option<ScriptReport>,
    /// Warnings for the log.
    warnings: Vec<Warning>,
}

/// A rendered script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// Its kind.
    pub kind: ScriptKind,
    /// Its text.
    pub text: String,
}

/// A script that may be served: for a machine, or for one without a record.
type SelectedScript = (Option<Arc<MachineView>>, Fact, Script);

/// Result of a request for a script, an image, or a file of a boot.
pub type BootResult<T> = Result<T, BootRefusal>;

/// Reason for serving nothing. The name of its variant is the metric label.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum BootRefusal {
    /// There is nothing to boot for this machine now.
    #[error("nothing to boot: {0}")]
    Nothing(String),
    /// The client is not the machine that it is for.
    #[error("not for you: {0}")]
    NotYours(&'static str),
    /// The machine is in a boot that was not seen from its firmware on.
    #[error("not for this boot: neither its firmware's DHCP exchange nor its loader was seen")]
    Unseen,
    /// The client must repeat its request.
    #[error("not now: {why}")]
    Later {
        /// Pause before that.
        retry: Duration,
        /// Reason of the pause.
        why: String,
    },
    /// A stored value cannot stand in a script.
    #[error("no script can be made")]
    Broken(String),
}

impl BootRefusal {
    fn later(fact: Fact) -> Self {
        Self::Later { retry: RETRY, why: fact.to_string() }
    }
}

impl BootScripts {
    /// Creates scripts for the machines of `index`, on a link with the settings `site`.
    pub fn new(index: Arc<Index>, tokens: BootTokens, site: Site) -> Self {
        let (timeline, history, allocator, neighbours, clock) = Default::default();
        let (tokens, base_url) = (Arc::new(tokens), site.base_url());
        let log_server = site.log_server().map(|server| server.to_string());
        Self {
            index,
            tokens,
            site,
            base_url,
            log_server,
            timeline,
            allocator,
            history,
            neighbours,
            clock,
        }
    }

    /// Returns the scripts of another link with the settings `site`.
    pub fn for_link(&self, site: Site) -> Self {
        let log_server = site.log_server().map(|server| server.to_string());
        Self { base_url: site.base_url(), log_server, site, ..self.clone() }
    }

    /// Returns the interface that `source` is leased to.
    pub fn holder(&self, source: IpAddr, now: SystemTime) -> Option<Mac> {
        self.allocator.as_ref()?.leases.holder(source, now)
    }

    /// Returns the machine with the address `source`, by its record or by its lease.
    pub fn at(&self, source: IpAddr, now: SystemTime) -> Option<Arc<MachineView>> {
        self.index.at(source, || self.holder(source, now))
    }

    /// Decides what `machine` boots. A machine without a record also boots if the policy `subnet` of its subnet is to enrol or boot it.
    pub fn decision(
        &self,
        machine: Option<&MachineView>,
        feed: Freshness,
        subnet: Option<Unknown>,
    ) -> Decision {
        let in_subnet = match subnet {
            Some(Unknown::Enrol) => Some(Fact::Enrols),
            Some(Unknown::Generic) => Some(Fact::SubnetBooted),
            Some(Unknown::Ignore | Unknown::Report) | None => None,
        };
        let in_subnet = in_subnet.filter(|_| !self.site.policy.boot_unknown);
        let boot_unknown = self.site.policy.boot_unknown || in_subnet.is_some();
        let policy = Policy { boot_unknown, ..self.site.policy };
        let facts = machine.map(|machine| &machine.facts);
        let used = facts.is_some_and(|facts| facts.boot_once.is_some())
            && machine.is_some_and(|machine| self.history.is_used(machine));
        let without =
            used.then(|| Some(MachineFacts { boot_once: None, ..facts?.clone() })).flatten();
        let decision = decide(without.as_ref().or(facts), policy, feed);
        match (decision.fact, in_subnet) {
            (Fact::UnknownBooted, Some(fact)) => Decision { fact, ..decision },
            _ => decision,
        }
    }

    /// Responds to `request` and applies the effects.
    pub fn serve(&self, request: &ScriptRequest, now: SystemTime) -> BootResult<Script> {
        let (reply, effects) = self.respond(request, now);
        // A script is reported when it says that it was started, not when it is served.
        let _no_report = self.apply(effects, now);
        reply
    }

    /// Returns the response to a simulated `request`, which changes nothing and is not logged.
    pub fn simulate(&self, request: &ScriptRequest, now: SystemTime) -> BootResult<Script> {
        let request = ScriptRequest { is_simulated: true, ..request.clone() };
        self.respond(&request, now).0
    }

    /// Decides the response to `request`. Changes nothing and logs nothing.
    fn respond(&self, request: &ScriptRequest, now: SystemTime) -> (BootResult<Script>, Effects) {
        let mut effects = Effects::default();
        let (mac, source) = (request.mac, Some(request.source));
        let mut asked = Query { request, now, warnings: &mut effects.warnings };
        let reply = self.select(&mut asked).and_then(|(machine, fact, script)| {
            self.delay_boot_loop(machine.as_deref(), &mut asked)?;
            let step = BootStep::script(script.kind, fact);
            effects.event = match &machine {
                Some(machine) => Some(Event::of(machine, step, source, now)),
                None => self.event(mac, source, step, now),
            };
            effects.script = machine.map(|machine| (machine, script.kind));
            Ok(script)
        });
        if let Err(refusal) = &reply {
            effects.event = self.event(mac, source, BootStep::refused(refusal), now);
        }
        (reply, effects)
    }

    /// Applies the effects of a response. Returns the report that another service has to get.
    #[must_use]
    pub fn apply(&self, effects: Effects, now: SystemTime) -> Option<ScriptReport> {
        let Effects { event, script, started, report, warnings } = effects;
        warnings.iter().for_each(Warning::log);
        if let Some((machine, kind)) = script
            && kind != ScriptKind::AskUuid
        {
            let one_shot = machine.facts.boot_once.as_ref();
            if let Some(script) = one_shot.filter(|_| kind == ScriptKind::CustomOnce) {
                self.history.record_one_shot(&machine, script, now);
            }
            self.history.record_script(machine.id, now);
        }
        if let Some(machine) = started {
            self.history.end_loading(machine);
        }
        if let Some(event) = event {
            self.timeline.record(event);
        }
        // Of two requests that report the start of a script at once, one is passed on.
        report.filter(|report| match report {
            ScriptReport::OneShot { hardware, .. } => self.history.mark_started(*hardware),
            ScriptReport::Instance(_) => true,
        })
    }

    /// True if one more script at `now` makes a boot loop of the machine.
    pub fn is_boot_loop(&self, machine: &MachineView, now: SystemTime) -> bool {
        self.site.rate_limits && self.history.would_loop(machine.id, now)
    }

    /// Refuses a script to a machine in a boot loop, where the site delays those.
    fn delay_boot_loop(
        &self,
        machine: Option<&MachineView>,
        asked: &mut Query<'_>,
    ) -> BootResult<()> {
        let Some(machine) = machine.filter(|machine| self.is_boot_loop(machine, asked.now)) else {
            return Ok(());
        };
        let held = self.site.serving.hold_boot_loops;
        asked.warnings.push(Warning::BootLoop { hardware: machine.id, held });
        match held {
            true => Err(BootRefusal::Later { retry: BOOT_LOOP_HOLD, why: BOOT_LOOP.into() }),
            false => Ok(()),
        }
    }

    /// Finds the machine that a request is from, and renders its script. Leases are consulted only where no record owns the
    /// source address.
    fn select(&self, asked: &mut Query<'_>) -> BootResult<SelectedScript> {
        let (request, now) = (asked.request, asked.now);
        let (source, feed) = (request.source, self.index.feed());
        if feed == Freshness::NeverSynced {
            return Err(BootRefusal::later(Fact::FeedIncomplete));
        }
        let holder = || request.leased_to.or_else(|| self.holder(source, now));
        let machine = match request.mac {
            Some(mac) => self.index.by_mac(mac),
            None => self.index.at(source, holder),
        };
        let Some(machine) = machine else {
            let (fact, script) = self.select_unknown(asked, feed, holder())?;
            return Ok((None, fact, script));
        };
        let presented = (request.mac, request.uuid.as_deref(), source);
        let selected = self.select_for(&machine, asked, holder);
        selected
            .inspect_err(|refusal| {
                asked.warnings.extend(gate_warning(&machine, presented, refusal))
            })
            .map(|(fact, script)| (Some(machine), fact, script))
    }

    /// Renders the script of `machine`, if the request is from it. `holder` returns the interface
    /// that the source is leased to.
    fn select_for(
        &self,
        machine: &Arc<MachineView>,
        asked: &mut Query<'_>,
        holder: impl FnOnce() -> Option<Mac>,
    ) -> BootResult<(Fact, Script)> {
        let request = asked.request;
        let (source, feed) = (request.source, self.index.feed());
        let is_its_own = self.is_mac_only(request)
            || machine.has(source)
            || holder().is_some_and(|mac| machine.owns(mac));
        if !is_its_own {
            return Err(BootRefusal::NotYours("the address is not that machine's"));
        }
        if !self.is_mac_only(request) {
            self.check_owner(machine, request.neighbour)?;
        }
        let decision = self.decision(Some(machine), feed, None);
        let seen = self.check_evidence(machine, &decision, request);
        let unseen = Warning::UnseenBoot { hardware: machine.id, source };
        seen.inspect_err(|_| asked.warnings.push(unseen))?;
        let (fact, uuid) = (decision.fact, request.uuid.as_deref());
        let script = match self.gate_asks_uuid(machine, &decision, uuid, source)? {
            true => self.ask_uuid(machine.mac, request)?,
            false => self.render(Some(machine), decision, asked)?,
        };
        Ok((fact, script))
    }

    /// Renders the script of `decision`.
    fn render(
        &self,
        machine: Option<&MachineView>,
        decision: Decision,
        asked: &mut Query<'_>,
    ) -> BootResult<Script> {
        let Decision { boot, fact } = decision;
        let pxelinux = asked.request.format == ScriptFormat::Pxelinux;
        let (kind, text) = match (boot, machine) {
            (BootTarget::Later, _) => return Err(BootRefusal::later(fact)),
            (BootTarget::Worker, _) => (ScriptKind::Worker, self.worker(machine, asked, None)?),
            (BootTarget::Node, Some(machine)) => (ScriptKind::Node, self.node(machine, asked)?),
            (BootTarget::LocalDisk, _) => {
                let sanboot = machine.is_some_and(MachineView::wants_sanboot);
                let ipxe = ipxe::local_disk(sanboot);
                (ScriptKind::LocalDisk, if pxelinux { ipxe::PXELINUX_DISK } else { ipxe }.into())
            }
            (BootTarget::Generic | BootTarget::CustomScript(_) | BootTarget::Shell, _)
                if pxelinux =>
            {
                return Err(no_pxelinux());
            }
            (BootTarget::Generic, _) => (ScriptKind::Generic, self.worker(None, asked, None)?),
            (BootTarget::Shell, _) => (ScriptKind::Shell, ipxe::SHELL.into()),
            (BootTarget::CustomScript(script), Some(machine)) => {
                let owner = ScriptOwner::of(fact, machine.mac);
                let once = owner == ScriptOwner::OneShot;
                let kind = if once { ScriptKind::CustomOnce } else { ScriptKind::Custom };
                (kind, self.custom(machine, owner, script, asked.request.source, asked.now)?)
            }
            (BootTarget::CustomScript(_) | BootTarget::Node, None)
            | (BootTarget::Refused | BootTarget::Unknown, _) => {
                return Err(BootRefusal::Nothing(fact.to_string()));
            }
        };
        Ok(Script { kind, text })
    }

    /// True if the client is identified by its MAC only: machines hide behind another address.
    fn is_mac_only(&self, request: &ScriptRequest) -> bool {
        request.mac.is_some() && self.site.serving.is_mac_only(request.source)
    }
}

fn no_pxelinux() -> BootRefusal {
    BootRefusal::Nothing("the loader reads no script of this kind".into())
}

fn broken(error: impl std::fmt::Display) -> BootRefusal {
    BootRefusal::Broken(error.to_string())
}

#[cfg(test)]
pub(crate) mod tests;
