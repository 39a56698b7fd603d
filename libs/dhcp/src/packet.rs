//! The packet (RFC 2131 section 2) and its parser.

use std::net::Ipv4Addr;

use crate::options::{Options, code};

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
    #[error(
        "the client has neither an Ethernet address nor a client identifier that stands for one"
    )]
    Hardware,
    #[error("an option runs past the end")]
    OptionOverrun,
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
        let mut packet = Reader(&[BOOTREQUEST, ETHERNET, 6]).header();
        packet.chaddr.iter_mut().zip(mac).for_each(|(octet, own)| *octet = own);
        packet.options.set(code::MESSAGE_TYPE, [kind as u8]);
        packet
    }

    /// Parses a packet of either direction.
    ///
    /// A packet without options may be shorter than BOOTP's 300 octets: dhcping and perfdhcp send less.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        if bytes.len() < HEADER_OCTETS {
            return Err(Malformed::Short);
        }
        let mut reader = Reader(bytes);
        let mut packet = reader.header();
        if reader.take() != COOKIE {
            return Err(Malformed::Cookie);
        }
        packet.options.read(reader.0).ok_or(Malformed::OptionOverrun)?;
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
            (ETHERNET | IEEE_802 | INFINIBAND, 6)
                if packet.mac().is_none_or(|mac| !is_unicast(mac)) =>
            {
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
        Some(MessageType::from_repr(number).unwrap_or(MessageType::Other))
    }

    /// Returns option 93 in the client's order of preference. An octet without its pair is ignored.
    pub fn architectures(&self) -> impl Iterator<Item = u16> {
        let listed = self.options.get(code::CLIENT_ARCHITECTURE).unwrap_or_default();
        let (pairs, _) = listed.as_chunks();
        pairs.iter().map(|pair| u16::from_be_bytes(*pair))
    }

    /// Returns the client's Ethernet address, if it has one.
    pub fn mac(&self) -> Option<MacAddress> {
        let [a, b, c, d, e, f, ..] = self.chaddr;
        (self.hlen == 6).then_some([a, b, c, d, e, f])
    }

    /// Returns the Ethernet address that stands for an InfiniBand client in lists and logs; no
    /// interface has it. Such a client names itself in its client identifier only (RFC 4390): by an
    /// Ethernet address, or by an identifier that ends in its GUID. The GUID without its two middle
    /// octets is the address that makers of adapters derive from it. An identifier without a GUID
    /// ends in a hash or a number: any of its bits may be set, so the bit of group addresses is
    /// cleared. None for other clients, and if no octet is left but zeros.
    pub(crate) fn infiniband_alias(&self) -> Option<MacAddress> {
        if self.htype != INFINIBAND || self.hlen == 6 {
            return None;
        }
        let chaddr = self.chaddr.get(..self.hlen.into()).unwrap_or_default();
        let client_id = self.options.get(code::CLIENT_IDENTIFIER).unwrap_or_default();
        let address = match client_id {
            [ETHERNET, mac @ ..] if mac.len() == 6 => mac.first_chunk().copied(),
            _ => client_id.split_first().and_then(|(_, id)| without_middle(id)),
        };
        let candidates = [address, without_middle(chaddr)].into_iter().flatten();
        candidates.map(without_group_bit).find(|mac| *mac != [0; 6])
    }

    /// Moves options from `file`, then from `sname` to the others (RFC 2131 section 4.1 requires this order).
    fn unfold(&mut self) -> Result<(), Malformed> {
        let overload = match self.options.get(code::OVERLOAD) {
            None => return Ok(()),
            Some([overload @ 1..=3]) => *overload,
            Some(_) => return Err(Malformed::OptionOverload),
        };
        if overload & 1 != 0 {
            self.options.read(&self.file).ok_or(Malformed::OptionOverrun)?;
            self.file = [0; 128];
        }
        if overload & 2 != 0 {
            self.options.read(&self.sname).ok_or(Malformed::OptionOverrun)?;
            self.sname = [0; 64];
        }
        self.options.remove(code::OVERLOAD);
        Ok(())
    }
}

/// Returns `mac` with the bit of group addresses cleared (IEEE 802, bit 0 of the first octet).
fn without_group_bit([first, b, c, d, e, f]: MacAddress) -> MacAddress {
    [first & !1, b, c, d, e, f]
}

/// Returns the last eight octets of `id` without the two in their middle.
fn without_middle(id: &[u8]) -> Option<MacAddress> {
    let [a, b, c, _, _, d, e, f] = *id.last_chunk()?;
    Some([a, b, c, d, e, f])
}

/// Reads fixed-size fields from the start. Fields beyond the end are zero.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (first, rest) = self.0.split_at(N.min(self.0.len()));
        self.0 = rest;
        let mut field = [0; N];
        field.iter_mut().zip(first).for_each(|(octet, read)| *octet = *read);
        field
    }

    fn header(&mut self) -> Packet {
        let [op, htype, hlen, hops] = self.take();
        Packet {
            op,
            htype,
            hlen,
            hops,
            xid: u32::from_be_bytes(self.take()),
            secs: u16::from_be_bytes(self.take()),
            flags: u16::from_be_bytes(self.take()),
            ciaddr: self.take::<4>().into(),
            yiaddr: self.take::<4>().into(),
            siaddr: self.take::<4>().into(),
            giaddr: self.take::<4>().into(),
            chaddr: self.take(),
            sname: self.take(),
            file: self.take(),
            options: Options::default(),
        }
    }
}
