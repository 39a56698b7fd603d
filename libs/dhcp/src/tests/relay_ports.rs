//! Machines identified by their switch port, and machines that are pinned to it.

use super::relay::RelayPort;
use super::*;

/// gi0/1 and a number of the relay's own, of the switch leaf.
const OPTION: [u8; 15] = *b"\x01\x07gi0/1:7\x02\x04leaf";

fn port(pinned: bool) -> RelayPort {
    RelayPort { circuit_id: b"gi0/1".into(), remote_id: b"leaf".into(), link: None, pinned }
}

fn pinned() -> Reservation {
    Reservation { port: Some(port(true)), ..reservation() }
}

fn through(relay: Ipv4Addr, option: &[u8], request: Packet) -> Packet {
    with(Packet { giaddr: relay, ..request }, &[(82, option)])
}

/// Option 82 of `packet`, which came from the relay.
fn relayed<T>(
    packet: &Packet,
    link: &Link,
    read: impl FnOnce(&super::relay::Relayed<'_>) -> T,
) -> T {
    let received = Received { source: SocketAddrV4::new(RELAY, 67), ..unicast() };
    read(&Request::new(packet.clone(), received, link).unwrap().relayed(link))
}

fn trusting() -> Link {
    Link { relays: vec![RELAY], ..link() }
}

#[test]
fn a_port_matches_only_if_a_trusted_relay_names_it() {
    let is = |port: &RelayPort, relay, link: &Link| {
        let request = through(relay, &OPTION, packet(MessageType::Discover));
        relayed(&request, link, |relayed| port.matches(relayed))
    };
    assert!(is(&port(false), RELAY, &trusting()));
    assert!(!is(&port(false), RELAY, &link()), "no relay is trusted");
    assert!(!is(&port(false), Ipv4Addr::UNSPECIFIED, &trusting()), "switches are not trusted");
    let switches = Link { trust_switches: true, ..link() };
    assert!(is(&port(false), Ipv4Addr::UNSPECIFIED, &switches));
    let elsewhere = RelayPort { link: Some(OTHER), ..port(false) };
    assert!(!is(&elsewhere, RELAY, &trusting()));
    assert!(is(&RelayPort { link: Some(RELAY), ..port(false) }, RELAY, &trusting()));
    assert!(!is(&RelayPort { remote_id: b"spine".into(), ..port(false) }, RELAY, &trusting()));
    assert!(!is(&RelayPort { circuit_id: b"gi0".into(), ..port(false) }, RELAY, &trusting()));
}

#[test]
fn a_simulated_relay_forwards_from_the_port_of_a_record() {
    for port in [port(true), RelayPort { link: Some([192, 0, 2, 0].into()), ..port(false) }] {
        let relay = SimulatedRelay::of(&port, None, &trusting()).unwrap();
        let request = relay.forward(packet(MessageType::Discover));
        assert_eq!(request.giaddr, RELAY);
        assert!(relayed(&request, &trusting(), |relayed| port.matches(relayed)), "{port:?}");
    }
    assert_eq!(SimulatedRelay::of(&port(true), None, &link()), None, "no relay is trusted");
}

#[test]
fn a_port_may_be_on_the_link_that_the_relay_selects() {
    let option = [&OPTION[..], &[5, 4, 192, 0, 2, 0]].concat();
    let request = through(RELAY, &option, packet(MessageType::Discover));
    let there = RelayPort { link: Some([192, 0, 2, 0].into()), ..port(false) };
    assert!(relayed(&request, &trusting(), |relayed| there.matches(relayed)));
}

#[test]
fn a_pinned_machine_gets_no_address_and_no_boot_from_another_port() {
    let ask = |request: &Packet| kind(&ask_as(request, unicast(), &pinned(), &trusting()));
    for kind in [MessageType::Discover, MessageType::Request, MessageType::Inform] {
        let other = through(RELAY, b"\x01\x05gi0/2\x02\x04leaf", pxe(kind, 7));
        assert_eq!(ask(&other), Err(DropReason::OtherPort));
        assert_eq!(ask(&pxe(kind, 7)), Err(DropReason::OtherPort), "from no port");
    }
    let leg = ask_as(&pxe(MessageType::Request, 7), boot_service(), &pinned(), &trusting());
    assert_eq!(leg, Err(DropReason::OtherPort));
    let proxy = Link { mode: Mode::Proxy, ..trusting() };
    let proxied = ask_as(&pxe(MessageType::Discover, 7), unicast(), &pinned(), &proxy);
    assert_eq!(proxied, Err(DropReason::OtherPort));
    let here = through(RELAY, &OPTION, pxe(MessageType::Discover, 7));
    assert_eq!(ask(&here), Ok(MessageType::Offer));
}

#[test]
fn a_machine_that_is_not_pinned_is_served_at_every_port() {
    let machine = Reservation { port: Some(port(false)), ..reservation() };
    let other = through(RELAY, b"\x01\x05gi0/2", packet(MessageType::Discover));
    assert_eq!(kind(&ask_as(&other, unicast(), &machine, &trusting())), Ok(MessageType::Offer));
}

#[test]
fn a_machine_with_a_new_interface_keeps_the_path_of_its_record() {
    let mut discover = through(RELAY, &OPTION, ipxe(MessageType::Discover));
    discover.chaddr[5] = 9;
    let packet = ask_as(&discover, unicast(), &pinned(), &trusting()).unwrap().packet;
    assert_eq!(file(&packet), "http://198.51.100.1:7080/52-54-00-00-00-01/auto.ipxe");
    assert_eq!((packet.yiaddr, packet.chaddr), (OURS, discover.chaddr));
}

#[test]
fn option_82_is_echoed_unchanged_and_last() {
    let here = through(RELAY, &OPTION, packet(MessageType::Discover));
    let bytes = ask_as(&here, unicast(), &pinned(), &trusting()).unwrap().datagram;
    let end = [&[82, 15], &OPTION[..], &[255]].concat();
    let options = bytes.iter().rposition(|octet| *octet != 0).unwrap() + 1;
    assert!(bytes[..options].ends_with(&end));
}
