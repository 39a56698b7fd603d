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

use std::time::{Duration, SystemTime};

use dhcp::ClientClass;
use tinwright::netboot::v1::{self as pb, BootEventKind, ScriptKind};
use uuid::{NoContext, Uuid};

use super::{BootOwner, Event};

/// The number of events that are stored of a boot.
const MAX_EVENTS: usize = 64;
/// The time without events after which a DHCP request begins another boot.
const SILENCE_MAX: Duration = Duration::from_secs(5 * 60);
/// The shortest time between two boots. A client that repeats its request earlier did not receive the reply.
const BOOT_MIN: Duration = Duration::from_secs(1);
/// The number of characters that are stored of an event's detail: clients control some of it.
const MAX_TEXT_CHARS: usize = 200;

/// A boot in memory, with the state that decides if the next event is part of it.
#[derive(Clone, Debug)]
pub struct OpenBoot {
    /// The owner.
    pub owner: BootOwner,
    /// The record that is stored. Its id is empty until [`OpenBoot::assign_id`].
    pub record: pb::Boot,
    /// The time of the last event.
    pub last: SystemTime,
    /// The time of the first event.
    pub(super) began: SystemTime,
    /// The client classes that were sent an ACK.
    pub(super) acked: Vec<ClientClass>,
    /// True if a step failed.
    pub(super) failed: bool,
    /// True if it was never stored.
    pub is_new: bool,
    /// True if it has changed since it was stored: then it waits.
    pub(super) is_changed: bool,
    /// True if it can no longer grow.
    pub(super) has_ended: bool,
}

impl OpenBoot {
    /// Creates a boot that begins with `event`.
    pub fn new(event: Event) -> Self {
        let hardware_id = match event.owner {
            BootOwner::Machine(id) => id.to_string(),
            BootOwner::UnknownClient(_) => String::new(),
        };
        let create_time = Some(event.at.into());
        let mut boot = Self {
            owner: event.owner,
            record: pb::Boot { hardware_id, create_time, ..pb::Boot::default() },
            last: event.at,
            began: event.at,
            acked: Vec::new(),
            failed: false,
            is_new: true,
            is_changed: true,
            has_ended: false,
        };
        boot.add(event);
        boot
    }

    /// Assigns an id, if it has none.
    pub fn assign_id(&mut self) {
        if self.record.id.is_empty() {
            let since = self.began.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let time = uuid::Timestamp::from_unix(NoContext, since.as_secs(), since.subsec_nanos());
            self.record.id = format!("{}.{}", self.owner, Uuid::new_v7(time));
        }
    }

    /// True if `event` belongs to the machine's next boot.
    pub fn ends_before(&self, event: &Event) -> bool {
        let silent = event.at.duration_since(self.last).is_ok_and(|since| since >= SILENCE_MAX);
        match (event.step.kind, event.step.class) {
            (BootEventKind::DhcpDiscover, Some(class)) => {
                let loader = self.acked.iter().any(is_ipxe);
                silent
                    || self.has_script()
                    || self.failed
                    || (self.acked.contains(&class) && !self.is_new(event.at))
                    || (loader && !is_ipxe(&class))
            }
            (BootEventKind::ScriptServed, _) => self.has_script(),
            (BootEventKind::UnknownMachine | BootEventKind::Declined, _) => silent,
            _ => false,
        }
    }

    fn is_new(&self, now: SystemTime) -> bool {
        now.duration_since(self.began).is_ok_and(|since| since < BOOT_MIN)
    }

    fn has_script(&self) -> bool {
        self.record.script() != ScriptKind::Unspecified
    }

    /// Adds `event`.
    pub fn add(&mut self, event: Event) {
        let Event { owner: _, mac, step, source, at } = event;
        let detail: String = step.detail.chars().take(MAX_TEXT_CHARS).collect();
        let source = source.map_or_else(String::new, |source| source.to_string());
        self.last = at;
        if let Some(reason) = step.refusal.filter(|_| !self.has_script()) {
            self.record.fact = reason.chars().take(MAX_TEXT_CHARS).collect();
        }
        match (step.kind, step.class) {
            (BootEventKind::DhcpAck, Some(class)) if !self.acked.contains(&class) => {
                self.acked.push(class);
            }
            // The fact of a script is stored, if there is one; else the reason of the last refusal.
            (BootEventKind::GateRefused, _) if !self.has_script() => {
                self.record.fact.clone_from(&detail);
            }
            (BootEventKind::Failed, _) => self.failed = true,
            // Firmware may be iPXE itself: the next client that sends requests as iPXE is the loader.
            (BootEventKind::BinaryServed, _) => self.acked.retain(|class| !is_ipxe(class)),
            _ => {}
        }
        let record = &mut self.record;
        (record.mac, record.update_time) = (mac.to_string(), Some(at.into()));
        if let Some((kind, fact)) = step.script {
            (record.script, record.fact) = (kind.into(), fact.to_string());
        }
        let full = record.events.len() >= MAX_EVENTS;
        let new = pb::BootEvent { detail, source, count: 1, ..pb::BootEvent::default() };
        let new = pb::BootEvent { kind: step.kind.into(), time: Some(at.into()), ..new };
        let is_same = |old: &&mut pb::BootEvent| {
            (old.kind, &old.detail, &old.source) == (new.kind, &new.detail, &new.source)
        };
        match record.events.iter_mut().rev().take(2).find(is_same) {
            Some(old) => (old.count, old.last_time) = (old.count.saturating_add(1), new.time),
            None if full => record.events_left_out = record.events_left_out.saturating_add(1),
            None => record.events.push(new),
        }
    }
}

fn is_ipxe(class: &ClientClass) -> bool {
    matches!(class, ClientClass::Ipxe { .. })
}

#[cfg(test)]
mod tests;
