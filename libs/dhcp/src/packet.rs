//! The packet (RFC 2131 section 2) and its parser.

use std::net::Ipv4Addr;

use crate::options::{Options, Overrun, code};

/// Octets before the options: the BOOTP header and the magic cookie.
pub(crate) const HEADER_OCTETS: usize = 240;
/// The most relays that a request may have passed (RFC 1542 section 4.1.1).
const MAX_HOPS: u8 = 16;
const BOOTREQUEST: u8 = 1;
/// RFC 1497.
pub(crate) const COOKIE: [u8; 4] = [99, 130, 83, 99];
const ETHERNET: u8 = 1;
const IEEE_802: u8 = 6;
const INFINIBAND: u8 = 32;

/// An Ethernet address.
pub type MacAddress = [u8; 6];

/// Returns `mac` in lower case with dashes, as in the URLs of boot files.
pub(crate) fn dashed(mac: MacAddress) -> String {
    let [a, b, c, d, e, f] = mac;
    format!("{a:02x}-{b:02x}-{c:02x}-{d:02x}-{e:02x}-{f:02x}")
}

/// True if one interface can have `mac`: it is neither zero nor a group address (IEEE 802, bit 0 of the first octet).
fn is_unicast(mac: MacAddress) -> bool {
    let [first, ..] = mac;
    mac != [0; 6] && first & 1 == 0
}

/// The message type (option 53).
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::FromRepr, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[allow(missing_docs)] // the names are RFC 2132's
#[repr(u8)]
pub enum MessageType {
    Discover = 1,
    Offer,
    Request,
    Decline,
    Ack,
    Nak,
    Release,
    Inform,
    /// FORCERENEW, lease queries, and later types.
    Other,
}

impl From<u8> for MessageType {
    fn from(number: u8) -> Self {
        Self::from_repr(number).unwrap_or(Self::Other)
    }
}

impl From<MessageType> for u8 {
    fn from(kind: MessageType) -> Self {
        kind as Self
    }
}

/// A DHCP packet; options are joined and moved out of overloaded header fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// 1 from clients, 2 from servers.
    pub op: u8,
    /// Hardware type: 1 is Ethernet, 6 IEEE 802, 32 InfiniBand.
    pub htype: u8,
    /// Octets of `chaddr` in use.
    pub hlen: u8,
    /// The number of relays passed.
    pub hops: u8,
    /// The transaction id, which the client chooses.
    pub xid: u32,
    /// Seconds since the client began to acquire or renew an address.
    pub secs: u16,
    /// Flags. The highest bit requests a broadcast reply.
    pub flags: u16,
    /// The address that the client uses already.
    pub ciaddr: Ipv4Addr,
    /// The address assigned to the client.
    pub yiaddr: Ipv4Addr,
    /// The next server, which has the boot file.
    pub siaddr: Ipv4Addr,
    /// The relay's address on the client's link.
    pub giaddr: Ipv4Addr,
    /// The client's hardware address, zero-padded.
    pub chaddr: [u8; 16],
    /// Server host name, zero-padded.
    pub sname: [u8; 64],
    /// Boot file name, zero-padded.
    pub file: [u8; 128],
    /// The options, without option 52.
    pub options: Options,
}

/// The reason why a datagram is not a client's request. Converts into a metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[allow(missing_docs)] // the messages document the variants
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
    #[error("hardware address is not one interface's")]
    HardwareAddress,
    #[error("the client has no Ethernet address")]
    Hardware,
    #[error(transparent)]
    OptionOverrun(#[from] Overrun),
    #[error("option 52 is not 1, 2 or 3")]
    OptionOverload,
    #[error("no message type")]
    MessageType,
    #[error("too many relays")]
    Hops,
}

impl Packet {
    /// Returns a client's request with its message type and nothing else.
    pub fn request(kind: MessageType, mac: MacAddress) -> Self {
        let (mut chaddr, mut options) = ([0; 16], Options::default());
        chaddr.iter_mut().zip(mac).for_each(|(octet, own)| *octet = own);
        options.set(code::MESSAGE_TYPE, [kind.into()]);
        let none = Ipv4Addr::UNSPECIFIED;
        Self {
            op: BOOTREQUEST,
            htype: ETHERNET,
            hlen: 6,
            hops: 0,
            xid: 0,
            secs: 0,
            flags: 0,
            ciaddr: none,
            yiaddr: none,
            siaddr: none,
            giaddr: none,
            chaddr,
            sname: [0; 64],
            file: [0; 128],
            options,
        }
    }

    /// Parses a packet of either direction.
    ///
    /// A packet without options may be shorter than BOOTP's 300 octets: dhcping and perfdhcp send less.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader(bytes);
        let mut packet = reader.header().ok_or(Malformed::Short)?;
        if reader.take().ok_or(Malformed::Short)? != COOKIE {
            return Err(Malformed::Cookie);
        }
        packet.options.read(reader.0)?;
        packet.unfold()?;
        Ok(packet)
    }

    /// Parses a client's request. Fails for packets that a server must not reply to.
    pub fn parse_request(bytes: &[u8]) -> Result<Self, Malformed> {
        let packet = Self::parse(bytes)?;
        if packet.op != BOOTREQUEST {
            return Err(Malformed::NotRequest);
        }
        match (packet.htype, packet.hlen) {
            (ETHERNET | IEEE_802, 6) if packet.mac().is_none_or(|mac| !is_unicast(mac)) => {
                return Err(Malformed::HardwareAddress);
            }
            (ETHERNET | IEEE_802, 6) | (INFINIBAND, _) => {}
            (ETHERNET | IEEE_802, _) => return Err(Malformed::HardwareLength),
            _ => return Err(Malformed::HardwareType),
        }
        if packet.hops > MAX_HOPS {
            return Err(Malformed::Hops);
        }
        packet.kind().ok_or(Malformed::MessageType)?;
        Ok(packet)
    }

    /// Returns option 53, if it is one octet long.
    pub fn kind(&self) -> Option<MessageType> {
        let [number] = *self.options.get(code::MESSAGE_TYPE)? else { return None };
        Some(number.into())
    }

    /// Returns the client's Ethernet address, if it has one.
    pub fn mac(&self) -> Option<MacAddress> {
        let [a, b, c, d, e, f, ..] = self.chaddr;
        (self.hlen == 6).then_some([a, b, c, d, e, f])
    }

    /// Moves options from `file`, then from `sname` to the others (RFC 2131 section 4.1 requires this order).
    fn unfold(&mut self) -> Result<(), Malformed> {
        let overload = match self.options.get(code::OVERLOAD) {
            None => return Ok(()),
            Some([overload @ 1..=3]) => *overload,
            Some(_) => return Err(Malformed::OptionOverload),
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

/// Reads fixed-size fields from the start of the bytes.
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
            options: Options::default(),
        })
    }
}
