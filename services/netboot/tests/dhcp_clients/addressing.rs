//! Clients of installed systems, on our own link.

use std::collections::HashMap;

use dhcp::MessageType;
use netboot::site::Dhcp;
use tinwright::hardware::v1 as hw;

use crate::capture::Capture;
use crate::lab::{Lab, TRIES, TRIES_WITHOUT_REPLY, US, machine};
use crate::network::Host;

/// A script of udhcpc's that writes the values of its lease to a file.
const SCRIPT: &str = "#!/bin/sh\n[ \"$1\" = bound ] && env > \"$(dirname \"$0\")/lease\"\nexit 0\n";

fn lab() -> Lab {
    let mut machine = machine(2, "198.51.100.51");
    let dhcp = machine.interfaces[0].dhcp.as_mut().unwrap();
    dhcp.hostname = "node2".into();
    dhcp.lease_time = Some(prost_types::Duration { seconds: 3600, nanos: 0 });
    dhcp.mtu = 1400;
    dhcp.time_servers = vec!["198.51.100.123".into()];
    let (destination, gateway) = ("203.0.113.0/24".into(), "198.51.100.9".into());
    dhcp.classless_routes = vec![hw::Route { destination, gateway }];
    Lab::new(Dhcp::default(), vec![machine])
}

/// Returns the values of the lease that udhcpc gets with `options` on its command line.
fn udhcpc(lab: &Lab, options: &str) -> Option<HashMap<String, String>> {
    try_udhcpc(lab, TRIES, options)
}

/// The same after at most so many DISCOVERs.
fn try_udhcpc(lab: &Lab, tries: u32, options: &str) -> Option<HashMap<String, String>> {
    use std::os::unix::fs::PermissionsExt as _;
    let script = lab.path("script");
    std::fs::write(&script, SCRIPT).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let line = format!("busybox udhcpc -i v1 -n -q -f -t {tries} -T 2 -s {{dir}}/script{options}");
    let done = lab.client(&line);
    let lease =
        std::fs::read_to_string(lab.path("lease")).ok().filter(|_| done.status.success())?;
    let pair = |line: &str| {
        let (name, value) = line.split_once('=')?;
        Some((name.to_owned(), value.to_owned()))
    };
    Some(lease.lines().filter_map(pair).collect())
}

#[test]
fn udhcpc_gets_the_address_and_options_of_its_record() {
    let lease = udhcpc(&lab(), " -O 121 -O 42 -O 26").unwrap();
    for (name, value) in [
        ("ip", "198.51.100.51"),
        ("subnet", "255.255.255.0"),
        ("router", "198.51.100.1"),
        ("serverid", "198.51.100.1"),
        ("lease", "3600"),
        ("hostname", "node2"),
        ("mtu", "1400"),
        ("ntpsrv", "198.51.100.123"),
        ("staticroutes", "203.0.113.0/24 198.51.100.9 0.0.0.0/0 198.51.100.1"),
    ] {
        assert_eq!(lease.get(name).map(String::as_str), Some(value), "{name} in {lease:?}");
    }
}

#[test]
fn udhcpc_gets_its_own_address_whatever_it_requests() {
    let lab = lab();
    let mut capture = Capture::start(&lab.network);
    assert_eq!(udhcpc(&lab, " -r 198.51.100.77").unwrap()["ip"], "198.51.100.51");
    let offer = capture.wait("offer", |seen| seen.is(MessageType::Offer, 67));
    assert!((300..=548).contains(&offer.payload.len()), "{}", offer.payload.len());
    assert_eq!(*offer.from.ip(), US);
}

#[test]
fn udhcpc_as_firmware_of_a_refused_machine_gets_the_refusal() {
    let lease = udhcpc(&lab(), " -V PXEClient:Arch:00007:UNDI:003016 -x 0x5d:0007 -O 66 -O 67");
    let lease = lease.unwrap();
    assert_eq!(lease["ip"], "198.51.100.51");
    assert_eq!(
        (lease["boot_file"].as_str(), lease["siaddr"].as_str()),
        ("netboot-not-allowed", "198.51.100.1")
    );
    assert_eq!(lease["lease"], "600");
}

#[test]
fn udhcpc_on_an_unknown_machine_gets_no_reply() {
    let lab = lab();
    lab.network.set(Host::Client, "link set v1 address 52:54:00:00:00:99");
    let mut capture = Capture::start(&lab.network);
    assert_eq!(try_udhcpc(&lab, TRIES_WITHOUT_REPLY, ""), None);
    // Replies are captured in order: one to the unknown machine would come before this ACK.
    lab.network.set(Host::Client, "link set v1 address 52:54:00:00:00:02");
    udhcpc(&lab, "").unwrap();
    capture.wait("ACK", |seen| seen.is(MessageType::Ack, 67));
    let mut ours = capture.seen().iter().filter(|seen| seen.from.port() == 67);
    assert!(ours.all(|seen| seen.dhcp().unwrap().chaddr[5] == 2));
}

#[test]
fn dhclient_gets_the_reserved_address() {
    let lab = lab();
    let done = lab.client("dhclient -4 -v -1 -sf /bin/true -lf {dir}/l -pf {dir}/p v1");
    let lease = std::fs::read_to_string(lab.path("l")).unwrap_or_default();
    assert!(lease.contains("fixed-address 198.51.100.51;"), "{lease}{done:?}");
    assert!(lease.contains("option dhcp-lease-time 3600;"), "{lease}");
}

#[test]
fn dhclient_back_with_a_wrong_address_is_told_no_and_begins_again() {
    let lab = lab();
    let old = "lease {\n interface \"v1\";\n fixed-address 198.51.100.99;\n option subnet-mask 255.255.255.0;\n \
               option dhcp-server-identifier 198.51.100.1;\n option dhcp-lease-time 3600;\n \
               renew 2 2040/01/03 00:00:00;\n rebind 2 2040/01/03 00:00:00;\n expire 2 2040/01/03 00:00:00;\n}\n";
    std::fs::write(lab.path("l"), old).unwrap();
    let mut capture = Capture::start(&lab.network);
    lab.client("dhclient -4 -v -1 -sf /bin/true -lf {dir}/l -pf {dir}/p v1");
    let first = capture.wait("request", |seen| seen.is(MessageType::Request, 68)).dhcp().unwrap();
    assert_eq!(first.options.address(50), Some([198, 51, 100, 99].into()));
    assert_eq!(first.options.get(54), None);
    let nak = capture.wait("NAK", |seen| seen.is(MessageType::Nak, 67));
    assert!(nak.to.ip().is_broadcast());
    let ack = capture.wait("ACK", |seen| seen.is(MessageType::Ack, 67)).dhcp().unwrap();
    assert_eq!(ack.yiaddr.octets(), [198, 51, 100, 51]);
}

#[test]
fn dhcping_renews_its_address_and_no_other() {
    let lab = lab();
    lab.network.set(Host::Client, "addr add 198.51.100.51/24 dev v1");
    let ping = |address: &str| {
        let line = format!("dhcping -v -t 30 -c {address} -s 198.51.100.1 -h 52:54:00:00:00:02");
        String::from_utf8_lossy(&lab.client(&line).stdout).into_owned()
    };
    let mut capture = Capture::start(&lab.network);
    let got = ping("198.51.100.51");
    assert!(got.contains("Got answer"), "{got}");
    let ack = capture.wait("ACK", |seen| seen.is(MessageType::Ack, 67));
    assert_eq!(ack.to.to_string(), "198.51.100.51:68");
    assert_eq!(ack.dhcp().unwrap().ciaddr.octets(), [198, 51, 100, 51]);
    ping("198.51.100.77");
    capture.wait("NAK", |seen| seen.is(MessageType::Nak, 67));
}

#[test]
fn inform_of_dhcping_is_answered_without_a_lease() {
    let lab = lab();
    lab.network.set(Host::Client, "addr add 198.51.100.51/24 dev v1");
    let mut capture = Capture::start(&lab.network);
    let line = "dhcping -v -i -t 30 -c 198.51.100.51 -s 198.51.100.1 -h 52:54:00:00:00:02";
    let got = lab.client(line);
    assert!(got.status.success(), "{got:?}");
    let ack = capture.wait("ACK", |seen| seen.is(MessageType::Ack, 67)).dhcp().unwrap();
    assert!(ack.yiaddr.is_unspecified());
    assert_eq!([51, 58, 59].map(|code| ack.options.get(code)), [None; 3]);
    assert_eq!(ack.options.address(3), Some(US));
}

/// A change of the record is effective with the next reply.
#[test]
fn udhcpc_gets_the_new_address_once_the_record_has_it() {
    use runtime::feed::FeedEvent;
    let lab = lab();
    assert_eq!(udhcpc(&lab, "").unwrap()["ip"], "198.51.100.51");
    lab.fleet.hardware(FeedEvent::Snapshot(vec![machine(2, "198.51.100.52")]));
    assert_eq!(udhcpc(&lab, "").unwrap()["ip"], "198.51.100.52");
}
