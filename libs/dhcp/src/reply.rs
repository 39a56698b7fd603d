//! The reply to a request and its destination.

use std::borrow::Cow;
use std::net::{Ipv4Addr, SocketAddrV4};

use crate::boot_file::boot_part;
use crate::config::{BootOffer, Link, Mode, Reservation};
use crate::encode::{TooLarge, max_payload};
use crate::message_rules::{Evaluation, ReplyKind};
use crate::options::{Options, code};
use crate::packet::{MessageType, Packet};
use crate::relay::Relayed;
use crate::reply_options;
use crate::request::{ClientClass, ListenPort, Request};

const BOOTREPLY: u8 = 2;
const BROADCAST_FLAG: u16 = 1 << 15;
const SERVER_PORT: u16 = 67;
const CLIENT_PORT: u16 = 68;

/// The destination of a reply. It is sent from the socket that received the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// 255.255.255.255:68 on the interface that received the request.
    Broadcast,
    /// One host.
    Host(SocketAddrV4),
}

impl From<Destination> for SocketAddrV4 {
    fn from(destination: Destination) -> Self {
        match destination {
            Destination::Broadcast => Self::new(Ipv4Addr::BROADCAST, CLIENT_PORT),
            Destination::Host(host) => host,
        }
    }
}

/// A reply to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The packet.
    pub packet: Packet,
    /// Its destination.
    pub to: Destination,
    /// The largest UDP payload that the client accepts, in octets.
    pub max_payload: usize,
    /// The client's architectures, if boot is refused only because the site has no loader for them.
    pub no_loader: Option<Vec<u16>>,
}

impl Reply {
    /// Replaces the lease time.
    pub fn set_lease_seconds(&mut self, seconds: u32) {
        reply_options::lease_times(&mut self.packet.options, seconds);
    }

    /// Encodes the datagram.
    pub fn encode(&self) -> Result<Vec<u8>, TooLarge> {
        self.packet.encode(self.max_payload)
    }

    /// The message type as text for logs and metric labels.
    pub fn kind_label(&self) -> &'static str {
        match self.packet.kind() {
            Some(MessageType::Offer) => "offer",
            Some(MessageType::Ack) => "ack",
            Some(MessageType::Nak) => "nak",
            Some(_) => "other",
            None => "none",
        }
    }
}

/// The reason why a request is not answered. The caller records declined and released addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[allow(missing_docs)] // the messages document the variants
pub enum DropReason {
    #[error("DHCP is off on this link")]
    Off,
    #[error("its relay is not one of ours")]
    Relay,
    #[error("its vendor is ignored")]
    Vendor,
    #[error("it has no Ethernet address")]
    Hardware,
    #[error("no record of this machine")]
    Unknown,
    #[error("its record leaves it to another server")]
    LeftToOthers,
    #[error("its record has it at another port")]
    OtherPort,
    #[error("its record has no address")]
    NoAddress,
    #[error("its address belongs to another network")]
    OtherNetwork,
    #[error("it has chosen another server")]
    OtherServer,
    #[error("it names no address")]
    Incomplete,
    #[error("its address was declined less than a minute ago")]
    Withheld,
    #[error("another host uses its address {0}")]
    Declined(Ipv4Addr),
    #[error("it released {0}")]
    Released(Ipv4Addr),
    #[error("it declined or released an address that is not its own")]
    NotOurs,
    #[error("servers do not answer this message type")]
    MessageType,
    #[error("another server gives it its address")]
    Proxy,
    #[error("it does not boot by PXE")]
    NotBooting,
    #[error("every address of the pool is taken")]
    Exhausted,
    #[error("too many machines without a record are enrolled at once")]
    TooMany,
    #[error("leases or records are still being read")]
    NotReady,
    #[error("its lease cannot be stored")]
    NotStored,
    #[error("too many leases are being stored")]
    Busy,
}

impl DropReason {
    /// The reason as a metric label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Relay => "relay",
            Self::Vendor => "vendor",
            Self::Hardware => "hardware",
            Self::Unknown => "unknown",
            Self::LeftToOthers => "left_to_others",
            Self::OtherPort => "other_port",
            Self::NoAddress => "no_address",
            Self::OtherNetwork => "other_network",
            Self::OtherServer => "other_server",
            Self::Incomplete => "incomplete",
            Self::Withheld => "withheld",
            Self::Declined(_) => "declined",
            Self::Released(_) => "released",
            Self::NotOurs => "not_ours",
            Self::MessageType => "message_type",
            Self::Proxy => "proxy",
            Self::NotBooting => "not_booting",
            Self::Exhausted => "pool_exhausted",
            Self::TooMany => "enrolment_rate",
            Self::NotReady => "not_ready",
            Self::NotStored => "lease_not_stored",
            Self::Busy => "busy",
        }
    }
}

/// Everything that a reply depends on besides the request.
#[derive(Clone, Copy, Debug)]
pub struct ReplyInputs<'a> {
    /// The link that received the request.
    pub link: &'a Link,
    /// The mode for this request; usually the link's.
    pub mode: Mode,
    /// The reservation of the client.
    pub reservation: Option<&'a Reservation>,
    /// The boot decision.
    pub offer: BootOffer,
    /// True if the reserved address was declined and is not offered yet.
    pub is_withheld: bool,
}

/// Builds the reply to `request`.
pub fn reply(request: &Request, inputs: ReplyInputs<'_>) -> Result<Reply, DropReason> {
    let ReplyInputs { link, mode, reservation, .. } = inputs;
    if !link.relays.is_empty() && request.relay().is_some_and(|it| !link.relays.contains(&it)) {
        return Err(DropReason::Relay);
    }
    let [a, b, c, ..] = request.mac;
    if link.ignored_vendors.contains(&[a, b, c]) {
        return Err(DropReason::Vendor);
    }
    let relayed = request.relayed(link);
    let pinned = reservation.and_then(|own| own.port.as_ref()).filter(|port| port.pinned);
    if pinned.is_some_and(|port| !port.matches(&relayed)) {
        return Err(DropReason::OtherPort);
    }
    let builder = Builder { request, inputs, relayed };
    let proxy = reservation.is_some_and(|own| own.proxy);
    match (request.received.port, mode) {
        (_, Mode::Disabled) => Err(DropReason::Off),
        (ListenPort::BootService, _) => builder.boot_service(),
        (ListenPort::Dhcp, Mode::Proxy | Mode::AutoProxy) => builder.proxy(),
        (ListenPort::Dhcp, Mode::Reservation) if proxy => builder.proxy(),
        (ListenPort::Dhcp, Mode::Reservation) => {
            builder.assign(reservation.ok_or(DropReason::Unknown)?)
        }
    }
}

struct Builder<'a> {
    request: &'a Request,
    inputs: ReplyInputs<'a>,
    relayed: Relayed<'a>,
}

impl Builder<'_> {
    /// Answers where we assign the address.
    fn assign(&self, reservation: &Reservation) -> Result<Reply, DropReason> {
        let Self { request, inputs: ReplyInputs { link, is_withheld, .. }, relayed } = *self;
        let our_id = relayed.server.unwrap_or(link.id);
        let client_link = relayed.link.or(request.relay());
        let evaluation =
            Evaluation { request, reservation, link, our_id, client_link, is_withheld };
        let reply_kind = evaluation.evaluate()?;
        let (kind, yiaddr) = match reply_kind {
            ReplyKind::Nak(why) => return Ok(self.nak(our_id, why)),
            ReplyKind::Offer(ours) => (MessageType::Offer, ours.addr()),
            ReplyKind::Ack(ours) => (MessageType::Ack, ours.addr()),
            ReplyKind::Inform => (MessageType::Ack, Ipv4Addr::UNSPECIFIED),
        };
        let mut reply = self.reply(kind, our_id);
        reply.packet.yiaddr = yiaddr;
        reply_options::network(&mut reply.packet.options, &request.packet, reservation, link);
        if reply_kind == ReplyKind::Inform {
            reply.to = self.inform_destination();
            return Ok(reply);
        }
        reply_options::lease(&mut reply.packet.options, request.class, reservation, link);
        let boot = boot_part(request, self.inputs);
        reply_options::boot(&mut reply.packet, &boot);
        reply_options::boot_extras(&mut reply.packet.options, &request.packet, &boot);
        reply.no_loader = boot.no_loader;
        Ok(reply)
    }

    /// Adds the boot file where another server assigns the address. Requests to that server are not ours to answer.
    fn proxy(&self) -> Result<Reply, DropReason> {
        if !self.request.class.boots() {
            return Err(DropReason::NotBooting);
        }
        match self.request.kind() {
            Some(MessageType::Discover) => self.boot_only(MessageType::Offer),
            _ => Err(DropReason::Proxy),
        }
    }

    /// Answers the second leg of PXE: firmware that has an address and no file yet (PXE 2.1 section 2.2.3).
    fn boot_service(&self) -> Result<Reply, DropReason> {
        if !matches!(self.request.class, ClientClass::Pxe | ClientClass::Ipxe { .. }) {
            return Err(DropReason::NotBooting);
        }
        match self.request.kind() {
            Some(MessageType::Request) => self.boot_only(MessageType::Ack),
            _ => Err(DropReason::MessageType),
        }
    }

    fn boot_only(&self, kind: MessageType) -> Result<Reply, DropReason> {
        let ReplyInputs { link, mode, reservation, .. } = self.inputs;
        match reservation {
            None if mode != Mode::AutoProxy => return Err(DropReason::Unknown),
            Some(reservation) if reservation.disabled => return Err(DropReason::LeftToOthers),
            None | Some(_) => {}
        }
        let boot = boot_part(self.request, self.inputs);
        let mut reply = self.reply(kind, link.id);
        reply_options::boot(&mut reply.packet, &boot);
        let server = boot
            .server_name
            .map(Cow::from)
            .or(boot.next_server.map(|server| server.to_string().into()))
            .unwrap_or_default();
        if let Some((head, [_, ..])) = reply.packet.sname.split_at_mut_checked(server.len()) {
            head.copy_from_slice(server.as_bytes());
        }
        reply.no_loader = boot.no_loader;
        Ok(reply)
    }

    /// Makes the client start again, since its address is wrong. It may not receive unicast with that address, and behind
    /// a relay it receives only what the relay broadcasts.
    fn nak(&self, our_id: Ipv4Addr, why: &str) -> Reply {
        let mut reply = self.reply(MessageType::Nak, our_id);
        reply.packet.ciaddr = Ipv4Addr::UNSPECIFIED;
        reply.packet.options.set(code::MESSAGE, why);
        reply.packet.options.remove(code::CLIENT_UUID);
        if self.request.relay().is_none() {
            reply.to = Destination::Broadcast;
        } else {
            reply.packet.flags |= BROADCAST_FLAG;
        }
        reply
    }

    /// A reply with its type, the server identifier and the echoed options only.
    fn reply(&self, kind: MessageType, our_id: Ipv4Addr) -> Reply {
        let request = &self.request.packet;
        let mut options = Options::with_capacity();
        options.set(code::MESSAGE_TYPE, [kind.into()]);
        options.set(code::SERVER_IDENTIFIER, our_id.octets());
        reply_options::echo(&mut options, request);
        let packet = Packet {
            op: BOOTREPLY,
            hops: 0,
            secs: 0,
            ciaddr: if kind == MessageType::Ack { request.ciaddr } else { Ipv4Addr::UNSPECIFIED },
            yiaddr: Ipv4Addr::UNSPECIFIED,
            siaddr: Ipv4Addr::UNSPECIFIED,
            sname: [0; 64],
            file: [0; 128],
            options,
            ..*request
        };
        Reply { packet, to: self.destination(), max_payload: max_payload(request), no_loader: None }
    }

    /// The destination of everything but a NAK and the answer to an INFORM. A client without an address is reached by
    /// broadcast whatever its flag says: it does not answer ARP yet (RFC 2131 section 4.1).
    fn destination(&self) -> Destination {
        let received = self.request.received;
        let unicast = |_: &Ipv4Addr| !received.broadcast;
        match (received.port, self.request.relay(), self.request.client_address().filter(unicast)) {
            (ListenPort::BootService, ..) => Destination::Host(received.source),
            (ListenPort::Dhcp, Some(relay), _) => {
                Destination::Host(SocketAddrV4::new(relay, SERVER_PORT))
            }
            (ListenPort::Dhcp, None, Some(renewing)) => {
                Destination::Host(SocketAddrV4::new(renewing, CLIENT_PORT))
            }
            (ListenPort::Dhcp, None, None) => Destination::Broadcast,
        }
    }

    /// An INFORM is answered to its client address, relay or not (RFC 2131 section 4.3.5); to the source port if it comes
    /// from that very address, since the sender need not be a DHCP client (RFC 3456 section 4.1).
    fn inform_destination(&self) -> Destination {
        let (from, source) = (self.request.received.source, *self.request.received.source.ip());
        match (self.request.client_address(), self.request.relay()) {
            (Some(client), None) if source == client => Destination::Host(from),
            (Some(client), _) => Destination::Host(SocketAddrV4::new(client, CLIENT_PORT)),
            (None, Some(relay)) => Destination::Host(SocketAddrV4::new(relay, SERVER_PORT)),
            (None, None) if source.is_unspecified() => Destination::Broadcast,
            (None, None) => Destination::Host(SocketAddrV4::new(source, CLIENT_PORT)),
        }
    }
}
