//! Beside dnsmasq, which assigns the addresses.

use dhcp::MessageType;
use dhcp::Mode;
use netboot::site::Dhcp;

use crate::capture::{Capture, Seen};
use crate::firmware::{power_on, requests_script};
use crate::lab::{Lab, TRIES, US, booting, machine};
use crate::network::Host;

const DNSMASQ: &str = "dnsmasq -d --port=0 --bind-interfaces --user=root --pid-file= --dhcp-leasefile={dir}/leases \
                       --dhcp-range=198.51.100.100,198.51.100.110,255.255.255.0,1h --no-ping --log-dhcp";

/// True if our server sent it from port 67.
fn is_ours(seen: &Seen) -> bool {
    (*seen.from.ip(), seen.from.port()) == (US, 67)
}

/// Starts dnsmasq with the DHCP server's socket at `interface` of `host`, and waits until that is open.
fn start_dnsmasq(lab: &Lab, host: Host, interface: &str, options: &str) {
    lab.start(host, &format!("{DNSMASQ} --interface={interface}{options}"), "dnsmasq");
    lab.until_logged("dnsmasq", &format!("sockets bound exclusively to interface {interface}"));
}

/// Starts our server in `mode`, and dnsmasq on another host at 198.51.100.2.
fn lab(mode: Mode) -> Lab {
    let mut dhcp = Dhcp::default();
    dhcp.link.mode = mode;
    let lab = Lab::new(dhcp, vec![booting(machine(1, "198.51.100.50"))]);
    lab.network.set(Host::Other, "addr add 198.51.100.2/24 dev w1");
    start_dnsmasq(&lab, Host::Other, "w1", "");
    lab
}

#[test]
fn firmware_combines_dnsmasqs_address_with_our_file() {
    let lab = lab(Mode::Proxy);
    let mut capture = Capture::start(&lab.network);
    power_on(&lab);
    let offer =
        capture.wait("offer of ours", |seen| is_ours(seen) && seen.is(MessageType::Offer, 67));
    let offer = offer.dhcp().unwrap();
    assert!(offer.yiaddr.is_unspecified());
    assert_eq!([1, 3, 51, 175].map(|code| offer.options.get(code)), [None; 4]);
    let script = capture.wait("request for the script", requests_script);
    assert!((100..=110).contains(&script.from.ip().octets()[3]), "an address of dnsmasq's");
    capture.wait("REQUEST", |seen| seen.is(MessageType::Request, 68));
    let ours = capture.seen().iter().filter(|seen| is_ours(seen));
    assert!(ours.clone().all(|seen| seen.is(MessageType::Offer, 67)), "an answer to the REQUEST");
    let theirs = capture.seen().iter().filter(|seen| seen.is(MessageType::Ack, 67));
    assert!(theirs.count() > 0, "dnsmasq's ACK");
}

#[test]
fn ordinary_clients_get_replies_of_dnsmasq_only() {
    let lab = lab(Mode::Proxy);
    let mut capture = Capture::start(&lab.network);
    assert!(lab.lease(TRIES).is_some());
    capture.wait("ACK", |seen| seen.is(MessageType::Ack, 67));
    assert!(capture.seen().iter().all(|seen| !is_ours(seen)));
}

#[test]
fn if_dnsmasq_has_port_67_of_our_host_the_file_comes_from_4011() {
    let mut dhcp = Dhcp { port_67: false, ..Dhcp::default() };
    dhcp.link.mode = Mode::Proxy;
    let lab = Lab::new(dhcp, vec![booting(machine(1, "198.51.100.50"))]);
    start_dnsmasq(&lab, Host::Server, "br0", " --dhcp-option=60,PXEClient");
    let mut capture = Capture::start(&lab.network);
    power_on(&lab);
    let request = capture.wait("REQUEST to 4011", |seen| seen.to.port() == 4011);
    let ack = capture.wait("ACK from 4011", |seen| seen.is(MessageType::Ack, 4011));
    assert_eq!(ack.to, request.from);
    assert!(ack.dhcp().unwrap().yiaddr.is_unspecified());
    capture.wait("request for the script", requests_script);
}
