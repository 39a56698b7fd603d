//! The message that answers a request where we assign addresses (RFC 2131 section 4.3; docs/reference/dhcp.md, "Messages").

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use crate::config::{Link, PoolTerms, Reservation};
use crate::options::code;
use crate::packet::MessageType;
use crate::reply::DropReason;
use crate::request::Request;

/// The message to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyKind {
    Offer(Ipv4Net),
    Ack(Ipv4Net),
    /// An ACK without a lease: the client has an address by other means.
    Inform,
    /// A NAK with this text.
    Nak(&'static str),
}

/// A request and everything that its evaluation depends on.
pub(crate) struct Evaluation<'a> {
    pub(crate) request: &'a Request,
    pub(crate) reservation: &'a Reservation,
    pub(crate) link: &'a Link,
    /// The server identifier that the client knows us by.
    pub(crate) our_id: Ipv4Addr,
    /// An address of the client's network, if a relay names one.
    pub(crate) client_link: Option<Ipv4Addr>,
    /// True if the reserved address was declined and is not offered yet.
    pub(crate) is_withheld: bool,
}

impl Evaluation<'_> {
    /// Selects the message to send.
    pub(crate) fn evaluate(&self) -> Result<ReplyKind, DropReason> {
        if self.reservation.disabled {
            return Err(DropReason::LeftToOthers);
        }
        match self.request.kind() {
            Some(MessageType::Discover) => self.discover(),
            Some(MessageType::Request) => self.request(),
            Some(MessageType::Inform) => Ok(ReplyKind::Inform),
            Some(MessageType::Decline) => {
                Err(self.returned(code::REQUESTED_ADDRESS, DropReason::Declined))
            }
            Some(MessageType::Release) => Err(self.returned(code::PAD, DropReason::Released)),
            Some(
                MessageType::Offer | MessageType::Ack | MessageType::Nak | MessageType::Other(_),
            )
            | None => Err(DropReason::MessageType),
        }
    }

    fn discover(&self) -> Result<ReplyKind, DropReason> {
        if self.is_withheld {
            return Err(DropReason::Withheld);
        }
        let address = self.reservation.address.ok_or(DropReason::NoAddress)?;
        if self.is_here(address) {
            Ok(ReplyKind::Offer(address))
        } else {
            Err(DropReason::OtherNetwork)
        }
    }

    fn request(&self) -> Result<ReplyKind, DropReason> {
        let options = &self.request.packet.options;
        let (requested, ciaddr) =
            (options.address(code::REQUESTED_ADDRESS), self.request.client_address());
        let wanted = match options.get(code::SERVER_IDENTIFIER) {
            Some(id) if *id == self.our_id.octets() => requested.or(ciaddr), // selecting
            Some(_) => return Err(DropReason::OtherServer),
            None => ciaddr.or(requested), // renewing, rebinding, or back after a reboot
        };
        let wanted = wanted.ok_or(DropReason::Incomplete)?;
        // Without an address of ours to assign, another server's may be right.
        let Some(ours) = self.reservation.address else {
            return match self.reservation.pool {
                Some(PoolTerms { is_authoritative: true, .. }) => {
                    Ok(ReplyKind::Nak("its lease has ended"))
                }
                Some(_) | None => Err(DropReason::NoAddress),
            };
        };
        match (wanted == ours.addr(), self.is_here(ours)) {
            (true, true) => Ok(ReplyKind::Ack(ours)),
            (_, false) => Ok(ReplyKind::Nak("not on this network")),
            (false, true) => Ok(ReplyKind::Nak("address is not reserved for this client")),
        }
    }

    /// The reason for a DECLINE or RELEASE, neither of which is ever answered. The caller records our own addresses.
    fn returned(&self, field: u8, own: fn(Ipv4Addr) -> DropReason) -> DropReason {
        let packet = &self.request.packet;
        let named = packet.options.address(field).unwrap_or(packet.ciaddr);
        match self.reservation.address {
            Some(ours) if ours.addr() == named => own(named),
            _ => DropReason::NotOurs,
        }
    }

    /// True if a machine on the client's network can use `ours`.
    fn is_here(&self, ours: Ipv4Net) -> bool {
        match self.client_link {
            Some(link) => ours.contains(&link),
            None => {
                let networks = &self.link.networks;
                networks.is_empty() || networks.iter().any(|network| network.contains(&ours.addr()))
            }
        }
    }
}
