//! Chainloading: iPXE in a NIC's ROM gets the site's loader before its script, once per boot.
//!
//! ```text
//!           DISCOVER            REQUEST              loader fetched, or DISCOVER
//! nothing ───────────▶ Offered ─────────▶ Requested ───────────────────────────▶ Done ── LOADER_INTERVAL ──▶ nothing
//! ```
//!
//! The requests of the ROM and of the loader look the same. Exchanges are therefore distinguished by their transaction id,
//! and by the DISCOVER that begins each boot. Within [`LOADER_INTERVAL`], one exchange gets a loader and every other
//! exchange gets the script. Retransmissions in the first exchange get the loader too, in up to [`MAX_LOADER_REPLIES`]
//! replies.

use std::time::Duration;

use crate::packet::MessageType;
use crate::request::{ClientClass, Request};

/// Minimum time between two loaders for one interface. It is longer than a loader takes to request its script.
pub const LOADER_INTERVAL: Duration = Duration::from_secs(180);
/// Maximum number of replies with a loader in one exchange. It is more than one because packets get lost.
pub const MAX_LOADER_REPLIES: u8 = 12;

/// The progress of an exchange that got a loader. It never goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
enum Stage {
    Offered,
    Requested,
    Done,
}

/// The last exchange in which an interface got a loader. The caller deletes it [`LOADER_INTERVAL`] after it began.
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
    /// True if the grant is new, and [`LOADER_INTERVAL`] begins.
    pub is_new: bool,
    /// True if the request is answered with a loader although it is from iPXE.
    pub loader: bool,
}

impl LoaderGrant {
    /// The grant after a loader was fetched completely.
    pub const FETCHED: Self = Self { stage: Stage::Done, xid: 0, replies: 0 };

    /// Applies `request` to the grant `before`. None if the reply to `request` has no boot file.
    pub fn after(before: Option<Self>, request: &Request) -> Option<GrantChange> {
        let xid = request.packet.xid;
        let stage = match request.packet.kind() {
            Some(MessageType::Discover) => Stage::Offered,
            Some(MessageType::Request) => Stage::Requested,
            _ => return None,
        };
        let change = |grant, is_new, loader| Some(GrantChange { grant, is_new, loader });
        let grant = match (request.class, before) {
            (ClientClass::Ordinary, _) => return None,
            // The loader of this firmware will send requests as iPXE, and must get the script.
            (ClientClass::Pxe | ClientClass::Http, _) => {
                return change(Self { stage, xid, replies: MAX_LOADER_REPLIES }, true, false);
            }
            (ClientClass::Ipxe { .. }, None) => {
                return change(Self { stage, xid, replies: 1 }, true, true);
            }
            (ClientClass::Ipxe { .. }, Some(grant)) => grant,
        };
        if grant.stage <= stage && grant.xid == xid && grant.replies < MAX_LOADER_REPLIES {
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

    /// Applies `messages` of iPXE. Returns for each of them true if its reply has a loader.
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
