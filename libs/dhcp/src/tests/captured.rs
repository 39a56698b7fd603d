//! DISCOVERs of real programs, captured on the wire: udhcpc 1.35, ISC dhclient 4.4.3, iPXE of 2019 as a BIOS
//! option ROM, OVMF 2022.11 by PXE and by HTTP. The machines' UUID was 00112233-4455-6677-8899-aabbccddeeff.

use super::*;

const UDHCPC: &[u8] = include_bytes!("captures/udhcpc.bin");
const DHCLIENT: &[u8] = include_bytes!("captures/dhclient.bin");
const IPXE: &[u8] = include_bytes!("captures/ipxe.bin");
const OVMF_PXE: &[u8] = include_bytes!("captures/ovmf-pxe.bin");
const OVMF_HTTP: &[u8] = include_bytes!("captures/ovmf-http.bin");

fn discover(bytes: &[u8]) -> Packet {
    let packet = Packet::parse_request(bytes).unwrap();
    assert_eq!(packet.kind(), Some(MessageType::Discover));
    packet
}

#[test]
fn programs_are_classified() {
    let client = |bytes| request(&discover(bytes));
    let seen = [UDHCPC, DHCLIENT, IPXE, OVMF_PXE, OVMF_HTTP].map(|bytes| client(bytes).class);
    assert_eq!(
        seen,
        [
            ClientClass::Ordinary,
            ClientClass::Ordinary,
            ClientClass::Ipxe { http: true },
            ClientClass::Pxe,
            ClientClass::Http
        ]
    );
    let architectures = [IPXE, OVMF_PXE, OVMF_HTTP]
        .map(|bytes| client(bytes).packet.architectures().collect::<Vec<_>>());
    assert_eq!(architectures, [vec![0], vec![7], vec![16]]);
}

#[test]
fn firmware_sends_the_uuid_with_its_first_groups_swapped() {
    let swapped = [
        0x33, 0x22, 0x11, 0x00, 0x55, 0x44, 0x77, 0x66, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee,
        0xff,
    ];
    for bytes in [IPXE, OVMF_PXE, OVMF_HTTP] {
        assert_eq!(request(&discover(bytes)).uuid(), Some(swapped));
    }
}

#[test]
fn each_program_is_sent_to_a_file_it_can_run() {
    let file = |bytes| file(&ask(&discover(bytes)).unwrap().packet).to_owned();
    assert_eq!([UDHCPC, DHCLIENT].map(file), ["", ""]);
    assert_eq!(file(IPXE), "http://198.51.100.1:7080/52-54-00-00-00-01/auto.ipxe");
    assert_eq!(file(OVMF_PXE), "snponly.efi");
    assert_eq!(file(OVMF_HTTP), "http://198.51.100.1:7080/ipxe/52-54-00-00-00-01/snponly.efi");
}

#[test]
fn every_reply_fits_its_client() {
    for bytes in [UDHCPC, DHCLIENT, IPXE, OVMF_PXE, OVMF_HTTP] {
        let reply = ask(&discover(bytes)).unwrap();
        assert!((300..=reply.max_payload).contains(&reply.datagram.len()));
    }
}
