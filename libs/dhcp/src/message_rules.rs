//! The message that answers a request where we assign addresses (RFC 2131 section 4.3; docs/reference/dhcp.md, "Messages").

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use crate::config::{PoolTerms, Reservation};
use crate::drop_reason::DropReason;
use crate::inputs::ReplyInputs;
use crate::options::code;
use crate::packet::MessageType;
use crate::request::Request;

/// The message to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyKind {
    Offer,
    Ack,
    /// An ACK without a lease: the client has an address by other means.
    Inform,
    /// A NAK with this text.
    Nak(&'static str),
}

/// Selects the message that answers `request` of the client with the reservation `own`.
pub(crate) fn evaluate(
    request: &Request,
    own: &Reservation,
    inputs: &ReplyInputs<'_>,
) -> Result<ReplyKind, DropReason> {
    match request.kind() {
        _ if own.disabled => Err(DropReason::LeftToOthers),
        Some(MessageType::Discover) if inputs.is_withheld => Err(DropReason::Withheld),
        Some(MessageType::Discover) => match own.address {
            None => Err(DropReason::NoAddress),
            Some(address) if is_usable(address, request, inputs) => Ok(ReplyKind::Offer),
            Some(_) => Err(DropReason::OtherNetwork),
        },
        Some(MessageType::Request) => evaluate_request(request, own, inputs),
        Some(MessageType::Inform) => Ok(ReplyKind::Inform),
        Some(MessageType::Decline) => {
            Err(returned(request, own, code::REQUESTED_ADDRESS, DropReason::Declined))
        }
        Some(MessageType::Release) => Err(returned(request, own, code::PAD, DropReason::Released)),
        _ => Err(DropReason::MessageType),
    }
}

fn evaluate_request(
    request: &Request,
    own: &Reservation,
    inputs: &ReplyInputs<'_>,
) -> Result<ReplyKind, DropReason> {
    let (options, ciaddr) = (&request.packet.options, request.client_address());
    let requested = options.address(code::REQUESTED_ADDRESS);
    let wanted = match options.get(code::SERVER_IDENTIFIER) {
        Some(id) if *id == request.server_id(inputs.link).octets() => requested.or(ciaddr), // selecting
        Some(_) => return Err(DropReason::OtherServer),
        None => ciaddr.or(requested), // renewing, rebinding, or back after a reboot
    };
    let wanted = wanted.ok_or(DropReason::Incomplete)?;
    match own.address {
        Some(ours) if !is_usable(ours, request, inputs) => {
            Ok(ReplyKind::Nak("not on this network"))
        }
        Some(ours) if wanted == ours.addr() => Ok(ReplyKind::Ack),
        Some(_) => Ok(ReplyKind::Nak("address is not reserved for this client")),
        // Without an address of ours to assign, another server's may be right.
        None => match own.pool {
            Some(PoolTerms { is_authoritative: true, .. }) => {
                Ok(ReplyKind::Nak("its lease has ended"))
            }
            Some(_) | None => Err(DropReason::NoAddress),
        },
    }
}

/// Returns the reason for a DECLINE or RELEASE, neither of which is ever answered. The caller records our own addresses.
fn returned(
    request: &Request,
    own: &Reservation,
    field: u8,
    reason: fn(Ipv4Addr) -> DropReason,
) -> DropReason {
    let named = request.packet.options.address(field).unwrap_or(request.packet.ciaddr);
    match own.address {
        Some(ours) if ours.addr() == named => reason(named),
        _ => DropReason::NotOurs,
    }
}

/// True if a machine on the client's network can use `address`.
fn is_usable(address: Ipv4Net, request: &Request, inputs: &ReplyInputs<'_>) -> bool {
    let networks = &inputs.link.networks;
    match request.relayed(inputs.link).link.or(request.relay()) {
        Some(client_link) => address.contains(&client_link),
        None => networks.is_empty() || networks.iter().any(|it| it.contains(&address.addr())),
    }
}
