//! Chainloading: which iPXE gets another loader before its script. It is the iPXE in a NIC's ROM, once per boot.
//!
//! ```text
//!           DISCOVER            REQUEST              fetched, or DISCOVER again
//! nothing ───────────▶ Offered ─────────▶ Requested ───────────────────────────▶ Done ── LOADER_INTERVAL ──▶ nothing
//! ```
//!
//! The ROM and the loader identify themselves alike. So exchanges are distinguished by their transaction number, and by the
//! DISCOVER that begins every boot. One exchange in [`LOADER_INTERVAL`] gets a loader and every other one the script,
//! whatever the client sends; repetitions of that exchange get it [`MAX_LOADER_REPLIES`] times.

use std::time::{Duration, Instant};

use crate::packet::MessageType;
use crate::request::Request;

/// The time after a loader until the next one: longer than any loader needs to request its script.
pub const LOADER_INTERVAL: Duration = Duration::from_secs(180);
/// The number of replies of one exchange that name a loader: packets get lost.
pub const MAX_LOADER_REPLIES: u8 = 12;

/// The progress of an exchange that got a loader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Offered,
    Requested,
    Done,
}

/// The last loader that an interface was sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoaderGrant {
    stage: Stage,
    xid: u32,
    replies: u8,
    at: Instant,
}

/// A message of a booting client: only DISCOVER and REQUEST are answered with a boot file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BootMessage {
    stage: Stage,
    xid: u32,
}

impl BootMessage {
    /// Reads `request`; none if it is not answered with a boot file.
    pub fn of(request: &Request) -> Option<Self> {
        Self::new(request.kind()?, request.packet.xid)
    }

    fn new(kind: MessageType, xid: u32) -> Option<Self> {
        let stage = match kind {
            MessageType::Discover => Stage::Offered,
            MessageType::Request => Stage::Requested,
            MessageType::Offer
            | MessageType::Decline
            | MessageType::Ack
            | MessageType::Nak
            | MessageType::Release
            | MessageType::Inform
            | MessageType::Other(_) => return None,
        };
        Some(Self { stage, xid })
    }
}

impl LoaderGrant {
    /// The grant after a message of firmware that is not iPXE: its loader will identify itself as iPXE.
    pub fn to_firmware(message: BootMessage, now: Instant) -> Self {
        let BootMessage { stage, xid } = message;
        Self { stage, xid, replies: MAX_LOADER_REPLIES, at: now }
    }

    /// The grant after a loader was fetched completely.
    pub fn fetched(now: Instant) -> Self {
        Self { stage: Stage::Done, xid: 0, replies: 0, at: now }
    }

    /// Decides whether iPXE's `message` is answered with a loader: returns the grant after it, and true if it is.
    pub fn to_ipxe(before: Option<Self>, message: BootMessage, now: Instant) -> (Self, bool) {
        let BootMessage { stage, xid } = message;
        let Some(grant) = before.filter(|grant| grant.is_current(now)) else {
            return (Self { stage, xid, replies: 1, at: now }, true);
        };
        let continues = match grant.stage {
            Stage::Offered => true,
            Stage::Requested => stage == Stage::Requested,
            Stage::Done => false,
        };
        if continues && grant.xid == xid && grant.replies < MAX_LOADER_REPLIES {
            (Self { stage, replies: grant.replies + 1, ..grant }, true)
        } else {
            (Self { stage: Stage::Done, ..grant }, false)
        }
    }

    /// True until [`LOADER_INTERVAL`] has passed.
    pub fn is_current(&self, now: Instant) -> bool {
        self.age(now) < LOADER_INTERVAL
    }

    /// The time since the loader was named first.
    pub fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.at)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use MessageType::{Discover, Request};
    use proptest::prelude::*;

    fn message(kind: MessageType, xid: u32) -> BootMessage {
        BootMessage::new(kind, xid).unwrap()
    }

    /// Sends `messages` of iPXE, and returns which of them got a loader.
    fn send(
        grant: &mut Option<LoaderGrant>,
        now: Instant,
        messages: &[(MessageType, u32)],
    ) -> Vec<bool> {
        let mut send = |kind, xid| {
            let (after, loader) = LoaderGrant::to_ipxe(*grant, message(kind, xid), now);
            *grant = Some(after);
            loader
        };
        messages.iter().map(|(kind, xid)| send(*kind, *xid)).collect()
    }

    #[test]
    fn one_exchange_gets_the_loader_and_the_next_one_the_script() {
        let messages = [(Discover, 1), (Discover, 1), (Request, 1), (Request, 1), (Discover, 2)];
        let (mut grant, now) = (None, Instant::now());
        assert_eq!(send(&mut grant, now, &messages), [true, true, true, true, false]);
        assert_eq!(send(&mut grant, now, &[(Request, 2), (Request, 1)]), [false, false]);
    }

    #[test]
    fn a_loader_that_never_changes_its_transaction_number_gets_the_script() {
        let messages = [(Discover, 7), (Request, 7), (Discover, 7), (Request, 7)];
        assert_eq!(send(&mut None, Instant::now(), &messages), [true, true, false, false]);
    }

    #[test]
    fn a_client_that_fetched_its_loader_gets_the_script() {
        let (mut grant, now) = (None, Instant::now());
        assert_eq!(send(&mut grant, now, &[(Discover, 1), (Request, 1)]), [true, true]);
        grant = Some(LoaderGrant::fetched(now));
        assert_eq!(send(&mut grant, now, &[(Request, 1), (Discover, 2)]), [false, false]);
    }

    #[test]
    fn the_loader_of_other_firmware_gets_the_script() {
        let now = Instant::now();
        let mut grant = Some(LoaderGrant::to_firmware(message(Request, 1), now));
        assert_eq!(send(&mut grant, now, &[(Discover, 2), (Request, 2)]), [false, false]);
    }

    #[test]
    fn the_next_boot_gets_a_loader_again() {
        let now = Instant::now();
        let mut grant = Some(LoaderGrant::fetched(now));
        assert_eq!(send(&mut grant, now + LOADER_INTERVAL, &[(Discover, 3)]), [true]);
    }

    /// Steps of a client: seconds of waiting, then a message.
    fn steps() -> impl Strategy<Value = Vec<(u64, MessageType, u32)>> {
        let kind = prop_oneof![Just(Discover), Just(Request)];
        prop::collection::vec((0..100_u64, kind, 0..3_u32), 1..200)
    }

    proptest! {
        #[test]
        fn there_are_never_two_loaders_in_a_row(steps in steps()) {
            let (mut grant, mut now) = (None, Instant::now());
            // The exchange that got the last loader, its beginning, and whether it has been requested.
            let mut last: Option<(Instant, u32, bool)> = None;
            let mut replies = 0;
            for (wait, kind, xid) in steps {
                now += Duration::from_secs(wait);
                if send(&mut grant, now, &[(kind, xid)]) == [false] {
                    continue;
                }
                match &mut last {
                    Some((began, of, requested))
                        if now.saturating_duration_since(*began) < LOADER_INTERVAL =>
                    {
                        prop_assert_eq!(*of, xid, "another exchange");
                        prop_assert!(!*requested || kind == Request, "another boot");
                        *requested |= kind == Request;
                        replies += 1;
                        prop_assert!(replies <= MAX_LOADER_REPLIES);
                    }
                    _ => (last, replies) = (Some((now, xid, kind == Request)), 1),
                }
            }
        }
    }
}
