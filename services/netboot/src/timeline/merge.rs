//! Assigns events to boots.
//!
//! ```text
//! discover ─ack─▶ loader ─▶ discover ─ack─▶ script ─▶ kernel ─▶ initrd ─▶ started ┄▶ phone home
//!    ▲ firmware               ▲ iPXE                                                   │
//!    └────── a class that repeats its request, a second script, or firmware after iPXE: ◀┘ the next boot
//! ```
//!
//! A step that is repeated, by itself or in turns with one other, is one event with a count: clients repeat requests, and
//! fetch files in parts.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use dhcp::ClientClass;
use tinwright::netboot::v1::{self as pb, BootEventKind, ScriptKind};
use uuid::{NoContext, Uuid};

use super::{BootOwner, BootStep, Event};
use crate::Mac;
use crate::decision::Fact;

/// Events stored of a boot.
const MAX_EVENTS: usize = 64;
/// Silence after which a request for an address begins another boot.
const SILENCE_MAX: Duration = Duration::from_secs(5 * 60);
/// Shortest time between two boots. A client that repeats its request earlier did not receive the reply.
const BOOT_MIN: Duration = Duration::from_secs(1);
/// Characters stored of an event's text: peers control some of it.
const MAX_TEXT_CHARS: usize = 200;

/// A boot that may grow, with the state that decides if the next event is part of it. It is converted when it is stored;
/// not every boot is.
#[derive(Clone, Debug)]
pub struct BootBuilder {
    /// Its owner.
    pub owner: BootOwner,
    /// Time of the last event.
    pub last: SystemTime,
    began: SystemTime,
    /// Empty until it is assigned.
    id: String,
    /// Interface that was used last.
    mac: Mac,
    acked: Vec<ClientClass>,
    /// Script that was served, and the fact that decided.
    script: Option<(ScriptKind, Fact)>,
    /// Reason of the last refusal.
    refused: Option<String>,
    failed: bool,
    events: Vec<CountedStep>,
    left_out: u32,
}

/// A step with its count.
#[derive(Clone, Debug)]
struct CountedStep {
    step: BootStep,
    source: Option<IpAddr>,
    at: SystemTime,
    last: Option<SystemTime>,
    count: u32,
}

impl BootBuilder {
    /// A boot that begins with `event`, which is still to be added.
    pub fn new(event: &Event) -> Self {
        Self {
            owner: event.owner,
            last: event.at,
            began: event.at,
            id: String::new(),
            mac: event.mac,
            acked: Vec::new(),
            script: None,
            refused: None,
            failed: false,
            events: Vec::new(),
            left_out: 0,
        }
    }

    /// Assigns an id, if it has none.
    pub fn assign_id(&mut self) {
        if self.id.is_empty() {
            let since = self.began.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let time = uuid::Timestamp::from_unix(NoContext, since.as_secs(), since.subsec_nanos());
            self.id = format!("{}.{}", self.owner, Uuid::new_v7(time));
        }
    }

    /// Converts it to the record that is stored.
    pub fn to_proto(&self) -> pb::Boot {
        let (script, fact) = match (self.script, &self.refused) {
            (Some((kind, fact)), _) => (kind, fact.to_string()),
            (None, refused) => (ScriptKind::Unspecified, refused.clone().unwrap_or_default()),
        };
        let hardware_id = match self.owner {
            BootOwner::Machine(id) => id.to_string(),
            BootOwner::UnknownClient(_) => String::new(),
        };
        pb::Boot {
            id: self.id.clone(),
            revision: 0,
            create_time: Some(self.began.into()),
            update_time: Some(self.last.into()),
            hardware_id,
            mac: self.mac.to_string(),
            script: script.into(),
            fact,
            events: self.events.iter().map(CountedStep::to_proto).collect(),
            events_left_out: self.left_out,
        }
    }

    /// Number of its events.
    pub fn events(&self) -> usize {
        self.events.len()
    }

    /// True if `event` belongs to the machine's next boot.
    pub fn ends_before(&self, event: &Event) -> bool {
        let silent = event.at.duration_since(self.last).is_ok_and(|since| since >= SILENCE_MAX);
        match (event.step.kind, event.step.class) {
            (BootEventKind::DhcpDiscover, Some(class)) => {
                let loader = self.acked.iter().any(is_ipxe);
                silent
                    || self.script.is_some()
                    || self.failed
                    || (self.acked.contains(&class) && !self.is_new(event.at))
                    || (loader && !is_ipxe(&class))
            }
            (BootEventKind::ScriptServed, _) => self.script.is_some(),
            (BootEventKind::UnknownMachine | BootEventKind::Declined, _) => silent,
            _ => false,
        }
    }

    fn is_new(&self, now: SystemTime) -> bool {
        now.duration_since(self.began).is_ok_and(|since| since < BOOT_MIN)
    }

    /// Adds `event`.
    pub fn add(&mut self, event: Event) {
        let Event { owner: _, mac, mut step, source, at } = event;
        (self.last, self.mac) = (at, mac);
        if let Some((end, _)) = step.detail.char_indices().nth(MAX_TEXT_CHARS) {
            step.detail.to_mut().truncate(end);
        }
        self.script = step.script.or(self.script);
        match (step.kind, step.class) {
            (BootEventKind::DhcpAck, Some(class)) if !self.acked.contains(&class) => {
                self.acked.push(class);
            }
            (BootEventKind::GateRefused, _) => self.refused = Some(step.detail.to_string()),
            (BootEventKind::Failed, _) => self.failed = true,
            // Firmware may be iPXE itself: the next client that sends requests as iPXE is the loader.
            (BootEventKind::BinaryServed, _) => self.acked.retain(|class| !is_ipxe(class)),
            _ => {}
        }
        let full = self.events.len() >= MAX_EVENTS;
        let mut latest = self.events.iter_mut().rev().take(2);
        match latest.find(|event| (&event.step, event.source) == (&step, source)) {
            Some(same) => (same.count, same.last) = (same.count.saturating_add(1), Some(at)),
            None if full => self.left_out = self.left_out.saturating_add(1),
            None => self.events.push(CountedStep { step, source, at, last: None, count: 1 }),
        }
    }
}

impl CountedStep {
    fn to_proto(&self) -> pb::BootEvent {
        pb::BootEvent {
            kind: self.step.kind.into(),
            time: Some(self.at.into()),
            source: self.source.map_or_else(String::new, |source| source.to_string()),
            detail: self.step.detail.to_string(),
            count: self.count,
            last_time: self.last.map(Into::into),
        }
    }
}

fn is_ipxe(class: &ClientClass) -> bool {
    matches!(class, ClientClass::Ipxe { .. })
}

#[cfg(test)]
mod tests;
