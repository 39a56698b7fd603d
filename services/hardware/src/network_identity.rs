//! The name, the MACs and the addresses of a machine: a change of them cuts off the system that runs on it.

use std::collections::BTreeMap;

use tinwright::hardware::v1 as pb;

/// Returns what `new` takes away from or changes in the network identity of `old`, one text for each; empty if it stays. Further
/// interfaces change nothing.
pub(crate) fn changes(old: &pb::Hardware, new: &pb::Hardware) -> Vec<String> {
    let mut changed = Vec::new();
    if !old.name.is_empty() && old.name != new.name {
        changed.push(format!("name {}", old.name));
    }
    let (before, after) = (interfaces(old), interfaces(new));
    for (mac, address) in before {
        match after.get(mac) {
            None => changed.push(format!("MAC {mac}")),
            Some(other) if *other != address => changed.push(format!("address of {mac}")),
            Some(_) => {}
        }
    }
    changed
}

/// Returns the reserved address of each MAC; empty without one.
fn interfaces(machine: &pb::Hardware) -> BTreeMap<&str, &str> {
    let interfaces = machine.interfaces.iter();
    interfaces.map(|it| (it.mac.as_str(), address(it).unwrap_or_default())).collect()
}

fn address(interface: &pb::Interface) -> Option<&str> {
    Some(&interface.dhcp.as_ref()?.address.as_ref()?.address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(name: &str, interfaces: &[(&str, &str)]) -> pb::Hardware {
        let interface = |(mac, address): &(&str, &str)| {
            let own = pb::Address { address: (*address).into(), ..Default::default() };
            let dhcp = pb::Dhcp { address: Some(own), ..pb::Dhcp::default() };
            pb::Interface { mac: (*mac).into(), dhcp: Some(dhcp), ..Default::default() }
        };
        let interfaces = interfaces.iter().map(interface).collect();
        pb::Hardware { name: name.into(), interfaces, ..pb::Hardware::default() }
    }

    #[test]
    fn another_name_mac_or_address_is_a_change_and_a_further_interface_is_none() {
        let old = machine("node-1", &[("02:00:00:00:00:01", "192.0.2.1")]);
        let both = [("02:00:00:00:00:01", "192.0.2.1"), ("02:00:00:00:00:02", "")];
        for (new, expected) in [
            (machine("node-1", &both), vec![]),
            (machine("node-2", &both), vec!["name node-1"]),
            (machine("", &both), vec!["name node-1"]),
            (machine("node-1", &both[1..]), vec!["MAC 02:00:00:00:00:01"]),
            (
                machine("node-1", &[("02:00:00:00:00:01", "192.0.2.2")]),
                vec!["address of 02:00:00:00:00:01"],
            ),
        ] {
            assert_eq!(changes(&old, &new), expected);
        }
        assert!(changes(&machine("", &[]), &machine("node-1", &both)).is_empty(), "a first name");
    }
}
