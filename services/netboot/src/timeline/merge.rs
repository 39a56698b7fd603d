//! Which events are one boot.
//!
//! ```text
//! discover ─ack─▶ loader ─▶ discover ─ack─▶ script ─▶ kernel ─▶ initrd ─▶ started ┄▶ called home
//!    ▲ firmware               ▲ iPXE                                                   │
//!    └────── a class that asks again, a second script, or firmware after iPXE: ◀───────┘ the next boot
//! ```
//!
//! What is repeated in a row is one event with a count: clients ask again, and files are fetched in parts.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use prost_types::Timestamp;
use tinwright::netboot::v1 as pb;
use uuid::{NoContext, Uuid};

use super::{Event, What, Who};
use crate::dhcp::client::Class;

/// How many events a boot has.
const EVENTS: usize = 64;
/// A request for an address after such a silence begins another boot.
const SILENCE: Duration = Duration::from_secs(5 * 60);
/// No machine starts again so soon after a boot began: who asks again did not hear the answer.
const QUICKEST: Duration = Duration::from_secs(1);
/// How long a boot may still grow: an installed system calls home late.
const OPEN: Duration = Duration::from_secs(2 * 60 * 60);
/// How many boots are held at most, about 10 MB.
const HELD: usize = 8192;
/// The longest text kept of an event, in characters: peers make some of it.
const TEXT: usize = 200;

/// A boot that may still grow.
#[derive(Clone, Debug)]
pub struct Growing {
    /// As it is kept.
    pub boot: pb::Boot,
    /// What ids of the machine's boots begin with.
    pub owner: String,
    /// Whether it has grown since it was kept.
    pub dirty: bool,
    /// Whether it was never kept.
    pub fresh: bool,
    acked: Vec<Class>,
    began: SystemTime,
    last: SystemTime,
}

/// The boots that may still grow, one a machine; and those that cannot, but were not kept yet.
#[derive(Debug, Default)]
pub struct Boots {
    growing: HashMap<String, Growing>,
    ended: Vec<Growing>,
}

impl Boots {
    /// Takes `event` into the boot it belongs to. Answers how many events were given up to make room.
    pub fn take(&mut self, event: Event) -> usize {
        let boot = self.growing.get_mut(&*event.who.owner());
        if let Some(boot) = boot.filter(|boot| !boot.ends_before(&event)) {
            boot.take(event);
            return 0;
        }
        let owner = event.who.owner().into_owned();
        let ended = self.growing.remove(&owner).map_or(0, |old| self.end(old));
        let lost = ended + self.make_room();
        let mut boot = Growing::new(owner.clone(), &event);
        boot.take(event);
        self.growing.insert(owner, boot);
        lost
    }

    /// At most `most` boots that have grown since they were kept.
    pub fn dirty(&mut self, most: usize) -> Vec<&mut Growing> {
        let all = self.ended.iter_mut().chain(self.growing.values_mut());
        all.filter(|boot| boot.dirty).take(most).collect()
    }

    /// Forgets what is kept and can no longer grow at `now`.
    pub fn forget(&mut self, now: SystemTime) {
        self.ended.retain(|boot| boot.dirty);
        self.growing.retain(|_, boot| {
            boot.dirty || now.duration_since(boot.last).is_ok_and(|since| since < OPEN)
        });
    }

    fn end(&mut self, boot: Growing) -> usize {
        match boot.dirty {
            true if self.ended.len() >= HELD => boot.boot.events.len(),
            true => {
                self.ended.push(boot);
                0
            }
            false => 0,
        }
    }

    /// Where too many machines boot at once, those that were silent longest have their boots ended: an eighth of all, so that
    /// not every new boot has to look at all the others.
    fn make_room(&mut self) -> usize {
        if self.growing.len() < HELD {
            return 0;
        }
        let mut last: Vec<_> = self.growing.values().map(|boot| boot.last).collect();
        let (_, silent, _) = last.select_nth_unstable(HELD / 8);
        let silent = *silent;
        let ended: Vec<_> =
            self.growing.extract_if(|_, boot| boot.last <= silent).map(|(_, boot)| boot).collect();
        ended.into_iter().map(|boot| self.end(boot)).sum()
    }
}

impl Growing {
    fn new(owner: String, event: &Event) -> Self {
        let since = event.at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let time = uuid::Timestamp::from_unix(NoContext, since.as_secs(), since.subsec_nanos());
        let (hardware_id, mac) = match &event.who {
            Who::Machine(id, mac) => (id.clone(), mac),
            Who::Stranger(mac) => (String::new(), mac),
        };
        let boot = pb::Boot {
            id: format!("{owner}.{}", Uuid::new_v7(time)),
            create_time: Some(event.at.into()),
            hardware_id,
            mac: mac.to_string(),
            ..pb::Boot::default()
        };
        let (acked, began, last) = (Vec::new(), event.at, event.at);
        Self { boot, owner, dirty: true, fresh: true, acked, began, last }
    }

    /// Whether `event` belongs to the machine's next boot.
    fn ends_before(&self, event: &Event) -> bool {
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

    fn take(&mut self, event: Event) {
        let Event { who, what, source, at } = event;
        let (Who::Machine(_, mac) | Who::Stranger(mac)) = who;
        (self.dirty, self.last) = (true, at);
        self.boot.mac = mac.to_string();
        self.boot.update_time = Some(at.into());
        match &what {
            What::Ack(class, _) if !self.acked.contains(class) => self.acked.push(*class),
            What::Script { kind, fact } => {
                (self.boot.script, self.boot.fact) = ((*kind).to_owned(), fact.clone());
            }
            What::Refused(why) if self.boot.script.is_empty() => self.boot.fact = short(why),
            What::Discover(_)
            | What::Ack(..)
            | What::Binary(_)
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
        self.add(what.kind(), source, short(&what.detail()), at.into());
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

fn short(text: &str) -> String {
    if text.len() <= TEXT {
        return text.to_owned();
    }
    text.chars().take(TEXT).collect()
}

#[cfg(test)]
mod tests;
