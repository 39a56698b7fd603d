//! Clients without a reserved address.

use std::sync::Arc;

use dhcp::MessageType;
use ipnet::Ipv4Net;
use netboot::pool::{Subnet, Unknown};
use store::Store;
use store::memory::MemoryStore;
use store::sled::Sled;
use tinwright::hardware::v1::{Dhcp, Hardware};

use crate::capture::Capture;
use crate::lab::{Lab, TRIES, TRIES_WITHOUT_REPLY, booting, machine};
use crate::network::Host;
use crate::relays::{LASTING_RATE, assert_lost_none, exchanges, perfdhcp, perfdhcp_far};

fn subnet(ranges: &str, unknown: Unknown) -> Subnet {
    let network = Ipv4Net::new_assert([198, 51, 100, 0].into(), 24);
    let ranges = vec![ranges.parse().unwrap()];
    Subnet { gateway: Some([198, 51, 100, 1].into()), unknown, ..Subnet::new(network, ranges) }
}

fn unaddressed(last: u8) -> Hardware {
    let mut machine = booting(machine(last, "0.0.0.0"));
    machine.interfaces[0].dhcp = Some(Dhcp::default());
    machine
}

/// A machine without an address, with the MAC of perfdhcp's client `number` (base 52:54:00:aa:00:00).
fn unaddressed_of(number: u16) -> Hardware {
    let (mut machine, [high, low]) = (unaddressed(0), number.to_be_bytes());
    machine.interfaces[0].mac = format!("52:54:00:aa:{high:02x}:{low:02x}");
    machine
}

fn store(directory: &tempfile::TempDir) -> Arc<dyn Store> {
    Arc::new(Sled::open(&directory.path().join("store")).unwrap())
}

#[test]
fn a_hundred_simultaneous_machines_get_an_address_each() {
    let directory = tempfile::tempdir().unwrap();
    let kept = store(&directory);
    let subnet = subnet("198.51.100.100-198.51.100.199", Unknown::Ignore);
    let lab = Lab::with_pool(subnet, (0..100).map(unaddressed_of).collect(), kept.clone());
    let report = perfdhcp(&lab, &format!("-r 1000 {} -R 100", exchanges(100)));
    assert_lost_none(&report, 100);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let leases = runtime.block_on(kept.list("netboot/lease/", "", 1000)).unwrap();
    assert_eq!(leases.pairs.len(), 100, "{report}");
}

/// In memory: with a busy disk too many ACKs would wait for it, and their clients would have to repeat their requests.
#[test]
fn thousands_of_machines_behind_a_relay_get_an_address_each() {
    let network = Ipv4Net::new_assert([198, 18, 0, 0].into(), 15);
    let ranges = vec!["198.18.1.0-198.18.16.255".parse().unwrap()];
    let fleet = (0..2000).map(unaddressed_of).collect();
    let kept = Arc::new(MemoryStore::default());
    let lab = Lab::with_pool(Subnet::new(network, ranges), fleet, kept);
    let options = format!("-r {LASTING_RATE} {} -R 2000", exchanges(4000));
    assert_lost_none(&perfdhcp_far(&lab, &options), 4000);
}

#[test]
fn udhcpc_that_finds_its_address_in_use_gets_another_one() {
    let directory = tempfile::tempdir().unwrap();
    let subnet = subnet("198.51.100.100-198.51.100.101", Unknown::Ignore);
    let lab = Lab::with_pool(subnet, vec![unaddressed(2)], store(&directory));
    let first = lab.lease(TRIES).expect("an address");
    lab.network.set(Host::Other, &format!("addr add {first}/24 dev w1"));
    let mut capture = Capture::start(&lab.network);
    let line = format!("busybox udhcpc -i v1 -n -q -f -t {TRIES} -T 2 -A 1 -a500 -s /bin/true");
    let done = lab.client(&line);
    let output = String::from_utf8_lossy(&done.stderr);
    let other = if first.ends_with("100") { "198.51.100.101" } else { "198.51.100.100" };
    assert!(output.contains(&format!("lease of {other}")), "{output}");
    capture.wait("DECLINE", |seen| seen.is(MessageType::Decline, 68));
}

#[test]
fn a_client_keeps_its_address_when_the_server_is_started_again() {
    let directory = tempfile::tempdir().unwrap();
    let lab = |unknown| {
        let subnet = subnet("198.51.100.100-198.51.100.199", unknown);
        Lab::with_pool(subnet, vec![unaddressed(2)], store(&directory))
    };
    let before = lab(Unknown::Ignore);
    let first = before.lease(TRIES).expect("an address");
    drop(before);
    assert_eq!(lab(Unknown::Ignore).lease(TRIES).as_ref(), Some(&first));
}

#[test]
fn a_machine_without_a_record_is_ignored_or_enrolled() {
    let directory = tempfile::tempdir().unwrap();
    let range = "198.51.100.100-198.51.100.199";
    let ignoring = Lab::with_pool(subnet(range, Unknown::Ignore), Vec::new(), store(&directory));
    assert_eq!(ignoring.lease(TRIES_WITHOUT_REPLY), None);
    drop(ignoring);
    let lab = Lab::with_pool(subnet(range, Unknown::Enrol), Vec::new(), store(&directory));
    let address = lab.lease(TRIES).expect("an address");
    let curl = |from: &str, query: &str| {
        lab.client(&format!("ip addr add {from}/24 dev v1"));
        let script = format!("http://198.51.100.1:7080/52-54-00-00-00-02/auto.ipxe{query}");
        let got = lab.client(&format!("curl -s --interface {from} {script}"));
        String::from_utf8_lossy(&got.stdout).into_owned()
    };
    let script = curl(&address, "");
    assert!(
        script.contains("auto.ipxe?uuid=${uuid}") && !script.contains("boot_token"),
        "{script}"
    );
    let uuid = "?uuid=4c4c4544-0042-3010-8052-b4c04f4d3232";
    let script = curl(&address, uuid);
    assert!(script.contains("worker_id=${mac}") && script.contains("boot_token="), "{script}");
    assert_eq!(curl("198.51.100.77", uuid), "", "not its leased address");
}
