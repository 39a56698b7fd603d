//! The network options and the lease times (docs/reference/dhcp.md, "Options").

use super::*;

fn option(packet: &Packet, code: u8) -> Option<Vec<u8>> {
    packet.options.get(code).map(<[u8]>::to_vec)
}

fn discover(asked: &[u8]) -> Packet {
    with(packet(MessageType::Discover), &[(code::PARAMETER_REQUEST_LIST, asked)])
}

fn offer(request: &Packet, machine: &Reservation, link: &Link) -> Packet {
    ask_as(request, broadcast(), machine, link).unwrap().packet
}

#[test]
fn the_network_options_are_the_records() {
    let packet = offer(&packet(MessageType::Discover), &reservation(), &link());
    let mask_router_broadcast = [1, 3, 28].map(|code| packet.options.address(code));
    let expected = [Ipv4Addr::new(255, 255, 255, 0), US, Ipv4Addr::new(198, 51, 100, 255)];
    assert_eq!(mask_router_broadcast, expected.map(Some));
    assert_eq!(option(&packet, 12), Some(b"node1".to_vec()));
}

#[test]
fn point_to_point_networks_have_no_broadcast_address() {
    for (prefix, mask) in [(31, [255, 255, 255, 254]), (32, [255; 4])] {
        let machine =
            Reservation { address: Some(Ipv4Net::new_assert(OURS, prefix)), ..reservation() };
        let packet = offer(&packet(MessageType::Discover), &machine, &link());
        assert_eq!((option(&packet, 1), option(&packet, 28)), (Some(mask.to_vec()), None));
    }
}

#[test]
fn the_record_overrides_the_links_defaults() {
    let link = Link {
        name_servers: vec![US],
        domain: "lab".into(),
        time_servers: vec![US, OTHER],
        ..link()
    };
    let machine = Reservation { name_servers: vec![OTHER], ..reservation() };
    let packet = offer(&packet(MessageType::Discover), &machine, &link);
    assert_eq!(option(&packet, 6), Some(OTHER.octets().to_vec()));
    assert_eq!(
        (option(&packet, 15), option(&packet, 42)),
        (Some(b"lab".to_vec()), Some([US.octets(), OTHER.octets()].concat()))
    );
}

#[test]
fn client_id_relay_information_and_uuid_are_echoed_unchanged() {
    let said: [(u8, &[u8]); 3] =
        [(61, b"\xffwhatever"), (82, b"\x01\x04Gi/1\x02\x00"), (97, b"garbage")];
    let packet = offer(&with(packet(MessageType::Discover), &said), &reservation(), &link());
    for (code, value) in said {
        assert_eq!(packet.options.get(code), Some(value));
    }
}

#[test]
fn a_booting_client_has_a_short_lease_and_an_ordinary_one_the_records() {
    let machine = Reservation { lease_seconds: 3600, ..reservation() };
    let lease = |request: &Packet, machine: &Reservation| {
        let packet = offer(request, machine, &link());
        [51, 58, 59].map(|code| {
            packet.options.get(code).map(|value| u32::from_be_bytes(value.try_into().unwrap()))
        })
    };
    let ordinary = packet(MessageType::Discover);
    assert_eq!(lease(&ordinary, &machine), [Some(3600), Some(1800), Some(3150)]);
    assert_eq!(lease(&ordinary, &reservation()), [Some(86_400), Some(43_200), Some(75_600)]);
    assert_eq!(lease(&ipxe(MessageType::Discover), &machine), [Some(600), Some(300), Some(525)]);
    let endless = Reservation { lease_seconds: u32::MAX, ..reservation() };
    assert_eq!(lease(&ordinary, &endless), [Some(u32::MAX), None, None]);
}

#[test]
fn a_lease_is_never_zero_seconds() {
    let link = Link { lease_seconds: 0, boot_lease_seconds: 0, ..link() };
    for request in [packet(MessageType::Discover), ipxe(MessageType::Discover)] {
        assert_eq!(option(&offer(&request, &reservation(), &link), 51), Some(vec![0, 0, 0, 1]));
    }
}

#[test]
fn some_options_are_sent_only_if_requested() {
    let machine = Reservation { mtu: Some(9000), ..reservation() };
    let link = Link {
        time_servers: vec![US],
        search: vec!["a.lab".into()],
        metadata_router: Some(US),
        ..link()
    };
    let sent = |request: &Packet| {
        let packet = offer(request, &machine, &link);
        [26, 42, 119, 121, 249].map(|code| packet.options.get(code).is_some())
    };
    assert_eq!(sent(&discover(&[1, 3])), [false; 5]);
    assert_eq!(sent(&discover(&[26, 42, 119, 121, 249])), [true; 5]);
    assert_eq!(sent(&packet(MessageType::Discover)), [true, true, true, true, false]);
}

#[test]
fn only_a_possible_mtu_is_sent() {
    let mtu = |mtu| {
        option(
            &offer(&discover(&[26]), &Reservation { mtu: Some(mtu), ..reservation() }, &link()),
            26,
        )
    };
    assert_eq!([mtu(575), mtu(9217)], [None, None]);
    assert_eq!(mtu(1500), Some(vec![5, 220]));
}

#[test]
fn routes_include_the_default_route() {
    let destination = Ipv4Net::new_assert(Ipv4Addr::new(10, 1, 2, 3), 9);
    let route = StaticRoute { destination, gateway: OTHER };
    let machine = Reservation { routes: vec![route], ..reservation() };
    let link = Link { metadata_router: Some(US), ..link() };
    let expected = [
        &[9, 10, 0, 198, 51, 100, 77][..],
        &[32, 169, 254, 169, 254, 198, 51, 100, 1],
        &[0, 198, 51, 100, 1],
    ];
    assert_eq!(option(&offer(&discover(&[121]), &machine, &link), 121), Some(expected.concat()));
}

#[test]
fn the_metadata_route_is_not_sent_to_another_network() {
    let there = Ipv4Net::new_assert(Ipv4Addr::new(203, 0, 113, 5), 24);
    let machine = Reservation { address: Some(there), ..reservation() };
    let link = Link { metadata_router: Some(US), ..link() };
    let request = with(discover(&[121]), &[]);
    let relayed = Packet { giaddr: Ipv4Addr::new(203, 0, 113, 1), ..request };
    assert_eq!(option(&offer(&relayed, &machine, &link), 121), None);
}

#[test]
fn without_routes_there_is_no_route_option() {
    assert_eq!(option(&offer(&discover(&[121, 249]), &reservation(), &link()), 121), None);
}

#[test]
fn search_domains_are_encoded_as_in_dns_and_impossible_ones_left_out() {
    let search = vec!["ab.c.".into(), "a..b".into(), "x".repeat(64)];
    let packet = offer(&discover(&[119]), &reservation(), &Link { search, ..link() });
    assert_eq!(option(&packet, 119), Some(b"\x02ab\x01c\0".to_vec()));
}
