//! Octets to packets and back (RFC 2131, 2132, 3396).

use proptest::prelude::*;

use super::super::encode::max_payload;
use super::*;

fn encoded(packet: &Packet) -> Vec<u8> {
    packet.encode(1472).unwrap()
}

#[test]
fn a_datagram_that_is_not_a_request_is_dropped_with_its_reason() {
    let good = encoded(&packet(MessageType::Discover));
    assert!(Packet::parse_request(&good).is_ok());
    let changed = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        Packet::parse_request(&bytes).unwrap_err()
    };
    assert_eq!(changed(0, 2), Malformed::NotRequest);
    assert_eq!(changed(1, 7), Malformed::HardwareType);
    assert_eq!(changed(2, 8), Malformed::HardwareLength);
    assert_eq!(changed(3, 17), Malformed::Hops);
    assert_eq!(changed(28, 0x01), Malformed::HardwareAddress);
    assert_eq!(changed(236, 0), Malformed::Cookie);
    assert_eq!(changed(240, 12), Malformed::MessageType);
    assert_eq!(changed(241, 200), Malformed::OptionOverrun);
    assert_eq!(Packet::parse_request(&good[..239]), Err(Malformed::Short));
    let mut infiniband = good.clone();
    (infiniband[1], infiniband[28]) = (32, 0x01);
    assert_eq!(Packet::parse_request(&infiniband), Err(Malformed::HardwareAddress));
}

#[test]
fn a_packet_shorter_than_bootps_least_size_is_parsed() {
    let bytes = encoded(&packet(MessageType::Discover));
    assert_eq!(Packet::parse(&bytes[..244]).unwrap().kind(), Some(MessageType::Discover));
    assert_eq!(Packet::parse_request(&bytes[..240]), Err(Malformed::MessageType));
}

#[test]
fn overloaded_fields_are_parsed_in_their_order_and_emptied() {
    let mut packet = with(packet(MessageType::Discover), &[(code::OVERLOAD, &[3]), (12, b"a")]);
    packet.file[..4].copy_from_slice(&[12, 1, b'b', 255]);
    packet.sname[..4].copy_from_slice(&[12, 1, b'c', 255]);
    let read = Packet::parse(&encoded(&packet)).unwrap();
    assert_eq!((read.options.get(12), read.options.get(code::OVERLOAD)), (Some(&b"abc"[..]), None));
    assert_eq!((read.file, read.sname), ([0; 128], [0; 64]));
}

#[test]
fn an_impossible_overload_is_refused() {
    for overload in [&[0][..], &[4], &[], &[1, 1]] {
        let packet = with(packet(MessageType::Discover), &[(code::OVERLOAD, overload)]);
        assert_eq!(Packet::parse(&encoded(&packet)), Err(Malformed::OptionOverload));
    }
}

#[test]
fn a_reply_is_padded_to_bootps_least_size() {
    assert_eq!(encoded(&packet(MessageType::Discover)).len(), 300);
}

#[test]
fn option_57_limits_the_payload() {
    let asking = |size: &[u8]| max_payload(&with(packet(MessageType::Discover), &[(57, size)]));
    assert_eq!(max_payload(&packet(MessageType::Discover)), 548);
    assert_eq!(
        [asking(&[2, 64]), asking(&[0, 1]), asking(&[5, 192]), asking(&[255, 255])],
        [548, 548, 1444, 1472]
    );
}

#[test]
fn the_message_type_comes_first_and_the_relays_option_last() {
    let packet = with(
        packet(MessageType::Discover),
        &[(1, &[255; 4]), (82, b"\x01\x01x"), (175, &[176, 1, 1])],
    );
    let bytes = encoded(&packet);
    assert_eq!(bytes[240..243], [53, 1, 1]);
    let end = bytes.iter().rposition(|byte| *byte == 255).unwrap();
    assert_eq!(bytes[end - 5..end], [82, 3, 1, 1, b'x']);
}

#[test]
fn a_pad_octet_follows_the_boot_server_and_the_boot_file() {
    let options = [(66, &b"192.0.2.1"[..]), (67, b"snponly.efi"), (97, &[7; 17])];
    let bytes = encoded(&with(packet(MessageType::Offer), &options));
    for text in [&b"\x42\x09192.0.2.1\0"[..], b"\x43\x0bsnponly.efi\0\x61"] {
        assert!(bytes.windows(text.len()).any(|part| part == text), "{bytes:?}");
    }
    let last = [&options[..2], &[(82, b"\x01\x01x")]].concat();
    let relayed = encoded(&with(packet(MessageType::Offer), &last));
    let end = b"snponly.efi\0\x52\x03\x01\x01x\xff";
    assert!(relayed.windows(end.len()).any(|part| part == end), "{relayed:?}");
}

#[test]
fn a_pad_octet_follows_a_boot_file_in_a_header_field_which_ends_in_a_nul() {
    let url = vec![b'u'; 100];
    let packet = with(packet(MessageType::Offer), &[(67, &url), (82, &[1; 250])]);
    let bytes = packet.encode(548).unwrap();
    let file = &bytes[108..236];
    assert_eq!((file[0], file[102], file[103]), (67, 0, 255), "{file:?}");
    for length in 1..=125 {
        let url = vec![b'u'; length];
        let packet = with(super::packet(MessageType::Offer), &[(67, &url), (82, &[1; 297])]);
        let Some(bytes) = packet.encode(548) else { continue };
        assert_eq!((bytes[107], bytes[235]), (0, 0), "{length}");
    }
}

#[test]
fn optional_options_are_dropped_first() {
    let long = vec![b'x'; 120];
    let options = [
        (1, &[255; 4][..]),
        (12, &long),
        (15, &long),
        (66, &long),
        (67, b"file"),
        (82, b"\x01\x01x"),
    ];
    let read =
        Packet::parse(&with(packet(MessageType::Offer), &options).encode(548).unwrap()).unwrap();
    let left: Vec<_> = read.options.iter().map(|(code, _)| code).collect();
    assert_eq!(left, [1, 12, 15, 53, 67, 82]);
}

#[test]
fn unused_header_fields_hold_essential_options() {
    let of = |url, relay| {
        let (url, relay) = (vec![b'u'; url], vec![1; relay]);
        let options = [
            (1, &[255; 4][..]),
            (3, &[1; 4]),
            (43, &[6, 1, 8]),
            (54, &[1; 4]),
            (67, &url),
            (82, &relay),
        ];
        with(packet(MessageType::Offer), &options)
    };
    let sizes = (1..=123).map(|url| (url, 240)).chain((200..=297).map(|relay| (100, relay)));
    for (url, relay) in sizes {
        let bytes = of(url, relay).encode(548).unwrap();
        assert!(bytes.len() <= 548, "{url} {relay}");
        assert_eq!(Packet::parse(&bytes), Ok(of(url, relay)));
    }
    assert_eq!([of(124, 240), of(100, 298)].map(|packet| packet.encode(548)), [None, None]);
}

#[test]
fn a_packet_that_cannot_fit_is_not_encoded() {
    let options = [(67, &[b'u'; 250][..]), (82, &[1; 250])];
    assert_eq!(with(packet(MessageType::Offer), &options).encode(548), None);
}

#[test]
fn an_option_over_255_octets_is_split() {
    let routes = vec![7; 600];
    let packet = with(packet(MessageType::Ack), &[(121, &routes)]);
    assert_eq!(Packet::parse(&encoded(&packet)).unwrap(), packet);
}

fn any_packet() -> impl Strategy<Value = Packet> {
    let options = prop::collection::btree_map(
        (1..255_u8).prop_filter("not overload", |code| *code != code::OVERLOAD),
        prop::collection::vec(any::<u8>(), 0..300),
        0..4,
    );
    let head = (any::<u32>(), any::<[u8; 16]>(), any::<[u8; 16]>(), any::<u16>());
    let texts = (prop::collection::vec(any::<u8>(), 64), prop::collection::vec(any::<u8>(), 128));
    (options, head, texts).prop_map(|(options, (xid, chaddr, addresses, flags), (sname, file))| {
        let [a, b, c, d] = *addresses.as_chunks::<4>().0 else { unreachable!("four addresses") };
        let mut packet = Packet {
            xid,
            chaddr,
            flags,
            ciaddr: a.into(),
            yiaddr: b.into(),
            siaddr: c.into(),
            giaddr: d.into(),
            sname: sname.try_into().unwrap(),
            file: file.try_into().unwrap(),
            ..packet(MessageType::Discover)
        };
        options.into_iter().for_each(|(code, value)| packet.options.set(code, value));
        packet
    })
}

const ESSENTIAL: [u8; 9] = [1, 3, 43, 51, 53, 54, 60, 67, 82];

/// An answer with more than fits into most rooms.
fn crowded() -> impl Strategy<Value = Packet> {
    let code = prop_oneof![4 => prop::sample::select(ESSENTIAL.to_vec()), 1 => 100..200_u8];
    let value = prop::collection::vec(any::<u8>(), 0..120);
    prop::collection::vec((code, value), 0..20).prop_map(|options| {
        let mut packet = packet(MessageType::Offer);
        options.into_iter().for_each(|(code, value)| packet.options.set(code, value));
        packet
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(packet in any_packet()) {
        prop_assert_eq!(Packet::parse(&encoded(&packet)).unwrap(), packet);
    }

    #[test]
    fn an_answer_never_exceeds_its_room_and_keeps_what_it_must(packet in crowded(), room in 548..640_usize) {
        if let Some(bytes) = packet.encode(room) {
            prop_assert!(bytes.len() <= room);
            let read = Packet::parse(&bytes).unwrap();
            for code in ESSENTIAL {
                prop_assert_eq!(read.options.get(code), packet.options.get(code));
            }
        }
    }

    #[test]
    fn no_octets_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..700)) {
        let _ = Packet::parse_request(&bytes);
    }

    #[test]
    fn no_changed_or_cut_request_makes_anything_panic(
        packet in any_packet(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        cut: prop::sample::Index,
        relayed: bool,
    ) {
        let mut bytes = encoded(&packet);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(bytes.len() - cut.index(bytes.len() / 2));
        if let Ok(request) = Packet::parse_request(&bytes) {
            let link = Link { relays: if relayed { vec![request.giaddr] } else { vec![] }, ..link() };
            let _ = ask_as(&request, broadcast(), &reservation(), &link);
        }
    }
}
