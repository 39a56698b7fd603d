//! The identity that a BMC lists of its machine: it may be that of another machine than the record's.
//!
//! | the BMC lists | it is the BMC of another machine |
//! |---|---|
//! | the UUID or a MAC that another record has | yes |
//! | another UUID than the record has, and none of its MACs | yes |
//! | anything else, or a vendor's placeholder | no: what is not known decides nothing |

use std::collections::BTreeSet;

use tinwright::hardware::v1 as pb;
use tinwright::{HardwareId, Mac, machine_uuid};

/// What a BMC lists of its machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListedIdentity {
    uuid: Option<HardwareId>,
    macs: BTreeSet<String>,
}

impl ListedIdentity {
    /// Reads a UUID and MACs. Texts that name no machine are left out.
    pub(crate) fn new(uuid: &str, macs: &[String]) -> Self {
        let macs = macs.iter().filter_map(|mac| mac.parse::<Mac>().ok());
        let macs = macs.filter(Mac::is_unicast).map(|mac| mac.to_string());
        Self { uuid: machine_uuid::parse(uuid).ok(), macs: macs.collect() }
    }

    /// Returns what `other`, the record of another machine, has of the identity; none for nothing.
    pub(crate) fn common_with(&self, other: &pb::Hardware) -> Option<String> {
        if let (Some(listed), Some(own)) = (self.uuid, uuid(other))
            && machine_uuid::is_same(listed, own)
        {
            return Some(format!("the BMC lists UUID {listed}, which is that of {}", name(other)));
        }
        let mut macs = other.interfaces.iter().map(|interface| &interface.mac);
        let mac = macs.find(|mac| self.macs.contains(*mac))?;
        Some(format!("the BMC lists MAC {mac}, which is that of {}", name(other)))
    }

    /// Returns why the machine of the record `own` is another one; none if that is not known.
    pub(crate) fn difference_from(&self, own: &pb::Hardware) -> Option<String> {
        let (listed, recorded) = (self.uuid?, uuid(own)?);
        let has_same_uuid = uuids(own).any(|own| machine_uuid::is_same(listed, own));
        if has_same_uuid || macs(own).any(|mac| self.macs.contains(mac)) {
            return None;
        }
        let name = name(own);
        Some(format!(
            "the BMC lists UUID {listed}, but that of {name} is {recorded}, and no MAC of {name}"
        ))
    }
}

/// Returns the UUID of `machine`: that of its own report, or else that of its BMC's.
fn uuid(machine: &pb::Hardware) -> Option<HardwareId> {
    uuids(machine).next()
}

fn uuids(machine: &pb::Hardware) -> impl Iterator<Item = HardwareId> {
    let own = machine.inventory.as_ref().map(|own| &own.uuid);
    let of_bmc = machine.bmc_inventory.as_ref().map(|listed| &listed.uuid);
    own.into_iter().chain(of_bmc).filter_map(|uuid| machine_uuid::parse(uuid).ok())
}

/// Returns the MACs of `machine`: those of its record, and of its own report.
fn macs(machine: &pb::Hardware) -> impl Iterator<Item = &String> {
    let recorded = machine.interfaces.iter().map(|interface| &interface.mac);
    let reported = machine.inventory.iter().flat_map(|own| &own.interfaces);
    recorded.chain(reported.map(|interface| &interface.mac))
}

fn name(machine: &pb::Hardware) -> &str {
    if machine.name.is_empty() { &machine.id } else { &machine.name }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "4c4c4544-0042-3010-8052-b4c04f4d3232";
    const SWAPPED: &str = "44454c4c-4200-1030-8052-b4c04f4d3232";
    const OTHER_UUID: &str = "5c4c4544-0042-3010-8052-b4c04f4d3232";
    const MAC: &str = "02:00:00:00:00:01";

    fn machine(uuid: &str, mac: &str) -> pb::Hardware {
        pb::Hardware {
            name: "node-1".into(),
            interfaces: vec![pb::Interface { mac: mac.into(), ..Default::default() }],
            inventory: Some(Box::new(pb::Inventory { uuid: uuid.into(), ..Default::default() })),
            ..pb::Hardware::default()
        }
    }

    fn listed(uuid: &str, mac: &str) -> ListedIdentity {
        ListedIdentity::new(uuid, &[mac.to_owned()])
    }

    #[test]
    fn a_uuid_in_either_order_and_a_mac_of_another_record_are_found() {
        let other = machine(UUID, MAC);
        for (uuid, mac, found) in [
            (UUID, "", "UUID"),
            (SWAPPED, "", "UUID"),
            ("", "02-00-00-00-00-01", "MAC"),
            (OTHER_UUID, MAC, "MAC"),
        ] {
            let text = listed(uuid, mac).common_with(&other).unwrap();
            assert!(text.contains(found) && text.ends_with("that of node-1"), "{text}");
        }
        assert_eq!(listed(OTHER_UUID, "02:00:00:00:00:02").common_with(&other), None);
    }

    #[test]
    fn another_uuid_without_a_common_mac_is_that_of_another_machine() {
        let own = machine(UUID, MAC);
        assert!(listed(OTHER_UUID, "").difference_from(&own).is_some());
        assert!(listed(OTHER_UUID, "02:00:00:00:00:02").difference_from(&own).is_some());
        for same in [listed(UUID, ""), listed(SWAPPED, ""), listed(OTHER_UUID, MAC)] {
            assert_eq!(same.difference_from(&own), None);
        }
    }

    #[test]
    fn what_is_not_known_decides_nothing() {
        let placeholder = "00000000-0000-0000-0000-000000000000";
        for unknown in ["", "x", placeholder, machine_uuid::PLACEHOLDERS[0]] {
            assert_eq!(listed(unknown, "").difference_from(&machine(UUID, MAC)), None);
            assert_eq!(listed(OTHER_UUID, "").difference_from(&machine(unknown, MAC)), None);
            assert_eq!(listed(unknown, "").common_with(&machine(unknown, "")), None);
        }
    }

    #[test]
    fn a_uuid_that_the_bmc_listed_before_is_the_machines() {
        let mut own = machine(UUID, MAC);
        let before = pb::BmcInventory { uuid: OTHER_UUID.into(), ..Default::default() };
        own.bmc_inventory = Some(Box::new(before));
        assert_eq!(listed(OTHER_UUID, "").difference_from(&own), None);
    }
}
