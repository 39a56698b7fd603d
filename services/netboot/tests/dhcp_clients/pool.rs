//! Clients without an address of their own (netboot specification, section 3.11).

use std::sync::Arc;

use netboot::dhcp::site::Network;
use netboot::pool::{Subnet, Unknown};
use store::Store;
use store::sled::Sled;
use tinwright::hardware::v1::{Dhcp, Hardware};

use crate::lab::{Lab, booting, machine};
use crate::relays::{answered, perfdhcp};

fn subnet(ranges: &str, unknown: Unknown) -> Subnet {
    let network = Network { address: [198, 51, 100, 0].into(), prefix: 24 };
    let ranges = vec![ranges.parse().unwrap()];
    Subnet { gateway: Some([198, 51, 100, 1].into()), unknown, ..Subnet::new(network, ranges) }
}

fn unaddressed(last: u8) -> Hardware {
    let mut machine = booting(machine(last, "0.0.0.0"));
    machine.interfaces[0].dhcp = Some(Dhcp::default());
    machine
}

/// Machines for every address that perfdhcp makes up from the base 52:54:00:aa:00:00.
fn fleet() -> Vec<Hardware> {
    let fleet = (0..100).map(|n| {
        let mut machine = unaddressed(n);
        machine.interfaces[0].mac = format!("52:54:00:aa:00:{n:02x}");
        machine
    });
    fleet.collect()
}

fn store(directory: &tempfile::TempDir) -> Arc<dyn Store> {
    Arc::new(Sled::open(&directory.path().join("store")).unwrap())
}

/// The address udhcpc gets, if it gets one.
fn udhcpc(lab: &Lab) -> Option<String> {
    let done = lab.client("busybox udhcpc -i v1 -n -q -f -t 5 -T 2 -s /bin/true");
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    let (_, rest) = said.split_once("lease of ")?;
    rest.split([' ', ',']).next().map(str::to_owned)
}

#[test]
fn a_hundred_machines_at_once_get_an_address_each() {
    let directory = tempfile::tempdir().unwrap();
    let kept = store(&directory);
    let subnet = subnet("198.51.100.100-198.51.100.199", Unknown::Ignore);
    let lab = Lab::lending(subnet, fleet(), kept.clone());
    let report = perfdhcp(&lab, "-r 1000 -n 100 -R 100");
    for exchange in ["DISCOVER-OFFER", "REQUEST-ACK"] {
        assert_eq!(answered(&report, exchange), [100, 100], "{report}");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let leases = runtime.block_on(kept.list("netboot/lease/", "", 1000)).unwrap();
    assert_eq!(leases.pairs.len(), 100, "{report}");
}

#[test]
fn a_client_keeps_its_address_when_the_server_is_started_again() {
    let directory = tempfile::tempdir().unwrap();
    let lab = |unknown| {
        let subnet = subnet("198.51.100.100-198.51.100.199", unknown);
        Lab::lending(subnet, vec![unaddressed(2)], store(&directory))
    };
    let before = lab(Unknown::Ignore);
    let first = udhcpc(&before).expect("an address");
    drop(before);
    assert_eq!(udhcpc(&lab(Unknown::Ignore)).as_ref(), Some(&first));
}

#[test]
fn a_machine_without_a_record_is_ignored_or_enrolled() {
    let directory = tempfile::tempdir().unwrap();
    let range = "198.51.100.100-198.51.100.199";
    let ignoring = Lab::lending(subnet(range, Unknown::Ignore), Vec::new(), store(&directory));
    assert_eq!(udhcpc(&ignoring), None);
    drop(ignoring);
    let lab = Lab::lending(subnet(range, Unknown::Enrol), Vec::new(), store(&directory));
    let address = udhcpc(&lab).expect("an address");
    let curl = |from: &str| {
        lab.client(&format!("ip addr add {from}/24 dev v1"));
        let script = "http://198.51.100.1:7080/52-54-00-00-00-02/auto.ipxe";
        let got = lab.client(&format!("curl -s --interface {from} {script}"));
        String::from_utf8_lossy(&got.stdout).into_owned()
    };
    let script = curl(&address);
    assert!(script.contains("worker_id=${mac}") && !script.contains("boot_token"), "{script}");
    assert_eq!(curl("198.51.100.77"), "", "it was not lent that address");
}
