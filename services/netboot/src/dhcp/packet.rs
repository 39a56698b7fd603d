//! The packet (RFC 2131, section 2), and what keeps one from being a request.

use std::net::Ipv4Addr;

use super::options::{Options, Overrun, code};
use crate::Mac;

/// Octets before the options: the BOOTP header and the magic cookie.
pub(super) const HEADER: usize = 240;
/// The most relays a request may have passed (RFC 1542, section 4.1.1).
const HOPS: u8 = 16;
const REQUEST: u8 = 1;
/// RFC 1497.
pub(super) const COOKIE: [u8; 4] = [99, 130, 83, 99];
const ETHERNET: u8 = 1;
const IEEE_802: u8 = 6;
const INFINIBAND: u8 = 32;

/// Option 53.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // their names are RFC 2132's
pub enum MessageType {
    Discover,
    Offer,
    Request,
    Decline,
    Ack,
    Nak,
    Release,
    Inform,
    /// FORCERENEW, lease queries, and whatever comes next.
    Other(u8),
}

impl From<u8> for MessageType {
    fn from(number: u8) -> Self {
        match number {
            1 => Self::Discover,
            2 => Self::Offer,
            3 => Self::Request,
            4 => Self::Decline,
            5 => Self::Ack,
            6 => Self::Nak,
            7 => Self::Release,
            8 => Self::Inform,
            other => Self::Other(other),
        }
    }
}

impl From<MessageType> for u8 {
    fn from(kind: MessageType) -> Self {
        match kind {
            MessageType::Discover => 1,
            MessageType::Offer => 2,
            MessageType::Request => 3,
            MessageType::Decline => 4,
            MessageType::Ack => 5,
            MessageType::Nak => 6,
            MessageType::Release => 7,
            MessageType::Inform => 8,
            MessageType::Other(other) => other,
        }
    }
}

/// A DHCP packet, options joined and taken out of overloaded header fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// 1 from clients, 2 from servers.
    pub op: u8,
    /// Hardware type: 1 is Ethernet, 6 IEEE 802, 32 InfiniBand.
    pub htype: u8,
    /// Octets of `chaddr` that count.
    pub hlen: u8,
    /// Relays passed.
    pub hops: u8,
    /// The client's number for this exchange.
    pub xid: u32,
    /// Seconds since the client began.
    pub secs: u16,
    /// The highest bit asks for a broadcast answer.
    pub flags: u16,
    /// The address the client uses already.
    pub ciaddr: Ipv4Addr,
    /// The address the client is given.
    pub yiaddr: Ipv4Addr,
    /// The next server: where the boot file is.
    pub siaddr: Ipv4Addr,
    /// The relay, as the client's link knows it.
    pub giaddr: Ipv4Addr,
    /// The client's hardware address, zero-padded.
    pub chaddr: [u8; 16],
    /// Server host name, zero-padded.
    pub sname: [u8; 64],
    /// Boot file name, zero-padded.
    pub file: [u8; 128],
    /// Everything else. Option 52 is not among them.
    pub options: Options,
}

/// Why a datagram is no request of a client (netboot specification, section 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[allow(missing_docs)] // each says it in its message
pub enum Malformed {
    #[error("shorter than a header")]
    Short,
    #[error("not a request")]
    NotRequest,
    #[error("unknown hardware type")]
    HardwareType,
    #[error("wrong hardware address length")]
    HardwareLength,
    #[error("no magic cookie")]
    Cookie,
    #[error("hardware address names no station")]
    HardwareAddress,
    #[error("an option runs past the end")]
    Overrun,
    #[error("option 52 is not 1, 2 or 3")]
    Overload,
    #[error("no message type")]
    MessageType,
    #[error("too many relays")]
    Hops,
}

impl Malformed {
    /// As a metric label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::NotRequest => "not_request",
            Self::HardwareType => "hardware_type",
            Self::HardwareLength => "hardware_length",
            Self::Cookie => "cookie",
            Self::HardwareAddress => "hardware_address",
            Self::Overrun => "option_overrun",
            Self::Overload => "option_overload",
            Self::MessageType => "message_type",
            Self::Hops => "hops",
        }
    }
}

impl From<Overrun> for Malformed {
    fn from(_: Overrun) -> Self {
        Self::Overrun
    }
}

impl Packet {
    /// Reads a packet of either direction, without judging whether anybody should answer it.
    ///
    /// Anything from the bare header on is long enough: dhcping and perfdhcp send less than BOOTP's 300 octets.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader(bytes);
        let mut packet = reader.header().ok_or(Malformed::Short)?;
        if reader.take::<4>() != Some(COOKIE) {
            return Err(if bytes.len() < HEADER { Malformed::Short } else { Malformed::Cookie });
        }
        packet.options.read(reader.0)?;
        packet.unfold()?;
        Ok(packet)
    }

    /// Reads a client's request that deserves a look at the records.
    pub fn parse_request(bytes: &[u8]) -> Result<Self, Malformed> {
        let packet = Self::parse(bytes)?;
        if packet.op != REQUEST {
            return Err(Malformed::NotRequest);
        }
        match (packet.htype, packet.hlen) {
            (ETHERNET | IEEE_802, 6) if packet.mac().is_none_or(|mac| !mac.is_unicast()) => {
                return Err(Malformed::HardwareAddress);
            }
            (ETHERNET | IEEE_802, 6) | (INFINIBAND, _) => {}
            (ETHERNET | IEEE_802, _) => return Err(Malformed::HardwareLength),
            _ => return Err(Malformed::HardwareType),
        }
        if packet.hops > HOPS {
            return Err(Malformed::Hops);
        }
        packet.kind().ok_or(Malformed::MessageType)?;
        Ok(packet)
    }

    /// Option 53, if it is there and one octet long.
    pub fn kind(&self) -> Option<MessageType> {
        match self.options.get(code::MESSAGE_TYPE) {
            Some([number]) => Some((*number).into()),
            _ => None,
        }
    }

    /// The client's Ethernet address, if it has one.
    pub fn mac(&self) -> Option<Mac> {
        let [a, b, c, d, e, f, ..] = self.chaddr;
        (self.hlen == 6).then_some(Mac([a, b, c, d, e, f]))
    }

    /// Moves options out of `file` and `sname` (RFC 2131, section 4.1: in this order).
    fn unfold(&mut self) -> Result<(), Malformed> {
        let overload = match self.options.get(code::OVERLOAD) {
            None => return Ok(()),
            Some([overload @ 1..=3]) => *overload,
            Some(_) => return Err(Malformed::Overload),
        };
        if overload & 1 != 0 {
            self.options.read(&self.file)?;
            self.file = [0; 128];
        }
        if overload & 2 != 0 {
            self.options.read(&self.sname)?;
            self.sname = [0; 64];
        }
        self.options.remove(code::OVERLOAD);
        Ok(())
    }
}

/// Takes fixed parts off the front.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    fn header(&mut self) -> Option<Packet> {
        let [op, htype, hlen, hops] = self.take()?;
        Some(Packet {
            op,
            htype,
            hlen,
            hops,
            xid: u32::from_be_bytes(self.take()?),
            secs: u16::from_be_bytes(self.take()?),
            flags: u16::from_be_bytes(self.take()?),
            ciaddr: self.take::<4>()?.into(),
            yiaddr: self.take::<4>()?.into(),
            siaddr: self.take::<4>()?.into(),
            giaddr: self.take::<4>()?.into(),
            chaddr: self.take()?,
            sname: self.take()?,
            file: self.take()?,
            options: Options::roomy(),
        })
    }
}
