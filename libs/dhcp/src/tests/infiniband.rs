//! InfiniBand clients (RFC 4390), which are recognized and not served.

use super::*;

/// A DISCOVER of PXE firmware on InfiniBand with the client identifier `id`.
fn discover(id: &[u8]) -> Packet {
    let packet = Packet { htype: 32, hlen: 0, chaddr: [0; 16], ..pxe(MessageType::Discover, 7) };
    with(packet, &[(61, id)])
}

/// A GUID, as it ends the client identifier.
const GUID: [u8; 8] = [0x24, 0x8a, 0x07, 0x03, 0x00, 0x91, 0x6e, 0x12];
const ALIAS: MacAddress = [0x24, 0x8a, 0x07, 0x91, 0x6e, 0x12];

#[test]
fn the_alias_is_the_address_in_the_client_identifier_or_derived_from_the_guid_at_its_end() {
    let link_layer = [&[0x20, 0x80, 0, 0x02, 0x08, 0xfe, 0x80, 0, 0, 0, 0, 0, 0][..], &GUID];
    let of_firmware = [&[0xff, 0, 0, 0, 0, 0, 2, 0, 0, 2, 0xc9, 0][..], &GUID];
    let duid = [&[0xff, 1, 2, 3, 4, 0, 3, 0, 32][..], &GUID];
    for id in [link_layer, of_firmware, duid, [&[0x00], &GUID]].map(|parts| parts.concat()) {
        let bytes = discover(&id).encode(1472).unwrap();
        let request = Request::parse(&bytes, broadcast(), &link()).unwrap();
        assert_eq!((request.mac, request.is_infiniband()), (ALIAS, true), "{id:?}");
    }
    let request = request(&discover(&[&[1][..], &ALIAS].concat()));
    assert_eq!((request.mac, request.class), (ALIAS, ClientClass::Pxe));
}

#[test]
fn an_identifier_that_ends_in_a_hash_stands_for_an_address_of_one_interface() {
    const HASH: [u8; 8] = [0x25, 0x8a, 0x07, 0x03, 0x00, 0x91, 0x6e, 0x12];
    // DUIDs of the types EN and UUID.
    let duids: [&[u8]; 2] = [&[0, 2, 0, 0, 0x81, 0x7d], &[0, 4, 1, 2, 3, 4, 5, 6, 7, 8]];
    for duid in duids {
        let id = [&[0xff, 1, 2, 3, 4][..], duid, &HASH].concat();
        let bytes = discover(&id).encode(1472).unwrap();
        let parsed = Request::parse(&bytes, broadcast(), &link());
        assert_eq!(parsed.map(|request| request.mac), Ok(ALIAS), "{id:?}");
    }
    let mut group = ALIAS;
    group[0] |= 1;
    assert_eq!(request(&discover(&[&[1][..], &group].concat())).mac, ALIAS);
}

#[test]
fn a_client_without_a_usable_identifier_has_the_alias_of_its_hardware_address_or_none() {
    let only_group_bit = [0, 1, 0, 0, 0, 0, 0, 0, 0];
    for id in [&[][..], &[0xff], &[0xff, 1, 2, 3, 4, 5, 6, 7], &[0; 21], &only_group_bit] {
        let bytes = discover(id).encode(1472).unwrap();
        let parsed = Request::parse(&bytes, broadcast(), &link());
        assert_eq!(parsed.map(|request| request.mac), Err(Malformed::Hardware), "{id:?}");
        let mut with_guid = Packet { hlen: 8, ..discover(id) };
        with_guid.chaddr[..8].copy_from_slice(&GUID);
        assert_eq!(request(&with_guid).mac, ALIAS, "{id:?}");
    }
}

#[test]
fn no_mode_serves_infiniband() {
    let id = [&[0xff][..], &[0; 11], &GUID].concat();
    for mode in [Mode::Reservation, Mode::Proxy, Mode::AutoProxy] {
        let link = Link { mode, ..link() };
        for kind in [MessageType::Discover, MessageType::Request, MessageType::Inform] {
            let request = with(discover(&id), &[(53, &[kind as u8])]);
            let reply = ask_as(&request, broadcast(), &reservation(), &link);
            assert_eq!(reply, Err(DropReason::Infiniband), "{mode:?}");
        }
    }
    let off = Link { mode: Mode::Disabled, ..link() };
    assert_eq!(ask_as(&discover(&id), broadcast(), &reservation(), &off), Err(DropReason::Off));
}

#[test]
fn an_ethernet_address_on_an_infiniband_interface_is_served() {
    let packet = Packet { htype: 32, ..pxe(MessageType::Discover, 7) };
    assert!(!request(&packet).is_infiniband());
    assert_eq!(file(&ask(&packet).unwrap().packet), "snponly.efi");
}
