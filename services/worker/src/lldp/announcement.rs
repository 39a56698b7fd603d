//! The announcement of a neighbour: an LLDPDU (IEEE 802.1AB-2016 §8), the content of a frame with Ethertype 0x88cc. No I/O.

use std::net::{Ipv4Addr, Ipv6Addr};

use tinwright::Mac;
use tinwright::hardware::v1 as pb;

use crate::inventory::one_line;

/// The types of the TLVs that are read (IEEE 802.1AB-2016, table 8-1).
const CHASSIS_ID: u8 = 1;
const PORT_ID: u8 = 2;
const TIME_TO_LIVE: u8 = 3;
const SYSTEM_NAME: u8 = 5;
const ORGANIZATIONALLY_SPECIFIC: u8 = 127;
/// The start of a port VLAN id: the organization IEEE 802.1, and its subtype (IEEE 802.1Q, annex D).
const PORT_VLAN_ID: [u8; 4] = [0x00, 0x80, 0xc2, 1];
/// The greatest VLAN id. Zero says that the port has none.
const MAX_VLAN_ID: u16 = 4094;

/// The types and values of an LLDPDU, up to its end. The item of a TLV that is longer than the rest is `None`, and the last one.
struct Tlvs<'a>(&'a [u8]);

impl<'a> Iterator for Tlvs<'a> {
    type Item = Option<(u8, &'a [u8])>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = std::mem::take(&mut self.0);
        let Some((header, rest)) = rest.split_first_chunk::<2>() else {
            // A single octet is the beginning of a TLV that was cut off.
            return (!rest.is_empty()).then_some(None);
        };
        // Seven bits of type, nine bits of length.
        let header = u16::from_be_bytes(*header);
        let (kind, length) = (u8::try_from(header >> 9).ok()?, usize::from(header & 0x1ff));
        if kind == 0 {
            return None;
        }
        let Some((value, rest)) = rest.split_at_checked(length) else { return Some(None) };
        self.0 = rest;
        Some(Some((kind, value)))
    }
}

/// Returns the neighbour that announces itself by `content`. `None` for a malformed announcement, which is to be discarded as a whole
/// (§9.2.7.7), and for the last one of a neighbour that ends: its time to live is zero.
pub(super) fn parse(content: &[u8]) -> Option<pb::LldpNeighbour> {
    let mut tlvs = Tlvs(content);
    // The first three are mandatory, in this order.
    let mut mandatory = |kind| tlvs.next()?.filter(|(found, _)| *found == kind).map(|(_, it)| it);
    // The subtypes of both are in tables 8-2 and 8-3.
    let chassis_id = id_text(mandatory(CHASSIS_ID)?, 4, 5)?;
    let port_id = id_text(mandatory(PORT_ID)?, 3, 4)?;
    let time_to_live = mandatory(TIME_TO_LIVE)?.first_chunk::<2>()?;
    if *time_to_live == [0, 0] {
        return None;
    }
    let mut found = pb::LldpNeighbour { chassis_id, port_id, ..pb::LldpNeighbour::default() };
    for tlv in tlvs {
        match tlv? {
            (SYSTEM_NAME, name) => found.system_name = text(name),
            (ORGANIZATIONALLY_SPECIFIC, value) => {
                let id = value.strip_prefix(&PORT_VLAN_ID).and_then(|id| id.first_chunk());
                let id = id.map(|id| u16::from_be_bytes(*id));
                found.vlan_id = id.filter(|id| *id <= MAX_VLAN_ID).map_or(found.vlan_id, u32::from);
            }
            _ => {}
        }
    }
    Some(found)
}

/// Returns an id as text; one of the subtype `of_mac` or `of_address` as such.
fn id_text(value: &[u8], of_mac: u8, of_address: u8) -> Option<String> {
    let (subtype, id) = value.split_first()?;
    let text = match *subtype {
        it if it == of_mac => mac(id),
        it if it == of_address => network_address(id),
        _ => text(id),
    };
    Some(text).filter(|it| !it.is_empty())
}

fn mac(id: &[u8]) -> String {
    id.try_into().map_or_else(|_| hex(id), |octets| Mac(octets).to_string())
}

/// Returns an address after its family, as IANA numbers address families.
fn network_address(id: &[u8]) -> String {
    let Some((family, octets)) = id.split_first() else { return String::new() };
    let address = match family {
        1 => octets.try_into().ok().map(|it: [u8; 4]| Ipv4Addr::from(it).to_string()),
        2 => octets.try_into().ok().map(|it: [u8; 16]| Ipv6Addr::from(it).to_string()),
        _ => None,
    };
    address.unwrap_or_else(|| hex(id))
}

/// Returns `octets` as text if they are printable, else in hex.
fn text(octets: &[u8]) -> String {
    // Some systems end a text with a zero octet.
    let end = octets.iter().rposition(|octet| *octet != 0).map_or(0, |last| last + 1);
    let octets = octets.get(..end).unwrap_or_default();
    match std::str::from_utf8(octets) {
        Ok(text) if !text.contains(char::is_control) => one_line(text),
        _ => hex(octets),
    }
}

fn hex(octets: &[u8]) -> String {
    one_line(&octets.iter().map(|octet| format!("{octet:02x}")).collect::<String>())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An announcement that was captured on a switch of Extreme Networks, without its Ethernet header: mandatory TLVs only.
    const SWITCH: &[u8] =
        b"\x02\x07\x04\x00\x04\x96\x1f\xa7\x26\x04\x04\x051/3\x06\x02\x00\x78\x00\x00";

    fn tlv(kind: u16, value: &[u8]) -> Vec<u8> {
        let header = kind << 9 | u16::try_from(value.len()).unwrap();
        [&header.to_be_bytes(), value].concat()
    }

    /// An announcement with these ids and further TLVs.
    fn announcement(chassis_id: &[u8], port_id: &[u8], others: &[Vec<u8>]) -> Vec<u8> {
        let mandatory = [tlv(1, chassis_id), tlv(2, port_id), tlv(3, &[0, 120])].concat();
        [mandatory, others.concat(), tlv(0, &[])].concat()
    }

    #[test]
    fn a_captured_announcement_has_the_ids_of_switch_and_port() {
        let expected = pb::LldpNeighbour {
            chassis_id: "00:04:96:1f:a7:26".into(),
            port_id: "1/3".into(),
            ..pb::LldpNeighbour::default()
        };
        assert_eq!(parse(SWITCH), Some(expected.clone()));
        // Short frames are padded.
        assert_eq!(parse(&[SWITCH, &[0xff; 20]].concat()), Some(expected));
    }

    #[test]
    fn name_and_vlan_are_found_among_other_parts() {
        let vlan = |id: [u8; 2]| tlv(127, &[&PORT_VLAN_ID[..], &id].concat());
        let others = [
            tlv(4, b"downlink"),
            tlv(5, b"leaf1\0"),
            tlv(127, &[0, 0x80, 0xc2, 3, 0, 9, 1, b'x']),
            tlv(127, &[0, 0x12, 0x0f, 1]),
            vlan([0x0f, 0xfe]),
        ];
        let found = parse(&announcement(b"\x07leaf", b"\x05Ethernet1", &others)).unwrap();
        assert_eq!((found.chassis_id.as_str(), found.port_id.as_str()), ("leaf", "Ethernet1"));
        assert_eq!((found.system_name.as_str(), found.vlan_id), ("leaf1", 4094));
        let other = parse(&announcement(b"\x07leaf", b"\x05Ethernet1", &[vlan([0xff, 0xff])]));
        assert_eq!(other.unwrap().vlan_id, 0);
    }

    #[test]
    fn an_id_of_each_kind_is_text() {
        let v6 = [&[5, 2], &Ipv6Addr::LOCALHOST.octets()[..]].concat();
        for (id, expected) in [
            (&[4, 0, 4, 0x96, 0x1f, 0xa7, 0x26][..], "00:04:96:1f:a7:26"),
            (&[4, 0, 4], "0004"),
            (&[5, 1, 192, 0, 2, 1], "192.0.2.1"),
            (&v6, "::1"),
            (&[5, 6, 0xab], "06ab"),
            (&[1, 0xff, 0x01], "ff01"),
        ] {
            assert_eq!(parse(&announcement(id, b"\x071", &[])).unwrap().chassis_id, expected);
        }
        let port = parse(&announcement(b"\x07a", &[3, 2, 0, 0, 0, 0, 1], &[])).unwrap().port_id;
        assert_eq!(port, "02:00:00:00:00:01");
        let long = [&[7], &[b'a'; 300][..]].concat();
        assert_eq!(parse(&announcement(&long, b"\x071", &[])).unwrap().chassis_id.len(), 255);
    }

    #[test]
    fn a_malformed_announcement_is_discarded_as_a_whole() {
        let good = announcement(b"\x07a", b"\x07b", &[tlv(5, b"name")]);
        assert!(parse(&good).is_some());
        let too_long = [&good[..good.len() - 2], &[5 << 1, 9, b'n']].concat();
        let cut = [&good[..good.len() - 2], &[5 << 1]].concat();
        let other_order = [tlv(2, b"\x07b"), tlv(1, b"\x07a"), tlv(3, &[0, 120])].concat();
        let ends = [tlv(1, b"\x07a"), tlv(2, b"\x07b"), tlv(3, &[0, 0])].concat();
        let no_id = announcement(b"\x07", b"\x07b", &[]);
        let empty = announcement(b"", b"\x07b", &[]);
        for bad in [too_long, cut, other_order, ends, no_id, empty, Vec::new()] {
            assert_eq!(parse(&bad), None, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn whatever_a_neighbour_sends_is_bounded_text_of_one_line(
            content in proptest::collection::vec(any::<u8>(), 0..1500),
            ids in proptest::collection::vec(any::<u8>(), 1..511),
        ) {
            let built = announcement(&ids, &ids, &[tlv(5, &ids), tlv(127, &ids)]);
            for frame in [content.clone(), [SWITCH.get(..19).unwrap(), &content].concat(), built] {
                if let Some(found) = parse(&frame) {
                    for text in [found.chassis_id, found.port_id, found.system_name] {
                        prop_assert!(text.len() <= 255 && !text.contains(char::is_control));
                    }
                    prop_assert!(found.vlan_id <= 4094);
                }
            }
        }

        #[test]
        fn an_announcement_that_was_cut_before_its_time_to_live_is_none(length in 0_usize..19) {
            prop_assert_eq!(parse(&SWITCH[..length]), None);
        }
    }
}
