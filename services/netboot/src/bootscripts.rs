//! Boots: which script a machine gets, and what one boot may fetch.
//!
//! A script is only for the machine it is for: asked for from an address of that machine, which DHCP gave it. What it opens
//! is bound to machine and address by the token in its URLs, and ends by itself.
//!
//! - [`gate`]: what an outside platform allows; [`once`]: scripts for one boot, [`clearing`] them afterwards.
//! - [`custom`]: scripts that are not ours, whosever they are.
//! - [`loops`]: machines that boot again and again.
//! - [`files`]: what is fetched once a boot has begun.
//! - `writing`: the texts; `imaged`: machines that boot from virtual media; `noted`: what goes into timelines; `forgetting`
//!   those that are deleted.

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
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use runtime::boot_token::BootTokens;
use tinwright::instance::v1::BootGate;

use self::boot_loop::BootLoops;
use self::custom::ScriptOwner;
pub use self::files::BootFile;
use self::gate::{PresentedIdentity, Verdict};
use self::one_shot::OneShotScripts;
use self::render::UrlSettings;
use crate::Mac;
use crate::decision::{
    BootTarget, Decision, Fact, FeedState, InstanceState, MachineFacts, Policy, RETRY, decide,
};
use crate::index::{Index, Known};
use crate::ipxe;
use crate::lending::{Lending, Lent};
use crate::site::Site;
use crate::timeline::Timeline;

/// Whose files a machine without a record fetches: no machine has this id.
const NOBODY: [u8; 16] = [0; 16];

/// How long a machine that boots again and again waits, where the site wants that.
const HOLD: Duration = Duration::from_secs(60);
/// Why it waits.
const BOOT_LOOP: &str = "more than 10 scripts in 10 minutes";

/// Decides and writes scripts for those who ask on one link. Clones are of the same boots.
#[derive(Clone, Debug)]
pub struct BootScripts {
    index: Arc<Index>,
    tokens: Arc<BootTokens>,
    site: Site,
    said: Arc<UrlSettings>,
    timeline: Timeline,
    lending: Arc<OnceLock<Arc<Lending>>>,
    loops: Arc<BootLoops>,
    /// Scripts for one boot.
    pub once: Arc<OneShotScripts>,
    /// The SMBIOS UUID that each interface's firmware last put into DHCP: of known interfaces only.
    dhcp_uuids: Arc<Mutex<HashMap<Mac, [u8; 16]>>>,
}

/// Who asks for a script, and what they show.
#[derive(Clone, Debug)]
pub struct ScriptRequest {
    /// The interface that is named, if one is.
    pub mac: Option<Mac>,
    /// Where the request comes from.
    pub source: IpAddr,
    /// The SMBIOS UUID in the request, as it stands there.
    pub uuid: Option<String>,
}

impl ScriptRequest {
    /// Asked from `source`, naming `mac` or nothing, and showing nothing else.
    pub fn new(mac: Option<Mac>, source: IpAddr) -> Self {
        Self { mac, source, uuid: None }
    }
}

/// A script, and what kind it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// As a metric label.
    pub kind: &'static str,
    /// The text.
    pub text: String,
}

/// A script that is about to be served.
#[derive(Debug)]
struct Found {
    /// The machine it is for; none where one without a record gets one.
    known: Option<Arc<Known>>,
    /// What decided.
    fact: Fact,
    /// The script.
    script: Script,
}

/// Why there is nothing to serve.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BootRefusal {
    /// There is no such thing for this machine now.
    #[error("nothing to boot: {0}")]
    Nothing(String),
    /// Whoever asks is not who it is for.
    #[error("not for you: {0}")]
    NotYours(&'static str),
    /// Not now.
    #[error("not now: {why}")]
    Later {
        /// When to ask again.
        retry: Duration,
        /// What it waits for.
        why: String,
    },
    /// What is stored cannot be put into a script.
    #[error("no script can be made")]
    Broken(String),
}

impl BootRefusal {
    fn later(retry: Duration, why: Fact) -> Self {
        Self::Later { retry, why: why.to_string() }
    }
}

impl BootScripts {
    /// With what `index` knows, on `site`.
    pub fn new(index: Arc<Index>, tokens: BootTokens, site: Site) -> Self {
        let (timeline, lending) = Default::default();
        let (loops, once, dhcp_uuids) = Default::default();
        let (tokens, said) = (Arc::new(tokens), Arc::new(UrlSettings::of(&site)));
        Self { index, tokens, site, said, timeline, lending, loops, once, dhcp_uuids }
    }

    /// The same boots, for those who ask on another link.
    pub fn on(&self, site: Site) -> Self {
        Self { said: Arc::new(UrlSettings::of(&site)), site, ..self.clone() }
    }

    /// Telling `timeline` what machines fetch.
    pub fn telling(self, timeline: Timeline) -> Self {
        Self { timeline, ..self }
    }

    /// Lets machines be known by the addresses that `lending` lends them, too. Once.
    pub fn lend(&self, lending: Arc<Lending>) {
        let _told_before = self.lending.set(lending);
    }

    /// What is lent, where anything is.
    pub fn lending(&self) -> Option<&Lending> {
        self.lending.get().map(Arc::as_ref)
    }

    /// Whose `source` is, by its lease.
    pub fn holder(&self, source: IpAddr, now: SystemTime) -> Option<Mac> {
        self.lending()?.holder(source, now)
    }

    /// The machine whose address `source` is, by its record or by its lease.
    pub fn at(&self, source: IpAddr, now: SystemTime) -> Option<Arc<Known>> {
        self.index.at(source, || self.holder(source, now))
    }

    /// Where is noted what happens in boots.
    pub fn timeline(&self) -> &Timeline {
        &self.timeline
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
    pub fn decision(&self, known: Option<&Known>, feed: FeedState, now: SystemTime) -> Decision {
        self.decided(known, self.site.policy, feed, now)
    }

    /// The same where DHCP has lent it something: where machines without a record are, they boot.
    pub fn decision_lent(&self, known: Option<&Known>, lent: &Lent, now: SystemTime) -> Decision {
        let boot_unknown = self.site.policy.boot_unknown || *lent != Lent::Nothing;
        let policy = Policy { boot_unknown, ..self.site.policy };
        self.decided(known, policy, self.index.feed(), now)
    }

    fn decided(
        &self,
        known: Option<&Known>,
        policy: Policy,
        feed: FeedState,
        now: SystemTime,
    ) -> Decision {
        let machine = known.map(Known::machine);
        let used = machine.is_some_and(|machine| machine.boot_once.is_some())
            && known.is_some_and(|known| self.once.is_used(known));
        let without =
            used.then(|| Some(MachineFacts { boot_once: None, ..machine?.clone() })).flatten();
        decide(without.as_ref().or(machine), policy, feed, now)
    }

    /// Notes the SMBIOS UUID (option 97, as it is on the wire) that the firmware at `known` asked DHCP with.
    pub fn record_uuid(&self, known: &Known, uuid: [u8; 16]) {
        self.uuids().insert(known.mac, uuid);
    }

    fn uuids(&self) -> MutexGuard<'_, HashMap<Mac, [u8; 16]>> {
        self.dhcp_uuids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The script for whoever asks, or for the interface that is named, if that is who asks.
    pub fn script(&self, asked: &ScriptRequest, now: SystemTime) -> Result<Script, BootRefusal> {
        let outcome = self.hand_out(asked, now);
        self.record_script(asked, &outcome, now);
        outcome.map(|found| found.script)
    }

    fn hand_out(&self, asked: &ScriptRequest, now: SystemTime) -> Result<Found, BootRefusal> {
        let found = self.find(asked, || self.holder(asked.source, now), now)?;
        let Found { known: Some(known), script, .. } = &found else { return Ok(found) };
        if self.loops_again(known, now) {
            let hold = self.site.serving.hold_boot_loops;
            tracing::warn!(hardware.id = known.hardware.id, hold, "boot_loop: {BOOT_LOOP}");
        }
        self.held(&found, now)?;
        if script.kind == CUSTOM_ONCE
            && let Some(once) = &known.machine().boot_once
        {
            self.once.hand_out(known, once, now);
        }
        if script.kind != ASK_UUID {
            self.loops.note(known.id, now);
        }
        Ok(found)
    }

    /// The same as a question: nothing is noted. The source is taken for one that is lent to `holder`.
    pub fn script_for(
        &self,
        asked: &ScriptRequest,
        holder: Option<Mac>,
        now: SystemTime,
    ) -> Result<Script, BootRefusal> {
        let found = self.find(asked, || holder, now)?;
        self.held(&found, now)?;
        Ok(found.script)
    }

    /// Whether one more script at `now` makes a boot loop of the machine.
    pub fn loops_again(&self, known: &Known, now: SystemTime) -> bool {
        self.site.rate_limits && self.loops.would_loop(known.id, now)
    }

    /// Lets a machine that boots again and again wait, where the site wants that.
    fn held(&self, found: &Found, now: SystemTime) -> Result<(), BootRefusal> {
        let Some(known) = found.known.as_deref().filter(|_| self.site.serving.hold_boot_loops)
        else {
            return Ok(());
        };
        let held = self.loops_again(known, now);
        if held { Err(BootRefusal::Later { retry: HOLD, why: BOOT_LOOP.into() }) } else { Ok(()) }
    }

    /// For which machine somebody asks, and the script it gets. To whom the source is lent is looked up where the records
    /// do not say whose it is.
    fn find(
        &self,
        asked: &ScriptRequest,
        holder: impl Fn() -> Option<Mac>,
        now: SystemTime,
    ) -> Result<Found, BootRefusal> {
        let (source, feed) = (asked.source, self.index.feed());
        if feed == FeedState::Incomplete {
            return Err(BootRefusal::later(RETRY, Fact::FeedIncomplete));
        }
        let mac_only = asked.mac.is_some() && self.site.serving.is_mac_only(source);
        let known = match asked.mac {
            Some(mac) => self.index.by_mac(mac),
            None => self.index.at(source, &holder),
        };
        let unknown_boots = || {
            self.site.policy.boot_unknown
                || self.lending().is_some_and(|to| to.boots_unknown(asked.mac, source, holder()))
        };
        if known.is_none() && unknown_boots() {
            let fact = self.decision(None, feed, now).fact;
            return Ok(Found { known: None, fact, script: self.stranger(source, now)? });
        }
        if let Some(known) = &known
            && !mac_only
            && !(known.has(source) || holder().is_some_and(|mac| known.owns(mac)))
        {
            return Err(BootRefusal::NotYours("the address is not that machine's"));
        }
        let decision = self.decision(known.as_deref(), feed, now);
        let known = known.ok_or_else(|| BootRefusal::Nothing(decision.fact.to_string()))?;
        if decision.opens_a_boot() && self.gate(&known, asked, &decision)? == Verdict::AskUuid {
            let text = ipxe::with_uuid(&format!("{}/{}", self.said.base_url, known.mac.dashed()));
            let script = Script { kind: ASK_UUID, text: text.map_err(broken)? };
            return Ok(Found { known: Some(known), fact: decision.fact, script });
        }
        let fact = decision.fact;
        let script = self.write(&known, decision, source, mac_only, now)?;
        Ok(Found { known: Some(known), fact, script })
    }

    /// The script of `decision`.
    fn write(
        &self,
        known: &Known,
        decision: Decision,
        source: IpAddr,
        mac_only: bool,
        now: SystemTime,
    ) -> Result<Script, BootRefusal> {
        let Decision { boot, fact } = decision;
        let served = |kind, text| Ok(Script { kind, text });
        match boot {
            BootTarget::Worker => served("worker", self.worker(known, source, mac_only, now)?),
            BootTarget::CustomScript { script, .. } => {
                let owner = ScriptOwner::of(fact, known.mac);
                let kind = if owner == ScriptOwner::OneShot { CUSTOM_ONCE } else { "custom" };
                served(kind, self.custom(known, owner, script, source, now)?)
            }
            BootTarget::Rescue => served("rescue", self.rescue(known, source, now)?),
            BootTarget::Shell => served("shell", ipxe::SHELL.into()),
            BootTarget::LocalDisk => {
                served("local_disk", ipxe::local_disk(known.wants_sanboot()).into())
            }
            BootTarget::Later { retry } => Err(BootRefusal::later(retry, fact)),
            BootTarget::Generic | BootTarget::Refused | BootTarget::Unknown => {
                Err(BootRefusal::Nothing(fact.to_string()))
            }
        }
    }

    /// What an outside platform's gate says to a boot of `known`, where there is one (netboot specification, G5).
    fn gate(
        &self,
        known: &Known,
        asked: &ScriptRequest,
        decision: &Decision,
    ) -> Result<Verdict, BootRefusal> {
        let Some(gate) = gate_of(known, decision) else { return Ok(Verdict::Open) };
        let dhcp_uuid = self.uuids().get(&known.mac).copied();
        let (uuid, mac, source) = (asked.uuid.as_deref(), known.mac, asked.source);
        let shown = PresentedIdentity { uuid, dhcp_uuid, mac, source };
        match gate::judge(gate, &shown) {
            Verdict::Closed(rule) => {
                tracing::warn!(hardware.id = known.hardware.id, ?shown, rule, "boot gate closed");
                Err(BootRefusal::NotYours(rule))
            }
            passed @ (Verdict::Open | Verdict::AskUuid) => Ok(passed),
        }
    }
}

/// The kind of the script that asks for a machine's UUID.
const ASK_UUID: &str = "ask_uuid";
/// The kind of a script for one boot.
const CUSTOM_ONCE: &str = "custom_once";

/// The gate that `decision` has to pass. A machine that is being taken from its tenant is cleaned by our own worker, which the
/// platform has no word in: it closes its gate first.
fn gate_of<'a>(known: &'a Known, decision: &Decision) -> Option<&'a BootGate> {
    let leaving = matches!(
        known.machine().instance.as_ref()?.state,
        InstanceState::Deprovisioning | InstanceState::DeprovisionFailed
    );
    let cleaning = leaving && decision.boot == BootTarget::Worker;
    known.instance.as_ref()?.boot_gate.as_ref().filter(|_| !cleaning)
}

fn broken(error: impl std::fmt::Display) -> BootRefusal {
    BootRefusal::Broken(error.to_string())
}

#[cfg(test)]
pub(crate) mod tests;
