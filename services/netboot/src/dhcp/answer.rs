//! Who is answered, and where the answer goes.

use std::borrow::Cow;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Instant;

use super::boot::boot;
use super::client::{Class, Client};
use super::content;
use super::encode::{TooLarge, room};
use super::judge::{Case, Verdict};
use super::options::{Options, code};
use super::packet::{MessageType, Packet};
use super::relay::relayed;
use super::site::{BootOffer, Link, Mode, Reservation};
use crate::Mac;

const REPLY: u8 = 2;
const BROADCAST_FLAG: u16 = 1 << 15;
const SERVER_PORT: u16 = 67;
const CLIENT_PORT: u16 = 68;

/// The socket a request came to and its answer leaves by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// 67.
    Dhcp,
    /// 4011, PXE's boot service.
    BootService,
}

/// How a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// From where.
    pub source: SocketAddrV4,
    /// Whether it was sent to everybody on the link.
    pub broadcast: bool,
    /// To which socket.
    pub port: Port,
}

/// Where an answer goes, by the socket its request came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// 255.255.255.255:68, on the interface the request came by.
    Link,
    /// To one address.
    Host(SocketAddrV4),
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// What to send.
    pub packet: Packet,
    /// Where to.
    pub to: Destination,
    /// Octets of payload the client takes.
    pub room: usize,
    /// Architectures the client could load something for, had the site a loader: worth a report.
    pub no_loader: Option<Vec<u16>>,
}

impl Reply {
    /// Gives the address for no more than `seconds`.
    pub fn shorten(&mut self, seconds: u32) {
        content::times(&mut self.packet.options, seconds);
    }

    /// The datagram.
    pub fn encode(&self) -> Result<Vec<u8>, TooLarge> {
        self.packet.encode(self.room)
    }
}

/// Why a request is not answered. Declined and released addresses are for the caller to record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[allow(missing_docs)] // each says it in its message
pub enum Silence {
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
    #[error("it does not say which address it wants")]
    Incomplete,
    #[error("its address was found in use a moment ago")]
    Withheld,
    #[error("its address {0} is in use by somebody else")]
    Declined(Ipv4Addr),
    #[error("it gave {0} back")]
    Released(Ipv4Addr),
    #[error("it gave back what was never its own")]
    NotOurs,
    #[error("no server answers such a message")]
    MessageType,
    #[error("another server gives it its address")]
    Proxy,
    #[error("it does not boot by PXE")]
    NotBooting,
    #[error("every address of the pool is taken")]
    Exhausted,
    #[error("too many machines without a record ask at once")]
    TooMany,
    #[error("what is lent already has not been read yet")]
    NotReady,
    #[error("its lease cannot be stored")]
    NotStored,
    #[error("too many leases are being stored")]
    Busy,
}

impl Silence {
    /// As a metric label.
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

/// The answer to `request` of `client`, or why there is none. `machine` is its sender's record and `offer` what the boot
/// decision came to; `now` is only compared with times in the record.
pub fn answer(
    request: &Packet,
    client: &Client,
    received: Received,
    machine: Option<&Reservation>,
    link: &Link,
    offer: BootOffer,
    now: Instant,
) -> Result<Reply, Silence> {
    let mac = request.mac().ok_or(Silence::Hardware)?;
    let relay = request.giaddr;
    if !relay.is_unspecified() && !link.relays.is_empty() && !link.relays.contains(&relay) {
        return Err(Silence::Relay);
    }
    if link.ignored_vendors.contains(&mac.oui()) {
        return Err(Silence::Vendor);
    }
    let pinned = machine.and_then(|machine| machine.port.as_ref()).filter(|port| port.pinned);
    if pinned.is_some_and(|port| !port.is_where(&relayed(request, *received.source.ip(), link))) {
        return Err(Silence::OtherPort);
    }
    let asked = Asked { request, received, mac, client, link, offer, now };
    let proxy = machine.is_some_and(|machine| machine.proxy);
    match (received.port, link.mode) {
        (_, Mode::Disabled) => Err(Silence::Off),
        (Port::BootService, _) => asked.boot_service(machine),
        (Port::Dhcp, Mode::Proxy | Mode::AutoProxy) => asked.proxy(machine),
        (Port::Dhcp, Mode::Reservation) if proxy => asked.proxy(machine),
        (Port::Dhcp, Mode::Reservation) => asked.reservation(machine.ok_or(Silence::Unknown)?),
    }
}

/// A request and all that bears on it but the record.
struct Asked<'a> {
    request: &'a Packet,
    received: Received,
    mac: Mac,
    client: &'a Client,
    link: &'a Link,
    offer: BootOffer,
    now: Instant,
}

impl Asked<'_> {
    /// We give the address.
    fn reservation(&self, machine: &Reservation) -> Result<Reply, Silence> {
        let Self { request, link, now, .. } = *self;
        let relayed = relayed(request, *self.received.source.ip(), link);
        let our_id = relayed.server.unwrap_or(link.id);
        let giaddr = (!request.giaddr.is_unspecified()).then_some(request.giaddr);
        let client_link = relayed.link.or(giaddr);
        let verdict = Case { request, machine, link, our_id, client_link, now }.judge()?;
        let (kind, yiaddr) = match verdict {
            Verdict::Nak(why) => return Ok(self.nak(our_id, why)),
            Verdict::Offer(ours) => (MessageType::Offer, ours.address),
            Verdict::Ack(ours) => (MessageType::Ack, ours.address),
            Verdict::Inform => (MessageType::Ack, Ipv4Addr::UNSPECIFIED),
        };
        let mut reply = self.reply(kind, our_id);
        reply.packet.yiaddr = yiaddr;
        content::network(&mut reply.packet.options, request, machine, link);
        if verdict == Verdict::Inform {
            reply.to = self.informed();
            return Ok(reply);
        }
        content::lease(&mut reply.packet.options, self.client.class, machine, link);
        let boot = boot(self.client, self.mac, Some(machine), link, self.offer);
        content::booting(&mut reply.packet, &boot);
        content::extras(&mut reply.packet.options, request, &boot);
        reply.no_loader = boot.no_loader;
        Ok(reply)
    }

    /// Somebody else gives the address; we add where to boot from. What is sent to that server is not for us.
    fn proxy(&self, machine: Option<&Reservation>) -> Result<Reply, Silence> {
        if !self.client.class.boots() {
            return Err(Silence::NotBooting);
        }
        match self.request.kind() {
            Some(MessageType::Discover) => self.boot_only(MessageType::Offer, machine),
            _ => Err(Silence::Proxy),
        }
    }

    /// The second leg of PXE, for firmware that has an address and no file yet (PXE 2.1, section 2.2.3).
    fn boot_service(&self, machine: Option<&Reservation>) -> Result<Reply, Silence> {
        if !matches!(self.client.class, Class::Pxe | Class::Ipxe { .. }) {
            return Err(Silence::NotBooting);
        }
        match self.request.kind() {
            Some(MessageType::Request) => self.boot_only(MessageType::Ack, machine),
            _ => Err(Silence::MessageType),
        }
    }

    fn boot_only(
        &self,
        kind: MessageType,
        machine: Option<&Reservation>,
    ) -> Result<Reply, Silence> {
        match machine {
            None if self.link.mode != Mode::AutoProxy => return Err(Silence::Unknown),
            Some(machine) if machine.disabled => return Err(Silence::LeftToOthers),
            None | Some(_) => {}
        }
        let boot = boot(self.client, self.mac, machine, self.link, self.offer);
        let mut reply = self.reply(kind, self.link.id);
        content::booting(&mut reply.packet, &boot);
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

    /// The client's address is wrong: it must begin again. A client with a wrong address may not hear unicast, and one
    /// behind a relay hears only what the relay broadcasts.
    fn nak(&self, our_id: Ipv4Addr, why: &str) -> Reply {
        let mut reply = self.reply(MessageType::Nak, our_id);
        reply.packet.ciaddr = Ipv4Addr::UNSPECIFIED;
        reply.packet.options.set(code::MESSAGE, why);
        reply.packet.options.remove(code::CLIENT_UUID);
        if self.request.giaddr.is_unspecified() {
            reply.to = Destination::Link;
        } else {
            reply.packet.flags |= BROADCAST_FLAG;
        }
        reply
    }

    /// An answer that says only what it is, from whom, and what the client said itself.
    fn reply(&self, kind: MessageType, our_id: Ipv4Addr) -> Reply {
        let request = self.request;
        let mut options = Options::roomy();
        options.set(code::MESSAGE_TYPE, [kind.into()]);
        options.set(code::SERVER_IDENTIFIER, our_id.octets());
        content::echo(&mut options, request);
        let packet = Packet {
            op: REPLY,
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
        Reply { packet, to: self.destination(), room: room(request), no_loader: None }
    }

    /// Netboot specification, section 3.9. Without an address the client is reached by broadcast whatever its flag
    /// says: it does not answer ARP yet (RFC 2131, section 4.1).
    fn destination(&self) -> Destination {
        let Packet { giaddr, ciaddr, .. } = *self.request;
        let renewing = !ciaddr.is_unspecified() && !self.received.broadcast;
        match self.received.port {
            Port::BootService => Destination::Host(self.received.source),
            Port::Dhcp if !giaddr.is_unspecified() => {
                Destination::Host(SocketAddrV4::new(giaddr, SERVER_PORT))
            }
            Port::Dhcp if renewing => Destination::Host(SocketAddrV4::new(ciaddr, CLIENT_PORT)),
            Port::Dhcp => Destination::Link,
        }
    }

    /// An INFORM is answered to the address it tells about, relay or not (RFC 2131, section 4.3.5); to the port it came
    /// from if it comes from that very address, since it need not be a DHCP client that asks (RFC 3456, section 4.1).
    fn informed(&self) -> Destination {
        let Packet { giaddr, ciaddr, .. } = *self.request;
        let source = *self.received.source.ip();
        match (ciaddr.is_unspecified(), giaddr.is_unspecified()) {
            (false, true) if source == ciaddr => Destination::Host(self.received.source),
            (false, _) => Destination::Host(SocketAddrV4::new(ciaddr, CLIENT_PORT)),
            (true, false) => Destination::Host(SocketAddrV4::new(giaddr, SERVER_PORT)),
            (true, true) if source.is_unspecified() => Destination::Link,
            (true, true) => Destination::Host(SocketAddrV4::new(source, CLIENT_PORT)),
        }
    }
}
