//! Writing a packet into the size its client takes (netboot specification, section 3.6).
//!
//! What does not fit is given up in an order: first the optional options, highest number first, then the unused
//! header fields are filled with options (RFC 2131's overload). What still does not fit is not sent at all: half an
//! answer boots nothing.

use std::borrow::Cow;
use std::cmp::Reverse;

use super::options::{Options, code};
use super::packet::{COOKIE, HEADER, Packet};

/// The least a BOOTP packet has, for relays and clients that drop shorter ones (RFC 1542, section 2.1).
const PADDED: usize = 300;
/// IP and UDP headers, which option 57 counts and a payload does not.
const IP_UDP: usize = 28;
/// What every client takes (RFC 2131, section 2).
const MINIMUM: usize = 576;
/// A larger answer would travel in fragments, which firmware does not put together.
const MAXIMUM: usize = 1500;

/// The options no answer goes without.
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

/// Even with every optional part left out the answer does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer does not fit into {0} octets")]
pub struct TooLarge(pub usize);

/// Octets of UDP payload the sender of `request` takes.
pub fn room(request: &Packet) -> usize {
    let asked =
        request.options.get(code::MAXIMUM_MESSAGE_SIZE).and_then(|value| value.try_into().ok());
    let asked = asked.map_or(MINIMUM, |value| u16::from_be_bytes(value).into());
    asked.clamp(MINIMUM, MAXIMUM) - IP_UDP
}

impl Packet {
    /// The packet in at most `room` octets, padded to BOOTP's least.
    pub fn encode(&self, room: usize) -> Result<Vec<u8>, TooLarge> {
        let fields = Fields::fill(self, room.saturating_sub(HEADER)).ok_or(TooLarge(room))?;
        let mut bytes = Vec::with_capacity(HEADER + length(&fields.options).max(PADDED));
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
        bytes.resize(bytes.len().max(PADDED), code::PAD);
        Ok(bytes)
    }
}

/// A header field holds its own text, or the options put there.
fn write_field(bytes: &mut Vec<u8>, text: &[u8], options: &Options) {
    if options.is_empty() {
        return bytes.extend(text);
    }
    let end = bytes.len() + text.len();
    write(bytes, options);
    bytes.resize(end, code::PAD);
}

/// The options as they go into the packet's three places.
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

    /// Moves whole options into unused header fields until the rest fits, the longest first, as it has the fewest
    /// places. The message type stays where even a client that knows no overload finds it, and the relay's own option
    /// stays last (RFC 3046, section 2.1).
    fn overload(packet: &Packet, mut options: Options, room: usize) -> Option<Self> {
        let (mut file, mut sname) = (Place::of(&packet.file), Place::of(&packet.sname));
        let mut movable: Vec<_> =
            options.iter().map(|(code, value)| (code, value.to_vec())).collect();
        movable.retain(|(code, _)| !matches!(*code, code::MESSAGE_TYPE | code::RELAY_AGENT));
        movable.sort_by_key(|(_, value)| Reverse(value.len()));
        for (code, value) in movable {
            let place = match (file.takes(&value), sname.takes(&value)) {
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

/// A header field that options may go to.
struct Place {
    options: Options,
    room: usize,
}

impl Place {
    fn of(text: &[u8]) -> Self {
        let unused = text.iter().all(|byte| *byte == 0);
        Self { options: Options::default(), room: if unused { text.len() } else { 0 } }
    }

    fn takes(&self, value: &[u8]) -> bool {
        length(&self.options) + wire_length(value) <= self.room
    }
}

/// Octets of `options` with the end mark.
fn length(options: &Options) -> usize {
    1 + options.iter().map(|(_, value)| wire_length(value)).sum::<usize>()
}

/// Octets of one option, split where it is longer than one length octet can say (RFC 3396).
fn wire_length(value: &[u8]) -> usize {
    value.len() + 2 * value.len().div_ceil(255).max(1)
}

/// Writes `options`: what the message is first, as clients expect it, the relay's own last, then the end mark.
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
