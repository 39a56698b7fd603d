//! The machine's links as network configuration, version 2 (netplan's).
//!
//! The key of a link is its name in the system, because cloud-init's other renderers refer to the members of a bond by key.

use serde_json::{Value, json};

use crate::machine::{Kind, Machine, NetworkLink};

/// Returns the network configuration of the machine.
pub(super) fn config(machine: &Machine) -> Value {
    let mut config = json!({ "version": 2 });
    for link in machine.links() {
        let (section, value) = match &link.kind {
            Kind::Interface => {
                let mac = json!({ "macaddress": link.mac.to_string() });
                ("ethernets", json!({ "match": mac, "set-name": link.name }))
            }
            Kind::Bond { mode, members } => {
                let (mac, parameters) = (link.mac.to_string(), parameters(mode));
                let bond =
                    json!({ "interfaces": members, "macaddress": mac, "parameters": parameters });
                ("bonds", bond)
            }
            Kind::Vlan { id, over } => ("vlans", json!({ "id": id, "link": over })),
        };
        config[section][&link.name] = with_addresses(value, &link);
    }
    config
}

/// Returns bond parameters: links are checked ten times a second, as in OpenStack; LACP hashes by address and port.
fn parameters(mode: &str) -> Value {
    let mut parameters = json!({ "mode": mode, "mii-monitor-interval": 100 });
    if mode == "802.3ad" {
        parameters["transmit-hash-policy"] = "layer3+4".into();
    }
    parameters
}

fn with_addresses(mut config: Value, link: &NetworkLink) -> Value {
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
    if !link.routes.is_empty() {
        // A default route is written as 0.0.0.0/0: cloud-init's renderer for Debian 12 takes `default` for an address.
        let routes = link.routes.iter();
        config["routes"] =
            routes.map(|r| json!({ "to": r.network.to_string(), "via": r.gateway })).collect();
    }
    // DHCP gives the name servers of a link without other addresses.
    let dhcp_only = link.dhcp && link.addresses.is_empty();
    if !link.name_servers.is_empty() && !dhcp_only {
        config["nameservers"] = json!({ "addresses": link.name_servers });
        if !link.domain.is_empty() {
            config["nameservers"]["search"] = json!([link.domain]);
        }
    }
    config
}
