//! What the contract's records say, as machines of ours. Values in, values out.

use std::time::SystemTime;

use tinwright::hardware::v1 as hw;
use tinwright::instance::v1 as occ;
use tinwright::instance::v1::instance::ip::Flag;

use crate::machine::{Address, Instance, Machine, Nic, OperatingSystem, TokenPolicy, UserData};

/// The machine that `hardware` is, with what occupies it. Nothing where the record's id is none, and nothing for a free
/// machine: whoever asks from its address is not to be told who was there, or who comes.
pub fn machine(hardware: &hw::Hardware, occupant: Option<&occ::Instance>) -> Option<Machine> {
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
    let nics = hardware.interfaces.iter().enumerate();
    Some(Machine {
        id: hardware.id.parse().ok()?,
        created: time(hardware.create_time),
        architecture: hardware.architecture.clone(),
        facility: hardware.facility.clone(),
        plan: hardware.plan.clone(),
        nics: nics.filter_map(|(n, interface)| nic(interface, n == 0)).collect(),
        disks: hardware.disks.iter().map(|disk| disk.device.clone()).collect(),
        instance: occupant.filter(|occupant| is_told(&occupant.state)).map(instance),
        tokens,
    })
}

/// Whether a machine in this state belongs to nobody while no instance occupies it. One that somebody still looks after
/// (enrolled, failed, in maintenance) goes by its hardware id instead.
fn is_free(state: hw::State) -> bool {
    match state {
        hw::State::Provisionable | hw::State::Deleting => true,
        hw::State::Unspecified
        | hw::State::Enrolled
        | hw::State::Failed
        | hw::State::Maintenance => false,
    }
}

/// Whether an instance's data is still its machine's to know: not from the moment it is being given back.
fn is_told(state: &str) -> bool {
    !matches!(state, "deprovisioning" | "deprovision_failed" | "deleted")
}

fn time(stamp: Option<prost_types::Timestamp>) -> SystemTime {
    stamp.and_then(|stamp| stamp.try_into().ok()).unwrap_or(SystemTime::UNIX_EPOCH)
}

fn nic(interface: &hw::Interface, primary: bool) -> Option<Nic> {
    let dhcp = interface.dhcp.clone().unwrap_or_default();
    let own = dhcp.address.as_ref().and_then(|own| {
        Some(Address {
            ip: own.address.parse().ok()?,
            prefix_length: own.prefix_length.try_into().ok()?,
            public: false,
        })
    });
    Some(Nic {
        mac: interface.mac.parse().ok()?,
        addresses: own.into_iter().collect(),
        hostname: dhcp.hostname,
        domain: dhcp.domain_name,
        primary,
    })
}

fn instance(record: &occ::Instance) -> Instance {
    Instance {
        id: record.id.clone(),
        created: time(record.create_time),
        hostname: record.hostname.clone(),
        tenant: String::new(),
        os: os(record),
        addresses: record.ips.iter().filter_map(address).collect(),
        user_data: UserData(record.userdata.clone().into()),
        tags: record.tags.clone(),
        ssh_keys: record.ssh_keys.clone(),
        extra: serde_json::from_slice(&record.extra).unwrap_or_default(),
    }
}

fn os(record: &occ::Instance) -> OperatingSystem {
    match &record.os {
        Some(occ::instance::Os::OperatingSystem(os)) => OperatingSystem {
            slug: String::new(),
            distro: os.distro.clone(),
            version: os.version.clone(),
            image_tag: os.tag.clone(),
        },
        Some(occ::instance::Os::CustomIpxe(_)) | None => OperatingSystem::default(),
    }
}

fn address(ip: &occ::instance::Ip) -> Option<Address> {
    let address: std::net::IpAddr = ip.address.parse().ok()?;
    let alone = if address.is_ipv4() { 32 } else { 128 };
    Some(Address {
        ip: address,
        prefix_length: ip.cidr.try_into().ok().filter(|bits| *bits != 0).unwrap_or(alone),
        public: ip.flags().any(|flag| flag == Flag::Public),
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

    fn occupant(state: &str) -> occ::Instance {
        let ip = occ::instance::Ip {
            address: "192.0.2.7".into(),
            flags: vec![Flag::Public.into()],
            ..Default::default()
        };
        occ::Instance {
            id: "i-1".into(),
            state: state.into(),
            userdata: "#cloud-config".into(),
            ips: vec![ip],
            ..Default::default()
        }
    }

    #[test]
    fn a_record_and_what_occupies_it_become_a_machine() {
        let machine = machine(&hardware(), Some(&occupant("active"))).unwrap();
        assert_eq!((machine.facility.as_str(), machine.nics[0].primary), ("lab1", true));
        let instance = machine.instance.unwrap();
        assert_eq!(instance.user_data.0.as_ref(), b"#cloud-config");
        assert_eq!((instance.addresses[0].prefix_length, instance.addresses[0].public), (32, true));
    }

    #[test]
    fn what_is_being_given_back_is_not_told_any_more() {
        for state in ["deprovisioning", "deprovision_failed", "deleted"] {
            let freed_soon = in_state(hw::State::Provisionable);
            assert!(machine(&freed_soon, Some(&occupant(state))).unwrap().instance.is_none());
        }
    }

    #[test]
    fn a_free_machine_is_nobody() {
        for state in [hw::State::Provisionable, hw::State::Deleting] {
            assert!(machine(&in_state(state), None).is_none(), "{state:?}");
            assert!(machine(&in_state(state), Some(&occupant("queued"))).is_some(), "{state:?}");
        }
    }

    #[test]
    fn a_machine_somebody_looks_after_goes_by_its_own_id() {
        for state in [hw::State::Enrolled, hw::State::Failed, hw::State::Maintenance] {
            let hardware = in_state(state);
            assert_eq!(machine(&hardware, None).unwrap().instance_id(), hardware.id, "{state:?}");
        }
    }
}
