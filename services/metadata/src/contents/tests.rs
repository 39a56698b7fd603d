//! The seed and OpenStack's documents, for known machines and for any machine.

use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use runtime::secret::SiteKey;
use serde_json::json;

use super::*;
use crate::fixture::{USER_DATA, address, any_machine, node1, node2};
use crate::machine::{Bond, Nic};
use crate::path::Path;

const CONTEXT: RequestContext = RequestContext { host: None, trusted: false };

fn get(machine: &Machine, path: &str) -> Option<String> {
    let body = Contents::default().get(machine, &Path::parse(path)?.segments(), CONTEXT)?;
    Some(String::from_utf8(body.bytes.to_vec()).unwrap())
}

fn json_at(machine: &Machine, path: &str) -> Value {
    serde_json::from_str(&get(machine, path).unwrap()).unwrap()
}

fn yaml_at(machine: &Machine, path: &str) -> Value {
    yaml_serde::from_str(&get(machine, path).unwrap()).unwrap()
}

/// node1 with a second interface, both in a bond with a VLAN.
fn bonded() -> Machine {
    let mut machine = node1();
    let mac = "52:54:00:00:00:11".parse().unwrap();
    let second = Nic { mac, name: "eth1".into(), addresses: vec![], ..machine.nics[0].clone() };
    machine.nics.push(Nic { primary: false, ..second });
    for nic in &mut machine.nics {
        (nic.bond, nic.vlan, nic.mtu) = ("bond0".into(), Some(100), Some(9000));
    }
    machine.bonds = vec![Bond { name: "bond0".into(), mode: "802.3ad".into() }];
    machine
}

#[test]
fn the_seed_has_the_identity_of_the_machine() {
    let wanted = "instance-id: i-0001\nlocal-hostname: node1.lab\npublic-keys:\n  \
                  - ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKey user@host\n";
    assert_eq!(get(&node1(), "/nocloud/meta-data").as_deref(), Some(wanted));
    assert_eq!(get(&node1(), "/nocloud/user-data").as_deref(), Some(USER_DATA));
}

#[test]
fn all_files_of_the_seed_exist_even_if_empty() {
    let mut machine = node2();
    machine.nics.clear();
    for file in ["user-data", "vendor-data", "network-config"] {
        assert_eq!(get(&machine, &format!("/nocloud/{file}")).as_deref(), Some(""), "{file}");
    }
    assert_eq!(yaml_at(&machine, "/nocloud/meta-data")["instance-id"], machine.id.to_string());
    assert_eq!(get(&machine, "/nocloud/else"), None);
}

#[test]
fn the_seed_configures_the_network_of_the_record() {
    let config = yaml_at(&node1(), "/nocloud/network-config");
    let wanted = json!({ "version": 2, "ethernets": { "eth0": {
        "match": { "macaddress": "52:54:00:00:00:01" },
        "set-name": "eth0",
        "addresses": ["198.51.100.50/24", "198.51.100.51/24", "2001:db8::50/64"],
        "routes": [{ "to": "0.0.0.0/0", "via": "198.51.100.1" }],
        "nameservers": { "addresses": ["198.51.100.53"], "search": ["lab"] },
    } } });
    assert_eq!(config, wanted);
}

#[test]
fn the_seed_configures_bonds_and_vlans() {
    let config = yaml_at(&bonded(), "/nocloud/network-config");
    assert_eq!(config["bonds"]["bond0"]["interfaces"], json!(["eth0", "eth1"]));
    assert_eq!(config["bonds"]["bond0"]["parameters"]["mode"], "802.3ad");
    assert!(config["bonds"]["bond0"]["addresses"].is_null());
    let vlan = &config["vlans"]["bond0.100"];
    assert_eq!((&vlan["id"], &vlan["link"]), (&json!(100), &json!("bond0")));
    assert_eq!((&vlan["addresses"][0], &vlan["mtu"]), (&json!("198.51.100.50/24"), &json!(9000)));
}

#[test]
fn the_owners_network_configuration_and_vendor_data_have_precedence() {
    let mut machine = node1();
    let instance = machine.instance.as_mut().unwrap();
    instance.network_config = UserData("version: 2\n".into());
    instance.vendor_data = UserData("#cloud-config\n".into());
    assert_eq!(get(&machine, "/nocloud/network-config").as_deref(), Some("version: 2\n"));
    assert_eq!(get(&machine, "/nocloud/vendor-data").as_deref(), Some("#cloud-config\n"));
    let vendor = json_at(&machine, "/openstack/latest/vendor_data.json");
    assert_eq!(vendor, json!({ "cloud-init": "#cloud-config\n" }));
    machine.instance.as_mut().unwrap().vendor_data = UserData(r#"{"a": 1}"#.into());
    assert_eq!(json_at(&machine, "/openstack/latest/vendor_data.json"), json!({ "a": 1 }));
}

#[test]
fn a_lookup_id_in_the_path_does_not_change_the_document() {
    let named = format!("/nocloud/{}/meta-data", crate::fixture::LOOKUP);
    assert_eq!(get(&node1(), &named), get(&node1(), "/nocloud/meta-data"));
    assert_eq!(lookup_id(&Path::parse(&named).unwrap().segments()), Some(crate::fixture::LOOKUP));
    assert_eq!(lookup_id(&["nocloud", "meta-data"]), None);
    assert_eq!(redacted(&named), "/nocloud/…/meta-data");
}

#[test]
fn openstack_lists_its_versions_and_files() {
    assert!(get(&node1(), "/openstack").unwrap().ends_with("2020-10-14\nlatest"));
    assert_eq!(get(&node1(), "/openstack/2031-01-01"), None);
    for machine in [node1(), node2()] {
        let listing = get(&machine, "/openstack/latest/").unwrap();
        for name in listing.lines() {
            assert!(get(&machine, &format!("/openstack/latest/{name}")).is_some(), "{name}");
        }
        assert_eq!(listing.contains("user_data"), machine.instance.is_some());
    }
    assert_eq!(get(&node1(), "/openstack/latest/password").as_deref(), Some(""));
}

#[test]
fn openstack_has_the_identity_of_the_machine() {
    let machine = node1();
    let document = json_at(&machine, "/openstack/2018-08-27/meta_data.json");
    let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKey user@host";
    for (field, value) in [
        ("uuid", json!("i-0001")),
        ("name", json!("node1")),
        ("hostname", json!("node1.lab")),
        ("availability_zone", json!("lab1a")),
        ("launch_index", json!(0)),
        ("project_id", json!("acme")),
        ("public_keys", json!({ "user@host": key })),
        ("keys", json!([{ "name": "user@host", "type": "ssh", "data": key }])),
        ("meta", json!({ "rack": "1", "spare": "" })),
        ("devices", json!([])),
    ] {
        assert_eq!(document[field], value, "{field}");
    }
    let again = json_at(&machine, "/openstack/2018-08-27/meta_data.json");
    assert_ne!(document["random_seed"], again["random_seed"]);
    assert_eq!(document["random_seed"].as_str().map(str::len), Some(684));
}

#[test]
fn openstack_configures_the_same_network() {
    let document = json_at(&bonded(), "/openstack/latest/network_data.json");
    let types: Vec<_> = document["links"].as_array().unwrap().iter().map(|l| &l["type"]).collect();
    assert_eq!(types, ["phy", "phy", "bond", "vlan"]);
    assert_eq!(document["links"][2]["bond_links"], json!(["eth0", "eth1"]));
    assert_eq!(document["links"][3]["vlan_link"], "bond0");
    let first = &document["networks"][0];
    assert_eq!((&first["type"], &first["netmask"]), (&json!("ipv4"), &json!("255.255.255.0")));
    let out = json!([{ "network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "198.51.100.1" }]);
    assert_eq!(first["routes"], out);
    assert!(document["networks"][1]["routes"].is_null());
    assert_eq!(document["networks"][2]["type"], "ipv6");
    assert_eq!(document["services"][0]["address"], "198.51.100.53");
}

#[test]
fn an_interface_without_an_address_uses_dhcp() {
    let mut machine = node2();
    machine.nics[0].addresses.clear();
    let config = yaml_at(&machine, "/nocloud/network-config");
    assert_eq!(config["ethernets"]["eth0"]["dhcp4"], true);
    assert_eq!(
        json_at(&machine, "/openstack/latest/network_data.json")["networks"][0]["type"],
        "ipv4_dhcp"
    );
}

#[test]
fn an_interface_uses_dhcp_in_addition_to_other_addresses() {
    for (ip, kind) in [("2001:db8::50/64", "ipv6"), ("10.0.0.50/24", "ipv4")] {
        let mut machine = node1();
        machine.nics[0].addresses.clear();
        let (own, bits) = ip.split_once('/').unwrap();
        let own = address(own, bits.parse().unwrap(), false);
        machine.instance.as_mut().unwrap().addresses = vec![own];
        let eth0 = &yaml_at(&machine, "/nocloud/network-config")["ethernets"]["eth0"];
        assert_eq!((&eth0["dhcp4"], &eth0["addresses"]), (&json!(true), &json!([ip])));
        assert_eq!(eth0["nameservers"]["addresses"], json!(["198.51.100.53"]));
        let document = json_at(&machine, "/openstack/latest/network_data.json");
        let types = document["networks"].as_array().unwrap().iter().map(|network| &network["type"]);
        assert_eq!(types.collect::<Vec<_>>(), [kind, "ipv4_dhcp"]);
    }
}

#[test]
fn user_data_of_an_old_hardware_record_is_used_last() {
    let mut machine = node1();
    machine.extra = json!({ "userdata": "old" });
    assert_eq!(get(&machine, "/userdata").as_deref(), Some(USER_DATA));
    machine.instance.as_mut().unwrap().user_data = UserData::default();
    for path in
        ["/userdata", "/latest/user-data", "/nocloud/user-data", "/openstack/latest/user_data"]
    {
        assert_eq!(get(&machine, path).as_deref(), Some("old"), "{path}");
    }
    machine.instance = None;
    assert_eq!(get(&machine, "/userdata"), None);
}

#[test]
fn user_data_that_is_not_text_is_served_unchanged() {
    let mut machine = node1();
    let gzip = bytes::Bytes::from_static(&[0x1f, 0x8b, 8, 0, 0xff, b'\r', b'\n', 0]);
    machine.instance.as_mut().unwrap().user_data = UserData(gzip.clone());
    for path in
        ["/userdata", "/latest/user-data", "/nocloud/user-data", "/openstack/latest/user_data"]
    {
        let path = Path::parse(path).unwrap();
        let body = Contents::default().get(&machine, &path.segments(), CONTEXT).unwrap();
        assert_eq!(body, Body { bytes: gzip.clone(), kind: Kind::Octets });
    }
}

#[test]
fn only_a_recent_token_of_the_machines_own_boot_is_trusted() {
    let key = SiteKey::new([7; 32]);
    let boot_tokens = Some(BootTokens::new(&key).unwrap());
    let contents = Contents { boot_tokens, ..Contents::default() };
    let (here, now) = ("198.51.100.50".parse().unwrap(), SystemTime::now());
    let mint = |purpose, machine: &Machine| {
        BootTokens::new(&key).unwrap().mint(purpose, machine.id, 0, here, now).unwrap()
    };
    let own = mint(Purpose::Identity, &node1());
    assert!(contents.trusts(&node1(), here, &own, now));
    assert!(!contents.trusts(&node2(), here, &own, now), "another machine's");
    assert!(!contents.trusts(&node1(), "198.51.100.9".parse().unwrap(), &own, now), "elsewhere");
    assert!(!contents.trusts(&node1(), here, &own, now + Duration::from_secs(1000)), "too late");
    assert!(!contents.trusts(&node1(), here, &mint(Purpose::Files, &node1()), now), "for files");
    assert!(!Contents::default().trusts(&node1(), here, &own, now), "without the site's key");
}

proptest! {
    #[test]
    fn every_document_parses_for_any_machine(machine in any_machine()) {
        for path in ["/metadata", "/openstack/latest/meta_data.json", "/openstack/latest/network_data.json"] {
            prop_assert!(json_at(&machine, path).is_object(), "{}", path);
        }
        let meta_data = yaml_at(&machine, "/nocloud/meta-data");
        prop_assert_eq!(&meta_data["instance-id"], &json!(machine.instance_id()));
        if !machine.nics.is_empty() {
            prop_assert_eq!(&yaml_at(&machine, "/nocloud/network-config")["version"], &json!(2));
        }
    }
}
