//! The machine's links as network configuration, version 2 (netplan's).
//!
//! A link's key is the name it is to have, since cloud-init's other renderers take a bond's members by their keys.

use serde_json::{Map, Value, json};

use crate::machine::{Kind, Link, Machine};

/// How the machine's network is to be set up.
pub(super) fn config(machine: &Machine) -> Value {
    let (mut ethernets, mut bonds, mut vlans) = (Map::new(), Map::new(), Map::new());
    for link in machine.links() {
        let (of_its_kind, section) = match &link.kind {
            Kind::Interface => {
                let mac = json!({ "macaddress": link.mac.to_string() });
                (json!({ "match": mac, "set-name": link.name }), &mut ethernets)
            }
            Kind::Bond { mode, members } => {
                let mac = link.mac.to_string();
                let how = parameters(mode);
                (json!({ "interfaces": members, "macaddress": mac, "parameters": how }), &mut bonds)
            }
            Kind::Vlan { id, over } => (json!({ "id": id, "link": over }), &mut vlans),
        };
        section.insert(link.name.clone(), with_addresses(of_its_kind, &link));
    }
    let mut config = Map::from_iter([("version".to_owned(), json!(2))]);
    for (name, section) in [("ethernets", ethernets), ("bonds", bonds), ("vlans", vlans)] {
        if !section.is_empty() {
            config.insert(name.to_owned(), section.into());
        }
    }
    config.into()
}

/// Links are looked at ten times a second, as OpenStack does; LACP spreads by address and port.
fn parameters(mode: &str) -> Value {
    match mode {
        "802.3ad" => json!({
            "mode": mode, "mii-monitor-interval": 100, "transmit-hash-policy": "layer3+4",
        }),
        _ => json!({ "mode": mode, "mii-monitor-interval": 100 }),
    }
}

fn with_addresses(mut config: Value, link: &Link) -> Value {
    if let Some(mtu) = link.mtu {
        config["mtu"] = mtu.into();
    }
    if link.dhcp {
        config["dhcp4"] = true.into();
    }
    if link.optional {
        config["optional"] = true.into();
    }
    if !link.addresses.is_empty() {
        let addresses = link.addresses.iter().map(|a| format!("{}/{}", a.ip, a.prefix_length));
        config["addresses"] = addresses.collect();
    }
    let out = link.gateways().into_iter().map(|via| {
        // Not `default`: what cloud-init writes for Debian 12 takes it for an address.
        let everywhere = if via.is_ipv4() { "0.0.0.0/0" } else { "::/0" };
        json!({ "to": everywhere, "via": via })
    });
    let routes =
        link.routes.iter().map(|r| json!({ "to": r.network.to_string(), "via": r.gateway }));
    let routes: Vec<_> = out.chain(routes).collect();
    if !routes.is_empty() {
        config["routes"] = routes.into();
    }
    // A link that asks for its only address asks for these, too.
    let asks_for_all = link.dhcp && link.addresses.is_empty();
    if !link.name_servers.is_empty() && !asks_for_all {
        config["nameservers"] = json!({ "addresses": link.name_servers });
        if !link.domain.is_empty() {
            config["nameservers"]["search"] = json!([link.domain]);
        }
    }
    config
}
