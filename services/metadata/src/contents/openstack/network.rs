//! The machine's links as OpenStack's `network_data.json`.

use std::net::IpAddr;

use serde_json::{Value, json};

use crate::machine::{Address, Kind, Link, Machine};

/// How the machine's network is to be set up.
pub(super) fn data(machine: &Machine) -> Value {
    let links = machine.links();
    let mut networks = Vec::new();
    for link in &links {
        for address in &link.addresses {
            let id = format!("network{}", networks.len());
            networks.push(network(&id, link, address));
        }
        if link.dhcp {
            let id = format!("network{}", networks.len());
            let wanted = json!({
                "id": id, "network_id": id, "link": link.name, "type": "ipv4_dhcp",
            });
            networks.push(wanted);
        }
    }
    let servers = links.iter().flat_map(|link| &link.name_servers);
    let services: Vec<_> =
        servers.map(|server| json!({ "type": "dns", "address": server })).collect();
    let links: Vec<_> = links.iter().map(as_link).collect();
    json!({ "links": links, "networks": networks, "services": services })
}

fn as_link(link: &Link) -> Value {
    let (name, mac) = (&link.name, link.mac.to_string());
    let mut value = match &link.kind {
        Kind::Interface => json!({ "id": name, "type": "phy", "ethernet_mac_address": mac }),
        Kind::Bond { mode, members } => json!({
            "id": name,
            "type": "bond",
            "ethernet_mac_address": mac,
            "bond_links": members,
            "bond_mode": mode,
            "bond_miimon": 100,
            "bond_xmit_hash_policy": "layer3+4",
        }),
        Kind::Vlan { id, over } => json!({
            "id": name,
            "type": "vlan",
            "vlan_link": over,
            "vlan_id": id,
            "vlan_mac_address": mac,
        }),
    };
    value["vif_id"] = name.as_str().into();
    if let Some(mtu) = link.mtu {
        value["mtu"] = mtu.into();
    }
    value
}

fn network(id: &str, link: &Link, address: &Address) -> Value {
    let (kind, first) = match address.ip {
        IpAddr::V4(_) => ("ipv4", link.addresses.iter().find(|other| other.ip.is_ipv4())),
        IpAddr::V6(_) => ("ipv6", link.addresses.iter().find(|other| other.ip.is_ipv6())),
    };
    let mut value = json!({
        "id": id,
        "network_id": id,
        "link": link.name,
        "type": kind,
        "ip_address": address.ip,
        "netmask": address.network().netmask(),
    });
    // Routes are the link's: they are said once, beside its first address of the family.
    if first == Some(address) {
        value["routes"] = routes(link, address.ip.is_ipv4()).into();
    }
    value
}

fn routes(link: &Link, v4: bool) -> Vec<Value> {
    let of_family = |gateway: &IpAddr| gateway.is_ipv4() == v4;
    let everywhere = if v4 { "0.0.0.0" } else { "::" };
    let out =
        link.gateways().into_iter().filter(of_family).map(
            |gateway| json!({ "network": everywhere, "netmask": everywhere, "gateway": gateway }),
        );
    let others = link.routes.iter().filter(|route| of_family(&route.gateway)).map(|route| {
        json!({
            "network": route.network.addr(),
            "netmask": route.network.netmask(),
            "gateway": route.gateway,
        })
    });
    out.chain(others).collect()
}
