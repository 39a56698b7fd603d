//! What is stored of a record, and what is refused by name.

use super::*;
use pb::{Address, Dhcp, Disk, Hardware, Interface, Ipxe, Netboot, Route};
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
    normal(hardware).unwrap_err().to_string()
}

#[test]
fn a_record_is_stored_in_canonical_form() {
    let stored = normal(with(|interface, dhcp| {
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
    for part in
        ["interfaces[0].mac: \"x\" is no MAC", "interfaces[0].dhcp.mtu: 100", "dhcp.vlan_id: 4095"]
    {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn a_machine_has_an_interface_and_no_mac_or_address_twice() {
    assert_eq!(refused(hardware(vec![])), "interfaces: is empty: a machine has at least one");
    let text = refused(hardware(vec![interface(), interface()]));
    assert!(text.contains("interfaces[1].mac: 02:00:5e:10:00:01 is there twice"), "{text}");
    assert!(
        text.contains("interfaces[1].dhcp.address.address: 192.0.2.10 is there twice"),
        "{text}"
    );
    let text = refused(hardware(vec![interface(); 17]));
    assert!(text.contains("interfaces: has 17 entries, at most 16 are allowed"), "{text}");
}

#[test]
fn a_gateway_is_reached_from_its_address() {
    let gateway = |bits, gateway: &str| {
        let address = Address { prefix_length: bits, gateway: gateway.into(), ..address() };
        normal(with(|_, dhcp| dhcp.address = Some(address)))
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
fn what_goes_into_a_boot_script_cannot_break_out_of_it() {
    let ipxe = |ipxe| {
        let netboot = Netboot { ipxe: Some(ipxe), ..Netboot::default() };
        with(|interface, _| interface.netboot = Some(netboot))
    };
    let url = |url: &str| ipxe(Ipxe { url: url.into(), ..Ipxe::default() });
    assert!(normal(url("http://192.0.2.1/boot.ipxe")).is_ok());
    assert!(refused(url("http://192.0.2.1/a b")).contains("netboot.ipxe.url"));
    let both = Ipxe { url: "http://h/".into(), contents: "#!ipxe".into(), ..Ipxe::default() };
    assert!(refused(ipxe(both)).contains("ipxe.contents: goes without url"));
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
    assert!(normal(disk("/dev/disk/by-id/x")).is_ok());
    for wrong in ["sda", "/dev/../etc/passwd", "/dev/sd a", ""] {
        assert!(refused(disk(wrong)).contains("disks[0].device"), "{wrong}");
    }
}

#[test]
fn extra_is_one_json_object_of_bounded_depth() {
    let extra = |text: String| Hardware { extra: text.into(), ..hardware(vec![interface()]) };
    assert!(normal(extra(r#"{"bonding_mode": 5}"#.into())).is_ok());
    let deep = format!("{{\"a\": {}{}}}", "[".repeat(33), "]".repeat(33));
    for wrong in ["[]".into(), "{".into(), r#"{"a": 1, "a": 2}"#.into(), deep, " ".repeat(65537)] {
        assert!(refused(extra(wrong)).starts_with("extra: "));
    }
}

proptest! {
    #[test]
    fn the_stored_form_is_its_own_stored_form(mac: [u8; 6], host in "[a-zA-Z0-9-]{0,9}", a: [u8; 4], bits in 0..40_u32) {
        let record = with(|interface, dhcp| {
            interface.mac = tinwright::Mac(mac).to_string().to_uppercase();
            dhcp.hostname = host;
            dhcp.address = Some(Address {
                address: std::net::Ipv4Addr::from(a).to_string(), prefix_length: bits, gateway: String::new(),
            });
        });
        if let Ok(stored) = normal(record) {
            prop_assert_eq!(normal(stored.clone()), Ok(stored));
        }
    }
}
