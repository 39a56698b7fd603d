//! The document as each generation of clients reads it.

use std::net::IpAddr;

use serde::Deserialize;
use tinwright::instance::v1::State;

use super::*;
use crate::contents::Contents;
use crate::fixture::{USER_DATA, address, node1, node2};
use crate::machine::UserData;

const CONTEXT: RequestContext = RequestContext { host: Some("192.0.2.1:50061"), trusted: false };

fn storage() -> Value {
    json!({
        "disks": [{
            "device": "/dev/sda",
            "wipe_table": true,
            "partitions": [{ "label": "ROOT", "number": 1, "size": 0 }],
        }],
        "filesystems": [{ "mount": {
            "device": "/dev/sda1", "format": "ext4", "point": "/",
            "create": { "options": ["-L", "ROOT"] },
        } }],
    })
}

fn stored() -> Machine {
    let mut machine = node1();
    let instance = machine.instance.as_mut().unwrap();
    instance.extra =
        json!({ "storage": storage(), "iqn": "iqn.x", "hostname": "other", "metadata": 1 });
    machine
}

/// The fields that rootio (tinkerbell/actions) reads.
#[derive(Deserialize)]
struct Rootio {
    metadata: RootioMetadata,
}

#[derive(Deserialize)]
struct RootioMetadata {
    instance: RootioInstance,
}

#[derive(Deserialize)]
struct RootioInstance {
    storage: RootioStorage,
}

#[derive(Deserialize)]
struct RootioStorage {
    disks: Vec<RootioDisk>,
    filesystems: Vec<Value>,
}

#[derive(Deserialize)]
struct RootioDisk {
    device: String,
    wipe_table: bool,
    partitions: Vec<RootioPartition>,
}

#[derive(Deserialize)]
struct RootioPartition {
    label: String,
    number: u32,
    size: u64,
}

#[test]
fn rootio_finds_its_disks() {
    let body = Contents::default().get(&stored(), &["metadata"], CONTEXT);
    let found: Rootio = serde_json::from_slice(&body.unwrap().bytes).unwrap();
    let storage = found.metadata.instance.storage;
    let disk = &storage.disks[0];
    assert_eq!((disk.device.as_str(), disk.wipe_table), ("/dev/sda", true));
    let partition = &disk.partitions[0];
    assert_eq!((partition.label.as_str(), partition.number, partition.size), ("ROOT", 1, 0));
    assert_eq!(storage.filesystems.len(), 1);
}

#[test]
fn fields_of_the_instance_are_at_the_top_and_extra_replaces_none() {
    let document = whole(&stored(), CONTEXT);
    for (field, value) in [
        ("id", json!("i-0001")),
        ("state", json!("active")),
        ("hostname", json!("node1.lab")),
        ("userdata", json!(USER_DATA)),
        ("storage", storage()),
        ("iqn", json!("iqn.x")),
        ("facility_code", json!("lab1")),
        ("plan_slug", json!("c3.small")),
        ("arch", json!("x86_64")),
    ] {
        assert_eq!(document[field], value, "{field}");
    }
    assert_eq!(document["metadata"]["instance"]["hostname"], "node1.lab");
    assert_eq!(document["metadata"]["instance"]["operating_system_version"]["slug"], "debian_12");
}

#[test]
fn equinix_clients_find_their_network() {
    let mut machine = stored();
    for nic in &mut machine.nics {
        nic.bond = "bond0".into();
    }
    machine.bonds = vec![crate::machine::Bond { name: "bond0".into(), mode: "802.3ad".into() }];
    let document = whole(&machine, CONTEXT);
    assert_eq!((&document["class"], &document["metro"]), (&json!("c3.small"), &json!("lab1")));
    assert_eq!(document["phone_home_url"], "http://192.0.2.1:50061/phone-home");
    let network = &document["network"];
    assert_eq!(network["bonding"]["mode"], 4);
    let interface = json!({ "name": "eth0", "mac": "52:54:00:00:00:01", "bond": "bond0" });
    assert_eq!(network["interfaces"], json!([interface]));
    let first = &network["addresses"][0];
    for (field, value) in [
        ("address", json!("198.51.100.50")),
        ("address_family", json!(4)),
        ("netmask", json!("255.255.255.0")),
        ("cidr", json!(24)),
        ("network", json!("198.51.100.0")),
        ("public", json!(false)),
        ("enabled", json!(true)),
        ("created_at", json!("2025-10-09T08:53:20Z")),
    ] {
        assert_eq!(first[field], value, "{field}");
    }
    for (field, empty) in [("volumes", json!([])), ("customdata", json!({})), ("spot", json!({}))] {
        assert_eq!(document[field], empty, "{field}");
    }
}

/// The fields that afterburn's packet provider requires.
#[derive(Deserialize)]
#[expect(dead_code, reason = "the test is that they parse")]
struct Afterburn {
    id: String,
    hostname: String,
    iqn: String,
    plan: String,
    facility: String,
    tags: Vec<String>,
    ssh_keys: Vec<String>,
    network: AfterburnNetwork,
    phone_home_url: String,
}

#[derive(Deserialize)]
struct AfterburnNetwork {
    interfaces: Vec<AfterburnInterface>,
    addresses: Vec<AfterburnAddress>,
    bonding: AfterburnBonding,
}

#[derive(Deserialize)]
struct AfterburnBonding {
    mode: u32,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "the test is that they parse")]
struct AfterburnInterface {
    name: String,
    mac: String,
    bond: Option<String>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "the test is that they parse")]
struct AfterburnAddress {
    id: String,
    address_family: i32,
    public: bool,
    management: bool,
    address: IpAddr,
    netmask: IpAddr,
    gateway: IpAddr,
}

/// The gateways that afterburn finds on `machine`, which has no bond.
fn gateways(machine: &Machine) -> Vec<String> {
    let found: Afterburn = serde_json::from_value(whole(machine, CONTEXT)).unwrap();
    let AfterburnNetwork { interfaces, addresses, bonding } = found.network;
    assert!(bonding.mode == 0 && interfaces.iter().all(|interface| interface.bond.is_none()));
    addresses.iter().map(|address| address.gateway.to_string()).collect()
}

#[test]
fn afterburn_reads_a_machine_without_a_bond() {
    let mut machine = node1();
    // The reservation's, the machine's, and the unspecified one: there is no IPv6 gateway.
    assert_eq!(gateways(&machine), ["198.51.100.1", "198.51.100.1", "::"]);
    assert_eq!(gateways(&node2()), ["198.51.100.1"]);
    machine.nics[0].addresses.clear();
    assert_eq!(gateways(&machine), ["0.0.0.0", "0.0.0.0", "::"]);
}

#[test]
fn an_address_without_a_gateway_gets_the_gateway_of_its_network() {
    let mut machine = node1();
    let gateway = Some("10.0.0.1".parse().unwrap());
    let second = crate::machine::Address { gateway, ..address("10.0.0.5", 8, false) };
    machine.nics[0].addresses.push(second);
    let own = [address("10.0.0.6", 8, false), address("198.51.100.52", 24, false)];
    machine.instance.as_mut().unwrap().addresses = own.into();
    assert_eq!(gateways(&machine), ["10.0.0.1", "198.51.100.1"]);
}

#[test]
fn clients_of_the_old_export_find_the_instance_at_instance() {
    let document = whole(&stored(), CONTEXT);
    assert_eq!(document["instance"], document["metadata"]["instance"]);
    assert_eq!(document["instance"]["id"], "i-0001");
    assert_eq!(document["instance"]["storage"], storage());
}

#[test]
fn a_trusted_client_gets_the_password_during_the_installation() {
    let passwords = |state: State, trusted| {
        let mut machine = node1();
        machine.instance.as_mut().unwrap().state = state;
        let document = whole(&machine, RequestContext { trusted, ..CONTEXT });
        let named = ["crypted_root_password", "password_hash"];
        let present = named.map(|name| document[name] == "$6$salt$hash");
        assert_eq!(present[0], document.to_string().contains("$6$salt$hash"));
        present
    };
    assert_eq!(passwords(State::Provisioning, true), [true, true]);
    for (state, trusted) in
        [(State::Provisioning, false), (State::Active, true), (State::Active, false)]
    {
        assert_eq!(passwords(state, trusted), [false, false], "{state:?} {trusted}");
    }
}

#[test]
fn without_an_instance_the_document_has_only_the_hardware() {
    let document = whole(&node2(), CONTEXT);
    assert_eq!(document["id"], node2().id.to_string());
    assert_eq!(document["metadata"]["instance"]["id"], node2().id.to_string());
    assert!(document["userdata"].is_null() && document["ssh_keys"] == json!([]));
}

#[test]
fn a_document_that_would_be_too_long_has_no_user_data() {
    let mut machine = node1();
    machine.instance.as_mut().unwrap().user_data = UserData("\u{1}".repeat(60_000).into());
    let document = whole(&machine, CONTEXT);
    assert!(document["userdata"].is_null() && document["id"] == "i-0001");
    assert!(document.to_string().len() <= MAX_DOCUMENT_BYTES);
}

#[test]
fn user_data_that_is_not_text_is_in_base64() {
    let mut machine = node1();
    let mut bytes = vec![0x1f, 0x8b, 8, 0, 0xff];
    machine.instance.as_mut().unwrap().user_data = UserData(bytes.clone().into());
    for document in [whole(&machine, CONTEXT), hardware(&machine, CONTEXT)] {
        let instance = &document["metadata"]["instance"];
        assert_eq!(
            (&instance["userdata"], &instance["userdata_bytes"]),
            (&Value::Null, &json!("H4sIAP8="))
        );
    }
    bytes.resize(MAX_DOCUMENT_BYTES, 0);
    machine.instance.as_mut().unwrap().user_data = UserData(bytes.into());
    assert_eq!(whole(&machine, CONTEXT)["userdata_bytes"], Value::Null);
}

#[test]
fn the_alias_of_the_instance_is_left_out_before_user_data() {
    let mut machine = node1();
    let long = "x".repeat(MAX_DOCUMENT_BYTES / 5 * 2);
    machine.instance.as_mut().unwrap().user_data = UserData(long.clone().into());
    let document = whole(&machine, CONTEXT);
    assert!(document["instance"].is_null() && document["userdata"] == long);
    assert_eq!(document["metadata"]["instance"]["userdata"], long);
    assert!(document.to_string().len() <= MAX_DOCUMENT_BYTES);
}

#[test]
fn the_hardware_has_the_form_of_hegels_export() {
    let mut machine = stored();
    machine.extra = json!({ "bonding_mode": 5, "facility": "not this" });
    let exported = hardware(&machine, CONTEXT);
    assert_eq!(exported["metadata"]["instance"]["id"], "i-0001");
    assert_eq!(exported["metadata"]["facility"]["facility_code"], "lab1");
    assert_eq!(exported["metadata"]["bonding_mode"], 5);
    assert_eq!(exported["id"], machine.id.to_string());
}
