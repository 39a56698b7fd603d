//! The messages of replies, and their destinations (docs/reference/dhcp.md, "Messages" and "Destination").

use super::*;

fn address(code: u8, address: Ipv4Addr) -> (u8, [u8; 4]) {
    (code, address.octets())
}

fn wanting(options: &[(u8, [u8; 4])], ciaddr: Ipv4Addr) -> Packet {
    let options: Vec<_> = options.iter().map(|(code, value)| (*code, &value[..])).collect();
    with(Packet { ciaddr, ..packet(MessageType::Request) }, &options)
}

#[test]
fn a_known_machine_is_offered_its_address() {
    let reply = ask(&packet(MessageType::Discover)).unwrap();
    assert_eq!((reply.packet.kind(), reply.packet.yiaddr), (Some(MessageType::Offer), OURS));
    assert_eq!(reply.packet.options.address(code::SERVER_IDENTIFIER), Some(US));
    assert_eq!((reply.packet.xid, reply.packet.secs, reply.to), (0x1234_5678, 0, BROADCAST));
}

#[test]
fn a_request_is_answered_by_the_address_it_names() {
    use MessageType::{Ack, Nak};
    let (none, requested, server) =
        (Ipv4Addr::UNSPECIFIED, code::REQUESTED_ADDRESS, code::SERVER_IDENTIFIER);
    let rows = [
        ("selecting", wanting(&[address(server, US), address(requested, OURS)], none), Ok(Ack)),
        (
            "selecting an address that is not its own",
            wanting(&[address(server, US), address(requested, OTHER)], none),
            Ok(Nak),
        ),
        (
            "selecting another",
            wanting(&[address(server, OTHER), address(requested, OURS)], none),
            Err(DropReason::OtherServer),
        ),
        ("back after a reboot", wanting(&[address(requested, OURS)], none), Ok(Ack)),
        ("back with a wrong address", wanting(&[address(requested, OTHER)], none), Ok(Nak)),
        ("renewing", wanting(&[], OURS), Ok(Ack)),
        ("renewing a wrong address", wanting(&[], OTHER), Ok(Nak)),
        (
            "renewing, with another requested address",
            wanting(&[address(requested, OTHER)], OURS),
            Ok(Ack),
        ),
        ("wanting nothing", wanting(&[], none), Err(DropReason::Incomplete)),
    ];
    for (case, request, expected) in rows {
        assert_eq!(kind(&ask(&request)), expected, "{case}");
    }
}

#[test]
fn a_machine_without_a_record_is_not_answered() {
    for kind in [MessageType::Discover, MessageType::Request, MessageType::Inform] {
        let reply = reply_to(&packet(kind), broadcast(), None, &link(), BootOffer::Offered);
        assert_eq!(reply, Err(DropReason::Unknown));
    }
}

#[test]
fn a_record_without_dhcp_or_address_is_not_answered() {
    let disabled = Reservation { disabled: true, ..reservation() };
    let homeless = Reservation { address: None, ..reservation() };
    let discover = packet(MessageType::Discover);
    assert_eq!(ask_as(&discover, broadcast(), &disabled, &link()), Err(DropReason::LeftToOthers));
    assert_eq!(ask_as(&discover, broadcast(), &homeless, &link()), Err(DropReason::NoAddress));
    let renewal = wanting(&[], OTHER);
    assert_eq!(ask_as(&renewal, broadcast(), &homeless, &link()), Err(DropReason::NoAddress));
}

#[test]
fn an_ack_repeats_the_clients_address_and_an_offer_does_not() {
    assert_eq!(ask(&wanting(&[], OURS)).unwrap().packet.ciaddr, OURS);
    let discover = Packet { ciaddr: OURS, ..packet(MessageType::Discover) };
    assert_eq!(ask(&discover).unwrap().packet.ciaddr, Ipv4Addr::UNSPECIFIED);
}

#[test]
fn a_reply_that_does_not_fit_is_not_sent() {
    let own = Reservation { boot_file: Some("x".repeat(250)), ..reservation() };
    let ask = |octets: u8| {
        let relay_agent = [&[1, octets - 2], &vec![b'x'; usize::from(octets) - 2][..]].concat();
        let relayed = Packet { giaddr: RELAY, ..pxe(MessageType::Discover, 7) };
        kind(&ask_as(&with(relayed, &[(82, &relay_agent)]), unicast(), &own, &link()))
    };
    assert_eq!(ask(20), Ok(MessageType::Offer));
    assert_eq!(ask(250), Err(DropReason::TooLarge));
}

#[test]
fn a_nak_has_no_other_options() {
    let client = with(wanting(&[], OTHER), &[(61, b"\x01id"), (82, b"\x01\x01x"), (97, &[0; 17])]);
    let packet = ask(&client).unwrap().packet;
    let codes: Vec<_> = packet.options.iter().map(|(code, _)| code).collect();
    assert_eq!(codes, [53, 54, 56, 61, 82]);
    assert_eq!([packet.ciaddr, packet.yiaddr, packet.siaddr], [Ipv4Addr::UNSPECIFIED; 3]);
}

#[test]
fn a_nak_is_broadcast_even_to_a_client_that_renews() {
    let reply = ask_as(&wanting(&[], OTHER), unicast(), &reservation(), &link()).unwrap();
    assert_eq!(reply.to, BROADCAST);
}

#[test]
fn a_nak_through_a_relay_asks_it_to_broadcast() {
    let reply = ask(&Packet { giaddr: RELAY, ..wanting(&[], OTHER) }).unwrap();
    assert_eq!(reply.to, SocketAddrV4::new(RELAY, 67));
    assert_eq!(reply.packet.flags, 0x8000);
}

#[test]
fn a_reply_is_sent_where_its_client_can_receive_it() {
    let host = |address, port| SocketAddrV4::new(address, port);
    let relayed = Packet { giaddr: RELAY, flags: 0x8000, ..packet(MessageType::Discover) };
    let rows = [
        (packet(MessageType::Discover), broadcast(), BROADCAST),
        (relayed, unicast(), host(RELAY, 67)),
        (wanting(&[], OURS), unicast(), host(OURS, 68)),
        (wanting(&[], OURS), broadcast(), BROADCAST),
        (pxe(MessageType::Request, 7), boot_service(), host(OURS, 4011)),
    ];
    for (request, received, to) in rows {
        assert_eq!(
            ask_as(&request, received, &reservation(), &link()).map(|reply| reply.to),
            Ok(to)
        );
    }
}

#[test]
fn inform_is_answered_without_a_lease() {
    let client = Packet { ciaddr: OTHER, ..packet(MessageType::Inform) };
    let reply = ask(&client).unwrap();
    assert_eq!(
        (reply.packet.kind(), reply.packet.yiaddr),
        (Some(MessageType::Ack), Ipv4Addr::UNSPECIFIED)
    );
    assert_eq!(reply.to, SocketAddrV4::new(OTHER, 68));
    for lease in [code::LEASE_TIME, code::RENEWAL_TIME, code::REBINDING_TIME] {
        assert_eq!(reply.packet.options.get(lease), None);
    }
    assert_eq!(reply.packet.options.address(code::ROUTER), Some(US));
}

#[test]
fn inform_without_an_address_is_answered_to_its_source() {
    let reply = ask_as(&packet(MessageType::Inform), unicast(), &reservation(), &link()).unwrap();
    assert_eq!(reply.to, SocketAddrV4::new(OURS, 68));
}

#[test]
fn inform_from_another_port_is_answered_there_if_source_and_client_address_agree() {
    let from = |source, port| Received { source: SocketAddrV4::new(source, port), ..unicast() };
    let client = Packet { ciaddr: OTHER, ..packet(MessageType::Inform) };
    let to = |received| ask_as(&client, received, &reservation(), &link()).unwrap().to;
    assert_eq!(to(from(OTHER, 5068)), SocketAddrV4::new(OTHER, 5068));
    assert_eq!(to(from(OURS, 5068)), SocketAddrV4::new(OTHER, 68));
    let relayed = Packet { giaddr: RELAY, ..client };
    let reply = ask_as(&relayed, from(RELAY, 67), &reservation(), &link()).unwrap();
    assert_eq!(reply.to, SocketAddrV4::new(OTHER, 68));
}

#[test]
fn declined_and_released_addresses_are_reported_if_they_are_ours() {
    let decline =
        |address: Ipv4Addr| with(packet(MessageType::Decline), &[(50, &address.octets())]);
    let release = |ciaddr| Packet { ciaddr, ..packet(MessageType::Release) };
    assert_eq!(ask(&decline(OURS)), Err(DropReason::Declined(OURS)));
    assert_eq!(ask(&decline(OTHER)), Err(DropReason::NotOurs));
    assert_eq!(ask(&release(OURS)), Err(DropReason::Released(OURS)));
    assert_eq!(ask(&release(OTHER)), Err(DropReason::NotOurs));
}

#[test]
fn a_withheld_address_is_not_offered_and_still_acknowledged() {
    let (link, reservation) = (link(), reservation());
    let reply = |packet: &Packet| {
        let inputs = ReplyInputs {
            link: &link,
            mode: link.mode,
            reservation: Some(&reservation),
            offer: BootOffer::Offered,
            is_withheld: true,
        };
        kind(&reply(&request(packet), inputs))
    };
    assert_eq!(reply(&packet(MessageType::Discover)), Err(DropReason::Withheld));
    assert_eq!(reply(&wanting(&[], OURS)), Ok(MessageType::Ack));
}

#[test]
fn server_messages_and_unsupported_types_are_not_answered() {
    for kind in [MessageType::Offer, MessageType::Ack, MessageType::Nak, MessageType::Other] {
        assert_eq!(ask(&packet(kind)), Err(DropReason::MessageType));
    }
}

#[test]
fn a_machine_on_another_network_gets_no_offer_and_a_nak() {
    let there = Ipv4Addr::new(192, 0, 2, 254);
    let discover = Packet { giaddr: there, ..packet(MessageType::Discover) };
    let reboot = Packet {
        giaddr: there,
        ..wanting(&[address(code::REQUESTED_ADDRESS, OURS)], Ipv4Addr::UNSPECIFIED)
    };
    assert_eq!(kind(&ask(&discover)), Err(DropReason::OtherNetwork));
    assert_eq!(kind(&ask(&reboot)), Ok(MessageType::Nak));
    let link = Link { networks: vec![Ipv4Net::new_assert(there, 24)], ..link() };
    let local = ask_as(&packet(MessageType::Discover), broadcast(), &reservation(), &link);
    assert_eq!(local, Err(DropReason::OtherNetwork));
}

#[test]
fn only_listed_relays_are_answered_where_there_is_a_list() {
    let link = Link { relays: vec![RELAY], ..link() };
    let from = |giaddr| Packet { giaddr, ..packet(MessageType::Discover) };
    let ask = |giaddr| kind(&ask_as(&from(giaddr), unicast(), &reservation(), &link));
    assert_eq!(ask(RELAY), Ok(MessageType::Offer));
    assert_eq!(ask(Ipv4Addr::new(198, 51, 100, 253)), Err(DropReason::Relay));
}

/// Link selection and server identifier override.
const RELAYED: [u8; 12] = [5, 4, 198, 51, 100, 0, 11, 4, 192, 0, 2, 254];

#[test]
fn a_trusted_relay_selects_the_network_and_the_server_identifier() {
    let there = Ipv4Addr::new(192, 0, 2, 254);
    let link = Link { relays: vec![there], ..link() };
    let discover =
        with(Packet { giaddr: there, ..packet(MessageType::Discover) }, &[(82, &RELAYED)]);
    let reply = ask_as(&discover, unicast(), &reservation(), &link).unwrap();
    assert_eq!(reply.packet.options.address(code::SERVER_IDENTIFIER), Some(there));
    let options = [address(code::SERVER_IDENTIFIER, there), address(code::REQUESTED_ADDRESS, OURS)];
    let select = with(
        Packet { giaddr: there, ..wanting(&options, Ipv4Addr::UNSPECIFIED) },
        &[(82, &RELAYED)],
    );
    assert_eq!(kind(&ask_as(&select, unicast(), &reservation(), &link)), Ok(MessageType::Ack));
}

#[test]
fn the_option_of_an_untrusted_relay_is_echoed_and_otherwise_ignored() {
    let discover =
        with(Packet { giaddr: RELAY, ..packet(MessageType::Discover) }, &[(82, &RELAYED)]);
    let packet = ask(&discover).unwrap().packet;
    assert_eq!(packet.options.address(code::SERVER_IDENTIFIER), Some(US));
    assert_eq!(packet.options.get(82), Some(&RELAYED[..]));
}

#[test]
fn ignored_vendors_and_disabled_links_are_not_answered() {
    let ignoring = Link { ignored_vendors: vec![[0x52, 0x54, 0]], ..link() };
    let off = Link { mode: Mode::Disabled, ..link() };
    let discover = packet(MessageType::Discover);
    assert_eq!(ask_as(&discover, broadcast(), &reservation(), &ignoring), Err(DropReason::Vendor));
    assert_eq!(ask_as(&discover, broadcast(), &reservation(), &off), Err(DropReason::Off));
    assert_eq!(
        ask_as(&pxe(MessageType::Request, 7), boot_service(), &reservation(), &off),
        Err(DropReason::Off)
    );
}

mod beside_another_server {
    use super::*;

    fn proxy(
        request: &Packet,
        machine: Option<&Reservation>,
        mode: Mode,
    ) -> Result<Reply, DropReason> {
        let link = Link { mode, ..link() };
        reply_to(request, broadcast(), machine, &link, BootOffer::Offered)
    }

    #[test]
    fn booting_clients_are_offered_a_file_and_no_address() {
        let reply =
            proxy(&pxe(MessageType::Discover, 7), Some(&reservation()), Mode::Proxy).unwrap();
        let codes: Vec<_> = reply.packet.options.iter().map(|(code, _)| code).collect();
        assert_eq!(codes, [43, 53, 54, 60, 66, 67]);
        assert_eq!((reply.packet.yiaddr, reply.packet.siaddr), (Ipv4Addr::UNSPECIFIED, US));
        assert!(reply.packet.sname.starts_with(b"198.51.100.1\0"));
        assert_eq!(file(&reply.packet), "snponly.efi");
    }

    #[test]
    fn ordinary_clients_and_requests_to_the_other_server_are_not_answered() {
        let machine = reservation();
        assert_eq!(
            proxy(&packet(MessageType::Discover), Some(&machine), Mode::Proxy),
            Err(DropReason::NotBooting)
        );
        assert_eq!(
            proxy(&pxe(MessageType::Request, 7), Some(&machine), Mode::Proxy),
            Err(DropReason::Proxy)
        );
    }

    #[test]
    fn one_machine_may_have_its_address_from_another_server() {
        let machine = Reservation { proxy: true, address: None, ..reservation() };
        let ask = |request: &Packet| ask_as(request, broadcast(), &machine, &link());
        let offer = ask(&ipxe(MessageType::Discover)).unwrap().packet;
        assert_eq!((offer.yiaddr, offer.siaddr), (Ipv4Addr::UNSPECIFIED, US));
        assert_eq!([1, 3, 51, 175].map(|code| offer.options.get(code)), [None; 4]);
        assert_eq!(ask(&pxe(MessageType::Request, 7)), Err(DropReason::Proxy));
        assert_eq!(ask(&packet(MessageType::Discover)), Err(DropReason::NotBooting));
        let leg = ask_as(&pxe(MessageType::Request, 7), boot_service(), &machine, &link());
        assert_eq!(file(&leg.unwrap().packet), "snponly.efi");
        let disabled = Reservation { disabled: true, ..machine.clone() };
        let silence = ask_as(&pxe(MessageType::Discover, 7), broadcast(), &disabled, &link());
        assert_eq!(silence, Err(DropReason::LeftToOthers));
    }

    #[test]
    fn a_refused_machine_is_refused_beside_another_server_too() {
        let link = Link { mode: Mode::Proxy, ..link() };
        let machine = reservation();
        let discover = pxe(MessageType::Discover, 7);
        let refused = BootOffer::Refused;
        let reply = reply_to(&discover, broadcast(), Some(&machine), &link, refused);
        let packet = reply.unwrap().packet;
        assert_eq!((file(&packet), packet.yiaddr), (REFUSED_FILE, Ipv4Addr::UNSPECIFIED));
    }

    #[test]
    fn machines_without_a_record_boot_only_in_auto_proxy_mode() {
        let discover = ipxe(MessageType::Discover);
        assert_eq!(proxy(&discover, None, Mode::Proxy), Err(DropReason::Unknown));
        let reply = proxy(&discover, None, Mode::AutoProxy).unwrap();
        assert_eq!(file(&reply.packet), "http://198.51.100.1:7080/52-54-00-00-00-01/auto.ipxe");
        assert_eq!(reply.packet.options.get(code::IPXE), None);
    }

    #[test]
    fn the_boot_service_acknowledges_with_the_file() {
        let request = Packet { ciaddr: OURS, ..pxe(MessageType::Request, 0) };
        let reply = ask_as(&request, boot_service(), &reservation(), &link()).unwrap();
        assert_eq!(
            (reply.packet.kind(), reply.packet.yiaddr),
            (Some(MessageType::Ack), Ipv4Addr::UNSPECIFIED)
        );
        assert_eq!(file(&reply.packet), "undionly.kpxe");
        assert_eq!(reply.packet.options.get(code::LEASE_TIME), None);
    }

    #[test]
    fn the_boot_service_is_only_for_pxe_requests() {
        let ask =
            |request: &Packet| kind(&ask_as(request, boot_service(), &reservation(), &link()));
        assert_eq!(ask(&pxe(MessageType::Discover, 7)), Err(DropReason::MessageType));
        assert_eq!(ask(&packet(MessageType::Request)), Err(DropReason::NotBooting));
        assert_eq!(ask(&http(MessageType::Request)), Err(DropReason::NotBooting));
    }
}
