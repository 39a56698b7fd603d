//! Chainloading: iPXE in a NIC's ROM gets another loader before its script, once per boot.
//!
//! ```text
//!           DISCOVER            REQUEST              fetched, or DISCOVER again
//! nothing ───────────▶ Offered ─────────▶ Requested ───────────────────────────▶ Done ── LOADER_INTERVAL ──▶ nothing
//! ```
//!
//! The ROM and the loader identify themselves alike. So exchanges are distinguished by their transaction number, and by the
//! DISCOVER that begins every boot. One exchange in [`LOADER_INTERVAL`] gets a loader and every other one the script,
//! whatever the client sends; repetitions of that exchange get it [`MAX_LOADER_REPLIES`] times.

use std::time::Duration;

use crate::packet::MessageType;
use crate::request::{ClientClass, Request};

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

/// The last loader that an interface was sent to. The caller forgets it [`LOADER_INTERVAL`] after it was new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoaderGrant {
    stage: Stage,
    xid: u32,
    replies: u8,
}

/// The effect of a request on its interface's grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantChange {
    /// The grant after the request.
    pub grant: LoaderGrant,
    /// True if [`LOADER_INTERVAL`] begins.
    pub is_new: bool,
    /// True if the request is answered with a loader although it is from iPXE.
    pub loader: bool,
}

impl LoaderGrant {
    /// The grant after a loader was fetched completely.
    pub const FETCHED: Self = Self { stage: Stage::Done, xid: 0, replies: 0 };

    /// Returns the change of the grant `before` by `request`; none if the request is not answered with a boot file.
    pub fn after(before: Option<Self>, request: &Request) -> Option<GrantChange> {
        let xid = request.packet.xid;
        let stage = match request.kind() {
            Some(MessageType::Discover) => Stage::Offered,
            Some(MessageType::Request) => Stage::Requested,
            _ => return None,
        };
        let change = |grant, is_new, loader| Some(GrantChange { grant, is_new, loader });
        let grant = match (request.class, before) {
            (ClientClass::Ordinary, _) => return None,
            // Its loader will identify itself as iPXE.
            (ClientClass::Pxe | ClientClass::Http, _) => {
                return change(Self { stage, xid, replies: MAX_LOADER_REPLIES }, true, false);
            }
            (ClientClass::Ipxe { .. }, None) => {
                return change(Self { stage, xid, replies: 1 }, true, true);
            }
            (ClientClass::Ipxe { .. }, Some(grant)) => grant,
        };
        let continues = match grant.stage {
            Stage::Offered => true,
            Stage::Requested => stage == Stage::Requested,
            Stage::Done => false,
        };
        if continues && grant.xid == xid && grant.replies < MAX_LOADER_REPLIES {
            change(Self { stage, replies: grant.replies + 1, ..grant }, false, true)
        } else {
            change(Self { stage: Stage::Done, ..grant }, false, false)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::options::code;
    use crate::{Link, ListenPort, Packet, Received};
    use MessageType::{Discover, Request as Select};

    fn message(kind: MessageType, xid: u32, class: &str) -> Request {
        let mut packet = Packet { xid, ..Packet::request(kind, [2, 0, 0, 0, 0, 1]) };
        packet.options.set(code::VENDOR_CLASS, "PXEClient");
        packet.options.set(code::USER_CLASS, class);
        let source = "0.0.0.0:68".parse().unwrap();
        let received = Received { source, broadcast: true, port: ListenPort::Dhcp };
        Request::new(packet, received, &Link::new([192, 0, 2, 1].into(), "")).unwrap()
    }

    /// Sends `messages` of iPXE, and returns which of them got a loader.
    fn send(grant: &mut Option<LoaderGrant>, messages: &[(MessageType, u32)]) -> Vec<bool> {
        let mut send = |kind, xid| {
            let change = LoaderGrant::after(*grant, &message(kind, xid, "iPXE")).unwrap();
            *grant = Some(change.grant);
            change.loader
        };
        messages.iter().map(|(kind, xid)| send(*kind, *xid)).collect()
    }

    #[test]
    fn one_exchange_gets_the_loader_and_the_next_one_the_script() {
        let messages = [(Discover, 1), (Discover, 1), (Select, 1), (Select, 1), (Discover, 2)];
        let mut grant = None;
        assert_eq!(send(&mut grant, &messages), [true, true, true, true, false]);
        assert_eq!(send(&mut grant, &[(Select, 2), (Select, 1)]), [false, false]);
    }

    #[test]
    fn a_loader_that_never_changes_its_transaction_number_gets_the_script() {
        let messages = [(Discover, 7), (Select, 7), (Discover, 7), (Select, 7)];
        assert_eq!(send(&mut None, &messages), [true, true, false, false]);
    }

    #[test]
    fn a_client_that_fetched_its_loader_gets_the_script() {
        let mut grant = None;
        assert_eq!(send(&mut grant, &[(Discover, 1), (Select, 1)]), [true, true]);
        grant = Some(LoaderGrant::FETCHED);
        assert_eq!(send(&mut grant, &[(Select, 1), (Discover, 2)]), [false, false]);
    }

    #[test]
    fn the_loader_of_other_firmware_gets_the_script() {
        let change = LoaderGrant::after(None, &message(Select, 1, "")).unwrap();
        assert!(change.is_new && !change.loader);
        let mut grant = Some(change.grant);
        assert_eq!(send(&mut grant, &[(Discover, 2), (Select, 2)]), [false, false]);
    }

    #[test]
    fn other_messages_do_not_matter() {
        let release = message(MessageType::Release, 1, "iPXE");
        assert_eq!(LoaderGrant::after(None, &release), None);
    }
}
