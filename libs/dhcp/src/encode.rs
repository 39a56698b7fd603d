//! Encodes a packet into the size that its client accepts (docs/reference/dhcp.md, "Size").
//!
//! If it does not fit, optional options are dropped, highest number first; then options move into unused header fields
//! (RFC 2131's overload). A packet that still does not fit is not sent: half a reply boots nothing.

use std::borrow::Cow;
use std::cmp::Reverse;

use crate::options::{Options, code};
use crate::packet::{COOKIE, HEADER_OCTETS, Packet};

/// The least size of a BOOTP packet: some relays and clients drop shorter ones (RFC 1542 section 2.1).
const MIN_PACKET_OCTETS: usize = 300;
/// The IP and UDP headers, which option 57 includes.
const IP_UDP_HEADER_OCTETS: usize = 28;
/// The size that every client accepts (RFC 2131 section 2).
const MIN_MESSAGE_OCTETS: usize = 576;
/// A larger reply would be fragmented, and firmware does not reassemble fragments.
const MAX_MESSAGE_OCTETS: usize = 1500;

/// The options that are never dropped.
const ESSENTIAL: [u8; 9] = [
    code::SUBNET_MASK,
    code::ROUTER,
    code::VENDOR_SPECIFIC,
    code::LEASE_TIME,
    code::MESSAGE_TYPE,
    code::SERVER_IDENTIFIER,
    code::VENDOR_CLASS,
    code::BOOT_FILE_NAME,
    code::RELAY_AGENT,
];

/// The reply does not fit even without its optional options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the reply does not fit into {0} octets")]
pub struct TooLarge(pub usize);

/// The largest UDP payload that the sender of `request` accepts, in octets.
pub fn max_payload(request: &Packet) -> usize {
    let size =
        request.options.get(code::MAXIMUM_MESSAGE_SIZE).and_then(|value| value.try_into().ok());
    let size = size.map_or(MIN_MESSAGE_OCTETS, |value| u16::from_be_bytes(value).into());
    size.clamp(MIN_MESSAGE_OCTETS, MAX_MESSAGE_OCTETS) - IP_UDP_HEADER_OCTETS
}

impl Packet {
    /// Encodes the packet into at most `max_octets`, padded to BOOTP's least size.
    pub fn encode(&self, max_octets: usize) -> Result<Vec<u8>, TooLarge> {
        let room = max_octets.saturating_sub(HEADER_OCTETS);
        let fields = Fields::fill(self, room).ok_or(TooLarge(max_octets))?;
        let size = HEADER_OCTETS + length(&fields.options);
        let mut bytes = Vec::with_capacity(size.max(MIN_PACKET_OCTETS));
        bytes.extend([self.op, self.htype, self.hlen, self.hops]);
        bytes.extend(self.xid.to_be_bytes());
        bytes.extend(self.secs.to_be_bytes());
        bytes.extend(self.flags.to_be_bytes());
        for address in [self.ciaddr, self.yiaddr, self.siaddr, self.giaddr] {
            bytes.extend(address.octets());
        }
        bytes.extend(self.chaddr);
        write_field(&mut bytes, &self.sname, &fields.sname);
        write_field(&mut bytes, &self.file, &fields.file);
        bytes.extend(COOKIE);
        write(&mut bytes, &fields.options);
        bytes.resize(bytes.len().max(MIN_PACKET_OCTETS), code::PAD);
        Ok(bytes)
    }
}

/// Writes a header field: its own text, or the options that were moved there.
fn write_field(bytes: &mut Vec<u8>, text: &[u8], options: &Options) {
    if options.is_empty() {
        return bytes.extend(text);
    }
    let end = bytes.len() + text.len();
    write(bytes, options);
    bytes.resize(end, code::PAD);
}

/// The options by the field that they are written to.
struct Fields<'a> {
    options: Cow<'a, Options>,
    file: Options,
    sname: Options,
}

impl<'a> Fields<'a> {
    fn fill(packet: &'a Packet, room: usize) -> Option<Self> {
        let (file, sname) = Default::default();
        if length(&packet.options) <= room {
            return Some(Self { options: Cow::Borrowed(&packet.options), file, sname });
        }
        let mut options = packet.options.clone();
        for (code, _) in packet.options.iter().rev() {
            if length(&options) <= room {
                break;
            }
            if !ESSENTIAL.contains(&code) {
                options.remove(code);
            }
        }
        if length(&options) > room {
            return Self::overload(packet, options, room);
        }
        Some(Self { options: Cow::Owned(options), file, sname })
    }

    /// Moves whole options into unused header fields until the rest fits, the longest first, since it fits in the fewest
    /// places. The message type stays where a client without support for overload finds it, and the relay's option stays
    /// last (RFC 3046 section 2.1).
    fn overload(packet: &Packet, mut options: Options, room: usize) -> Option<Self> {
        let (mut file, mut sname) = (SpareField::of(&packet.file), SpareField::of(&packet.sname));
        let mut movable: Vec<_> =
            options.iter().map(|(code, value)| (code, value.to_vec())).collect();
        movable.retain(|(code, _)| !matches!(*code, code::MESSAGE_TYPE | code::RELAY_AGENT));
        movable.sort_by_key(|(_, value)| Reverse(value.len()));
        for (code, value) in movable {
            let place = match (file.fits(&value), sname.fits(&value)) {
                (true, _) => &mut file,
                (false, true) => &mut sname,
                (false, false) => continue,
            };
            place.options.set(code, &value);
            options.remove(code);
            let [file_used, sname_used] = [&file, &sname].map(|place| !place.options.is_empty());
            options.set(code::OVERLOAD, [u8::from(file_used) | u8::from(sname_used) << 1]);
            if length(&options) <= room {
                let options = Cow::Owned(options);
                return Some(Self { options, file: file.options, sname: sname.options });
            }
        }
        None
    }
}

/// A header field that options can move to.
struct SpareField {
    options: Options,
    room: usize,
}

impl SpareField {
    fn of(text: &[u8]) -> Self {
        let unused = text.iter().all(|byte| *byte == 0);
        Self { options: Options::default(), room: if unused { text.len() } else { 0 } }
    }

    fn fits(&self, value: &[u8]) -> bool {
        length(&self.options) + wire_length(value) <= self.room
    }
}

/// The encoded length of `options` with the end mark, in octets.
fn length(options: &Options) -> usize {
    1 + options.iter().map(|(_, value)| wire_length(value)).sum::<usize>()
}

/// The encoded length of one option in octets. An option over 255 octets is split (RFC 3396).
fn wire_length(value: &[u8]) -> usize {
    value.len() + 2 * value.len().div_ceil(255).max(1)
}

/// Writes `options`: message type and server identifier first, as clients expect; the relay's option last; the end mark.
fn write(bytes: &mut Vec<u8>, options: &Options) {
    const FIRST: [u8; 2] = [code::MESSAGE_TYPE, code::SERVER_IDENTIFIER];
    let named = |code| Some((code, options.get(code)?));
    let others =
        options.iter().filter(|(code, _)| !FIRST.contains(code) && *code != code::RELAY_AGENT);
    let all = FIRST.into_iter().filter_map(named).chain(others).chain(named(code::RELAY_AGENT));
    for (code, value) in all {
        if value.is_empty() {
            bytes.extend([code, 0]);
        }
        for fragment in value.chunks(255) {
            bytes.extend([code, u8::try_from(fragment.len()).unwrap_or(u8::MAX)]);
            bytes.extend(fragment);
        }
    }
    bytes.push(code::END);
}
