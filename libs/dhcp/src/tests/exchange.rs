//! Packets of one exchange, completed by its DISCOVER.

use super::*;
use proptest::prelude::*;

/// Options with their values.
type RawOptions<'a> = &'a [(u8, &'a [u8])];

const UEFI: &[u8] = b"PXEClient:Arch:00007:UNDI:003016";

/// A packet of the exchange with our transaction id.
fn parsed(packet: &Packet, received: Received) -> Request {
    Request::new(packet.clone(), received, &link()).unwrap()
}

/// Returns `later` as it is judged after `discover`.
fn after(discover: &Packet, later: &Packet, received: Received) -> Request {
    let exchange = Exchange::begun_by(&parsed(discover, broadcast()));
    exchange.complete(parsed(later, received), &link())
}

fn boot_file(request: &Request) -> String {
    let (link, own) = (link(), reservation());
    let (mode, offer, reservation) = (link.mode, BootOffer::Offered, Some(&own));
    let inputs = ReplyInputs { link: &link, mode, reservation, offer, is_withheld: false };
    file(&reply(request, inputs).unwrap().packet).to_owned()
}

/// The REQUEST in answer to our offer, with further options.
fn select(options: RawOptions<'_>) -> Packet {
    let own: [(u8, &[u8]); 2] = [(50, &OURS.octets()), (54, &US.octets())];
    with(packet(MessageType::Request), &[&own[..], options].concat())
}

#[test]
fn a_request_that_lacks_options_is_answered_as_its_discover_was() {
    let site = Link { custom_user_class: Some("Tinwright".into()), ..link() };
    let discovers = [
        pxe(MessageType::Discover, 7),
        pxe(MessageType::Discover, 0),
        http(MessageType::Discover),
        ipxe(MessageType::Discover),
        with(packet(MessageType::Discover), &[(60, UEFI)]),
        with(packet(MessageType::Discover), &[(93, &[0, 7])]),
        with(packet(MessageType::Discover), &[(77, b"Tinwright")]),
    ];
    for discover in discovers {
        let begun = Request::new(discover.clone(), broadcast(), &site).unwrap();
        let exchange = Exchange::begun_by(&begun);
        let later = Request::new(select(&[]), broadcast(), &site).unwrap();
        let request = exchange.complete(later, &site);
        assert_eq!(request.class, begun.class, "{discover:?}");
        assert_eq!(request.architectures(), begun.architectures(), "{discover:?}");
        assert_eq!(request.is_site_build, begun.is_site_build, "{discover:?}");
        assert_eq!(boot_file(&request), boot_file(&begun), "{discover:?}");
    }
}

#[test]
fn any_of_the_options_may_be_absent_empty_or_cut() {
    let discover = with(pxe(MessageType::Discover, 7), &[(60, UEFI)]);
    let rows: [RawOptions<'_>; 6] = [
        &[(60, UEFI)],
        &[(93, &[0, 7])],
        &[(60, b"PXEClient")],
        &[(60, b"PXEClient"), (93, &[0])],
        &[(60, b""), (93, b"")],
        &[(60, b"PXEClient:Arch:00000:UNDI:002001")],
    ];
    for options in rows {
        let request = after(&discover, &select(options), broadcast());
        assert_eq!(request.class, ClientClass::Pxe, "{options:?}");
        assert_eq!(request.architectures()[..], [7], "{options:?}");
    }
    let by_class = with(packet(MessageType::Discover), &[(60, UEFI)]);
    let request = after(&by_class, &select(&[(60, b"PXEClient")]), broadcast());
    assert_eq!(request.architectures()[..], [7], "the vendor class is cut");
}

#[test]
fn the_own_values_of_a_packet_count() {
    let discover = pxe(MessageType::Discover, 7);
    let request = after(&discover, &select(&[(60, UEFI), (93, &[0, 0])]), broadcast());
    assert_eq!(boot_file(&request), "undionly.kpxe");
    let loader = after(&discover, &ipxe(MessageType::Request), broadcast());
    assert!(matches!(loader.class, ClientClass::Ipxe { http: true }));
}

#[test]
fn a_packet_of_another_program_is_judged_alone() {
    let rows: [(Packet, RawOptions<'_>, ClientClass); 4] = [
        (pxe(MessageType::Discover, 7), &[(60, b"MSFT 5.0")], ClientClass::Ordinary),
        (pxe(MessageType::Discover, 7), &[(60, b"HTTPClient")], ClientClass::Http),
        (ipxe(MessageType::Discover), &[(60, b"udhcp 1.35.0")], ClientClass::Ordinary),
        (ipxe(MessageType::Discover), &[(60, UEFI), (77, b"RRAS")], ClientClass::Pxe),
    ];
    for (discover, options, class) in rows {
        assert_eq!(after(&discover, &select(options), broadcast()).class, class, "{options:?}");
    }
}

#[test]
fn a_discover_of_firmware_is_not_of_the_ipxe_that_sent_the_same_transaction_id() {
    let site = Link { custom_user_class: Some("Tinwright".into()), ..link() };
    let rows: [RawOptions<'_>; 4] = [
        &[(60, b"PXEClient"), (77, b"iPXE"), (175, &[19, 1, 1])],
        &[(60, b"PXEClient"), (77, b"iPXE")],
        &[(175, &[19, 1, 1])],
        &[(77, b"Tinwright"), (93, &[0, 11])],
    ];
    for options in rows {
        let discover = with(packet(MessageType::Discover), options);
        let begun = Request::new(discover, broadcast(), &site).unwrap();
        let firmware = with(packet(MessageType::Discover), &[(60, UEFI)]);
        let later = Request::new(firmware.clone(), broadcast(), &site).unwrap();
        let request = Exchange::begun_by(&begun).complete(later, &site);
        assert_eq!(request.class, ClientClass::Pxe, "{options:?}");
        assert_eq!(request.packet, firmware, "{options:?}");
        assert_eq!(boot_file(&request), "snponly.efi", "{options:?}");
    }
}

#[test]
fn a_request_to_the_boot_service_belongs_to_the_exchange_whatever_its_transaction_id() {
    let discover = pxe(MessageType::Discover, 7);
    let request = Packet { xid: 99, ciaddr: OURS, ..packet(MessageType::Request) };
    assert_eq!(boot_file(&after(&discover, &request, boot_service())), "snponly.efi");
    let renewal = after(&discover, &request, unicast());
    assert_eq!(renewal.class, ClientClass::Ordinary, "at port 67 it is another exchange");
}

#[test]
fn a_repeated_discover_is_completed_until_there_was_a_request() {
    let discover = pxe(MessageType::Discover, 7);
    let mut exchange = Exchange::begun_by(&parsed(&discover, broadcast()));
    let class = |exchange: &Exchange| {
        let repeated = parsed(&packet(MessageType::Discover), broadcast());
        exchange.complete(repeated, &link()).class
    };
    assert_eq!(class(&exchange), ClientClass::Pxe);
    let other = Packet { xid: 99, ..select(&[]) };
    exchange.record(&parsed(&other, broadcast()), None);
    assert_eq!(class(&exchange), ClientClass::Pxe, "a REQUEST of another exchange");
    exchange.record(&parsed(&packet(MessageType::Inform), broadcast()), None);
    assert_eq!(class(&exchange), ClientClass::Pxe, "no REQUEST");
    exchange.record(&parsed(&select(&[]), broadcast()), Some(DropReason::NotReady));
    assert_eq!(class(&exchange), ClientClass::Pxe, "a REQUEST that is not answered yet");
    for dropped in [None, Some(DropReason::Proxy), Some(DropReason::OtherServer)] {
        let mut exchange = exchange.clone();
        exchange.record(&parsed(&select(&[]), broadcast()), dropped);
        assert_eq!(class(&exchange), ClientClass::Ordinary, "{dropped:?}");
    }
}

#[test]
fn the_size_and_the_list_of_options_are_those_of_the_discover() {
    let discover = with(packet(MessageType::Discover), &[(55, &[1, 3]), (57, &[5, 192])]);
    let request = after(&discover, &select(&[]), broadcast());
    let options = [55, 57].map(|code| request.packet.options.get(code));
    assert_eq!(options, [Some(&[1, 3][..]), Some(&[5, 192])]);
    let shorter = after(&discover, &select(&[(55, &[1])]), broadcast());
    assert_eq!(shorter.packet.options.get(55), Some(&[1][..]), "a list is not cut, it is another");
}

#[test]
fn other_messages_are_judged_alone() {
    for kind in [MessageType::Inform, MessageType::Decline, MessageType::Release] {
        let request = after(&pxe(MessageType::Discover, 7), &packet(kind), broadcast());
        assert_eq!(request.class, ClientClass::Ordinary, "{kind:?}");
    }
}

#[test]
fn of_an_exchange_with_long_options_nothing_is_remembered() {
    let long = vec![b'x'; 500];
    let discover = with(pxe(MessageType::Discover, 7), &[(77, &long)]);
    let request = after(&discover, &select(&[]), broadcast());
    assert_eq!(request.class, ClientClass::Ordinary);
    let exchange = Exchange::begun_by(&parsed(&discover, broadcast()));
    let alone = Exchange::begun_by(&parsed(&packet(MessageType::Discover), broadcast()));
    assert_eq!(exchange, alone);
}

proptest! {
    #[test]
    fn a_completed_packet_keeps_its_own_options(
        first in prop::collection::btree_map(50..100_u8, prop::collection::vec(any::<u8>(), 1..9), 0..9),
        own in prop::collection::btree_map(50..100_u8, prop::collection::vec(any::<u8>(), 1..9), 0..9),
    ) {
        let build = |kind, options: &std::collections::BTreeMap<u8, Vec<u8>>| {
            let options = options.iter().filter(|(code, _)| **code != 53);
            let options: Vec<_> = options.map(|(code, value)| (*code, value.as_slice())).collect();
            with(packet(kind), &options)
        };
        let later = build(MessageType::Request, &own);
        let request = after(&build(MessageType::Discover, &first), &later, broadcast());
        for (code, value) in later.options.iter() {
            prop_assert!(request.packet.options.get(code).unwrap().starts_with(value));
        }
        let again = Exchange::begun_by(&parsed(&build(MessageType::Discover, &first), broadcast()));
        let twice = again.complete(request.clone(), &link());
        prop_assert_eq!(twice.packet, request.packet);
    }
}
