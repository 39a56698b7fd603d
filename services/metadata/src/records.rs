//! Converts the contract's records into a machine.

use std::sync::Arc;
use std::time::SystemTime;

use fleet::machine::{attached_addresses, is_occupying};
use runtime::secret::Secret;
use tinwright::hardware::v1 as hw;
use tinwright::instance::v1 as occ;
use tinwright::instance::v1::instance::AttachedAddress;
use tinwright::instance::v1::instance::ip::Flag;

use crate::guard::Guard;
use crate::machine::{
    Address, Bond, Instance, Machine, Nic, OperatingSystem, Route, TokenPolicy, UserData,
};

/// Returns the machine of `hardware` and the instance that occupies it. None for an invalid id, and for a free machine: a client
/// at its address must learn nothing about its last or its next instance. A machine that is being deprovisioned counts as one
/// without an instance: until it is switched off, the client is the former tenant's system.
pub fn machine(hardware: &hw::Hardware, occupant: Option<&Arc<occ::Instance>>) -> Option<Machine> {
    let occupant = occupant.filter(|occupant| is_occupying(occupant.state()));
    if occupant.is_none() && is_free(hardware.state()) {
        return None;
    }
    let tokens = hardware.policy.as_ref().map_or(TokenPolicy::Optional, |policy| {
        match policy.metadata_tokens() {
            hw::policy::MetadataTokens::Required => TokenPolicy::Required,
            hw::policy::MetadataTokens::Disabled => TokenPolicy::Disabled,
            hw::policy::MetadataTokens::Unspecified | hw::policy::MetadataTokens::Optional => {
                TokenPolicy::Optional
            }
        }
    });
    let bond = |bond: &hw::Bond| Bond { name: bond.name.clone(), mode: bond.mode.clone() };
    let nics = hardware.interfaces.iter().enumerate();
    Some(Machine {
        id: hardware.id.parse().ok()?,
        created: time(hardware.create_time),
        architecture: hardware.architecture.clone(),
        facility: hardware.facility.clone(),
        plan: hardware.plan.clone(),
        manufacturer: hardware.manufacturer.clone(),
        nics: nics.filter_map(|(n, interface)| nic(interface, n == 0, occupant)).collect(),
        bonds: hardware.bonds.iter().map(bond).collect(),
        disks: hardware.disks.iter().map(|disk| disk.device.clone()).collect(),
        instance: occupant.map(instance),
        tokens,
        guard: Guard::of(hardware.policy.as_ref(), occupant.map(Arc::as_ref)),
        raw_keys: hardware.policy.as_ref().is_some_and(|policy| policy.raw_public_keys),
        extra: serde_json::from_slice(&hardware.extra).unwrap_or_default(),
    })
}

/// True if a machine in this state is free while no instance occupies it. A machine that an operator works on (enrolled, failed,
/// in maintenance) has its hardware id instead.
fn is_free(state: hw::State) -> bool {
    match state {
        hw::State::Provisionable | hw::State::Deleting => true,
        hw::State::Unspecified
        | hw::State::Enrolled
        | hw::State::Failed
        | hw::State::Maintenance => false,
    }
}

fn time(stamp: Option<prost_types::Timestamp>) -> SystemTime {
    stamp.and_then(|stamp| stamp.try_into().ok()).unwrap_or(SystemTime::UNIX_EPOCH)
}

fn nic(
    interface: &hw::Interface,
    primary: bool,
    occupant: Option<&Arc<occ::Instance>>,
) -> Option<Nic> {
    let dhcp = interface.dhcp.clone().unwrap_or_default();
    let mac = interface.mac.parse().ok()?;
    let granted = attached_addresses(occupant.map(Arc::as_ref), mac);
    let (given, attached): (Vec<_>, Vec<_>) = granted.partition(|granted| granted.primary);
    let given = given.into_iter().find_map(granted_address);
    let reserved = dhcp.address.as_ref().and_then(|own| {
        Some(Address {
            ip: own.address.parse().ok()?,
            prefix_length: own.prefix_length.try_into().ok()?,
            public: false,
            management: false,
            gateway: own.gateway.parse().ok(),
        })
    });
    // DHCP gives the granted address in place of the reserved one, and is for IPv4 only.
    let reserved = reserved.filter(|own: &Address| given.is_none() || own.ip.is_ipv6());
    Some(Nic {
        mac,
        name: interface.name.clone(),
        bond: interface.bond.clone(),
        vlan: dhcp.vlan_id.try_into().ok().filter(|id| *id != 0),
        mtu: Some(dhcp.mtu).filter(|mtu| *mtu != 0),
        name_servers: dhcp.name_servers.iter().filter_map(|server| server.parse().ok()).collect(),
        routes: dhcp.classless_routes.iter().filter_map(route).collect(),
        addresses: given.into_iter().chain(reserved).collect(),
        attached: attached.into_iter().filter_map(additional_address).collect(),
        leased: None,
        hostname: dhcp.hostname,
        domain: dhcp.domain_name,
        primary,
    })
}

fn granted_address(granted: &AttachedAddress) -> Option<Address> {
    Some(Address {
        ip: granted.address.parse().ok()?,
        prefix_length: granted.prefix_length.try_into().ok()?,
        public: false,
        management: false,
        gateway: granted.gateway.parse().ok(),
    })
}

/// Returns an address that an interface has beside the one that DHCP gives. DHCP also gives the default route of IPv4, and a link has
/// one; there is no DHCP for IPv6.
fn additional_address(granted: &AttachedAddress) -> Option<Address> {
    let address = granted_address(granted)?;
    let gateway = address.gateway.filter(|_| address.ip.is_ipv6());
    Some(Address { gateway, ..address })
}

fn route(route: &hw::Route) -> Option<Route> {
    Some(Route { network: route.destination.parse().ok()?, gateway: route.gateway.parse().ok()? })
}

fn instance(record: &Arc<occ::Instance>) -> Instance {
    Instance {
        id: record.id.clone(),
        created: time(record.create_time),
        state: record.state(),
        hostname: record.hostname.clone(),
        tenant: String::new(),
        os: os(record),
        addresses: record.ips.iter().filter_map(address).collect(),
        user_data: UserData::of(record, user_data),
        vendor_data: UserData::of(record, |record| record.vendor_data.as_bytes()),
        network_config: UserData::of(record, |record| record.network_config.as_bytes()),
        lookup_id: Secret::new(record.lookup_id.clone()),
        crypted_root_password: Secret::new(record.crypted_root_password.clone()),
        tags: record.tags.clone(),
        ssh_keys: record.ssh_keys.clone(),
        extra: serde_json::from_slice(&record.extra).unwrap_or_default(),
    }
}

/// Returns the user data of `record`, which are either text or other bytes.
fn user_data(record: &occ::Instance) -> &[u8] {
    match record.userdata_bytes.as_slice() {
        [] => record.userdata.as_bytes(),
        bytes => bytes,
    }
}

fn os(record: &occ::Instance) -> OperatingSystem {
    match &record.os {
        Some(occ::instance::Os::OperatingSystem(os)) => OperatingSystem {
            slug: slug(os),
            distro: os.distro.clone(),
            version: os.version.clone(),
            image_tag: os.tag.clone(),
        },
        Some(
            occ::instance::Os::CustomIpxe(_)
            | occ::instance::Os::Platform(_)
            | occ::instance::Os::ImageStack(_),
        )
        | None => OperatingSystem::default(),
    }
}

/// Returns distribution and version in one word, as image vendors do: `ubuntu_24_04`.
fn slug(os: &occ::instance::OperatingSystem) -> String {
    match (os.distro.as_str(), os.version.as_str()) {
        ("", _) | (_, "") => String::new(),
        (distro, version) => format!("{distro}_{}", version.replace('.', "_")),
    }
}

fn address(ip: &occ::instance::Ip) -> Option<Address> {
    let address: std::net::IpAddr = ip.address.parse().ok()?;
    let alone = if address.is_ipv4() { 32 } else { 128 };
    Some(Address {
        ip: address,
        prefix_length: ip.prefix_length.try_into().ok().filter(|bits| *bits != 0).unwrap_or(alone),
        public: ip.flags().any(|flag| flag == Flag::Public),
        management: ip.flags().any(|flag| flag == Flag::Management),
        gateway: ip.gateway.parse().ok(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hardware() -> hw::Hardware {
        let address = hw::Address {
            address: "198.51.100.50".into(),
            prefix_length: 24,
            gateway: String::new(),
        };
        let dhcp = hw::Dhcp { address: Some(address), hostname: "h".into(), ..Default::default() };
        let interface = hw::Interface {
            mac: "52:54:00:00:00:01".into(),
            dhcp: Some(dhcp),
            ..Default::default()
        };
        hw::Hardware {
            id: tinwright::HardwareId::new().to_string(),
            facility: "lab1".into(),
            interfaces: vec![interface],
            ..Default::default()
        }
    }

    fn in_state(state: hw::State) -> hw::Hardware {
        hw::Hardware { state: state.into(), ..hardware() }
    }

    fn occupant(state: occ::State) -> Arc<occ::Instance> {
        let ip = occ::instance::Ip {
            address: "192.0.2.7".into(),
            flags: vec![Flag::Public.into()],
            ..Default::default()
        };
        Arc::new(occ::Instance {
            id: "i-1".into(),
            state: state.into(),
            userdata: "#cloud-config".into(),
            ips: vec![ip],
            ..Default::default()
        })
    }

    #[test]
    fn hardware_and_its_instance_become_a_machine() {
        let machine = machine(&hardware(), Some(&occupant(occ::State::Active))).unwrap();
        assert_eq!((machine.facility.as_str(), machine.nics[0].primary), ("lab1", true));
        let instance = machine.instance.unwrap();
        assert_eq!(instance.user_data.0.as_ref(), b"#cloud-config");
        assert_eq!((instance.addresses[0].prefix_length, instance.addresses[0].public), (32, true));
    }

    #[test]
    fn user_data_that_is_not_text_is_the_machines_user_data() {
        let gzip = [0x1f, 0x8b, 8, 0, 0xff];
        let text = occupant(occ::State::Active);
        let bytes = occ::Instance {
            userdata: String::new(),
            userdata_bytes: gzip.into(),
            ..(*text).clone()
        };
        let machine = machine(&hardware(), Some(&Arc::new(bytes))).unwrap();
        assert_eq!(machine.user_data().unwrap().0.as_ref(), gzip);
    }

    fn attached(address: &str, bits: u32, gateway: &str, primary: bool) -> AttachedAddress {
        AttachedAddress {
            address: address.into(),
            prefix_length: bits,
            gateway: gateway.into(),
            mac: "52:54:00:00:00:01".into(),
            primary,
            ..Default::default()
        }
    }

    /// Returns the machine, whose reserved address is 198.51.100.50, with these granted ones.
    fn with(hardware: &hw::Hardware, addresses: Vec<AttachedAddress>) -> Machine {
        let occupant = occ::Instance { ips: vec![], ..(*occupant(occ::State::Active)).clone() };
        machine(hardware, Some(&Arc::new(occ::Instance { addresses, ..occupant }))).unwrap()
    }

    #[test]
    fn attached_addresses_are_beside_the_reserved_one_and_a_primary_one_takes_its_place() {
        let second = attached("198.51.100.71", 24, "198.51.100.1", false);
        let six = attached("2001:db8::7", 64, "2001:db8::1", false);
        let elsewhere = AttachedAddress { mac: "52:54:00:00:00:09".into(), ..second.clone() };
        let primary = attached("198.51.100.70", 24, "198.51.100.1", true);
        for (granted, expected) in [
            (vec![second.clone(), elsewhere], ["198.51.100.50", "198.51.100.71"].as_slice()),
            (
                vec![primary, second, six],
                ["198.51.100.70", "198.51.100.71", "2001:db8::7"].as_slice(),
            ),
        ] {
            let machine = with(&hardware(), granted);
            let all: Vec<_> = machine.addresses().map(|ip| ip.to_string()).collect();
            assert_eq!(all, expected);
            assert_eq!(machine.local_ipv4().unwrap().to_string(), expected[0]);
            let [link] = &machine.links()[..] else { panic!("{machine:?}") };
            assert!(!link.dhcp && link.addresses.len() == expected.len());
        }
    }

    #[test]
    fn an_interface_without_a_reserved_address_gets_its_address_by_dhcp_beside_attached_ones() {
        let mut pooled = hardware();
        pooled.interfaces[0].dhcp = None;
        let second = attached("198.51.100.71", 24, "198.51.100.1", false);
        let machine = with(&pooled, vec![second.clone()]);
        let [link] = &machine.links()[..] else { panic!("{machine:?}") };
        assert!(link.dhcp && link.addresses.len() == 1 && link.routes.is_empty(), "{link:?}");
        let machine = with(&pooled, vec![AttachedAddress { primary: true, ..second }]);
        let [link] = &machine.links()[..] else { panic!("{machine:?}") };
        assert!(!link.dhcp && link.routes.len() == 1, "{link:?}");
    }

    #[test]
    fn a_machine_that_is_being_deprovisioned_is_as_one_without_an_instance() {
        let states =
            [occ::State::Deprovisioning, occ::State::DeprovisionFailed, occ::State::Deleted];
        for occupant in states.map(occupant) {
            let freed_soon = in_state(hw::State::Provisionable);
            assert!(machine(&freed_soon, Some(&occupant)).is_none());
            // An operator works on it.
            let maintained = in_state(hw::State::Maintenance);
            let (with, without) =
                (machine(&maintained, Some(&occupant)), machine(&maintained, None));
            let (with, without) = (with.unwrap(), without.unwrap());
            assert_eq!(
                (with.instance_id().as_ref(), with.instance.is_none()),
                (maintained.id.as_str(), true)
            );
            assert_eq!(
                (with.guard, with.addresses().count()),
                (without.guard, without.addresses().count())
            );
        }
    }

    #[test]
    fn a_free_machine_is_left_out() {
        for state in [hw::State::Provisionable, hw::State::Deleting] {
            assert!(machine(&in_state(state), None).is_none(), "{state:?}");
            assert!(
                machine(&in_state(state), Some(&occupant(occ::State::Queued))).is_some(),
                "{state:?}"
            );
        }
    }

    #[test]
    fn a_machine_that_an_operator_works_on_has_its_hardware_id() {
        for state in [hw::State::Enrolled, hw::State::Failed, hw::State::Maintenance] {
            let hardware = in_state(state);
            assert_eq!(machine(&hardware, None).unwrap().instance_id(), hardware.id, "{state:?}");
        }
    }
}
