//! Images through an edge: it keeps what it had from the image service, and sends it to the machines
//! of workflows.

use std::time::Duration;

use super::edge::{client_output, issue};
use super::images::sha256;
use super::network::{Network, OURS, run_ip};
use super::process::{Place, Process, arguments, get, soon};

/// The machines' Ethernet addresses.
const MACS: [&str; 2] = ["52:54:00:00:00:01", "52:54:00:00:00:02"];
/// The addresses of the machines, and one of no machine.
const ADDRESSES: [&str; 2] = ["198.51.100.50", "198.51.100.51"];
const STRANGER: &str = "198.51.100.99";
/// The Ethernet address of a machine without a record.
const THIEF: &str = "52:54:00:00:00:99";
/// The services of the control plane.
const CONTROL: &str = "address,builder,hardware,identity,image,instance,power,workflow";
/// Size of the disk: its content has no repetitions, and fills two ranges of the cache.
const DISK_BYTES: usize = 24 << 20;

/// Returns a disk with a boot sector.
pub(super) fn disk() -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state.to_be_bytes()[0]
    };
    let mut disk: Vec<u8> = (0..DISK_BYTES).map(|_| next()).collect();
    disk[446..510].fill(0);
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk
}

/// Creates the machine `node-N`, which can be provisioned, by the command line. Returns its name.
pub(super) fn create_machine(control: &Process, n: usize, mac: &str, address: &str) -> String {
    let record = format!(
        "name: node-{n}\nstate: STATE_PROVISIONABLE\ndisks: [{{device: /dev/sda}}]\ninterfaces:\n\
         - mac: {mac}\n  dhcp: {{address: {{address: {address}, prefix_length: 24}}}}\n  \
         netboot: {{allow_pxe: true}}\n"
    );
    let file = control.place.path("node.yaml");
    std::fs::write(&file, record).unwrap();
    client_output(control, &["hardware", "create", "-f", file.to_str().unwrap()]);
    format!("node-{n}")
}

/// Stores an image and the machines, each with a workflow that installs the image. Returns the name
/// of its stored file.
fn order(control: &Process) -> String {
    let file = control.place.path("disk.raw");
    std::fs::write(&file, disk()).unwrap();
    client_output(control, &["image", "upload", file.to_str().unwrap(), "--name", "disk"]);
    for (n, (mac, address)) in MACS.into_iter().zip(ADDRESSES).enumerate() {
        let machine = create_machine(control, n, mac, address);
        client_output(control, &["workflow", "create", "--image", "disk", "--hardware", &machine]);
    }
    let shown = client_output(control, &["image", "get", "disk", "-o", "json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let digest = shown["stored_sha256"].as_str().or_else(|| shown["storedSha256"].as_str());
    format!("{}.raw.zst", digest.unwrap())
}

/// Returns the value of the edge's metric `name`.
async fn metric(edge: &Process, name: &str) -> u64 {
    let text = get(edge.place.vitals, "/metrics").await.unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
}

#[test]
fn one_edge_sends_an_image_to_two_machines_and_asks_for_each_byte_once() {
    let network = Network::new(&[MACS[0], MACS[1], THIEF]);
    network.on_site(async || {
        for (n, address) in ADDRESSES.into_iter().enumerate() {
            network.set(n, &format!("addr add {address}/24 dev eth0"));
        }
        network.set(0, &format!("addr add {STRANGER}/24 dev eth0"));
        let listen = format!("{OURS}:42113");
        let control = Place::new();
        let control = control.start(&arguments(&["--only", CONTROL, "--listen", &listen])).await;
        let place = Place::new();
        issue(&control, &place);
        let peers = format!("https://{OURS}:42113");
        let flags = ["--only", "netboot", "--netboot-interface", "br0", "--peers", &peers];
        let edge = place.start(&arguments(&flags)).await;

        let file = order(&control);
        let digest = file.split('.').next().unwrap();
        let fetch = |machine: usize, source: &str| {
            let to = control.place.path("fetched");
            let url = format!("http://{OURS}:7080/images/{file}");
            let curl = "curl --silent --output";
            let line = format!(
                "{curl} {} --interface {source} --write-out %{{http_code}} {url}",
                to.display()
            );
            (network.run(machine, &line), sha256(&std::fs::read(to).unwrap_or_default()))
        };
        for (machine, source) in ADDRESSES.into_iter().enumerate() {
            // The edge follows the workflows.
            let sent = async {
                while fetch(machine, source) != ("200".to_owned(), digest.to_owned()) {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            };
            soon(sent).await;
        }
        let stored = std::fs::metadata(control.place.path("fetched")).unwrap().len();
        assert_eq!(fetch(0, STRANGER).0, "404", "an address of no machine");
        let updated = async {
            while metric(&edge, "tinwright_netboot_image_cache_hit_bytes_total").await == 0 {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        soon(updated).await;
        assert_eq!(metric(&edge, "tinwright_netboot_image_cache_origin_bytes_total").await, stored);
        assert!(metric(&edge, "tinwright_netboot_image_cache_stored_bytes").await >= stored);

        network.set(0, "link set eth0 down");
        network.set(2, &format!("addr add {}/24 dev eth0", ADDRESSES[0]));
        run_ip("neigh flush all");
        assert_eq!(fetch(2, ADDRESSES[0]).0, "404", "an address that another machine has taken");
    });
}
