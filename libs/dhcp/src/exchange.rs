//! The packets of one exchange are judged together: some firmware names its program and its
//! architecture in its DISCOVER only.
//!
//! ```text
//! DISCOVER ─▶ Exchange ─ completes ─▶ repeated DISCOVER, REQUEST: same transaction id
//!                                  └─▶ REQUEST to port 4011
//! ```
//!
//! A packet's own values count. A packet that names another program than the exchange is judged
//! alone: firmware builds all packets of an exchange from one state, so another program has
//! started, such as a loader with a fixed transaction id. A DISCOVER that lacks what iPXE always
//! sends is not of iPXE.

use crate::config::Link;
use crate::drop_reason::DropReason;
use crate::options::{Options, code};
use crate::packet::{MessageType, Packet};
use crate::request::{ListenPort, Request};

/// Options that describe the client's program. A later packet of the exchange may lack them.
const DESCRIBING: [u8; 7] = [
    code::PARAMETER_REQUEST_LIST,
    code::MAXIMUM_MESSAGE_SIZE,
    code::VENDOR_CLASS,
    code::USER_CLASS,
    code::CLIENT_ARCHITECTURE,
    code::CLIENT_UUID,
    code::IPXE,
];
/// Options that may be cut short: iPXE sends `PXEClient` in place of a longer vendor class, and
/// half an architecture is none.
const CUTTABLE: [u8; 3] = [code::VENDOR_CLASS, code::USER_CLASS, code::CLIENT_ARCHITECTURE];
/// Options that make a client iPXE, which sends them in every DISCOVER. The firmware of a NIC that
/// is reset meanwhile lacks them, and may derive the same transaction id from the MAC.
const IPXE_OPTIONS: [u8; 2] = [code::USER_CLASS, code::IPXE];
/// Maximum number of octets that are remembered of an exchange. Of one with more, none is.
const MAX_OCTETS: usize = 512;
/// Octets of a class that name its program, as in `PXEClient:Arch:00007`.
const PROGRAM_OCTETS: usize = b"PXEClient".len();

/// The exchange that a DISCOVER has begun. The caller forgets it after a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    xid: u32,
    /// The options in [`DESCRIBING`].
    options: Options,
    /// True once there was a REQUEST. A DISCOVER after it begins another exchange.
    is_requested: bool,
}

impl Exchange {
    /// Returns the exchange after the DISCOVER `request`, which was completed if it is a
    /// repetition.
    pub fn begun_by(request: &Request) -> Self {
        let mut options = Options::default();
        for code in DESCRIBING {
            options.set_some(code, request.packet.options.get(code));
        }
        let octets: usize = options.iter().map(|(_, value)| value.len()).sum();
        if octets > MAX_OCTETS {
            options = Options::default();
        }
        Self { xid: request.packet.xid, options, is_requested: false }
    }

    /// Records `request` of the same client, which was answered, or `dropped` for that reason. A
    /// REQUEST to another server ends the exchange as an answered one does.
    pub fn record(&mut self, request: &Request, dropped: Option<DropReason>) {
        let is_request = request.packet.kind() == Some(MessageType::Request);
        let ends = matches!(dropped, None | Some(DropReason::Proxy | DropReason::OtherServer));
        self.is_requested |= is_request && ends && request.packet.xid == self.xid;
    }

    /// Returns `request` with the describing options that it lacks and the exchange has, if it
    /// belongs to the exchange.
    pub fn complete(&self, request: Request, link: &Link) -> Request {
        if !self.has(&request) || self.is_contradicted_by(&request.packet) {
            return request;
        }
        let lacks = |(code, known): &(u8, &[u8])| {
            let own = request.packet.options.get(*code).unwrap_or_default();
            let is_cut = CUTTABLE.contains(code) && known.starts_with(own);
            own.is_empty() || (is_cut && own.len() < known.len())
        };
        let missing: Vec<_> = self.options.iter().filter(lacks).collect();
        if missing.is_empty() {
            return request;
        }
        let Request { mut packet, mac, received, .. } = request;
        missing.into_iter().for_each(|(code, known)| packet.options.set(code, known));
        Request::of(packet, mac, received, link)
    }

    /// True if `request` belongs to the exchange. At port 4011 the transaction id is another one
    /// (PXE 2.1 section 2.2.3).
    fn has(&self, request: &Request) -> bool {
        let is_same = request.packet.xid == self.xid;
        match (request.packet.kind(), request.received.port) {
            (Some(MessageType::Request), ListenPort::BootService) => true,
            (Some(MessageType::Request), ListenPort::Dhcp) => is_same,
            (Some(MessageType::Discover), ListenPort::Dhcp) => is_same && !self.is_requested,
            _ => false,
        }
    }

    /// True if `packet` is of another program: its classes name one, or it is a DISCOVER without
    /// the options of the iPXE that began the exchange.
    fn is_contradicted_by(&self, packet: &Packet) -> bool {
        let values = |code| {
            let known = self.options.get(code).unwrap_or_default();
            (known, packet.options.get(code).unwrap_or_default())
        };
        let names_another = |code| {
            let (known, own) = values(code);
            let compared = known.len().min(own.len()).min(PROGRAM_OCTETS);
            known.get(..compared) != own.get(..compared)
        };
        let lacks = |code| {
            let (known, own) = values(code);
            own.is_empty() && !known.is_empty()
        };
        let is_discover = packet.kind() == Some(MessageType::Discover);
        [code::VENDOR_CLASS, code::USER_CLASS].into_iter().any(names_another)
            || (is_discover && IPXE_OPTIONS.into_iter().any(lacks))
    }
}
