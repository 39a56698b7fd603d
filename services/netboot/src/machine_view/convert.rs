//! Conversion of the contract's records into the values that netboot uses.

use std::net::Ipv4Addr;

use tinwright::hardware::v1 as hw;
use tinwright::instance::v1 as occ;

use crate::Mac;
use crate::decision::{
    InstanceState, InterfaceSettings, MachineFacts, Occupant, PlatformSystem, ScriptSource,
};
use dhcp::relay::RelayPort;
use dhcp::{Reservation, StaticRoute};
use fleet::FleetMachine;
use fleet::machine::attached_addresses;
use ipnet::Ipv4Net;

/// Path of the private files of platforms.
pub const PRIVATE_FILES: &str = "/platform/";

/// Returns the inputs of the boot decision for the machine at `interface`.
pub(super) fn machine_facts(machine: &FleetMachine, interface: &hw::Interface) -> MachineFacts {
    let netboot = interface.netboot.clone().unwrap_or_default();
    MachineFacts {
        state: machine.hardware.state(),
        netboot: InterfaceSettings {
            allow_pxe: netboot.allow_pxe,
            allow_workflow: netboot.allow_workflow,
            custom: netboot.ipxe.as_ref().and_then(ipxe_script),
        },
        boot_once: netboot.boot_once.as_ref().and_then(ipxe_script),
        instance: machine.instance.as_deref().and_then(occupant),
        worker_wanted: machine.worker_wanted(),
        is_unprepared: machine.is_unprepared(),
    }
}

/// Returns the script that a record brings, if it brings one.
pub fn ipxe_script(ipxe: &hw::Ipxe) -> Option<ScriptSource> {
    script(ipxe.url.clone(), ipxe.contents.clone())
}

fn script(url: String, contents: String) -> Option<ScriptSource> {
    match (contents.is_empty(), url.is_empty()) {
        (false, _) => Some(ScriptSource::Contents(contents)),
        (true, false) => Some(ScriptSource::Url(url)),
        (true, true) => None,
    }
}

/// Returns the instance as the boot decision sees it; none if it is deleted.
fn occupant(instance: &occ::Instance) -> Option<Occupant> {
    let state = instance.state();
    if state == InstanceState::Deleted {
        return None;
    }
    let (custom, always_pxe) = match &instance.os {
        Some(occ::instance::Os::CustomIpxe(ipxe)) => {
            (script(ipxe.url.clone(), ipxe.contents.clone()), ipxe.always_pxe)
        }
        Some(_) | None => (None, false),
    };
    let platform = match &instance.os {
        Some(occ::instance::Os::Platform(boot)) => Some(platform_system(instance, boot)),
        Some(_) | None => None,
    };
    let is_node = matches!(&instance.os, Some(occ::instance::Os::ImageStack(_)));
    let has_workflow = !instance.template_id.is_empty() || !instance.image_id.is_empty();
    let is_installed = instance.os.is_some() || has_workflow;
    let has_os = custom.is_none() && platform.is_none() && !is_node && is_installed;
    let script_ran = instance.script_time.is_some();
    Some(Occupant { state, custom, always_pxe, script_ran, has_os, platform, is_node })
}

/// Returns the platform's system of `instance`.
fn platform_system(instance: &occ::Instance, boot: &occ::PlatformBoot) -> PlatformSystem {
    let is_open = instance.boot_gate.as_ref().is_some_and(|gate| gate.open);
    let url = Some(&boot.boot_url).filter(|url| is_open && !url.is_empty());
    let script = url.map(|url| match url.strip_prefix(PRIVATE_FILES) {
        Some(path) => ScriptSource::PrivateFile(path.to_owned()),
        None => ScriptSource::Url(url.clone()),
    });
    PlatformSystem { script }
}

/// Returns the address that DHCP gives to the interface `mac`: the granted one that `instance` attached as primary, else the one
/// that the record reserves.
pub(super) fn dhcp_address(
    mac: Mac,
    interface: &hw::Interface,
    instance: Option<&occ::Instance>,
) -> Option<hw::Address> {
    let granted = attached_addresses(instance, mac).find(|attached| attached.primary);
    let reserved = || interface.dhcp.as_ref()?.address.clone();
    let granted = granted.map(|it| hw::Address {
        address: it.address.clone(),
        prefix_length: it.prefix_length,
        gateway: it.gateway.clone(),
    });
    granted.or_else(reserved)
}

/// Returns the values that DHCP sends to `interface`. Values that do not parse are left out: the hardware service refuses
/// them.
pub(super) fn reservation(
    mac: Mac,
    interface: &hw::Interface,
    instance: Option<&occ::Instance>,
) -> Reservation {
    let dhcp = interface.dhcp.clone().unwrap_or_default();
    let address = dhcp_address(mac, interface, instance);
    let own = address.as_ref().and_then(|own| {
        let prefix = u8::try_from(own.prefix_length).ok()?;
        Ipv4Net::new(own.address.parse().ok()?, prefix).ok()
    });
    let gateway = address.as_ref().and_then(|own| own.gateway.parse().ok());
    let hostname = instance.map(|i| i.hostname.clone()).filter(|name| !name.is_empty());
    let some = |text: String| (!text.is_empty()).then_some(text);
    let ipxe = interface.netboot.as_ref().and_then(|netboot| netboot.ipxe.as_ref());
    Reservation {
        disabled: dhcp.disabled,
        proxy: dhcp.proxy,
        port: relay_port(interface),
        gateway,
        hostname: hostname.unwrap_or(dhcp.hostname),
        domain: dhcp.domain_name,
        lease_seconds: dhcp
            .lease_time
            .map_or(0, |time| u32::try_from(time.seconds).unwrap_or(u32::MAX)),
        name_servers: addresses(&dhcp.name_servers),
        time_servers: addresses(&dhcp.time_servers),
        routes: dhcp.classless_routes.iter().filter_map(route).collect(),
        mtu: u16::try_from(dhcp.mtu).ok().filter(|mtu| *mtu != 0),
        loader: ipxe.and_then(|ipxe| some(ipxe.binary.clone())),
        tftp_server: some(dhcp.tftp_server_name),
        boot_file: some(dhcp.boot_file_name),
        ..Reservation::new(mac.0, own)
    }
}

fn addresses(texts: &[String]) -> Vec<Ipv4Addr> {
    texts.iter().filter_map(|text| text.parse().ok()).collect()
}

fn route(route: &hw::Route) -> Option<StaticRoute> {
    let destination = route.destination.parse().ok()?;
    Some(StaticRoute { destination, gateway: route.gateway.parse().ok()? })
}

/// Returns the relay port that `interface` is plugged into, by its record.
pub(super) fn relay_port(interface: &hw::Interface) -> Option<RelayPort> {
    let record = interface.relay_port.as_ref()?;
    let circuit_id = parse_hex(&record.circuit_id).filter(|circuit| !circuit.is_empty())?;
    let link = Some(record.link_address.as_str()).filter(|link| !link.is_empty());
    let link = link.map(str::parse).transpose().ok()?;
    let remote_id = parse_hex(&record.remote_id)?;
    Some(RelayPort { circuit_id, remote_id, link, pinned: record.pinned })
}

/// Returns the octets that `hex` writes.
pub fn parse_hex(hex: &str) -> Option<Vec<u8>> {
    if !hex.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let (pairs, []) = hex.as_bytes().as_chunks::<2>() else { return None };
    let octet = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    pairs.iter().map(octet).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use super::*;
    use tinwright::HardwareId;

    fn interface() -> hw::Interface {
        let address = hw::Address {
            address: "192.0.2.10".into(),
            prefix_length: 24,
            gateway: "192.0.2.1".into(),
        };
        let dhcp = hw::Dhcp {
            address: Some(address),
            hostname: "from-hardware".into(),
            classless_routes: vec![hw::Route {
                destination: "198.51.100.0/24".into(),
                gateway: "192.0.2.2".into(),
            }],
            mtu: 9000,
            ..hw::Dhcp::default()
        };
        hw::Interface { dhcp: Some(dhcp), ..hw::Interface::default() }
    }

    #[test]
    fn a_record_becomes_a_reservation_and_the_instance_names_the_host() {
        let mac = Mac([2, 0, 0, 0, 0, 1]);
        let bare = reservation(mac, &interface(), None);
        assert_eq!(bare.hostname, "from-hardware");
        assert_eq!(bare.address, Some(Ipv4Net::new_assert([192, 0, 2, 10].into(), 24)));
        assert_eq!((bare.gateway, bare.mtu), (Some([192, 0, 2, 1].into()), Some(9000)));
        assert_eq!(bare.routes[0].gateway, Ipv4Addr::new(192, 0, 2, 2));
        let instance = occ::Instance { hostname: "web-1".into(), ..occ::Instance::default() };
        assert_eq!(reservation(mac, &interface(), Some(&instance)).hostname, "web-1");
    }

    #[test]
    fn an_instance_with_a_template_has_an_operating_system_and_a_deleted_one_is_left_out() {
        let instance = |state: i32| occ::Instance {
            state,
            template_id: "t".into(),
            ..occ::Instance::default()
        };
        let state = |state: i32| {
            let machine = FleetMachine {
                id: HardwareId::new(),
                hardware: Arc::default(),
                instance: Some(Arc::new(instance(state))),
                workflows: Vec::new(),
                contested: Vec::new(),
            };
            machine_facts(&machine, &interface()).instance
        };
        assert!(state(occ::State::Provisioning.into()).unwrap().has_os);
        assert_eq!(state(1000).unwrap().state, InstanceState::Unspecified);
        assert_eq!(state(occ::State::Deleted.into()), None);
    }

    #[test]
    fn an_invalid_port_is_left_out() {
        let port = |circuit: &str, remote: &str, link: &str| {
            let port = hw::RelayPort {
                circuit_id: circuit.into(),
                remote_id: remote.into(),
                link_address: link.into(),
                pinned: true,
            };
            relay_port(&hw::Interface { relay_port: Some(port), ..hw::Interface::default() })
        };
        let whole = port("0aFf", "6c", "192.0.2.254").unwrap();
        assert_eq!((whole.circuit_id, whole.remote_id), (vec![10, 255], b"l".to_vec()));
        assert_eq!((whole.link, whole.pinned), (Some([192, 0, 2, 254].into()), true));
        assert!(port("31", "", "").is_some());
        for (circuit, remote, link) in [
            ("", "", ""),
            ("3", "", ""),
            ("zz", "", ""),
            ("+1", "", ""),
            ("31", "3", ""),
            ("31", "", "x"),
        ] {
            assert_eq!(port(circuit, remote, link), None, "{circuit} {remote} {link}");
        }
    }
}
