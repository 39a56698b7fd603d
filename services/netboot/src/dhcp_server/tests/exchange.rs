//! Packets of one exchange, of which only the DISCOVER describes its client.
#![allow(clippy::unwrap_used)]

use super::super::*;
use super::{ask, ask_at, boot_file, relayed_request, request, server};
use crate::bootscripts::tests::MAC;
use dhcp::options::{Options, code};
use dhcp::{MessageType, Mode};

/// The REQUEST of the client at `mac`, which says nothing of its program.
fn bare(mac: Mac, xid: u32) -> Vec<u8> {
    relayed_request(MessageType::Request, mac, xid, Options::default())
}

#[test]
fn a_request_without_options_gets_the_boot_file_of_its_discover() {
    let (server, _signs) = server();
    assert_eq!(boot_file(ask(&server, &request(MessageType::Discover, MAC, 7))), "snponly.efi");
    assert_eq!(boot_file(ask(&server, &bare(MAC, 7))), "snponly.efi");
    assert_eq!(boot_file(ask(&server, &bare(MAC, 8))), "", "another exchange");
}

#[test]
fn a_request_to_the_boot_service_gets_the_boot_file_of_its_discover() {
    let (server, _signs) = server();
    let client = SocketAddrV4::new([192, 0, 2, 10].into(), 4011);
    let at_4011 = || ask_at(&server, &bare(MAC, 99), client, ListenPort::BootService);
    assert_eq!(at_4011(), None, "it is not known to be of firmware");
    ask(&server, &request(MessageType::Discover, MAC, 7)).unwrap();
    assert_eq!(boot_file(at_4011()), "snponly.efi");
}

#[test]
fn a_request_without_options_is_recorded_as_its_discover() {
    let (server, _signs) = server();
    let machine = server.view.scripts.index.by_mac(MAC).unwrap();
    ask(&server, &request(MessageType::Discover, MAC, 7)).unwrap();
    ask(&server, &bare(MAC, 7)).unwrap();
    let seen = server.view.scripts.history.firmware(&machine).unwrap();
    assert_eq!(seen.architectures, [7]);
    let mut other = Options::default();
    other.set(code::VENDOR_CLASS, "PXEClient:Arch:00000:UNDI:002001");
    ask(&server, &relayed_request(MessageType::Discover, MAC, 9, other)).unwrap();
    let seen = server.view.scripts.history.firmware(&machine).unwrap();
    assert_eq!(seen.architectures, [0], "the default of firmware without option 93");
}

#[test]
fn a_request_to_another_server_ends_the_exchange() {
    for (mode, file) in [(Mode::Reservation, Some("")), (Mode::Proxy, None)] {
        let (mut server, _signs) = server();
        Arc::make_mut(&mut server.view.link).mode = mode;
        let first = ask(&server, &request(MessageType::Discover, MAC, 7));
        assert_eq!(boot_file(first), "snponly.efi");
        let mut other = Options::default();
        other.set(code::SERVER_IDENTIFIER, [192, 0, 2, 99]);
        assert_eq!(ask(&server, &relayed_request(MessageType::Request, MAC, 7, other)), None);
        let bare = relayed_request(MessageType::Discover, MAC, 7, Options::default());
        let later = ask(&server, &bare).map(|reply| boot_file(Some(reply)));
        assert_eq!(later.as_deref(), file, "{mode:?}");
    }
}

#[test]
fn clients_that_are_not_answered_are_not_remembered() {
    let (server, _signs) = server();
    let unknown = Mac([2, 0, 0, 0, 0, 99]);
    assert_eq!(ask(&server, &request(MessageType::Discover, unknown, 7)), None);
    let now = server.clock.monotonic();
    let (view, datagram) = (&server.view, bare(unknown, 7));
    let source = SocketAddrV4::new(super::RELAY, 67);
    let received = Received { source, broadcast: false, port: ListenPort::Dhcp };
    let request = Request::parse(&datagram, received, &view.link).unwrap();
    let completed = view.link_state.complete(request, &view.link, now);
    assert_eq!(completed.class, ClientClass::Ordinary);
}
