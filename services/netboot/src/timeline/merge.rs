//! Which events are one boot.
//!
//! ```text
//! discover ─ack─▶ loader ─▶ discover ─ack─▶ script ─▶ kernel ─▶ initrd ─▶ started ┄▶ called home
//!    ▲ firmware               ▲ iPXE                                                   │
//!    └────── a class that asks again, a second script, or firmware after iPXE: ◀───────┘ the next boot
//! ```
//!
//! What is repeated in a row is one event with a count: clients ask again, and files are fetched in parts.

use std::time::{Duration, SystemTime};

use prost_types::Timestamp;
use tinwright::netboot::v1 as pb;
use uuid::{NoContext, Uuid};

use super::{Event, What, Who};
use crate::Mac;
use crate::dhcp::client::Class;

/// How many events a boot has.
const EVENTS: usize = 64;
/// A request for an address after such a silence begins another boot.
const SILENCE: Duration = Duration::from_secs(5 * 60);
/// No machine starts again so soon after a boot began: who asks again did not hear the answer.
const QUICKEST: Duration = Duration::from_secs(1);
/// The longest text kept of an event, in characters: peers make some of it.
const TEXT: usize = 200;

/// A boot, and what tells whether the next event is part of it.
#[derive(Clone, Debug)]
pub struct Growing {
    /// As it is kept.
    pub boot: pb::Boot,
    /// What ids of the machine's boots begin with.
    pub owner: String,
    /// When it grew last.
    pub last: SystemTime,
    /// The interface that showed itself last.
    mac: Mac,
    acked: Vec<Class>,
    began: SystemTime,
}

impl Growing {
    /// One of `owner` that begins with `event`, which it has yet to take.
    pub fn new(owner: String, event: &Event) -> Self {
        let (hardware_id, mac) = match &event.who {
            Who::Machine(id, mac) => (id.clone(), *mac),
            Who::Stranger(mac) => (String::new(), *mac),
        };
        let boot = pb::Boot {
            create_time: Some(event.at.into()),
            hardware_id,
            mac: mac.to_string(),
            ..pb::Boot::default()
        };
        Self { boot, owner, mac, acked: Vec::new(), began: event.at, last: event.at }
    }

    /// Gives it an id, if it has none: it needs one once it is kept, and not every boot is.
    pub fn name(&mut self) {
        if self.boot.id.is_empty() {
            let since = self.began.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let time = uuid::Timestamp::from_unix(NoContext, since.as_secs(), since.subsec_nanos());
            self.boot.id = format!("{}.{}", self.owner, Uuid::new_v7(time));
        }
    }

    /// Whether `event` belongs to the machine's next boot.
    pub fn ends_before(&self, event: &Event) -> bool {
        let silent = event.at.duration_since(self.last).is_ok_and(|since| since >= SILENCE);
        let has = |kind: pb::BootEventKind| self.boot.events.iter().any(|e| e.kind() == kind);
        match &event.what {
            What::Discover(class) => {
                let loader = self.acked.iter().any(|acked| matches!(acked, Class::Ipxe { .. }));
                let firmware = !matches!(class, Class::Ipxe { .. });
                silent
                    || !self.boot.script.is_empty()
                    || has(pb::BootEventKind::Failed)
                    || (self.acked.contains(class) && !self.is_new(event.at))
                    || (loader && firmware)
            }
            What::Script { .. } => !self.boot.script.is_empty(),
            What::Unknown(_) | What::Declined(_) => silent,
            What::Ack(..)
            | What::Binary(_)
            | What::Kernel(_)
            | What::Initrd(_)
            | What::Started
            | What::Failed(_)
            | What::Refused(_)
            | What::PhoneHome => false,
        }
    }

    fn is_new(&self, now: SystemTime) -> bool {
        now.duration_since(self.began).is_ok_and(|since| since < QUICKEST)
    }

    /// Grows by `event`.
    pub fn take(&mut self, event: Event) {
        let Event { who, what, source, at } = event;
        let (Who::Machine(_, mac) | Who::Stranger(mac)) = who;
        self.last = at;
        if self.mac != mac {
            self.mac = mac;
            self.boot.mac = mac.to_string();
        }
        self.boot.update_time = Some(at.into());
        match &what {
            What::Ack(class, _) if !self.acked.contains(class) => self.acked.push(*class),
            What::Script { kind, fact } => {
                (self.boot.script, self.boot.fact) = ((*kind).to_owned(), fact.clone());
            }
            What::Refused(why) if self.boot.script.is_empty() => {
                self.boot.fact = short(why.clone());
            }
            // Firmware may be iPXE itself: what asks as iPXE next is what it loaded.
            What::Binary(_) => self.acked.retain(|class| !matches!(class, Class::Ipxe { .. })),
            What::Discover(_)
            | What::Ack(..)
            | What::Kernel(_)
            | What::Initrd(_)
            | What::Started
            | What::Failed(_)
            | What::Refused(_)
            | What::PhoneHome
            | What::Declined(_)
            | What::Unknown(_) => {}
        }
        let source = source.map_or_else(String::new, |source| source.to_string());
        self.add(what.kind(), source, short(what.detail()), at.into());
    }

    fn add(&mut self, kind: pb::BootEventKind, source: String, detail: String, at: Timestamp) {
        if let Some(last) = self.boot.events.last_mut()
            && last.kind() == kind
            && (&last.source, &last.detail) == (&source, &detail)
        {
            (last.count, last.last_time) = (last.count.saturating_add(1), Some(at));
            return;
        }
        if self.boot.events.len() >= EVENTS {
            self.boot.events_left_out = self.boot.events_left_out.saturating_add(1);
            return;
        }
        let (kind, time) = (kind.into(), Some(at));
        self.boot.events.push(pb::BootEvent {
            kind,
            time,
            source,
            detail,
            count: 1,
            last_time: None,
        });
    }
}

fn short(text: String) -> String {
    if text.len() <= TEXT { text } else { text.chars().take(TEXT).collect() }
}

#[cfg(test)]
mod tests;
