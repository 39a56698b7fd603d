//! The stored form of records, and refused fields.

use super::*;
use pb::{Address, Bond, Dhcp, Disk, Hardware, Interface, Ipxe, Netboot, Policy, RelayPort, Route};
use proptest::prelude::*;

fn address() -> Address {
    Address { address: "192.0.2.10".into(), prefix_length: 24, gateway: "192.0.2.1".into() }
}

fn interface() -> Interface {
    let dhcp = Dhcp { address: Some(address()), hostname: "node-1".into(), ..Dhcp::default() };
    Interface { mac: "02:00:5e:10:00:01".into(), dhcp: Some(dhcp), ..Interface::default() }
}

fn hardware(interfaces: Vec<Interface>) -> Hardware {
    Hardware { interfaces, ..Hardware::default() }
}

fn with(change: impl FnOnce(&mut Interface, &mut Dhcp)) -> Hardware {
    let (mut interface, mut dhcp) = (interface(), interface().dhcp.unwrap());
    change(&mut interface, &mut dhcp);
    interface.dhcp = Some(dhcp);
    hardware(vec![interface])
}

fn refused(hardware: Hardware) -> String {
    normalize(hardware).unwrap_err().to_string()
}

#[test]
fn a_record_is_stored_in_canonical_form() {
    let stored = normalize(with(|interface, dhcp| {
        interface.mac = "0200.5E10.0001".into();
        dhcp.hostname = "Node-1.LAB".into();
        dhcp.name_servers = vec!["2001:DB8:0::1".into()];
        dhcp.classless_routes =
            vec![Route { destination: "198.51.100.77/24".into(), gateway: "192.0.2.1".into() }];
    }))
    .unwrap();
    let interface = &stored.interfaces[0];
    let dhcp = interface.dhcp.as_ref().unwrap();
    assert_eq!(interface.mac, "02:00:5e:10:00:01");
    assert_eq!(
        (dhcp.hostname.as_str(), dhcp.name_servers[0].as_str()),
        ("node-1.lab", "2001:db8::1")
    );
    assert_eq!(dhcp.classless_routes[0].destination, "198.51.100.0/24");
    assert_eq!(stored.architecture, "x86_64");
}

#[test]
fn every_wrong_field_is_named_at_once() {
    let text = refused(with(|interface, dhcp| {
        interface.mac = "x".into();
        dhcp.mtu = 100;
        dhcp.vlan_id = 4095;
    }));
    for part in [
        "interfaces[0].mac: \"x\" is not a MAC",
        "interfaces[0].dhcp.mtu: 100",
        "dhcp.vlan_id: 4095",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn a_machine_has_an_interface_and_unique_macs_and_addresses() {
    let empty =
        "interfaces: is empty: a machine has at least one, unless its state is set to enrolled";
    assert_eq!(refused(hardware(vec![])), empty);
    let enrolled = Hardware { state: State::Enrolled.into(), ..hardware(vec![]) };
    assert!(normalize(enrolled).is_ok());
    let text = refused(hardware(vec![interface(), interface()]));
    assert!(text.contains("interfaces[1].mac: 02:00:5e:10:00:01 is listed twice"), "{text}");
    assert!(
        text.contains("interfaces[1].dhcp.address.address: 192.0.2.10 is listed twice"),
        "{text}"
    );
    let text = refused(hardware(vec![interface(); 17]));
    assert!(text.contains("interfaces: has 17 entries, at most 16 are allowed"), "{text}");
}

#[test]
fn a_gateway_is_inside_the_network_of_its_address() {
    let gateway = |bits, gateway: &str| {
        let address = Address { prefix_length: bits, gateway: gateway.into(), ..address() };
        normalize(with(|_, dhcp| dhcp.address = Some(address)))
    };
    assert!(gateway(24, "192.0.2.1").is_ok());
    assert!(gateway(31, "192.0.2.99").is_ok(), "point to point");
    assert!(gateway(24, "").is_ok());
    for (bits, wrong) in
        [(24, "192.0.3.1"), (24, "2001:db8::1"), (0, "192.0.2.1"), (33, "192.0.2.1")]
    {
        assert!(gateway(bits, wrong).is_err(), "{wrong}/{bits}");
    }
}

#[test]
fn an_infiniband_address_is_refused_as_unsupported() {
    let of = |mac: &str| with(|interface, _| interface.mac = mac.into());
    for mac in [
        "80:24:8a:07:03:00:91:6e:12",
        "80:00:02:08:fe:80:00:00:00:00:00:00:24:8a:07:03:00:91:6e:12",
    ] {
        let text = refused(of(mac));
        assert!(text.starts_with("interfaces[0].mac: "), "{text}");
        assert!(text.contains("InfiniBand is not supported"), "{text}");
    }
}

#[test]
fn boot_script_arguments_have_no_special_characters() {
    let ipxe = |ipxe| {
        let netboot = Netboot { ipxe: Some(ipxe), ..Netboot::default() };
        with(|interface, _| interface.netboot = Some(netboot))
    };
    let url = |url: &str| ipxe(Ipxe { url: url.into(), ..Ipxe::default() });
    assert!(normalize(url("http://192.0.2.1/boot.ipxe")).is_ok());
    assert!(normalize(url("http://192.0.2.1/menu.ipxe?mac=${mac:hexhyp}&uuid=${uuid}")).is_ok());
    for wrong in ["http://192.0.2.1/a b", "http://192.0.2.1/${password}"] {
        assert!(refused(url(wrong)).contains("netboot.ipxe.url"), "{wrong}");
    }
    let both = Ipxe { url: "http://h/".into(), contents: "#!ipxe".into(), ..Ipxe::default() };
    assert!(refused(ipxe(both)).contains("ipxe.contents: is set together with url"));
    assert!(refused(ipxe(Ipxe { contents: "exit".into(), ..Ipxe::default() })).contains("#!ipxe"));
    let policy = pb::Policy { kernel_params: vec!["a b".into()], ..pb::Policy::default() };
    let text = refused(Hardware { policy: Some(policy), ..hardware(vec![interface()]) });
    assert!(text.contains("policy.kernel_params[0]"), "{text}");
}

#[test]
fn a_disk_is_below_dev() {
    let disk = |device: &str| Hardware {
        disks: vec![Disk { device: device.into() }],
        ..hardware(vec![interface()])
    };
    assert!(normalize(disk("/dev/disk/by-id/x")).is_ok());
    for wrong in ["sda", "/dev/../etc/passwd", "/dev/sd a", ""] {
        assert!(refused(disk(wrong)).contains("disks[0].device"), "{wrong}");
    }
}

#[test]
fn a_root_disk_hint_is_stored_in_canonical_form_and_its_wrong_fields_are_named() {
    let hinted = |hint: &str| Hardware {
        root_disk: Some(Box::new(hint.parse().unwrap())),
        ..hardware(vec![interface()])
    };
    let stored = normalize(hinted("wwn=5000C500A1B2C3D4")).unwrap();
    assert_eq!(stored.root_disk, hinted("wwn=0x5000c500a1b2c3d4").root_disk);
    assert!(refused(hinted("by-path=/dev/sda")).starts_with("root_disk.by_path: is not a link"));
    let empty = Hardware { root_disk: Some(Box::default()), ..hardware(vec![interface()]) };
    assert!(refused(empty).starts_with("root_disk: is empty"));
}

#[test]
fn extra_is_one_json_object_of_bounded_depth() {
    let extra = |text: String| Hardware { extra: text.into(), ..hardware(vec![interface()]) };
    assert!(normalize(extra(r#"{"bonding_mode": 5}"#.into())).is_ok());
    let deep = format!("{{\"a\": {}{}}}", "[".repeat(33), "]".repeat(33));
    for wrong in ["[]".into(), "{".into(), r#"{"a": 1, "a": 2}"#.into(), deep, " ".repeat(65537)] {
        assert!(refused(extra(wrong)).starts_with("extra: "));
    }
}

proptest! {
    #[test]
    fn normalizing_twice_changes_nothing(mac: [u8; 6], host in "[a-zA-Z0-9-]{0,9}", a: [u8; 4], bits in 0..40_u32) {
        let record = with(|interface, dhcp| {
            interface.mac = tinwright::Mac(mac).to_string().to_uppercase();
            dhcp.hostname = host;
            dhcp.address = Some(Address {
                address: std::net::Ipv4Addr::from(a).to_string(), prefix_length: bits, gateway: String::new(),
            });
        });
        if let Ok(stored) = normalize(record) {
            prop_assert_eq!(normalize(stored.clone()), Ok(stored));
        }
    }
}

fn port(circuit: &str, remote: &str, link: &str) -> RelayPort {
    RelayPort {
        circuit_id: circuit.into(),
        remote_id: remote.into(),
        link_address: link.into(),
        pinned: true,
    }
}

#[test]
fn a_port_is_hex_that_fits_option_82() {
    let at = |port: RelayPort| with(|interface, _| interface.relay_port = Some(port));
    let stored = normalize(at(port("0A3A", "FF", "2001:DB8:0::1"))).unwrap();
    assert_eq!(stored.interfaces[0].relay_port, Some(port("0a3a", "ff", "2001:db8::1")));
    assert!(normalize(at(port(&"ab".repeat(251), "", ""))).is_ok());
    for (wrong, field) in [
        (port("", "ff", ""), "circuit_id: is empty"),
        (port("abc", "", ""), "circuit_id: is not hex"),
        (port("é", "", ""), "circuit_id: is not hex"),
        (port("ab", "xy", ""), "remote_id: is not hex"),
        (port("ab", "", "0.0.0.0"), "link_address: "),
        (port(&"ab".repeat(200), &"ab".repeat(52), ""), "circuit_id: with remote_id has 252 bytes"),
    ] {
        let text = refused(at(wrong));
        assert!(text.contains(&format!("interfaces[0].relay_port.{field}")), "{field}: {text}");
    }
    let mut two = hardware(vec![interface(), interface()]);
    two.interfaces.iter_mut().for_each(|one| one.relay_port = Some(port("ab", "", "")));
    assert!(refused(two).contains("interfaces[1].relay_port: ,,ab is listed twice"));
}

#[test]
fn an_interface_belongs_to_an_existing_bond() {
    let bond = |name: &str, mode: &str| Bond { name: name.into(), mode: mode.into() };
    let bonded = |bonds: Vec<Bond>, member: &str| {
        let mut hardware = with(|interface, _| {
            (interface.name, interface.bond) = ("eth0".into(), member.into());
        });
        hardware.bonds = bonds;
        hardware
    };
    assert!(normalize(bonded(vec![bond("bond0", "802.3ad")], "bond0")).is_ok());
    for (bonds, member, part) in [
        (vec![], "bond0", "interfaces[0].bond: there is no bond \"bond0\""),
        (vec![bond("eth0", "802.3ad")], "", "bonds[0].name: \"eth0\" is listed twice"),
        (vec![bond("", "802.3ad")], "", "bonds[0].name: "),
        (vec![bond("bond0", "5")], "", "bonds[0].mode: \"5\" is none of balance-rr"),
        (vec![bond("b", "broadcast"); 9], "", "bonds: has 9 entries"),
    ] {
        let text = refused(bonded(bonds, member));
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn proxy_and_disabled_exclude_each_other() {
    let proxy = with(|_, dhcp| (dhcp.proxy, dhcp.address) = (true, None));
    assert!(normalize(proxy).is_ok(), "no address is needed");
    let text = refused(with(|_, dhcp| (dhcp.proxy, dhcp.disabled) = (true, true)));
    assert!(text.contains("interfaces[0].dhcp.proxy: is set together with disabled"), "{text}");
}

#[test]
fn a_one_shot_script_is_not_empty() {
    let once = |script: Ipxe| {
        let netboot = Netboot { boot_once: Some(script), ..Netboot::default() };
        with(|interface, _| interface.netboot = Some(netboot))
    };
    assert!(normalize(once(Ipxe { contents: "#!ipxe\n".into(), ..Ipxe::default() })).is_ok());
    for (wrong, part) in [
        (Ipxe::default(), "interfaces[0].netboot.boot_once: has neither"),
        (Ipxe { contents: "exit".into(), ..Ipxe::default() }, "boot_once.contents: "),
        (Ipxe { url: "ftp://x/".into(), ..Ipxe::default() }, "boot_once.url: "),
    ] {
        let text = refused(once(wrong));
        assert!(text.contains(part), "{part}: {text}");
    }
    let netboot = Netboot { local_boot: 9, ..Netboot::default() };
    let text = refused(with(|interface, _| interface.netboot = Some(netboot)));
    assert!(text.contains("netboot.local_boot: is not a value"), "{text}");
}

#[test]
fn a_boot_from_virtual_media_needs_an_image() {
    use pb::policy::BootMethod::{Network, VirtualMedia};
    let under = |method: pb::policy::BootMethod, url: &str| {
        let (boot_method, boot_image_url) = (method.into(), url.to_owned());
        let policy = Policy { boot_method, boot_image_url, ..Policy::default() };
        Hardware { policy: Some(policy), ..hardware(vec![interface()]) }
    };
    let image = "http://192.0.2.1/iso/{mac}/osie.iso";
    assert!(normalize(under(VirtualMedia, image)).is_ok());
    assert!(normalize(under(Network, image)).is_ok(), "an image that is not used now");
    for (method, url) in [
        (VirtualMedia, ""),
        (VirtualMedia, "ftp://192.0.2.1/osie.iso"),
        (Network, "http://192.0.2.1/o s"),
    ] {
        let text = refused(under(method, url));
        assert!(text.starts_with("policy.boot_image_url: "), "{url:?}: {text}");
    }
    // With a MAC the URL is longer than BMCs get.
    let long = format!("http://192.0.2.1/{}{{mac}}", "a".repeat(2048 - 17 - 5));
    assert!(refused(under(VirtualMedia, &long)).starts_with("policy.boot_image_url: "));
    let policy = Policy { boot_method: 3, ..Policy::default() };
    let unknown = Hardware { policy: Some(policy), ..hardware(vec![interface()]) };
    assert!(refused(unknown).starts_with("policy.boot_method: "));
}

#[test]
fn metadata_policies_have_limits() {
    let under = |policy: Policy| Hardware { policy: Some(policy), ..hardware(vec![interface()]) };
    let span = |seconds, nanos| Some(prost_types::Duration { seconds, nanos });
    let time = |seconds, nanos| Some(prost_types::Timestamp { seconds, nanos });
    let right = Policy {
        metadata_hop_limit: 64,
        user_data_window: span(0, 1),
        tokens_revoke_time: time(1_800_000_000, 0),
        ..Policy::default()
    };
    assert!(normalize(under(right.clone())).is_ok());
    for (wrong, field) in [
        (Policy { metadata_hop_limit: 65, ..right.clone() }, "metadata_hop_limit"),
        (Policy { metadata_source: 4, ..right.clone() }, "metadata_source"),
        (Policy { user_data_window: span(0, 0), ..right.clone() }, "user_data_window"),
        (Policy { user_data_window: span(-1, 0), ..right.clone() }, "user_data_window"),
        (Policy { tokens_revoke_time: time(-1, 0), ..right.clone() }, "tokens_revoke_time"),
        (Policy { tokens_revoke_time: time(1, -1), ..right.clone() }, "tokens_revoke_time"),
    ] {
        let text = refused(under(wrong));
        assert!(text.starts_with(&format!("policy.{field}: ")), "{field}: {text}");
    }
}
