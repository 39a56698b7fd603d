//! The reply to a request and its destination (docs/reference/dhcp.md, "Messages").

use std::borrow::Cow;
use std::net::{Ipv4Addr, SocketAddrV4};

use ipnet::Ipv4Net;

use crate::boot_file;
use crate::boot_reply::BootReply;
use crate::config::{Mode, PoolTerms, ReplyInputs, Reservation};
use crate::drop_reason::DropReason;
use crate::encode::max_payload;
use crate::options::{Options, code};
use crate::packet::{MessageType, Packet};
use crate::reply_options;
use crate::request::{ClientClass, ListenPort, Request};

const BOOTREPLY: u8 = 2;
const BROADCAST_FLAG: u16 = 1 << 15;
const SERVER_PORT: u16 = 67;
const CLIENT_PORT: u16 = 68;
/// Every client on the link.
const BROADCAST: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::BROADCAST, CLIENT_PORT);

/// A reply to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The packet.
    pub packet: Packet,
    /// The encoded packet.
    pub datagram: Vec<u8>,
    /// Its destination. It is sent by the interface and from the socket that received the request.
    pub to: SocketAddrV4,
    /// The largest UDP payload that the client accepts, in octets.
    pub max_payload: usize,
    /// The boot part of the packet.
    pub boot: BootReply,
}

impl Reply {
    /// Returns the reply with another lease time.
    pub fn with_lease_seconds(mut self, seconds: u32) -> Result<Self, DropReason> {
        reply_options::lease_times(&mut self.packet.options, seconds);
        self.encoded()
    }

    fn encoded(self) -> Result<Self, DropReason> {
        let datagram = self.packet.encode(self.max_payload).ok_or(DropReason::TooLarge)?;
        Ok(Self { datagram, ..self })
    }

    /// Returns the message type as text for logs and metric labels.
    pub fn kind_label(&self) -> &'static str {
        self.packet.kind().map_or("none", Into::into)
    }

    /// Returns the boot file of a client that is not refused, or what it gets in its place, as text
    /// for timelines.
    pub fn boot_file_label(&self) -> Cow<'static, str> {
        match self.packet.options.get(code::BOOT_FILE_NAME) {
            Some(file) => ["file ", &String::from_utf8_lossy(file)].concat().into(),
            None if self.boot.is_offered() => "boot menu".into(),
            None => "no file".into(),
        }
    }
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
    if request.is_infiniband() && mode != Mode::Disabled {
        return Err(DropReason::Infiniband);
    }
    let pinned = reservation.and_then(|own| own.port.as_ref()).filter(|port| port.pinned);
    if pinned.is_some_and(|port| !port.matches(&request.relayed(link))) {
        return Err(DropReason::OtherPort);
    }
    let builder = Builder { request, inputs };
    let proxy = reservation.is_some_and(|own| own.proxy);
    let reply = match (request.received.port, mode) {
        (_, Mode::Disabled) => Err(DropReason::Off),
        (ListenPort::BootService, _) => builder.boot_service(),
        (ListenPort::Dhcp, Mode::Proxy | Mode::AutoProxy) => builder.proxy(),
        (ListenPort::Dhcp, Mode::Reservation) if proxy => builder.proxy(),
        (ListenPort::Dhcp, Mode::Reservation) => {
            builder.assign(reservation.ok_or(DropReason::Unknown)?)
        }
    };
    reply?.encoded()
}

/// The message to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplyKind {
    Offer,
    Ack,
    /// An ACK without a lease: the client has an address by other means.
    Inform,
    /// A NAK with this text.
    Nak(&'static str),
}

struct Builder<'a> {
    request: &'a Request,
    inputs: ReplyInputs<'a>,
}

impl Builder<'_> {
    /// Builds the reply of a server that assigns the address.
    fn assign(&self, own: &Reservation) -> Result<Reply, DropReason> {
        let Self { request, inputs: ReplyInputs { link, .. } } = *self;
        let message = self.evaluate(own)?;
        let kind = match message {
            ReplyKind::Nak(why) => return Ok(self.nak(why)),
            ReplyKind::Offer => MessageType::Offer,
            ReplyKind::Ack | ReplyKind::Inform => MessageType::Ack,
        };
        let mut reply = self.reply(kind, request.server_id(link));
        reply_options::network(&mut reply.packet.options, &request.packet, own, link);
        if message == ReplyKind::Inform {
            reply.to = self.inform_destination();
            return Ok(reply);
        }
        reply.packet.yiaddr = own.address.map_or(Ipv4Addr::UNSPECIFIED, |address| address.addr());
        reply_options::lease(&mut reply.packet.options, request.class, own, link);
        reply.boot = boot_file::set(&mut reply.packet, request, &self.inputs);
        reply_options::boot_extras(&mut reply.packet, request);
        Ok(reply)
    }

    /// Selects the message for the client with the reservation `own`, where we assign addresses (RFC 2131 section 4.3).
    fn evaluate(&self, own: &Reservation) -> Result<ReplyKind, DropReason> {
        let requested = code::REQUESTED_ADDRESS;
        match self.request.packet.kind() {
            _ if own.disabled => Err(DropReason::LeftToOthers),
            Some(MessageType::Discover) if self.inputs.is_withheld => Err(DropReason::Withheld),
            Some(MessageType::Discover) => match own.address {
                None => Err(DropReason::NoAddress),
                Some(address) if self.is_usable(address) => Ok(ReplyKind::Offer),
                Some(_) => Err(DropReason::OtherNetwork),
            },
            Some(MessageType::Request) => self.evaluate_request(own),
            Some(MessageType::Inform) => Ok(ReplyKind::Inform),
            Some(MessageType::Decline) => Err(self.returned(own, requested, DropReason::Declined)),
            Some(MessageType::Release) => Err(self.returned(own, code::PAD, DropReason::Released)),
            _ => Err(DropReason::MessageType),
        }
    }

    fn evaluate_request(&self, own: &Reservation) -> Result<ReplyKind, DropReason> {
        let (request, link) = (self.request, self.inputs.link);
        let (options, ciaddr) = (&request.packet.options, request.client_address());
        let requested = options.address(code::REQUESTED_ADDRESS);
        let wanted = match options.get(code::SERVER_IDENTIFIER) {
            Some(id) if *id == request.server_id(link).octets() => requested.or(ciaddr), // selecting
            Some(_) => return Err(DropReason::OtherServer),
            None => ciaddr.or(requested), // renewing, rebinding, or back after a reboot
        };
        let wanted = wanted.ok_or(DropReason::Incomplete)?;
        match (own.address, own.pool) {
            (Some(ours), _) if !self.is_usable(ours) => Ok(ReplyKind::Nak("not on this network")),
            (Some(ours), _) if wanted == ours.addr() => Ok(ReplyKind::Ack),
            (Some(_), _) => Ok(ReplyKind::Nak("address is not reserved for this client")),
            // Without an address of ours to assign, another server's may be right.
            (None, Some(PoolTerms { is_authoritative: true, .. })) => {
                Ok(ReplyKind::Nak("its lease has ended"))
            }
            (None, _) => Err(DropReason::NoAddress),
        }
    }

    /// Returns the reason for a DECLINE or RELEASE, neither of which is ever answered. The caller records our own addresses.
    fn returned(
        &self,
        own: &Reservation,
        field: u8,
        reason: fn(Ipv4Addr) -> DropReason,
    ) -> DropReason {
        let packet = &self.request.packet;
        let named = packet.options.address(field).unwrap_or(packet.ciaddr);
        let is_ours = own.address.is_some_and(|ours| ours.addr() == named);
        if is_ours { reason(named) } else { DropReason::NotOurs }
    }

    /// True if a machine on the client's network can use `address`.
    fn is_usable(&self, address: Ipv4Net) -> bool {
        let (request, link) = (self.request, self.inputs.link);
        match request.relayed(link).link.or(request.relay()) {
            Some(client_link) => address.contains(&client_link),
            None if link.networks.is_empty() => true,
            None => link.networks.iter().any(|it| it.contains(&address.addr())),
        }
    }

    /// Adds the boot file where another server assigns the address. Requests to that server are not ours to answer.
    fn proxy(&self) -> Result<Reply, DropReason> {
        if !self.request.class.boots() {
            return Err(DropReason::NotBooting);
        }
        match self.request.packet.kind() {
            Some(MessageType::Discover) => self.boot_only(MessageType::Offer),
            _ => Err(DropReason::Proxy),
        }
    }

    /// Builds the reply to firmware that has an address, and requests its boot file at port 4011 (PXE 2.1 section 2.2.3).
    fn boot_service(&self) -> Result<Reply, DropReason> {
        if !matches!(self.request.class, ClientClass::Pxe | ClientClass::Ipxe { .. }) {
            return Err(DropReason::NotBooting);
        }
        match self.request.packet.kind() {
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
        let mut reply = self.reply(kind, link.id);
        let Reply { packet, boot, .. } = &mut reply;
        *boot = boot_file::set(packet, self.request, &self.inputs);
        let server = match packet.options.get(code::TFTP_SERVER_NAME) {
            Some(name) => name.to_vec(),
            None if packet.siaddr.is_unspecified() => Vec::new(),
            None => packet.siaddr.to_string().into(),
        };
        if let Some((head, [_, ..])) = packet.sname.split_at_mut_checked(server.len()) {
            head.copy_from_slice(&server);
        }
        Ok(reply)
    }

    /// Builds a NAK: the client's address is wrong, and the client starts again with DISCOVER. A NAK is always broadcast, if
    /// necessary by the relay: with a wrong address the client may not receive unicast (RFC 2131 section 4.3.2).
    fn nak(&self, why: &str) -> Reply {
        let server_id = self.request.server_id(self.inputs.link);
        let mut reply = self.reply(MessageType::Nak, server_id);
        reply.packet.ciaddr = Ipv4Addr::UNSPECIFIED;
        reply.packet.options.set(code::MESSAGE, why);
        reply.packet.options.remove(code::CLIENT_UUID);
        if self.request.relay().is_none() {
            reply.to = BROADCAST;
        } else {
            reply.packet.flags |= BROADCAST_FLAG;
        }
        reply
    }

    /// Returns a reply with its type, the server identifier and the echoed options only.
    fn reply(&self, kind: MessageType, server_id: Ipv4Addr) -> Reply {
        let request = &self.request.packet;
        let mut options = Options::default();
        options.set(code::MESSAGE_TYPE, [kind as u8]);
        options.set(code::SERVER_IDENTIFIER, server_id.octets());
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
        let (to, max_payload) = (self.destination(), max_payload(request));
        Reply { packet, datagram: Vec::new(), to, max_payload, boot: BootReply::Absent }
    }

    /// Returns the destination of a reply, except of a NAK without relay and of the reply to an INFORM. A client without an
    /// address gets a broadcast even if its broadcast flag is clear: it does not answer ARP yet (RFC 2131 section 4.1).
    fn destination(&self) -> SocketAddrV4 {
        let received = self.request.received;
        let renewing = self.request.client_address().filter(|_| !received.broadcast);
        match (received.port, self.request.relay()) {
            (ListenPort::BootService, _) => received.source,
            (ListenPort::Dhcp, Some(relay)) => SocketAddrV4::new(relay, SERVER_PORT),
            (ListenPort::Dhcp, None) => {
                renewing.map_or(BROADCAST, |client| SocketAddrV4::new(client, CLIENT_PORT))
            }
        }
    }

    /// Returns the destination of the reply to an INFORM: the client's address, relayed or not (RFC 2131 section 4.3.5). If
    /// the INFORM was sent from this address, the reply goes to its source port: the sender need not be a DHCP client
    /// (RFC 3456 section 4.1).
    fn inform_destination(&self) -> SocketAddrV4 {
        let (from, source) = (self.request.received.source, *self.request.received.source.ip());
        match (self.request.client_address(), self.request.relay()) {
            (Some(client), None) if source == client => from,
            (Some(client), _) => SocketAddrV4::new(client, CLIENT_PORT),
            (None, Some(relay)) => SocketAddrV4::new(relay, SERVER_PORT),
            (None, None) if source.is_unspecified() => BROADCAST,
            (None, None) => SocketAddrV4::new(source, CLIENT_PORT),
        }
    }
}
