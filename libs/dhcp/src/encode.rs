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

/// Options that firmware may read as text up to a NUL. A pad octet, which is 0, follows each of
/// them (RFC 2132 section 3.1): without it, such firmware requests the file `snponly.efi\xff`.
const PADDED: [u8; 2] = [code::TFTP_SERVER_NAME, code::BOOT_FILE_NAME];

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

/// Returns the largest UDP payload that the sender of `request` accepts, in octets.
pub fn max_payload(request: &Packet) -> usize {
    let size =
        request.options.get(code::MAXIMUM_MESSAGE_SIZE).and_then(|value| value.try_into().ok());
    let size = size.map_or(MIN_MESSAGE_OCTETS, |value| u16::from_be_bytes(value).into());
    size.clamp(MIN_MESSAGE_OCTETS, MAX_MESSAGE_OCTETS) - IP_UDP_HEADER_OCTETS
}

impl Packet {
    /// Encodes the packet into at most `max_octets`, padded to BOOTP's least size. None if it does not fit even
    /// without its optional options.
    pub fn encode(&self, max_octets: usize) -> Option<Vec<u8>> {
        let packet = fit(self, max_octets.saturating_sub(HEADER_OCTETS))?;
        let size = HEADER_OCTETS + length(&packet.options);
        let mut bytes = Vec::with_capacity(size.max(MIN_PACKET_OCTETS));
        bytes.extend([packet.op, packet.htype, packet.hlen, packet.hops]);
        bytes.extend(packet.xid.to_be_bytes());
        bytes.extend(packet.secs.to_be_bytes());
        bytes.extend(packet.flags.to_be_bytes());
        for address in [packet.ciaddr, packet.yiaddr, packet.siaddr, packet.giaddr] {
            bytes.extend(address.octets());
        }
        bytes.extend(packet.chaddr);
        bytes.extend(packet.sname);
        bytes.extend(packet.file);
        bytes.extend(COOKIE);
        write(&mut bytes, &packet.options);
        bytes.resize(bytes.len().max(MIN_PACKET_OCTETS), code::PAD);
        Some(bytes)
    }
}

/// Returns `packet` with options that fit into `room` octets.
fn fit(packet: &Packet, room: usize) -> Option<Cow<'_, Packet>> {
    if length(&packet.options) <= room {
        return Some(Cow::Borrowed(packet));
    }
    let mut fitted = packet.clone();
    for (code, _) in packet.options.iter().rev().filter(|(code, _)| !ESSENTIAL.contains(code)) {
        if length(&fitted.options) <= room {
            break;
        }
        fitted.options.remove(code);
    }
    if length(&fitted.options) > room {
        overload(&mut fitted, room)?;
    }
    Some(Cow::Owned(fitted))
}

/// Moves whole options into unused header fields until the rest fits, the longest first, since it
/// fits in the fewest fields. The message type stays where a client without support for overload
/// finds it, and the relay's option stays last (RFC 3046 section 2.1). The last octet of a field
/// remains 0: firmware may read the field as text up to a NUL.
fn overload(packet: &mut Packet, room: usize) -> Option<()> {
    let Packet { file, sname, options, .. } = packet;
    let mut movable: Vec<_> = options.iter().map(|(code, value)| (code, value.to_vec())).collect();
    movable.retain(|(code, _)| !matches!(*code, code::MESSAGE_TYPE | code::RELAY_AGENT));
    movable.sort_by_key(|(_, value)| Reverse(value.len()));
    // The field's number in option 52, the field, and its options.
    let mut fields = [(1_u8, &mut file[..], Options::default()), (2, sname, Options::default())];
    for (code, value) in movable {
        let has_room = |(_, field, moved): &&mut (u8, &mut [u8], Options)| {
            let unused = field.iter().all(|octet| *octet == 0);
            unused && length(moved) + wire_length(code, &value) < field.len()
        };
        let Some((_, _, moved)) = fields.iter_mut().find(has_room) else { continue };
        moved.set(code, &value);
        options.remove(code);
        let used = || fields.iter().filter(|(_, _, moved)| !moved.is_empty());
        options.set(code::OVERLOAD, [used().map(|(number, ..)| number).sum()]);
        if length(options) <= room {
            for (_, field, moved) in fields.iter_mut().filter(|(_, _, moved)| !moved.is_empty()) {
                let mut bytes = Vec::new();
                write(&mut bytes, moved);
                field.iter_mut().zip(bytes).for_each(|(octet, written)| *octet = written);
            }
            return Some(());
        }
    }
    None
}

/// Returns the encoded length of `options` with the end mark, in octets.
fn length(options: &Options) -> usize {
    1 + options.iter().map(|(code, value)| wire_length(code, value)).sum::<usize>()
}

/// Returns the encoded length of one option in octets, with its pad octet. An option over 255
/// octets is split (RFC 3396).
fn wire_length(code: u8, value: &[u8]) -> usize {
    value.len() + 2 * value.len().div_ceil(255).max(1) + usize::from(PADDED.contains(&code))
}

/// Writes `options`: message type and server identifier first, as clients expect; the relay's option last; the end mark.
fn write(bytes: &mut Vec<u8>, options: &Options) {
    let mut all: Vec<_> = options.iter().collect();
    all.sort_by_key(|(code, _)| match *code {
        code::MESSAGE_TYPE => 0,
        code::SERVER_IDENTIFIER => 1,
        code::RELAY_AGENT => 3,
        _ => 2,
    });
    for (code, value) in all {
        for fragment in value.chunks(255).chain(value.is_empty().then_some(value)) {
            bytes.extend([code, u8::try_from(fragment.len()).unwrap_or(u8::MAX)]);
            bytes.extend(fragment);
        }
        if PADDED.contains(&code) {
            bytes.push(code::PAD);
        }
    }
    bytes.push(code::END);
}
