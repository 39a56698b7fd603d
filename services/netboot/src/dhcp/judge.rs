//! Which message answers which (RFC 2131, section 4.3; netboot specification, section 3.5).

use std::net::Ipv4Addr;
use std::time::Instant;

use super::answer::Silence;
use super::options::code;
use super::packet::{MessageType, Packet};
use super::site::{FromPool, Link, Network, Reservation};

/// The message to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Offer(Network),
    Ack(Network),
    /// For a client that has an address by other means: everything but a lease.
    Inform,
    Nak(&'static str),
}

/// What is known about a request before it is judged.
pub(super) struct Case<'a> {
    pub(super) request: &'a Packet,
    pub(super) machine: &'a Reservation,
    pub(super) link: &'a Link,
    /// What the client knows us by.
    pub(super) our_id: Ipv4Addr,
    /// An address on the client's network, if a relay tells one.
    pub(super) client_link: Option<Ipv4Addr>,
    pub(super) now: Instant,
}

impl Case<'_> {
    /// The message to send, or why none is.
    pub(super) fn judge(&self) -> Result<Verdict, Silence> {
        if self.machine.disabled {
            return Err(Silence::LeftToOthers);
        }
        match self.request.kind() {
            Some(MessageType::Discover) => self.discover(),
            Some(MessageType::Request) => self.request(),
            Some(MessageType::Inform) => Ok(Verdict::Inform),
            Some(MessageType::Decline) => {
                Err(self.given_back(code::REQUESTED_ADDRESS, Silence::Declined))
            }
            Some(MessageType::Release) => Err(self.given_back(code::PAD, Silence::Released)),
            Some(
                MessageType::Offer | MessageType::Ack | MessageType::Nak | MessageType::Other(_),
            )
            | None => Err(Silence::MessageType),
        }
    }

    fn discover(&self) -> Result<Verdict, Silence> {
        if self.machine.withheld(self.now).is_some() {
            return Err(Silence::Withheld);
        }
        let address = self.machine.address.ok_or(Silence::NoAddress)?;
        if self.is_here(address) { Ok(Verdict::Offer(address)) } else { Err(Silence::OtherNetwork) }
    }

    fn request(&self) -> Result<Verdict, Silence> {
        let options = &self.request.options;
        let (requested, ciaddr) = (options.address(code::REQUESTED_ADDRESS), self.request.ciaddr);
        let ciaddr = (!ciaddr.is_unspecified()).then_some(ciaddr);
        let wanted = match options.get(code::SERVER_IDENTIFIER) {
            Some(id) if *id == self.our_id.octets() => requested.or(ciaddr), // selecting
            Some(_) => return Err(Silence::OtherServer),
            None => ciaddr.or(requested), // renewing, rebinding, or back after a reboot
        };
        let wanted = wanted.ok_or(Silence::Incomplete)?;
        // Without an address of ours to give, somebody else's may be right.
        let Some(ours) = self.machine.address else {
            return match self.machine.pool {
                Some(FromPool { ours: true, .. }) => Ok(Verdict::Nak("its lease has ended")),
                Some(_) | None => Err(Silence::NoAddress),
            };
        };
        match (wanted == ours.address, self.is_here(ours)) {
            (true, true) => Ok(Verdict::Ack(ours)),
            (_, false) => Ok(Verdict::Nak("not on this network")),
            (false, true) => Ok(Verdict::Nak("address is not reserved for this client")),
        }
    }

    /// DECLINE and RELEASE are never answered; the caller records those that concern the reservation.
    fn given_back(&self, field: u8, record: fn(Ipv4Addr) -> Silence) -> Silence {
        let named = self.request.options.address(field).unwrap_or(self.request.ciaddr);
        match self.machine.address {
            Some(ours) if ours.address == named => record(named),
            _ => Silence::NotOurs,
        }
    }

    /// Whether a machine on the client's network can use `ours`.
    fn is_here(&self, ours: Network) -> bool {
        match self.client_link {
            Some(there) => ours.contains(there),
            None => {
                let networks = &self.link.networks;
                networks.is_empty() || networks.iter().any(|network| network.contains(ours.address))
            }
        }
    }
}
