//! Which iPXE is sent for a loader of ours before its script: one that is a network interface's firmware, once a boot.
//!
//! ```text
//!           DISCOVER            REQUEST              fetched, or DISCOVER again
//! nothing ───────────▶ Offered ─────────▶ Requested ───────────────────────────▶ Done ── REST ──▶ nothing
//! ```
//!
//! What the firmware is and what it has loaded call themselves alike, so an exchange is told from the next one by what the
//! client sends: its number, and that every boot begins with a DISCOVER. One exchange in [`REST`] gets a loader and every
//! other one the script, whatever the client does; one that repeats itself gets it [`ANSWERS`] times.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::packet::{MessageType, Packet};
use crate::Mac;

/// How long after a loader the next one may be given: longer than any loader needs to ask for its script.
pub const REST: Duration = Duration::from_secs(180);
/// How many answers of one exchange name a loader: packets get lost.
pub const ANSWERS: u8 = 12;
/// How many interfaces are remembered at a time. Over that there are scripts and no loaders.
const REMEMBERED: usize = 8192;
/// How often those are looked for that have had their rest.
const SWEEP: Duration = Duration::from_secs(1);

/// How far a machine is with its loader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Offered,
    Requested,
    Done,
}

#[derive(Clone, Copy, Debug)]
struct Given {
    stage: Stage,
    xid: u32,
    answers: u8,
    at: Instant,
}

impl Given {
    fn is_fresh(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.at) < REST
    }
}

/// One message of a client that boots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its interface.
    pub mac: Mac,
    /// The number of its exchange.
    pub xid: u32,
    /// What it says.
    pub kind: MessageType,
}

impl Message {
    /// What `request` is; none where it names no interface or says nothing.
    pub fn of(request: &Packet) -> Option<Self> {
        Some(Self { mac: request.mac()?, xid: request.xid, kind: request.kind()? })
    }
}

/// Who was given a loader of late.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    given: HashMap<Mac, Given>,
    swept: Option<Instant>,
}

impl Chain {
    /// Notes that firmware which is not iPXE is sent for its loader: what that loads is ours, and asks as iPXE.
    pub fn firmware(&mut self, message: Message, now: Instant) {
        let Some(stage) = stage(message.kind) else { return };
        if self.has_room(message.mac, now) {
            let given = Given { stage, xid: message.xid, answers: ANSWERS, at: now };
            self.given.insert(message.mac, given);
        }
    }

    /// Whether `message`, which iPXE sent, is answered with a loader. If it is, that is noted.
    pub fn admits(&mut self, message: Message, now: Instant) -> bool {
        let Some(stage) = stage(message.kind) else { return false };
        let Some(given) = self.given.get_mut(&message.mac).filter(|given| given.is_fresh(now))
        else {
            let room = self.has_room(message.mac, now);
            if room {
                let given = Given { stage, xid: message.xid, answers: 1, at: now };
                self.given.insert(message.mac, given);
            }
            return room;
        };
        let goes_on = match given.stage {
            Stage::Offered => true,
            Stage::Requested => stage == Stage::Requested,
            Stage::Done => false,
        };
        if goes_on && given.xid == message.xid && given.answers < ANSWERS {
            (given.stage, given.answers) = (stage, given.answers + 1);
            true
        } else {
            given.stage = Stage::Done;
            false
        }
    }

    /// Notes that the interface `mac` has a loader whole.
    pub fn fetched(&mut self, mac: Mac, now: Instant) {
        if self.has_room(mac, now) {
            let given = Given { stage: Stage::Done, xid: 0, answers: 0, at: now };
            self.given.insert(mac, given);
        }
    }

    /// How long ago the interface `mac` was sent for its loader, while it rests from that.
    pub fn since(&self, mac: Mac, now: Instant) -> Option<Duration> {
        let given = self.given.get(&mac).filter(|given| given.is_fresh(now))?;
        Some(now.saturating_duration_since(given.at))
    }

    fn has_room(&mut self, mac: Mac, now: Instant) -> bool {
        if self.given.len() < REMEMBERED || self.given.contains_key(&mac) {
            return true;
        }
        let quiet = self.swept.is_none_or(|at| now.saturating_duration_since(at) >= SWEEP);
        if quiet {
            self.swept = Some(now);
            self.given.retain(|_, given| given.is_fresh(now));
        }
        self.given.len() < REMEMBERED
    }
}

/// Where a message that is answered with a boot file leads.
fn stage(kind: MessageType) -> Option<Stage> {
    match kind {
        MessageType::Discover => Some(Stage::Offered),
        MessageType::Request => Some(Stage::Requested),
        MessageType::Offer
        | MessageType::Decline
        | MessageType::Ack
        | MessageType::Nak
        | MessageType::Release
        | MessageType::Inform
        | MessageType::Other(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use MessageType::{Discover, Request};
    use proptest::prelude::*;

    const MAC: Mac = Mac([0x52, 0x54, 0, 0, 0, 1]);

    fn message(kind: MessageType, xid: u32) -> Message {
        Message { mac: MAC, xid, kind }
    }

    fn admits(chain: &mut Chain, now: Instant, messages: &[(MessageType, u32)]) -> Vec<bool> {
        messages.iter().map(|(kind, xid)| chain.admits(message(*kind, *xid), now)).collect()
    }

    #[test]
    fn one_exchange_gets_the_loader_and_the_next_one_the_script() {
        let said = [(Discover, 1), (Discover, 1), (Request, 1), (Request, 1), (Discover, 2)];
        let (mut chain, now) = (Chain::default(), Instant::now());
        assert_eq!(admits(&mut chain, now, &said), [true, true, true, true, false]);
        assert_eq!(admits(&mut chain, now, &[(Request, 2), (Request, 1)]), [false, false]);
    }

    #[test]
    fn a_loader_that_never_changes_its_number_gets_the_script_all_the_same() {
        let (mut chain, now) = (Chain::default(), Instant::now());
        let said = [(Discover, 7), (Request, 7), (Discover, 7), (Request, 7)];
        assert_eq!(admits(&mut chain, now, &said), [true, true, false, false]);
    }

    #[test]
    fn what_has_its_loader_whole_gets_the_script() {
        let (mut chain, now) = (Chain::default(), Instant::now());
        assert_eq!(admits(&mut chain, now, &[(Discover, 1), (Request, 1)]), [true, true]);
        chain.fetched(MAC, now);
        assert_eq!(admits(&mut chain, now, &[(Request, 1), (Discover, 2)]), [false, false]);
    }

    #[test]
    fn what_other_firmware_has_loaded_gets_the_script() {
        let (mut chain, now) = (Chain::default(), Instant::now());
        for kind in [Discover, Request] {
            chain.firmware(message(kind, 1), now);
        }
        assert_eq!(admits(&mut chain, now, &[(Discover, 2), (Request, 2)]), [false, false]);
    }

    #[test]
    fn the_next_boot_gets_a_loader_again() {
        let (mut chain, now) = (Chain::default(), Instant::now());
        chain.fetched(MAC, now);
        assert_eq!(admits(&mut chain, now + REST, &[(Discover, 3)]), [true]);
    }

    #[test]
    fn forged_interfaces_do_not_fill_the_memory_and_get_scripts() {
        let (mut chain, now) = (Chain::default(), Instant::now());
        let forged = (0..20_000_u32).map(|number| {
            let [a, b, c, d] = number.to_be_bytes();
            Message { mac: Mac([2, 0, a, b, c, d]), xid: 1, kind: Discover }
        });
        assert_eq!(forged.filter(|message| chain.admits(*message, now)).count(), REMEMBERED);
        chain.fetched(MAC, now);
        assert_eq!(chain.given.len(), REMEMBERED);
        assert!(chain.admits(message(Discover, 1), now + REST));
        assert_eq!(chain.given.len(), 1);
    }

    /// What a client does next: how long it waits, and what it says.
    fn steps() -> impl Strategy<Value = Vec<(u64, MessageType, u32)>> {
        let kind = prop_oneof![Just(Discover), Just(Request)];
        prop::collection::vec((0..100_u64, kind, 0..3_u32), 1..200)
    }

    proptest! {
        #[test]
        fn there_are_never_two_loaders_in_a_row(steps in steps()) {
            let (mut chain, mut now) = (Chain::default(), Instant::now());
            // The exchange that was given a loader last, when that began, and whether it has been requested.
            let mut last: Option<(Instant, u32, bool)> = None;
            let mut answers = 0;
            for (wait, kind, xid) in steps {
                now += Duration::from_secs(wait);
                if !chain.admits(message(kind, xid), now) {
                    continue;
                }
                match &mut last {
                    Some((began, of, requested)) if now.saturating_duration_since(*began) < REST => {
                        prop_assert_eq!(*of, xid, "another exchange");
                        prop_assert!(!*requested || kind == Request, "another boot");
                        *requested |= kind == Request;
                        answers += 1;
                        prop_assert!(answers <= ANSWERS);
                    }
                    _ => (last, answers) = (Some((now, xid, kind == Request)), 1),
                }
            }
        }
    }
}
