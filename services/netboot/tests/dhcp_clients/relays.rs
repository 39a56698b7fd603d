//! Clients behind relays: perfdhcp, which acts as a relay itself, and ISC's dhcrelay.

use std::net::Ipv4Addr;

use dhcp::MessageType;
use netboot::site::Dhcp;
use tinwright::hardware::v1::{Hardware, RelayPort};

use crate::capture::{Capture, Seen};
use crate::lab::{Lab, TRIES, TRIES_WITHOUT_REPLY, machine};
use crate::network::{Host, Network};

/// Machines for the MACs of perfdhcp's clients, with the base 52:54:00:aa:00:00.
fn fleet() -> Vec<Hardware> {
    let one = |number: u8| {
        let mut machine = machine(0, &format!("198.51.100.{}", 60 + number));
        machine.interfaces[0].mac = format!("52:54:00:aa:00:{number:02x}");
        machine
    };
    (0..=110).map(one).collect()
}

/// Exchanges per second that a build without optimisation serves beside other tests. `cargo rack load beside` measures the highest rate.
pub(crate) const LASTING_RATE: u32 = 400;

/// The options with which perfdhcp sends `count` DISCOVERs, or a few more, and then waits for late replies as long as `-W` says. It would not wait once
/// it has as many replies as both limits together, some of which may be replies to the few more: so the second limit is out of reach.
pub(crate) fn exchanges(count: u32) -> String {
    format!("-n {count} -n 1000000000")
}

pub(crate) fn perfdhcp(lab: &Lab, options: &str) -> String {
    lab.network.set(Host::Client, "addr add 198.51.100.200/24 dev v1");
    perfdhcp_at(lab, "198.51.100.200", options)
}

/// Runs perfdhcp as a relay of a larger network: 198.18.0.0/15.
pub(crate) fn perfdhcp_far(lab: &Lab, options: &str) -> String {
    lab.network.set(Host::Server, "addr add 198.18.0.1/15 dev br0");
    lab.network.set(Host::Client, "addr add 198.18.0.200/15 dev v1");
    lab.network.set(Host::Client, "route add 198.51.100.1 dev v1");
    perfdhcp_at(lab, "198.18.0.200", options)
}

/// By `-d`, once for each exchange, a reply counts although others overtook it and a second has passed since its request.
fn perfdhcp_at(lab: &Lab, relay: &str, options: &str) -> String {
    let line = format!(
        "perfdhcp -4 -l {relay} -W 2000000 -d 60 -d 60 {options} -b mac=52:54:00:aa:00:00 198.51.100.1"
    );
    let done = lab.client(&line);
    // Its exit status is 3 if any message was not answered; a RELEASE never is.
    assert!([Some(0), Some(3)].contains(&done.status.code()), "{done:?}");
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// Asserts that `report` has `least` exchanges, and that fewer than one in a thousand was lost. A late perfdhcp sends more at
/// once.
pub(crate) fn assert_lost_none(report: &str, least: u32) {
    for exchange in ["DISCOVER-OFFER", "REQUEST-ACK"] {
        let [sent, received] = answered(report, exchange);
        assert!(sent >= least - least / 1000, "{report}");
        assert!((sent - received) * 1000 < sent, "{report}");
    }
}

/// Returns the numbers of messages sent and answered in an exchange.
pub(crate) fn answered(report: &str, exchange: &str) -> [u32; 2] {
    let (_, part) = report.split_once(&format!("{exchange}***")).expect("the exchange");
    ["sent packets: ", "received packets: "].map(|what| {
        let (_, number) = part.split_once(what).expect("a number");
        number.lines().next().unwrap().parse().expect("a number")
    })
}

#[test]
fn perfdhcp_gets_an_address_for_every_machine() {
    let options = format!("-r 50 {} -R 100", exchanges(200));
    let report = perfdhcp(&Lab::new(Dhcp::default(), fleet()), &options);
    assert_lost_none(&report, 200);
}

#[test]
fn six_thousand_exchanges_are_answered() {
    let of = |number: u16| {
        let [high, low] = number.to_be_bytes();
        let mut machine = machine(0, &format!("198.18.{}.{low}", high + 1));
        let interface = &mut machine.interfaces[0];
        interface.mac = format!("52:54:00:aa:{high:02x}:{low:02x}");
        let address = interface.dhcp.as_mut().unwrap().address.as_mut().unwrap();
        (address.prefix_length, address.gateway) = (15, String::new());
        machine
    };
    let lab = Lab::new(Dhcp::default(), (0..2000).map(of).collect());
    let options = format!("-r {LASTING_RATE} {} -R 2000", exchanges(6000));
    assert_lost_none(&perfdhcp_far(&lab, &options), 6000);
}

#[test]
fn perfdhcp_renews_and_releases() {
    let report = perfdhcp(&Lab::new(Dhcp::default(), fleet()), "-r 20 -f 10 -F 5 -p 5 -R 100");
    let [sent, received] = answered(&report, "REQUEST-ACK (renewal)");
    assert!(sent > 0 && sent == received, "{report}");
}

#[test]
fn option_82_of_perfdhcp_is_echoed_unchanged_and_last() {
    let lab = Lab::new(Dhcp::default(), fleet());
    let mut capture = Capture::start(&lab.network);
    let options = format!("-r 20 {} -R 20 -o 82,01047465737402046c656166", exchanges(40));
    perfdhcp(&lab, &options);
    let ack = capture.wait("ACK", |seen| seen.is(MessageType::Ack, 67));
    assert_eq!(ack.to.to_string(), "198.51.100.200:67");
    let end = b"\x52\x0c\x01\x04test\x02\x04leaf\xff";
    let padded = ack.payload.iter().rposition(|octet| *octet != 0).unwrap() + 1;
    assert!(ack.payload[..padded].ends_with(end), "{:?}", &ack.payload[..padded]);
}

/// Starts the machine behind dhcrelay, whose circuit id is its interface r1, and waits until that relays.
fn behind_relay(relays: &[Ipv4Addr], port: Option<RelayPort>) -> Lab {
    let mut machine = machine(2, "192.0.2.50");
    machine.interfaces[0].relay_port = port;
    let mut dhcp = Dhcp::default();
    dhcp.link.relays = relays.to_vec();
    let network = Network::new();
    network.move_behind_other();
    let lab = Lab::on(network, dhcp, vec![machine]);
    lab.start(Host::Other, "dhcrelay -4 -d --no-pid -a -iu w1 -id r1 198.51.100.1", "relay");
    // The last of its sockets.
    lab.until_logged("relay", "Sending on   Socket/fallback");
    lab
}

/// Asserts that the machine gets no lease although the relay passes its DISCOVERs on.
fn assert_refused(lab: &Lab) {
    let mut capture = Capture::start(&lab.network);
    assert_eq!(lab.lease(TRIES_WITHOUT_REPLY), None);
    let is_relayed =
        |seen: &Seen| seen.is(MessageType::Discover, 67) && seen.dhcp().unwrap().giaddr == RELAY;
    capture.wait("a relayed DISCOVER", is_relayed);
}

/// dhcrelay's own address on the machine's link.
const RELAY: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 254);

fn port(circuit: &str, pinned: bool) -> Option<RelayPort> {
    let circuit_id = circuit.bytes().map(|octet| format!("{octet:02x}")).collect();
    Some(RelayPort { circuit_id, pinned, ..RelayPort::default() })
}

#[test]
fn a_machine_behind_dhcrelay_gets_its_address() {
    let lab = behind_relay(&[], None);
    let mut capture = Capture::start(&lab.network);
    assert_eq!(lab.lease(TRIES).as_deref(), Some("192.0.2.50"));
    let ack = capture.wait("ACK", |seen| seen.is(MessageType::Ack, 67));
    assert_eq!((ack.to.ip(), ack.to.port()), (&RELAY, 67));
    let circuit = ack.dhcp().unwrap().options.get(82).map(<[u8]>::to_vec);
    assert!(circuit.unwrap().starts_with(b"\x01\x02r1"));
}

#[test]
fn a_new_interface_at_a_recorded_port_gets_that_machines_address() {
    let lab = behind_relay(&[RELAY], port("r1", true));
    lab.network.set(Host::Client, "link set v1 address 52:54:00:00:00:98");
    assert_eq!(lab.lease(TRIES).as_deref(), Some("192.0.2.50"));
}

#[test]
fn a_relay_that_is_not_listed_identifies_no_port() {
    let lab = behind_relay(&[], port("r1", false));
    lab.network.set(Host::Client, "link set v1 address 52:54:00:00:00:98");
    assert_refused(&lab);
}

#[test]
fn a_pinned_machine_gets_nothing_at_another_port() {
    let lab = behind_relay(&[RELAY], port("r2", true));
    assert_refused(&lab);
}
