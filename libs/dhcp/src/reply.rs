//! The reply to a request and its destination.

use std::net::{Ipv4Addr, SocketAddrV4};

use crate::boot_file;
use crate::config::{Mode, Reservation};
use crate::drop_reason::DropReason;
use crate::encode::max_payload;
use crate::inputs::ReplyInputs;
use crate::message_rules::{self, ReplyKind};
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
    /// The client's architectures, if boot is refused only because the site has no loader for them.
    pub no_loader: Option<Vec<u16>>,
}

impl Reply {
    /// Returns the reply with another lease time.
    pub fn with_lease_seconds(mut self, seconds: u32) -> Result<Self, DropReason> {
        reply_options::lease_times(&mut self.packet.options, seconds);
        self.encoded()
    }

    fn encoded(self) -> Result<Self, DropReason> {
        let datagram = self.packet.encode(self.max_payload).map_err(|_| DropReason::TooLarge)?;
        Ok(Self { datagram, ..self })
    }

    /// Returns the message type as text for logs and metric labels.
    pub fn kind_label(&self) -> &'static str {
        self.packet.kind().map_or("none", Into::into)
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

struct Builder<'a> {
    request: &'a Request,
    inputs: ReplyInputs<'a>,
}

impl Builder<'_> {
    /// Builds the reply of a server that assigns the address.
    fn assign(&self, own: &Reservation) -> Result<Reply, DropReason> {
        let Self { request, inputs: ReplyInputs { link, .. } } = *self;
        let message = message_rules::evaluate(request, own, &self.inputs)?;
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
        reply.no_loader = boot_file::set(&mut reply.packet, request, &self.inputs);
        reply_options::boot_extras(&mut reply.packet, request);
        Ok(reply)
    }

    /// Builds a ProxyDHCP offer, with a boot file but no address: another server assigns that, and answers the REQUEST.
    fn proxy(&self) -> Result<Reply, DropReason> {
        if !self.request.class.boots() {
            return Err(DropReason::NotBooting);
        }
        match self.request.kind() {
            Some(MessageType::Discover) => self.boot_only(MessageType::Offer),
            _ => Err(DropReason::Proxy),
        }
    }

    /// Builds the reply to firmware that has an address, and requests its boot file at port 4011 (PXE 2.1 section 2.2.3).
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
        let mut reply = self.reply(kind, link.id);
        let Reply { packet, no_loader, .. } = &mut reply;
        *no_loader = boot_file::set(packet, self.request, &self.inputs);
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
        options.set(code::MESSAGE_TYPE, [kind.into()]);
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
        Reply { packet, datagram: Vec::new(), to, max_payload, no_loader: None }
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
