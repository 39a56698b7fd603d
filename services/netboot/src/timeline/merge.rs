//! Which events are one boot.
//!
//! ```text
//! discover ─ack─▶ loader ─▶ discover ─ack─▶ script ─▶ kernel ─▶ initrd ─▶ started ┄▶ called home
//!    ▲ firmware               ▲ iPXE                                                   │
//!    └────── a class that asks again, a second script, or firmware after iPXE: ◀───────┘ the next boot
//! ```
//!
//! What is repeated, by itself or in turns with one other, is one event with a count: clients ask again and are answered
//! again, and files are fetched in parts.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use tinwright::netboot::v1 as pb;
use uuid::{NoContext, Uuid};

use super::{BootOwner, BootStep, Event};
use crate::Mac;
use crate::decision::Fact;
use dhcp::ClientClass;

/// How many events a boot has.
const EVENTS: usize = 64;
/// A request for an address after such a silence begins another boot.
const SILENCE: Duration = Duration::from_secs(5 * 60);
/// No machine starts again so soon after a boot began: who asks again did not hear the answer.
const QUICKEST: Duration = Duration::from_secs(1);
/// The longest text kept of an event, in characters: peers make some of it.
const TEXT: usize = 200;

/// A boot, and what tells whether the next event is part of it. It is written out when it is kept, and not every boot is.
#[derive(Clone, Debug)]
pub struct BootBuilder {
    /// Whose it is.
    pub owner: BootOwner,
    /// When it grew last.
    pub last: SystemTime,
    began: SystemTime,
    /// Empty until it is named.
    id: String,
    /// The interface that showed itself last.
    mac: Mac,
    acked: Vec<ClientClass>,
    /// What was served, and why.
    script: Option<(&'static str, Fact)>,
    /// Why nothing was, the last time.
    refused: Option<String>,
    failed: bool,
    events: Vec<CountedStep>,
    left_out: u32,
}

/// An event, and how often.
#[derive(Clone, Debug)]
struct CountedStep {
    what: BootStep,
    source: Option<IpAddr>,
    at: SystemTime,
    last: Option<SystemTime>,
    count: u32,
}

impl BootBuilder {
    /// One that begins with `event`, which it has yet to take.
    pub fn new(event: &Event) -> Self {
        Self {
            owner: event.who.owner(),
            last: event.at,
            began: event.at,
            id: String::new(),
            mac: event.who.mac(),
            acked: Vec::new(),
            script: None,
            refused: None,
            failed: false,
            events: Vec::new(),
            left_out: 0,
        }
    }

    /// Gives it an id, if it has none.
    pub fn name(&mut self) {
        if self.id.is_empty() {
            let since = self.began.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let time = uuid::Timestamp::from_unix(NoContext, since.as_secs(), since.subsec_nanos());
            self.id = format!("{}.{}", self.owner, Uuid::new_v7(time));
        }
    }

    /// As it is kept, but for its revision.
    pub fn boot(&self) -> pb::Boot {
        let (script, fact) = match (self.script, &self.refused) {
            (Some((kind, fact)), _) => (kind.to_owned(), fact.to_string()),
            (None, refused) => (String::new(), refused.clone().unwrap_or_default()),
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
            script,
            fact,
            events: self.events.iter().map(CountedStep::event).collect(),
            events_left_out: self.left_out,
        }
    }

    /// How many events it has.
    pub fn events(&self) -> usize {
        self.events.len()
    }

    /// Whether `event` belongs to the machine's next boot.
    pub fn ends_before(&self, event: &Event) -> bool {
        let silent = event.at.duration_since(self.last).is_ok_and(|since| since >= SILENCE);
        match &event.what {
            BootStep::Discover(class) => {
                let loader =
                    self.acked.iter().any(|acked| matches!(acked, ClientClass::Ipxe { .. }));
                let firmware = !matches!(class, ClientClass::Ipxe { .. });
                silent
                    || self.script.is_some()
                    || self.failed
                    || (self.acked.contains(class) && !self.is_new(event.at))
                    || (loader && firmware)
            }
            BootStep::Script { .. } => self.script.is_some(),
            BootStep::Unknown(_) | BootStep::Declined(_) => silent,
            BootStep::Ack(..)
            | BootStep::Binary(_)
            | BootStep::Kernel(_)
            | BootStep::Initrd(_)
            | BootStep::Started
            | BootStep::Failed(_)
            | BootStep::Refused(_)
            | BootStep::PhoneHome => false,
        }
    }

    fn is_new(&self, now: SystemTime) -> bool {
        now.duration_since(self.began).is_ok_and(|since| since < QUICKEST)
    }

    /// Grows by `event`.
    pub fn take(&mut self, event: Event) {
        let Event { who, mut what, source, at } = event;
        (self.last, self.mac) = (at, who.mac());
        if let Some(text) = what.text_mut() {
            shorten(text);
        }
        match &what {
            BootStep::Ack(class, _) if !self.acked.contains(class) => self.acked.push(*class),
            BootStep::Script { kind, fact } => self.script = Some((kind, *fact)),
            BootStep::Refused(why) => self.refused = Some(why.clone()),
            BootStep::Failed(_) => self.failed = true,
            // Firmware may be iPXE itself: what asks as iPXE next is what it loaded.
            BootStep::Binary(_) => {
                self.acked.retain(|class| !matches!(class, ClientClass::Ipxe { .. }))
            }
            BootStep::Discover(_)
            | BootStep::Ack(..)
            | BootStep::Kernel(_)
            | BootStep::Initrd(_)
            | BootStep::Started
            | BootStep::PhoneHome
            | BootStep::Declined(_)
            | BootStep::Unknown(_) => {}
        }
        let full = self.events.len() >= EVENTS;
        let mut latest = self.events.iter_mut().rev().take(2);
        match latest.find(|event| (&event.what, event.source) == (&what, source)) {
            Some(same) => (same.count, same.last) = (same.count.saturating_add(1), Some(at)),
            None if full => self.left_out = self.left_out.saturating_add(1),
            None => self.events.push(CountedStep { what, source, at, last: None, count: 1 }),
        }
    }
}

impl CountedStep {
    fn event(&self) -> pb::BootEvent {
        pb::BootEvent {
            kind: self.what.kind().into(),
            time: Some(self.at.into()),
            source: self.source.map_or_else(String::new, |source| source.to_string()),
            detail: self.what.detail(),
            count: self.count,
            last_time: self.last.map(Into::into),
        }
    }
}

fn shorten(text: &mut String) {
    if let Some((end, _)) = text.char_indices().nth(TEXT) {
        text.truncate(end);
    }
}

#[cfg(test)]
mod tests;
